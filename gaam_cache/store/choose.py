"""Which arrays are taken as what: as the options say, else as their names do; never by shape.

``train/embeddings``, ``train_embeddings``, ``X_train`` or ``embeddings`` in a file ``train.npz``;
``layer_0``, ``hidden_states/0`` and so on in any of these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gaam_cache.config import NAME_PATTERN
from gaam_cache.errors import ConfigError
from gaam_cache.import_config import ImportConfig, of_splits
from gaam_cache.messages import excerpt, shortened
from gaam_cache.store.arrays import STRINGS, Array

STATES, LABELS, NUM_TOKENS, CLASS_NAMES = "states", "labels", "num_tokens", "class_names"
WORDS = {
    **dict.fromkeys(("embeddings", "embedding", "hidden_states", "states"), STATES),
    **dict.fromkeys(("features", "X"), STATES),
    **dict.fromkeys(("labels", "label", "targets", "target", "y"), LABELS),
    **dict.fromkeys(("class_names", "label_names"), CLASS_NAMES),
    NUM_TOKENS: NUM_TOKENS,
}
"""What an array may be called, and what it then is."""
SPLITS = ("train", "training", "validation", "valid", "val", "dev", "eval", "test", "testing")
"""Words that say of which split an array or file is, in the order in which splits are shown."""
LAYERED = "embeddings|embedding|hidden_states|states|features|layers|layer"
"""What may stand before the number of a layer."""
UNDERSTOOD = (
    "arrays called embeddings, hidden_states, states, features or X (or layer_0, layer_1, ...) and "
    "labels, label, targets or y, in files called train.*, test.*, or with the split in their "
    "name: train/embeddings, train_embeddings, X_train"
)
MOST_SHOWN = 40
"""Arrays that a message lists."""
Numbered = Sequence[tuple[int | None, Array]]
"""Arrays, each with the number of its layer, or None where it is no layer."""


class Taken(NamedTuple):
    """The arrays of one split: states in one, or in one for every layer; labels if known."""

    states: Sequence[Array]
    labels: Array | None
    num_tokens: Array | None
    columns: Mapping[str, Array]


class Offer:
    """All arrays of all files, what their names say, and how they are asked for."""

    def __init__(self, arrays: Sequence[Array], kept: Sequence[str]) -> None:
        """``kept`` are further words, each of which is a role of its own."""
        self._arrays = arrays
        self.said: dict[tuple[str, str], list[tuple[int | None, Array]]] = {}
        """Split and role -> arrays that say to be that."""
        self.class_names: list[Array] = []
        words, splits = "|".join((*WORDS, *kept)), "|".join(SPLITS)
        number = rf"(?:{LAYERED})[/._-]?(?:layer[/._-]?)?(?P<layer>\d{{1,6}})"
        body = rf"(?:(?P<word>{words})|{number})"
        named = rf"(?:(?P<before>{splits})[/._-])?{body}(?:[/._-](?P<after>{splits}))?"
        grouped = rf"(?P<before>{NAME_PATTERN.pattern})/{body}(?P<after>)"  # a group of any name
        for array in arrays:
            found = re.fullmatch(named, array.name, re.ASCII)
            found = found or re.fullmatch(grouped, array.name, re.ASCII)
            if found is None or found["before"] in WORDS:
                continue
            layer, word = found["layer"], found["word"]
            role = WORDS.get(word, word) if word else STATES
            of_file = set(re.split(r"[^A-Za-z0-9]+", array.file.stem)).intersection(SPLITS)
            split = {found["before"], found["after"], *(of_file if len(of_file) == 1 else ())}
            split -= {None, ""}
            if role == CLASS_NAMES:
                self.class_names.append(array)
            elif len(split) == 1:  # else it says none, or two
                of_role = self.said.setdefault((split.pop(), role), [])
                of_role.append((int(layer) if layer else None, array))

    def find(self, asked: str, option: str) -> list[Array]:
        """The array of that name, or those of a pattern, in the order of their numbers."""
        pattern = r"(\d{1,6})".join(map(re.escape, asked.split("*", 1)))
        found: list[tuple[int | None, Array]] = []
        for array in self._arrays:
            file, name = array.file, array.name
            names = (name, f"{file.name}:{name}", f"{file}:{name}")
            if match := next(filter(None, (re.fullmatch(pattern, name) for name in names)), None):
                found.append((int(match[1]) if "*" in asked else None, array))
        if found:
            return self._ordered(found, excerpt(asked))
        form = f"{option} SPLIT=NAME, or SPLIT=FILE:NAME; '*' stands for the number of a layer"
        hint = "name one of these"
        raise self.unclear(f"there is no array {excerpt(asked)}", expected=form, hint=hint)

    def of(self, split: str, role: str) -> list[Array]:
        """Those that say to be that of a split: none, one, or one for each layer."""
        found = self.said.get((split, role), [])
        return self._ordered(found, f"the {role} of '{split}'") if found else []

    def _ordered(self, found: Numbered, what: str) -> list[Array]:
        """The one array, or one for each layer, none missing and none there twice."""
        layers = dict(found)
        numbers = [number for number in layers if number is not None]
        if len(layers) < len(found) or (None in layers and numbers):
            hint = "--array or --labels SPLIT=NAME says which, SPLIT=FILE:NAME of which file"
            raise self.unclear(f"several arrays could be {what}", hint=hint)
        asked = range(min(numbers), max(numbers) + 1) if numbers else (None,)
        if missing := [number for number in asked if number not in layers]:
            hint = "give every layer that is to be taken its own --array SPLIT=NAME"
            raise self.unclear(f"layer {missing[0]} of {what} is missing", hint=hint)
        return [layers[number] for number in asked]

    def unclear(
        self, message: str, *, expected: str = UNDERSTOOD, hint: str | None = None
    ) -> ConfigError:
        """The one refusal of what is not clear: it lists what there is."""
        arrays = self._arrays
        lines = [f"{array.file.name}: {array}" for array in arrays[:MOST_SHOWN]]
        if len(arrays) > MOST_SHOWN:
            lines.append(f"and {len(arrays) - MOST_SHOWN:,} more")
        states = [a.name for a in arrays if "float" in a.dtype and len(a.shape) in (2, 3)]
        labels = [a.name for a in arrays if len(a.shape) == 1 and "float" not in a.dtype]
        one = (states or ["NAME"])[0], (labels or ["NAME"])[0]
        return ConfigError(
            message,
            expected=expected,
            found="\n".join(lines) or "no arrays at all",
            where=", ".join(
                map(shortened, list(dict.fromkeys(str(array.file) for array in arrays))[:4])
            ),
            hint=hint
            or f"say which is which: --array 'train={one[0]}' --labels 'train={one[1]}', and so on",
        )


def choose(
    arrays: Sequence[Array], config: ImportConfig
) -> tuple[dict[str, Taken], tuple[str, ...] | None, list[Array]]:
    """The arrays of every split, names of classes where somebody says them, and what is left."""
    offer, explicit = Offer(arrays, config.keep_columns), of_splits(config, "arrays")
    labels, tokens = of_splits(config, "labels"), of_splits(config, "num_tokens")
    states = {
        split: [array for name in names for array in offer.find(name, "--array")]
        for split, names in explicit.items()
    }
    if not explicit:
        there = [split for split, role in offer.said if role == STATES]
        there.sort(key=lambda split: SPLITS.index(split) if split in SPLITS else len(SPLITS))
        states = {split: offer.of(split, STATES) for split in there}
    if not states:
        raise offer.unclear("it is not clear which arrays are states")
    named = [] if explicit else [*(split for split, _ in offer.said), *labels]
    for split in [*named, *config.unlabelled]:
        if split not in states:
            raise offer.unclear(f"'{split}' has no states")
    splits, used = {}, []

    def one(split: str, role: str, asked: Mapping[str, list[str]], option: str) -> Array | None:
        names = asked.get(split)
        found = offer.find(names[0], option) if names else offer.of(split, role)
        used.extend(found[:1])
        return found[0] if found else None

    for split in states:
        known = None
        if split not in config.unlabelled:
            known = one(split, LABELS, labels, "--labels")
            if known is None:
                raise offer.unclear(
                    f"it is not clear which array has the labels of '{split}'",
                    hint=f"--labels {split}=NAME, or --set unlabelled={split} where nobody knows",
                )
        columns = {}
        for name in config.keep_columns:
            if (column := one(split, name, {}, "")) is None:
                form = f"an array {split}/{name}, {split}_{name}, or {name} in a file {split}.*"
                raise offer.unclear(f"'{split}' has no column '{name}'", expected=form)
            columns[name] = column
        counts = one(split, NUM_TOKENS, tokens, "--num-tokens")
        splits[split] = Taken(states[split], known, counts, columns)
        used += states[split]
    said = {}
    for array in offer.class_names:
        if array.dtype == STRINGS and array.shape:
            said[tuple(array.read(slice(None)))] = array.where
            used.append(array)
    if len(said) > 1 and not config.class_names:
        raise ConfigError(
            "the class names differ",
            expected="the same everywhere, or --set class-name=NAME once for each class",
            found="\n".join(f"{where}: {', '.join(names)}" for names, where in said.items()),
        )
    left = [array for array in arrays if not any(array is one for one in used)]
    return splits, config.class_names or next(iter(said), None), left
