"""What an import has to know before it begins: which arrays it takes, and that they fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gaam_cache.errors import CacheError, ConfigError, DataError
from gaam_cache.format.digest import chunks, digest_of_stream
from gaam_cache.format.receipt import ITEM_BYTES
from gaam_cache.format.strings import width_of
from gaam_cache.import_config import ImportConfig, check_class_names
from gaam_cache.importing.choose import Taken, choose
from gaam_cache.importing.containers._base import Array, Container, open_container
from gaam_cache.importing.labels import NamedLabels, read_labels, rows_of_labels
from gaam_cache.importing.rows import Material, read_column, read_num_tokens
from gaam_cache.importing.states import States
from gaam_cache.importing.storing import default_storage
from gaam_cache.sources._base import NO_LABEL
from gaam_cache.terminal import Report


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportJob:
    """An import that is ready to begin."""

    materials: Mapping[str, Material]
    origins: Mapping[str, str]
    """Split -> where its rows come from, for people."""
    class_names: tuple[str, ...]
    storage_dtype: str
    taken: dict[str, Any]
    """What is taken as what, for the fingerprint: JSON values."""
    left: Sequence[str] = ()
    """Arrays that are not taken, for people."""
    containers: Sequence[Container] = ()

    @property
    def num_layers(self) -> int:
        """The same in every split."""
        return next(iter(self.materials.values())).states.num_layers

    @property
    def hidden_size(self) -> int:
        """The same in every split."""
        return next(iter(self.materials.values())).states.hidden_size

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """Splits of which nobody knows the labels."""
        return tuple(split for split, one in self.materials.items() if not one.labelled)

    @property
    def columns(self) -> dict[str, int]:
        """Columns that are kept, and how many bytes the longest value takes."""
        materials = list(self.materials.values())
        return {c: max(width_of(m.kept[c]) for m in materials) for c in materials[0].kept}

    @property
    def bytes_per_row(self) -> int:
        """Of states and columns, as they are stored."""
        states = self.num_layers * self.hidden_size * ITEM_BYTES[self.storage_dtype]
        return states + sum(self.columns.values())

    @property
    def max_length(self) -> int:
        """The most tokens of any row; 1 where nobody says how many there were."""
        known = [m.num_tokens for m in self.materials.values() if m.num_tokens is not None]
        return max((int(tokens.max()) for tokens in known), default=1)

    def check_unchanged(self) -> None:
        """Refuse files that were written to meanwhile.

        Raises:
            DataError: naming one.
        """
        for container in self.containers:
            if not container.unchanged():
                raise changed(str(container.path))


def changed(where: str) -> DataError:
    """The refusal of what is not what it was when it was first read."""
    return DataError(
        "the states were changed while they were read",
        expected="the same numbers at every reading",
        where=where,
        hint="run the same again when nobody writes to them",
    )


@contextmanager
def opened(config: ImportConfig) -> Iterator[ImportJob]:
    """Open the files of an import and find out what to take; reads labels, but no states.

    Raises:
        ConfigError: what to take is not clear.
        DataError: a file is damaged, or its arrays do not fit together.
    """
    with ExitStack() as stack:
        containers = []
        for name in config.files:
            container = open_container(Path(name).expanduser())
            stack.callback(container.close)
            containers.append(container)
        chosen = choose(containers, config)
        yield make_job(
            chosen.splits,
            axes=config.axes,
            class_names=chosen.class_names,
            storage_dtype=config.storage_dtype,
            left=tuple(f"{array.where} {array.dtype} {array.shape}" for array in chosen.left),
            containers=tuple(containers),
        )


def make_job(
    splits: Mapping[str, Taken],
    *,
    axes: str | None,
    class_names: tuple[str, ...] | None,
    storage_dtype: str | None,
    left: Sequence[str] = (),
    containers: Sequence[Container] = (),
) -> ImportJob:
    """Check that what is taken fits together.

    Raises:
        DataError: shapes, types or labels that do not.
        ConfigError: class names that cannot be told apart.
    """
    if class_names is not None:
        check_class_names(class_names)
    labels = {split: one.labels for split, one in splits.items() if one.labels is not None}
    if not labels:
        raise ConfigError("no split has labels", expected="one at least that has")
    states = {}
    for split, taken in splits.items():
        rows = rows_of_labels(labels[split], split) if split in labels else None
        states[split] = States(split, taken.states, rows, axes)
    _check_equal(states)
    classes = read_labels(labels, class_names, "train" if "train" in labels else next(iter(labels)))
    materials = {
        split: Material(
            states=states[split],
            labels=NamedLabels(classes.numbers[split], classes.names)
            if split in labels
            else NamedLabels(np.zeros(states[split].rows, np.int64), (NO_LABEL,)),
            labelled=split in labels,
            kept={
                name: read_column(array, states[split].rows, split)
                for name, array in taken.columns.items()
            },
            num_tokens=None
            if taken.num_tokens is None
            else read_num_tokens(taken.num_tokens, states[split].rows, split),
        )
        for split, taken in splits.items()
    }
    dtypes = set().union(*(one.dtypes for one in states.values()))
    return ImportJob(
        materials=materials,
        origins={split: _origin(taken.states) for split, taken in splits.items()},
        class_names=classes.names,
        storage_dtype=storage_dtype or default_storage(dtypes),
        taken={split: _in_json(taken, states[split]) for split, taken in splits.items()},
        left=left,
        containers=containers,
    )


def _check_equal(states: Mapping[str, States]) -> None:
    sizes = {split: (one.num_layers, one.hidden_size) for split, one in states.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(
            "the splits have states of different sizes",
            expected="as many layers and features in every split",
            found=", ".join(f"{split}: {size[0]} x {size[1]}" for split, size in sizes.items()),
            hint="where the second axis is tokens: pool them before, to one vector for each layer",
        )


def _origin(arrays: Sequence[Array]) -> str:
    first, last = arrays[0], arrays[-1]
    return first.where if first is last else f"{first.where} to {last.name}"


def _in_json(taken: Taken, states: States) -> dict[str, Any]:
    one_each = {"labels": taken.labels, "num_tokens": taken.num_tokens}
    return {
        "states": [array.name for array in taken.states],
        "dtypes": sorted(states.dtypes),
        "axes": states.axes,
        "columns": {name: array.name for name, array in taken.columns.items()},
        **{role: array.name for role, array in one_each.items() if array is not None},
    }


def hash_files(containers: Sequence[Container], report: Report) -> dict[str, str]:
    """SHA-256 of the files, by their names from the folder that all are in.

    Raises:
        DataError: what a file says of an array's bytes is not so.
        CacheError: two files of the same name.
    """
    import os

    found: dict[str, str] = {}
    folder = os.path.commonpath([one.path.absolute().parent for one in containers])
    for container in containers:
        report(0, 0, f"hashing {container.path.name}")
        name = container.path.absolute().relative_to(folder).as_posix()
        container.file.seek(0)
        if name in found:
            raise CacheError(f"'{name}' is there twice")
        found[name] = digest_of_stream(chunks(container.file))
    return found
