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
    in_order,
    meaning,
    split_of_file,
)
from gaam_cache.importing.offer import Offer


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """The arrays of one split."""

    states: tuple[Array, ...]
    """One; or one for every layer."""
    labels: Array | None
    """None where nobody knows them."""
    num_tokens: Array | None = None
    columns: Mapping[str, Array] = field(default_factory=dict)
    """Those that the cache keeps."""

    def all(self) -> list[Array]:
        """Every one of them."""
        others = [self.labels, self.num_tokens, *self.columns.values()]
        return [*self.states, *(array for array in others if array is not None)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """What is taken, and what is not."""

    splits: Mapping[str, Taken]
    class_names: tuple[str, ...] | None
    """Where an option or a file says them."""
    left: Sequence[Array] = field(default=())
    """Arrays that are not taken."""


def choose(containers: Sequence[Container], config: ImportConfig) -> Chosen:
    """Find the arrays of every split.

    Raises:
        ConfigError: something is not clear; the message lists what there is.
    """
    files = Offer(containers)
    said = _by_names(files, config.keep_columns)
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
    for split in [*said, *one_each[LABELS], *config.unlabelled]:
        if split not in states and (not explicit or split in config.unlabelled):
            option = "unlabelled " if split in config.unlabelled else ""
            raise files.unclear(f"{option}'{split}' has no states")
    splits = {}
    for split in states if explicit else in_order(list(states)):
        labels = one_each[LABELS].get(split)
        if split in config.unlabelled:
            labels = None
        elif labels is None:
            raise files.unclear(f"it is not clear which array has the labels of '{split}'")
        splits[split] = Taken(
            states=states[split],
            labels=labels,
            num_tokens=one_each[NUM_TOKENS].get(split),
            columns={name: _column(files, split, name, said) for name in config.keep_columns},
        )
    names, of_names = _class_names(files, config)
    used = {id(array) for one in splits.values() for array in one.all()}
    used |= {id(array) for array in of_names}
    left = [array for _, array in files.pairs if id(array) not in used]
    return Chosen(splits=splits, class_names=names, left=left)


Roles = dict[str, dict[int | None, list[Array]]]
"""Role -> layer, or None -> arrays that say to be it."""


def _by_names(files: Offer, kept: tuple[str, ...]) -> dict[str, Roles]:
    """What the names of arrays and files say, by split."""
    found: dict[str, Roles] = {}
    for container, array in files.pairs:
        said = meaning(array.name, kept)
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


def _states(files: Offer, split: str, roles: Roles) -> tuple[Array, ...]:
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


def _one(files: Offer, split: str, role: str, roles: Roles) -> Array | None:
    found = roles.get(role, {}).get(None, [])
    if len(found) > 1:
        raise files.unclear(f"several arrays could be the {role} of '{split}'")
    return found[0] if found else None


def _column(files: Offer, split: str, name: str, said: Mapping[str, Roles]) -> Array:
    found = _one(files, split, name, said.get(split, {}))
    if found is None:
        raise files.unclear(
            f"'{split}' has no column '{name}'",
            expected=f"an array {split}/{name}, {split}_{name}, or {name} in a file {split}.*",
            hint="leave out --keep-column, or name one that every split has",
        )
    return found


def _class_names(files: Offer, config: ImportConfig) -> tuple[tuple[str, ...] | None, list[Array]]:
    """What the classes are called, and the arrays that say so."""
    said: dict[str, tuple[str, ...]] = {}
    used = []
    for _, array in files.pairs:
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
            hint="--set class-name=NAME, once for each class",
        )
    return (next(iter(said.values())) if said else None), used
