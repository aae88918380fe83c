"""Arrays of others: of files, or as a program hands them over; and which are taken as what.

Nothing is unpickled. What is taken is what options say, else what names do, never what shapes do.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import ConfigError, DataError, NotFoundError, reading_file
from gaam_cache.common.messages import excerpt
from gaam_cache.config import NAME_PATTERN, ImportConfig, names_by_split

SUFFIXES = (".h5", ".hdf", ".hdf5", ".npy", ".npz", ".safetensors")
STRINGS, STATES, LABELS = "str", "states", "labels"
ROLES = {
    **dict.fromkeys(
        ("embeddings", "embedding", "hidden_states", "states", "features"), STATES
    ),
    **dict.fromkeys(("labels", "label", "targets", "target", "y"), LABELS),
    "X": STATES,
}
"""What an array may be called, and what it then is; and what may stand before a layer's number."""
LAYERED = "embeddings|embedding|hidden_states|states|features|layers|layer"
SPLITS = (
    "train",
    "training",
    "validation",
    "valid",
    "val",
    "dev",
    "eval",
    "test",
    "testing",
)
"""Words that say of which split an array or file is, in the order in which splits are shown."""
UNDERSTOOD = "states (embeddings, hidden_states, features, X, layer_0...) and labels (targets, y), "
UNDERSTOOD += (
    "in files called train.*, test.*, or as train/states, train_states, X_train"
)
WHOLE = -1  # in the place of the number of a layer: all layers are in one array
HINT = "say which is which: --array SPLIT=NAME --labels SPLIT=NAME; SPLIT=FILE:NAME of which file; "
HINT += "where there is only train, gaam train --folds 5 tests on parts of it"


class Array:
    """What can be sliced, of NumPy, torch, h5py, safetensors; its type by name, text as 'str'."""

    def __init__(self, name: str, values: Any, file: Path = Path()) -> None:
        self.name, self.file = name, file
        self.where = f"{file}: {name}" if file.name else name
        with reading_file(self.where):
            if np.ma.is_masked(values):
                raise ValueError("values that are masked: gaam keeps no mask")
            values = np.asarray(values) if isinstance(values, (list, tuple)) else values
            of_safetensors = hasattr(values, "get_shape")
            self.shape = tuple(values.get_shape() if of_safetensors else values.shape)
            dtype = (values[:0] if of_safetensors and self.shape else values).dtype
            self.dtype = str(dtype).removeprefix("torch.")
            if isinstance(dtype, np.dtype):
                self.dtype = (
                    STRINGS if dtype.kind in "OSU" else dtype.newbyteorder("=").name
                )
        self._values = values

    def __str__(self) -> str:
        return f"{self.where}: {self.dtype} {self.shape}"

    def read(self, index: Any = slice(None)) -> NDArray[Any]:
        """A part; bfloat16 comes as its bits in uint16, strings as objects."""
        with reading_file(self.where):
            part = self._values[index]
            if hasattr(part, "detach"):
                import torch

                part = part.detach().cpu().contiguous()
                part = (
                    part.view(torch.int16) if part.dtype == torch.bfloat16 else part
                ).numpy()
            if self.dtype == STRINGS:
                texts = [
                    one.decode() if isinstance(one, bytes) else one
                    for one in part.tolist()
                ]
                if not all(isinstance(one, str) for one in texts):
                    raise TypeError("objects that are no strings")
                return np.array(texts, object)
            found = np.ascontiguousarray(part)
            return found.view("<u2") if self.dtype == "bfloat16" else found

    def values(
        self, role: str, rows: int | None, good: Callable[[Any], bool], expected: str
    ) -> list[Any]:
        """A whole number or string for every row, each of them ``good``."""
        found, where = f"{self.dtype} {self.shape}", self.where
        right = self.dtype.startswith(("int", "uint")) or self.dtype == STRINGS
        if right and len(self.shape) == 1 and rows in (None, self.shape[0]):
            values: list[Any] = self.read().tolist()
            wrong = next(
                (row for row, value in enumerate(values) if not good(value)), None
            )
            if wrong is None:
                return values
            found, where = excerpt(values[wrong]), f"{where}, row {wrong + 1}"
        raise DataError(
            f"the array '{self.name}' cannot be {role}",
            expected=f"one for every row{'' if rows is None else f' of {rows:,}'}: {expected}",
            found=found,
            where=where,
        )


Roles = Mapping[str, Sequence[Array]]
"""The arrays of a split by what they are: states (one, or one a layer), labels, kept columns."""


def open_file(path: Path, stack: ExitStack) -> list[Array]:
    """The arrays of a file, by its suffix; ``stack`` closes it."""
    import h5py
    import safetensors

    if not path.exists():
        raise NotFoundError(f"no file at '{path}'", where=str(path.absolute()))
    suffix = path.suffix.lower()
    if not path.is_file() or suffix not in SUFFIXES:
        raise ConfigError(
            f"no arrays are read from '{path.name}'",
            expected=f"a file that ends in one of: {', '.join(SUFFIXES)}",
            where=str(path.absolute()),
            hint="save the arrays as safetensors; a pickle, such as a .pt, runs code",
        )
    found: dict[str, Any] = {}
    with reading_file(str(path)):
        if suffix in (".npy", ".npz"):
            loaded: Any = np.load(path, mmap_mode="r", allow_pickle=False)
            found = {path.stem: loaded} if suffix == ".npy" else dict(loaded)
        elif suffix == ".safetensors":
            tensors = stack.enter_context(
                safetensors.safe_open(path, "pt")
            )  # for bfloat16
            found = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118
        else:
            file = stack.enter_context(h5py.File(path, "r", locking=False))
            file.visititems(
                lambda name, one: found.update({name: one})
            )  # follows no links
            found = {
                name: one
                for name, one in found.items()
                if isinstance(one, h5py.Dataset)
            }
    arrays = [
        array for name, one in found.items() if (array := Array(name, one, path)).shape
    ]
    for array in arrays:
        if isinstance(one := found[array.name], h5py.Dataset) and not _whole(one):
            array.dtype = f"partly written {array.dtype}"
    return arrays


def _whole(one: Any) -> bool:
    """Whether all of a data set of HDF5 lies in its file: what does not is read as zeros."""
    there = one.id.get_num_chunks() if one.chunks else bool(one.id.get_storage_size())
    most = math.prod(
        -(-n // m) for n, m in zip(one.shape, one.chunks or (), strict=False)
    )
    return there >= min(most, one.size) and not one.is_virtual and not one.external


def choose(
    arrays: Sequence[Array], config: ImportConfig
) -> tuple[Mapping[str, Roles], list[Array]]:
    """The arrays of every split by their roles, and what is left; what options say goes first."""

    def unclear(message: str, hint: str = HINT) -> ConfigError:
        there = "\n".join(map(str, arrays)) or "no arrays at all"
        return ConfigError(message, expected=UNDERSTOOD, found=there, hint=hint)

    def ordered(found: Sequence[tuple[int, Array]], what: str) -> list[Array]:
        numbers = sorted(number for number, _ in found)
        if len(set(numbers)) < len(numbers) or (WHOLE in numbers and len(numbers) > 1):
            raise unclear(f"several arrays could be {what}")
        if gaps := set(range(numbers[0], numbers[-1])) - set(numbers):
            raise unclear(f"layer {min(gaps)} of {what} is missing")
        return [one for _, one in sorted(found, key=lambda pair: pair[0])]

    def find(asked: str) -> list[Array]:
        pattern, found = (
            re.compile(r"(\d{1,6})".join(map(re.escape, asked.split("*", 1)))),
            [],
        )
        for one in arrays:
            names = one.name, f"{one.file.name}:{one.name}", f"{one.file}:{one.name}"
            if match := next(filter(None, map(pattern.fullmatch, names)), None):
                found.append((int(match[1]) if "*" in asked else WHOLE, one))
        if not found:
            raise unclear(f"there is no array '{asked}'")
        return ordered(found, f"'{asked}'")

    asked, said = (
        names_by_split(config, "arrays"),
        dict[str, dict[str, list[tuple[int, Array]]]](),
    )
    for array in arrays:
        split, role, layer = _said(array, config.keep_columns)
        if split in asked or (split and not asked):
            said.setdefault(split, {}).setdefault(role, []).append((layer, array))
    for option, role in (("arrays", STATES), ("labels", LABELS)):
        for split, names in names_by_split(config, option).items():
            layers = [one for name in names for one in find(name)]
            said.setdefault(split, {})[role] = [*enumerate(layers)]
    if not said:
        raise unclear("it is not clear which arrays are states")
    said |= {split: {} for split in config.unlabelled if split not in said}
    taken: dict[str, dict[str, list[Array]]] = {}
    for split in sorted(said, key=lambda split: (*asked, *SPLITS, split).index(split)):
        of = said[split]
        if STATES not in of:
            raise unclear(f"'{split}' has no states")
        taken[split] = {}
        for role in (
            STATES,
            *[LABELS] * (split not in config.unlabelled),
            *config.keep_columns,
        ):
            if role not in of and role in config.keep_columns:
                # of a single split the name alone says which array is meant
                if len(said) > 1 or role not in {array.name for array in arrays}:
                    hint = f"name the array '{split}_{role}' or '{split}/{role}' in the file"
                    hint += f", or '{role}' where there is one split"
                    raise unclear(f"no array is the column '{role}' of '{split}'", hint)
                of[role] = list(enumerate(find(role)))
            if role not in of:
                hint = f"--labels {split}=NAME, or --set unlabelled={split} where nobody knows"
                raise unclear(
                    f"it is not clear which array has the {role} of '{split}'", hint
                )
            taken[split][role] = ordered(of[role], f"the {role} of '{split}'")
    used = [
        one for roles in taken.values() for found in roles.values() for one in found
    ]
    return taken, [one for one in arrays if one not in used]


def _said(array: Array, kept: Sequence[str]) -> tuple[str, str, int]:
    """Of which split (or '') an array says to be what, and of which layer; ``kept`` are roles."""
    words, splits = "|".join((*ROLES, *kept)), "|".join(SPLITS)
    number = rf"(?:{LAYERED})[/._-]?(?:layer[/._-]?)?(?P<layer>\d{{1,6}})"
    group = rf"(?!(?:{words})/)(?P<group>{NAME_PATTERN.pattern})/"  # of any name
    found = re.fullmatch(
        rf"(?:(?P<before>{splits})[/._-]|{group})?"
        rf"(?:(?P<word>{words})|{number})(?:[/._-](?P<after>{splits}))?",
        array.name,
        re.ASCII,
    )
    if found is None:
        return "", "", WHOLE
    named = {found["before"], found["group"], found["after"]} - {None}
    named = named or set(re.split(r"[^A-Za-z0-9]+", array.file.stem)).intersection(
        SPLITS
    )
    word, layer = (
        found["word"],
        WHOLE if found["layer"] is None else int(found["layer"]),
    )
    split = named.pop() if len(named) == 1 else ""  # it may say none, or two
    return split, ROLES.get(word, word) if word else STATES, layer
