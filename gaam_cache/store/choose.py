"""Which arrays are taken as what: as the options say, else as their names do; never by shape.

``train/embeddings``, ``train_embeddings``, ``X_train`` or ``embeddings`` in a file ``train.npz``;
``layer_0``, ``hidden_states/0`` and so on in any of these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from gaam_cache.config import NAME_PATTERN
from gaam_cache.errors import ConfigError
from gaam_cache.import_config import ImportConfig, of_splits
from gaam_cache.messages import excerpt, shortened
from gaam_cache.store.arrays import STRINGS, Array, File

READABLE = ("float16", "bfloat16", "float32", "float64")
"""Types of states, from narrow to wide."""
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


@cache
def _patterns(kept: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Names with a usual word for the split, and names in a group of any name."""
    words, split = "|".join((*WORDS, *map(re.escape, kept))), "|".join(SPLITS)
    number = rf"(?:{LAYERED})[/._-]?(?:layer[/._-]?)?(?P<layer>\d{{1,6}})"
    body = rf"(?:(?P<word>{words})|{number})"
    named = rf"(?:(?P<before>{split})[/._-])?{body}(?:[/._-](?P<after>{split}))?"
    grouped = rf"(?P<before>{NAME_PATTERN.pattern})/{body}(?P<after>)"
    return re.compile(named, re.ASCII), re.compile(grouped, re.ASCII)


def meaning(name: str, kept: tuple[str, ...] = ()) -> Meaning | None:
    """What the name of an array says; None where it says nothing that is understood.

    Args:
        name: of the array.
        kept: further words, each of which is a role of its own.
    """
    named, grouped = _patterns(kept)
    found = named.fullmatch(name)
    if found is None:
        found = grouped.fullmatch(name)
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
        self.files = files
        self.pairs = [(file, array) for file in files for array in file.arrays]
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
        pairs, name = self.pairs, asked
        if not any(array.name == name for _, array in pairs):
            file, colon, rest = asked.rpartition(":")
            there = [pair for pair in pairs if file in (str(pair[0].path), pair[0].path.name)]
            if colon and there:
                pairs, name = there, rest
        found = [array for _, array in pairs if array.name == name]
        if not found and name.count("*") == 1:
            before, after = map(re.escape, name.split("*"))
            layers: Layers = {}
            for _, array in pairs:
                if match := re.fullmatch(rf"{before}(\d{{1,6}}){after}", array.name, re.ASCII):
                    layers.setdefault(int(match[1]), []).append(array)
            if layers:
                return self.in_order(layers, asked)
            message = f"no array is called {excerpt(asked)}"
            raise self.unclear(message, expected="a number where '*' stands")
        if len(found) != 1:
            what = "there is no array" if not found else "several files have an array"
            form = f"{option} SPLIT=NAME, or SPLIT=FILE:NAME"
            raise self.unclear(f"{what} {excerpt(asked)}", expected=form, hint="name one of these")
        return found

    def in_order(self, layers: Layers, what: str) -> list[Array]:
        """One array for each layer; refuses layers that are missing or there twice."""
        listed = sorted(number or 0 for number in layers)
        gaps = sorted(set(range(listed[0], listed[-1])) - set(listed))
        if twice := [number for number in listed if len(layers[number]) > 1]:
            raise self.unclear(
                f"layer {twice[0]} of {excerpt(what)} is there twice", hint="--array names one"
            )
        if gaps:
            raise self.unclear(
                f"layer {gaps[0]} of {excerpt(what)} is missing",
                expected=f"all from {listed[0]} to {listed[-1]}",
                hint="give every layer that is to be taken its own --array SPLIT=NAME",
            )
        return [layers[number][0] for number in listed]

    def states(self, split: str) -> list[Array]:
        """Those that say to be the states of a split."""
        layers = dict(self.said[split][STATES])
        whole = layers.pop(None, [])
        if len(whole) > 1 or (whole and layers):
            raise self.unclear(f"several arrays could be the states of '{split}'")
        if whole:
            return whole
        if (first := min(number or 0 for number in layers)) > 1:
            raise self.unclear(
                f"the layers of '{split}' begin with {first}",
                expected="layers from 0 or 1 on",
                hint="where that is meant: --array with a '*' for the number",
            )
        return self.in_order(layers, split)

    def one(self, split: str, role: str) -> Array | None:
        """The one that says to be that of a split, where there is any."""
        found = self.said.get(split, {}).get(role, {}).get(None, [])
        if len(found) > 1:
            raise self.unclear(f"several arrays could be the {role} of '{split}'")
        return found[0] if found else None

    def unclear(
        self, message: str, *, expected: str | None = None, hint: str | None = None
    ) -> ConfigError:
        """The one refusal of what is not clear: it lists what there is."""
        lines = [f"{file.path.name}: {array}" for file, array in self.pairs[:MOST_SHOWN]]
        if len(self.pairs) > MOST_SHOWN:
            lines.append(f"and {len(self.pairs) - MOST_SHOWN:,} more")
        arrays = [array for _, array in self.pairs]
        if {"embeddings", "label", "row", "num_tokens"} <= {array.name for array in arrays}:
            hint = (
                "this is a shard of a gaam cache: use the cache as it is (gaam train --cache), or "
                "name its arrays (--array train=embeddings --labels train=label)"
            )
        states = [a.name for a in arrays if a.dtype in READABLE and len(a.shape) in (2, 3)]
        whole = [a for a in arrays if a.dtype == STRINGS or "int" in a.dtype]
        labels = [a.name for a in whole if len(a.shape) == 1]
        one = (states or ["NAME"])[0], (labels or ["NAME"])[0]
        return ConfigError(
            message,
            expected=expected or UNDERSTOOD,
            found="\n".join(lines) or "no arrays at all",
            where=", ".join(shortened(str(file.path)) for file in self.files[:4]),
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
        order = {name: number for number, name in enumerate(SPLITS)}
        there = [split for split, roles in offer.said.items() if STATES in roles]
        ordered = sorted(there, key=lambda split: order.get(split, len(order)))
        states = {split: offer.states(split) for split in ordered}
    if not states:
        raise offer.unclear("it is not clear which arrays are states")
    given = {
        role: {s: offer.find(names[0], option)[0] for s, names in of_splits(config, role).items()}
        for role, option in ((LABELS, "--labels"), (NUM_TOKENS, "--num-tokens"))
    }
    for split in [*([] if explicit else [*offer.said, *given[LABELS]]), *config.unlabelled]:
        if split not in states:
            option = "unlabelled " if split in config.unlabelled else ""
            raise offer.unclear(f"{option}'{split}' has no states")
    splits = {}
    for split in states:
        labels = None
        if split not in config.unlabelled:
            labels = given[LABELS].get(split) or offer.one(split, LABELS)
            if labels is None:
                raise offer.unclear(f"it is not clear which array has the labels of '{split}'")
        columns = {}
        for name in config.keep_columns:
            if (column := offer.one(split, name)) is None:
                raise offer.unclear(
                    f"'{split}' has no column '{name}'",
                    expected=f"an array {split}/{name}, {split}_{name}, or {name} in a file "
                    f"{split}.*",
                    hint="leave out --keep-column, or name one that every split has",
                )
            columns[name] = column
        tokens = given[NUM_TOKENS].get(split) or offer.one(split, NUM_TOKENS)
        splits[split] = Taken(
            states=states[split], labels=labels, num_tokens=tokens, columns=columns
        )
    used = {id(array) for one in splits.values() for array in one.states}
    for one in splits.values():
        used |= {id(array) for array in (one.labels, one.num_tokens, *one.columns.values())}
    said: dict[str, tuple[str, ...]] = {}
    for _, array in offer.pairs:
        found = meaning(array.name)
        if found and found.role == CLASS_NAMES and array.dtype == STRINGS and array.shape:
            said[array.where] = tuple(array.read(0, array.shape[0]))
            used.add(id(array))
    for file in files:
        for place, names in file.class_names.items():
            said[f"{file.path}: class_names of '{place or '/'}'"] = names
    if len(set(said.values())) > 1 and not config.class_names:
        raise ConfigError(
            "the class names differ",
            expected="the same everywhere",
            found="\n".join(f"{place}: {', '.join(names)}" for place, names in said.items()),
            hint="--set class-name=NAME, once for each class",
        )
    class_names = config.class_names or next(iter(said.values()), ())
    return splits, class_names or None, [array for _, array in offer.pairs if id(array) not in used]
