"""Which arrays are taken as what: as the options say, else as their names do; never by shape.

``train/embeddings``, ``train_embeddings``, ``X_train`` or ``embeddings`` in a file ``train.npz``;
``layer_0``, ``hidden_states/0`` and so on in any of these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gaam_cache.config import NAME_PATTERN
from gaam_cache.errors import ConfigError
from gaam_cache.import_config import ImportConfig, of_splits
from gaam_cache.messages import excerpt, shortened
from gaam_cache.store.arrays import STRINGS, Array, File

STATES, LABELS, NUM_TOKENS, CLASS_NAMES = "states", "labels", "num_tokens", "class_names"
WORDS = {
    **dict.fromkeys(("embeddings", "embedding", "hidden_states", "states", "features"), STATES),
    **dict.fromkeys(("X",), STATES),
    **dict.fromkeys(("labels", "label", "targets", "target", "y"), LABELS),
    "num_tokens": NUM_TOKENS,
    "class_names": CLASS_NAMES,
    "label_names": CLASS_NAMES,
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
Layers = dict[int | None, list[Array]]
"""Number, or None of what is no layer -> arrays that say to be it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """The arrays of one split."""

    states: Sequence[Array]
    """One; or one for every layer."""
    labels: Array | None
    """None where nobody knows them."""
    num_tokens: Array | None = None
    columns: Mapping[str, Array] = field(default_factory=dict)
    """Those that the cache keeps."""


class Meaning(NamedTuple):
    """What a name says."""

    role: str
    split: str | None
    """Where the name says it."""
    layer: int | None
    """Where the array is one of several layers."""


def meaning(name: str, kept: tuple[str, ...] = ()) -> Meaning | None:
    """What the name of an array says; None where it says nothing that is understood.

    Args:
        name: of the array.
        kept: further words, each of which is a role of its own.
    """
    words, splits = "|".join((*WORDS, *kept)), "|".join(SPLITS)
    number = rf"(?:{LAYERED})[/._-]?(?:layer[/._-]?)?(?P<layer>\d{{1,6}})"
    body = rf"(?:(?P<word>{words})|{number})"
    named = rf"(?:(?P<before>{splits})[/._-])?{body}(?:[/._-](?P<after>{splits}))?"
    grouped = rf"(?P<before>{NAME_PATTERN.pattern})/{body}(?P<after>)"  # a group of any name
    found = re.fullmatch(named, name, re.ASCII) or re.fullmatch(grouped, name, re.ASCII)
    if found is None or found["before"] in WORDS:
        return None
    before, after = found["before"], found["after"]
    if before and after and before != after:
        return None
    role = WORDS.get(found["word"], found["word"]) if found["word"] else STATES
    return Meaning(role, before or after or None, int(found["layer"]) if found["layer"] else None)


class Offer:
    """All arrays of all files, what their names say, and how they are asked for."""

    def __init__(self, files: Sequence[File], kept: tuple[str, ...] = ()) -> None:
        self.pairs = [(file, array) for file in files for array in file.arrays]
        self._files = files
        self.said: dict[str, dict[str, Layers]] = {}
        """Split -> role -> layer -> arrays."""
        for file, array in self.pairs:
            said = meaning(array.name, kept)
            if said is None or said.role == CLASS_NAMES:
                continue
            stem = {word for word in re.split(r"[^A-Za-z0-9]+", file.path.stem) if word in SPLITS}
            of_file = stem.pop() if len(stem) == 1 else None
            split = said.split or of_file
            if split and not (of_file and split != of_file):  # else it says two things
                roles = self.said.setdefault(split, {}).setdefault(said.role, {})
                roles.setdefault(said.layer, []).append(array)

    def find(self, asked: str, option: str) -> list[Array]:
        """The array of that name, or those of a pattern, in the order of their numbers."""
        pattern = r"(\d{1,6})".join(map(re.escape, asked.split("*", 1)))
        layers: Layers = {}
        for file, array in self.pairs:
            names = (array.name, f"{file.path.name}:{array.name}", f"{file.path}:{array.name}")
            if match := next(filter(None, (re.fullmatch(pattern, name) for name in names)), None):
                layers.setdefault(int(match[1]) if "*" in asked else None, []).append(array)
        if layers:
            return self._ordered(layers, excerpt(asked))
        form = f"{option} SPLIT=NAME, or SPLIT=FILE:NAME; '*' stands for the number of a layer"
        raise self.unclear(
            f"there is no array {excerpt(asked)}", expected=form, hint="name one of these"
        )

    def states(self, split: str) -> list[Array]:
        """Those that say to be the states of a split."""
        return self._ordered(self.said[split][STATES], f"the states of '{split}'")

    def one(self, split: str, role: str) -> Array | None:
        """The one that says to be that of a split, where there is any."""
        found = self.said.get(split, {}).get(role)
        return self._ordered(found, f"the {role} of '{split}'")[0] if found else None

    def _ordered(self, layers: Layers, what: str) -> list[Array]:
        """The one array, or one for each layer, none missing and none there twice."""
        numbers = [number for number in layers if number is not None]
        asked = [*range(min(numbers), max(numbers) + 1)] if numbers else [None]
        if (None in layers and numbers) or any(len(there) > 1 for there in layers.values()):
            hint = "--array or --labels SPLIT=NAME says which, SPLIT=FILE:NAME of which file"
            raise self.unclear(f"several arrays could be {what}", hint=hint)
        if missing := [number for number in asked if number not in layers]:
            hint = "give every layer that is to be taken its own --array SPLIT=NAME"
            raise self.unclear(f"layer {missing[0]} of {what} is missing", hint=hint)
        return [layers[number][0] for number in asked]

    def unclear(
        self, message: str, *, expected: str | None = None, hint: str | None = None
    ) -> ConfigError:
        """The one refusal of what is not clear: it lists what there is."""
        lines = [f"{file.path.name}: {array}" for file, array in self.pairs[:MOST_SHOWN]]
        if len(self.pairs) > MOST_SHOWN:
            lines.append(f"and {len(self.pairs) - MOST_SHOWN:,} more")
        arrays = [array for _, array in self.pairs]
        states = [a.name for a in arrays if "float" in a.dtype and len(a.shape) in (2, 3)]
        labels = [a.name for a in arrays if len(a.shape) == 1 and "float" not in a.dtype]
        one = (states or ["NAME"])[0], (labels or ["NAME"])[0]
        return ConfigError(
            message,
            expected=expected or UNDERSTOOD,
            found="\n".join(lines) or "no arrays at all",
            where=", ".join(shortened(str(file.path)) for file in self._files[:4]),
            hint=hint
            or f"say which is which: --array 'train={one[0]}' --labels 'train={one[1]}', and so on",
        )


def choose(
    files: Sequence[File], config: ImportConfig
) -> tuple[dict[str, Taken], tuple[str, ...] | None, list[Array]]:
    """The arrays of every split, names of classes where somebody says them, and what is left."""
    offer = Offer(files, config.keep_columns)
    explicit = of_splits(config, "arrays")
    states = {
        split: [array for name in names for array in offer.find(name, "--array")]
        for split, names in explicit.items()
    }
    if not explicit:
        there = [split for split, roles in offer.said.items() if STATES in roles]
        there.sort(key=lambda split: SPLITS.index(split) if split in SPLITS else len(SPLITS))
        states = {split: offer.states(split) for split in there}
    if not states:
        raise offer.unclear("it is not clear which arrays are states")
    given = {
        role: {s: offer.find(names[0], option)[0] for s, names in of_splits(config, role).items()}
        for role, option in ((LABELS, "--labels"), (NUM_TOKENS, "--num-tokens"))
    }
    for split in [*([] if explicit else [*offer.said, *given[LABELS]]), *config.unlabelled]:
        if split not in states:
            raise offer.unclear(f"'{split}' has no states")
    splits, used = {}, set()
    for split in states:
        labels = None
        if split not in config.unlabelled:
            labels = given[LABELS].get(split) or offer.one(split, LABELS)
            if labels is None:
                raise offer.unclear(
                    f"it is not clear which array has the labels of '{split}'",
                    hint=f"--labels {split}=NAME, or --set unlabelled={split} where nobody knows",
                )
        columns = {}
        for name in config.keep_columns:
            if (column := offer.one(split, name)) is None:
                form = f"an array {split}/{name}, {split}_{name}, or {name} in a file {split}.*"
                raise offer.unclear(f"'{split}' has no column '{name}'", expected=form)
            columns[name] = column
        tokens = given[NUM_TOKENS].get(split) or offer.one(split, NUM_TOKENS)
        splits[split] = Taken(
            states=states[split], labels=labels, num_tokens=tokens, columns=columns
        )
        used |= {id(array) for array in (*states[split], labels, tokens, *columns.values())}
    said = {}
    for _, array in offer.pairs:
        found = meaning(array.name)
        if found and found.role == CLASS_NAMES and array.dtype == STRINGS and array.shape:
            said[tuple(array.read(0, array.shape[0]))] = array.where
            used.add(id(array))
    if len(said) > 1 and not config.class_names:
        raise ConfigError(
            "the class names differ",
            expected="the same everywhere, or --set class-name=NAME once for each class",
            found="\n".join(f"{where}: {', '.join(names)}" for names, where in said.items()),
        )
    class_names = config.class_names or next(iter(said), ())
    return splits, class_names or None, [array for _, array in offer.pairs if id(array) not in used]
