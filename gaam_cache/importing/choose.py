"""Which arrays are taken as what: as the options say, else as their names do; never by shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gaam_cache.errors import ConfigError
from gaam_cache.import_config import ImportConfig, of_splits
from gaam_cache.importing.containers._base import STRINGS, Array, Container
from gaam_cache.importing.names import (
    CLASS_NAMES,
    LABELS,
    NUM_TOKENS,
    STATES,
    UNDERSTOOD,
    in_order,
    meaning,
    numbers_of,
    split_of_file,
)
from gaam_cache.messages.checks import excerpt, shortened

MOST_SHOWN = 40
"""Arrays that a message lists."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """The arrays of one split."""

    states: tuple[Array, ...]
    """One; or one for every layer."""
    labels: Array
    num_tokens: Array | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """What is taken, and what is not."""

    splits: Mapping[str, Taken]
    class_names: tuple[str, ...] | None
    """Where an option or a file says them."""
    left: Sequence[Array] = field(default=())
    """Arrays that are not taken."""


class _Files:
    """All arrays of all files, and how they are asked for."""

    def __init__(self, containers: Sequence[Container]) -> None:
        self.containers = containers
        self.pairs = [(one, array) for one in containers for array in one.arrays]

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
            return self._layers(asked, numbers_of(name, [array.name for _, array in pairs]), pairs)
        if len(found) != 1:
            what = "there is no array" if not found else "several files have an array"
            raise self.unclear(
                f"{what} {excerpt(asked)}",
                expected=f"{option} SPLIT=NAME, or SPLIT=FILE:NAME",
                hint="name one of these",
            )
        return found

    def _layers(
        self, asked: str, numbers: dict[int, list[str]], pairs: list[tuple[Container, Array]]
    ) -> list[Array]:
        if not numbers:
            raise self.unclear(
                f"no array is called {excerpt(asked)}",
                expected="a number where '*' stands",
                hint="name one of these",
            )
        self.check_numbers(numbers, asked)
        by_name = {array.name: array for _, array in pairs}
        return [by_name[names[0]] for names in numbers.values()]

    def check_numbers(self, numbers: Mapping[int, Sequence[object]], what: str) -> None:
        """Refuse layers that are missing or there twice."""
        listed = list(numbers)
        gaps = sorted(set(range(listed[0], listed[-1])) - set(listed))
        if twice := [number for number, there in numbers.items() if len(there) > 1]:
            raise self.unclear(
                f"layer {twice[0]} of {excerpt(what)} is there twice", hint="--array names one"
            )
        if gaps:
            raise self.unclear(
                f"layer {gaps[0]} of {excerpt(what)} is missing",
                expected=f"all from {listed[0]} to {listed[-1]}",
                hint="give every layer that is to be taken its own --array SPLIT=NAME",
            )

    def unclear(
        self, message: str, *, expected: str | None = None, hint: str | None = None
    ) -> ConfigError:
        """The one refusal of what is not clear: it lists what there is."""
        lines = [f"{one.path.name}: {array}" for one, array in self.pairs[:MOST_SHOWN]]
        if len(self.pairs) > MOST_SHOWN:
            lines.append(f"and {len(self.pairs) - MOST_SHOWN:,} more")
        names = {array.name for _, array in self.pairs}
        if {"embeddings", "label", "row", "num_tokens"} <= names:
            hint = (
                "this is a shard of a gaam cache: use the cache as it is (gaam train --cache), or "
                "name its arrays (--array train=embeddings --labels train=label)"
            )
        return ConfigError(
            message,
            expected=expected or UNDERSTOOD,
            found="\n".join(lines) or "no arrays at all",
            where=", ".join(shortened(str(one.path)) for one in self.containers[:4]),
            hint=hint or self._remedy(),
        )

    def _remedy(self) -> str:
        numbers = ("float16", "bfloat16", "float32", "float64")
        states = [a.name for _, a in self.pairs if a.dtype in numbers and len(a.shape) in (2, 3)]
        labels = [
            a.name
            for _, a in self.pairs
            if len(a.shape) == 1 and (a.dtype == STRINGS or "int" in a.dtype)
        ]
        one = (states or ["NAME"])[0], (labels or ["NAME"])[0]
        return f"say which is which: --array 'train={one[0]}' --labels 'train={one[1]}', and so on"


def choose(containers: Sequence[Container], config: ImportConfig) -> Chosen:
    """Find the arrays of every split.

    Raises:
        ConfigError: something is not clear; the message lists what there is.
    """
    files = _Files(containers)
    said = _by_names(files)
    explicit = of_splits(config, "arrays")
    if explicit:
        states = {
            split: tuple(a for name in names for a in files.find(name, "--array"))
            for split, names in explicit.items()
        }
    else:
        states = {split: _states(files, split, of) for split, of in said.items() if STATES in of}
    one_each = {}
    for role, option in ((LABELS, "labels"), (NUM_TOKENS, "num_tokens")):
        given = of_splits(config, option)
        named = {split: _one(files, split, role, said.get(split, {})) for split in states}
        spelled = "--" + option.replace("_", "-")
        named |= {split: files.find(names[0], spelled)[0] for split, names in given.items()}
        one_each[role] = named
    if not states:
        raise files.unclear("it is not clear which arrays are states")
    for split in [*said, *one_each[LABELS]]:
        if split not in states and not explicit:
            raise files.unclear(f"'{split}' has no states")
    splits = {}
    for split in states if explicit else in_order(list(states)):
        labels = one_each[LABELS].get(split)
        if labels is None:
            raise files.unclear(f"it is not clear which array has the labels of '{split}'")
        splits[split] = Taken(
            states=states[split], labels=labels, num_tokens=one_each[NUM_TOKENS].get(split)
        )
    names, of_names = _class_names(files, config)
    used = {id(a) for one in splits.values() for a in (*one.states, one.labels, one.num_tokens)}
    used |= {id(array) for array in of_names}
    left = [array for _, array in files.pairs if id(array) not in used]
    return Chosen(splits=splits, class_names=names, left=left)


Roles = dict[str, dict[int | None, list[Array]]]
"""Role -> layer, or None -> arrays that say to be it."""


def _by_names(files: _Files) -> dict[str, Roles]:
    """What the names of arrays and files say, by split."""
    found: dict[str, Roles] = {}
    for container, array in files.pairs:
        said = meaning(array.name)
        if said is None or said.role == CLASS_NAMES:
            continue
        of_file = split_of_file(Path(container.path).stem)
        if of_file and said.split and said.split != of_file:
            continue  # 'test_embeddings' in 'train.npz' says two things
        split = said.split or of_file
        if split is not None:
            roles = found.setdefault(split, {}).setdefault(said.role, {})
            roles.setdefault(said.layer, []).append(array)
    return found


def _states(files: _Files, split: str, roles: Roles) -> tuple[Array, ...]:
    found = roles[STATES]
    whole = found.get(None, [])
    layers = {number: arrays for number, arrays in sorted(found.items(), key=_number) if arrays}
    layers.pop(None, None)
    if len(whole) > 1 or (whole and layers):
        raise files.unclear(f"several arrays could be the states of '{split}'", hint=None)
    if whole:
        return tuple(whole)
    files.check_numbers({number or 0: there for number, there in layers.items()}, split)
    first = min(number or 0 for number in layers)
    if first > 1:
        raise files.unclear(
            f"the layers of '{split}' begin with {first}",
            expected="layers from 0 or 1 on",
            hint="where that is meant: --array with a '*' for the number",
        )
    return tuple(there[0] for there in layers.values())


def _number(item: tuple[int | None, list[Array]]) -> int:
    return -1 if item[0] is None else item[0]


def _one(files: _Files, split: str, role: str, roles: Roles) -> Array | None:
    found = roles.get(role, {}).get(None, [])
    if len(found) > 1:
        raise files.unclear(f"several arrays could be the {role} of '{split}'")
    return found[0] if found else None


def _class_names(
    files: _Files, config: ImportConfig
) -> tuple[tuple[str, ...] | None, list[Array]]:
    """What the classes are called, and the arrays that say so."""
    said: dict[str, tuple[str, ...]] = {}
    used = []
    for container, array in files.pairs:
        found = meaning(array.name)
        if found is not None and found.role == CLASS_NAMES and array.dtype == STRINGS:
            said[array.where] = tuple(array.read(0, array.shape[0]))
            used.append(array)
    for container in files.containers:
        for place, names in container.class_names.items():
            said[f"{container.path}: class_names of '{place or '/'}'"] = names
    if config.class_names:
        return config.class_names, used
    if len(set(said.values())) > 1:
        raise ConfigError(
            "the class names differ",
            expected="the same everywhere",
            found="\n".join(f"{place}: {', '.join(names)}" for place, names in said.items()),
            hint="--class-name, once for each class",
        )
    return (next(iter(said.values())) if said else None), used
