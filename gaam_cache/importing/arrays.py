"""Arrays that other programs made: how they are read, and which array is taken as what.

Nothing is unpickled. Options decide which array holds states or labels; without options
the names of the arrays decide. The shapes never do.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import ConfigError, DataError, NotFoundError, reading_file
from gaam_cache.common.messages import excerpt
from gaam_cache.config import NAME_PATTERN, ImportConfig, names_by_split

SUFFIXES = (".h5", ".hdf", ".hdf5", ".npy", ".npz", ".safetensors")
STRINGS = "str"  # the type of an array of texts
STATES = "states"
LABELS = "labels"
ROLES = {
    "embeddings": STATES,
    "embedding": STATES,
    "hidden_states": STATES,
    "states": STATES,
    "features": STATES,
    "labels": LABELS,
    "label": LABELS,
    "targets": LABELS,
    "target": LABELS,
    "y": LABELS,
    "X": STATES,
}
"""Usual name of an array -> its role."""
LAYERED = "embeddings|embedding|hidden_states|states|features|layers|layer"
"""Words before the number of a layer, as a pattern."""
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
"""Words for splits in the names of arrays and files, in the order of the splits."""
UNDERSTOOD = (
    "states (embeddings, hidden_states, features, X, layer_0...) and labels "
    "(targets, y), in files called train.*, test.*, or as train/states, train_states, "
    "X_train"
)
ALL_LAYERS = -1  # in place of the number of a layer: one array has all layers
HINT = (
    "say which is which: --array SPLIT=NAME --labels SPLIT=NAME; SPLIT=FILE:NAME of "
    "which file; where there is only train, gaam train --folds 5 tests on parts of it"
)


class Array:
    """An array that can be sliced, of NumPy, torch, h5py or safetensors.

    ``dtype`` is the name of its type; texts have the type 'str'.
    """

    def __init__(self, name: str, values: Any, file: Path = Path()) -> None:
        self.name = name
        self.file = file
        self.where = f"{file}: {name}" if file.name else name
        with reading_file(self.where):
            # a mask would be lost: the values behind it would count as states
            if np.ma.is_masked(values):
                raise ValueError("values that are masked: gaam keeps no mask")
            if isinstance(values, (list, tuple)):
                values = np.asarray(values)
            self.shape, self.dtype = _shape_and_type(values)
        self._values = values

    def __str__(self) -> str:
        return f"{self.where}: {self.dtype} {self.shape}"

    def read(self, index: Any = slice(None)) -> NDArray[Any]:
        """A part of the array; bfloat16 as its bits in uint16, texts as objects."""
        with reading_file(self.where):
            part = self._values[index]
            if hasattr(part, "detach"):
                part = _to_numpy(part)
            if self.dtype == STRINGS:
                return _to_texts(part)
            values: NDArray[Any] = np.ascontiguousarray(part)
            if self.dtype == "bfloat16":
                return values.view("<u2")
            return values

    def values(
        self,
        role: str,
        rows: int | None,
        is_valid: Callable[[Any], bool],
        expected: str,
    ) -> list[Any]:
        """A whole number or text for every row.

        Args:
            role: what the array is used for, for messages.
            rows: the number of rows, if it is known.
            is_valid: tells whether a value may be used.
            expected: the valid values in words.

        Raises:
            DataError: another type or shape, or a value that is not valid.
        """
        # the error shows the first bad value, or the array if its type is wrong
        problem = f"{self.dtype} {self.shape}"
        where = self.where
        has_type = self.dtype.startswith(("int", "uint")) or self.dtype == STRINGS
        if has_type and len(self.shape) == 1 and rows in (None, self.shape[0]):
            values: list[Any] = self.read().tolist()
            bad_rows = (row for row, value in enumerate(values) if not is_valid(value))
            bad_row = next(bad_rows, None)
            if bad_row is None:
                return values
            problem = excerpt(values[bad_row])
            where += f", row {bad_row + 1}"
        count = "" if rows is None else f" of {rows:,}"
        raise DataError(
            f"the array '{self.name}' cannot be {role}",
            expected=f"one for every row{count}: {expected}",
            found=problem,
            where=where,
        )


def _shape_and_type(values: Any) -> tuple[tuple[int, ...], str]:
    """The shape of an array and the name of its type."""
    if hasattr(values, "get_shape"):
        # a slice of safetensors tells its type only by a part of it
        shape = tuple(values.get_shape())
        dtype = (values[:0] if shape else values).dtype
    else:
        shape = tuple(values.shape)
        dtype = values.dtype
    if not isinstance(dtype, np.dtype):
        return shape, str(dtype).removeprefix("torch.")
    # objects, bytes and texts: read() refuses objects that are no texts
    if dtype.kind in "OSU":
        return shape, STRINGS
    return shape, dtype.newbyteorder("=").name


def _to_numpy(tensor: Any) -> NDArray[Any]:
    """A tensor of torch as an array; bfloat16 as its bits."""
    import torch

    tensor = tensor.detach().cpu().contiguous()
    # NumPy has no bfloat16: its bits travel as integers
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    array: NDArray[Any] = tensor.numpy()
    return array


def _to_texts(part: Any) -> NDArray[Any]:
    """An array of str; HDF5 and NumPy may store bytes."""
    texts = []
    for value in part.tolist():
        text = value.decode() if isinstance(value, bytes) else value
        if not isinstance(text, str):
            raise TypeError("objects that are no strings")
        texts.append(text)
    return np.array(texts, object)


Roles = Mapping[str, Sequence[Array]]
"""The arrays of a split by role: states (one, or one a layer), labels, kept columns."""


def open_file(path: Path, stack: ExitStack) -> list[Array]:
    """The arrays of a file, by its suffix; ``stack`` closes the file."""
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
    with reading_file(str(path)):
        if suffix in (".npy", ".npz"):
            values_by_name = _open_numpy(path)
        elif suffix == ".safetensors":
            values_by_name = _open_safetensors(path, stack)
        else:
            values_by_name = _open_hdf5(path, stack)

    arrays = []
    for name, values in values_by_name.items():
        array = Array(name, values, path)
        # a single number is neither states nor labels
        if not array.shape:
            continue
        if suffix in (".h5", ".hdf", ".hdf5") and not _is_complete(values):
            array.dtype = f"partly written {array.dtype}"
        arrays.append(array)
    return arrays


def _open_numpy(path: Path) -> dict[str, Any]:
    # a pickle would run code
    loaded: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    if path.suffix.lower() == ".npy":
        return {path.stem: loaded}
    return dict(loaded)


def _open_safetensors(path: Path, stack: ExitStack) -> dict[str, Any]:
    import safetensors

    # NumPy has no bfloat16: torch reads it
    tensors: Any = stack.enter_context(safetensors.safe_open(path, "pt"))
    return {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118


def _open_hdf5(path: Path, stack: ExitStack) -> dict[str, Any]:
    import h5py

    datasets: dict[str, Any] = {}

    def add_dataset(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            datasets[name] = item

    file = stack.enter_context(h5py.File(path, "r", locking=False))
    # this visits no links: they may lead to other files
    file.visititems(add_dataset)
    return datasets


def _is_complete(dataset: Any) -> bool:
    """Whether all values of an HDF5 data set are in its file; others read as zeros."""
    if dataset.chunks:
        stored = dataset.id.get_num_chunks()
        # -(-a // b) rounds up
        chunks_per_axis = [
            -(-length // chunk_length)
            for length, chunk_length in zip(dataset.shape, dataset.chunks, strict=False)
        ]
        expected = math.prod(chunks_per_axis)
    else:
        # HDF5 allocates a contiguous data set as a whole, or not at all
        stored = int(bool(dataset.id.get_storage_size()))
        expected = 1
    has_values = stored >= min(expected, dataset.size)
    return has_values and not dataset.is_virtual and not dataset.external


@dataclass(frozen=True, slots=True)
class _NumberedArray:
    """An array and the number of its layer, or ``ALL_LAYERS``."""

    layer: int
    array: Array


_Candidates = dict[str, dict[str, list[_NumberedArray]]]
"""Split -> role -> arrays that may have that role."""


def choose(
    arrays: Sequence[Array], config: ImportConfig
) -> tuple[Mapping[str, Roles], list[Array]]:
    """The arrays of every split by role, and the arrays that are left.

    Raises:
        ConfigError: it is not clear which array is what.
    """
    return _Choice(arrays, config).make()


class _Choice:
    """The choice among some arrays: first by options, then by names."""

    def __init__(self, arrays: Sequence[Array], config: ImportConfig) -> None:
        self._arrays = arrays
        self._columns = config.keep_columns
        self._unlabelled = config.unlabelled
        self._state_names = names_by_split(config, "arrays")
        self._label_names = names_by_split(config, "labels")

    def make(self) -> tuple[Mapping[str, Roles], list[Array]]:
        candidates = self._candidates_by_name()
        # options override names
        self._apply_options(candidates)
        if not candidates:
            raise self._unclear("it is not clear which arrays are states")
        # an unlabelled split without arrays is refused, not ignored
        for split in self._unlabelled:
            candidates.setdefault(split, {})

        splits: dict[str, Roles] = {}
        for split in sorted(candidates, key=self._position):
            is_only_split = len(candidates) == 1
            splits[split] = self._choose_roles(split, candidates[split], is_only_split)
        chosen = [
            array
            for roles in splits.values()
            for role_arrays in roles.values()
            for array in role_arrays
        ]
        return splits, [array for array in self._arrays if array not in chosen]

    def _candidates_by_name(self) -> _Candidates:
        """What the names of arrays say, of the splits that options name if they do."""
        candidates: _Candidates = {}
        for array in self._arrays:
            split, role, layer = _read_name(array, self._columns)
            if not split or (self._state_names and split not in self._state_names):
                continue
            roles = candidates.setdefault(split, {})
            roles.setdefault(role, []).append(_NumberedArray(layer, array))
        return candidates

    def _apply_options(self, candidates: _Candidates) -> None:
        """Replace what names say by what ``--array`` and ``--labels`` say."""
        options = ((STATES, self._state_names), (LABELS, self._label_names))
        for role, names_of_split in options:
            for split, names in names_of_split.items():
                arrays = [array for name in names for array in self._find(name)]
                roles = candidates.setdefault(split, {})
                roles[role] = _number(arrays)

    def _position(self, split: str) -> int:
        """Splits stand in the order of options, then of usual names, then of files."""
        return (*self._state_names, *SPLITS, split).index(split)

    def _choose_roles(
        self,
        split: str,
        candidates: dict[str, list[_NumberedArray]],
        is_only_split: bool,
    ) -> Roles:
        if STATES not in candidates:
            raise self._unclear(f"'{split}' has no states")
        required = [STATES]
        if split not in self._unlabelled:
            required.append(LABELS)
        required += self._columns

        roles: dict[str, list[Array]] = {}
        for role in required:
            if role not in candidates and role in self._columns:
                column = self._find_column(split, role, is_only_split)
                candidates[role] = _number(column)
            if role not in candidates:
                hint = (
                    f"--labels {split}=NAME, or --set unlabelled={split} where nobody "
                    "knows"
                )
                message = f"it is not clear which array has the {role} of '{split}'"
                raise self._unclear(message, hint)
            roles[role] = self._in_order(candidates[role], f"the {role} of '{split}'")
        return roles

    def _find_column(self, split: str, column: str, is_only_split: bool) -> list[Array]:
        """The array with the plain name of a column, which is clear for one split."""
        names = {array.name for array in self._arrays}
        if not is_only_split or column not in names:
            raise self._unclear(
                f"no array is the column '{column}' of '{split}'",
                f"name the array '{split}_{column}' or '{split}/{column}' in the file, "
                f"or '{column}' where there is one split",
            )
        return self._find(column)

    def _find(self, name: str) -> list[Array]:
        """The arrays that an option names: one, or by ``*`` one for each layer."""
        has_layers = "*" in name
        parts = [re.escape(part) for part in name.split("*", 1)]
        pattern = re.compile(r"(\d{1,6})".join(parts))
        matches = []
        for array in self._arrays:
            match = _match_array(pattern, array)
            if match is not None:
                layer = int(match[1]) if has_layers else ALL_LAYERS
                matches.append(_NumberedArray(layer, array))
        if not matches:
            raise self._unclear(f"there is no array '{name}'")
        return self._in_order(matches, f"'{name}'")

    def _in_order(self, numbered: Sequence[_NumberedArray], role: str) -> list[Array]:
        """Arrays by the numbers of their layers, which leave no gap."""
        # two arrays of one layer, or all layers twice, leave the choice to chance
        numbers = sorted(entry.layer for entry in numbered)
        is_repeated = len(set(numbers)) < len(numbers)
        is_mixed = ALL_LAYERS in numbers and len(numbers) > 1
        if is_repeated or is_mixed:
            raise self._unclear(f"several arrays could be {role}")
        gaps = set(range(numbers[0], numbers[-1])) - set(numbers)
        if gaps:
            raise self._unclear(f"layer {min(gaps)} of {role} is missing")
        ordered = sorted(numbered, key=lambda entry: entry.layer)
        return [entry.array for entry in ordered]

    def _unclear(self, message: str, hint: str = HINT) -> ConfigError:
        listed = "\n".join(map(str, self._arrays)) or "no arrays at all"
        return ConfigError(message, expected=UNDERSTOOD, found=listed, hint=hint)


def _number(arrays: Sequence[Array]) -> list[_NumberedArray]:
    """The arrays with numbers of layers in their order."""
    return [_NumberedArray(layer, array) for layer, array in enumerate(arrays)]


def _match_array(pattern: re.Pattern[str], array: Array) -> re.Match[str] | None:
    """Match the name of an array, alone or after the name or the path of its file."""
    names = (
        array.name,
        f"{array.file.name}:{array.name}",
        f"{array.file}:{array.name}",
    )
    for name in names:
        match = pattern.fullmatch(name)
        if match is not None:
            return match
    return None


def _read_name(array: Array, columns: Sequence[str]) -> tuple[str, str, int]:
    """The split, the role and the layer in the name of an array.

    The name of the file may name the split. Split and role are '' if they are not
    clear; ``columns`` are roles too.
    """
    role_words = "|".join((*ROLES, *columns))
    split_words = "|".join(SPLITS)
    layer = rf"(?:{LAYERED})[/._-]?(?:layer[/._-]?)?(?P<layer>\d{{1,6}})"
    # a group of HDF5 that is no role may have any name
    group = rf"(?!(?:{role_words})/)(?P<group>{NAME_PATTERN.pattern})/"
    match = re.fullmatch(
        rf"(?:(?P<before>{split_words})[/._-]|{group})?"
        rf"(?:(?P<word>{role_words})|{layer})(?:[/._-](?P<after>{split_words}))?",
        array.name,
        re.ASCII,
    )
    if match is None:
        return "", "", ALL_LAYERS

    splits = {match["before"], match["group"], match["after"]} - {None}
    if not splits:
        words = re.split(r"[^A-Za-z0-9]+", array.file.stem)
        splits = set(words).intersection(SPLITS)
    # the name may say no split, or two
    split = splits.pop() if len(splits) == 1 else ""

    word = match["word"]
    role = ROLES.get(word, word) if word else STATES
    number = ALL_LAYERS if match["layer"] is None else int(match["layer"])
    return split, role, number
