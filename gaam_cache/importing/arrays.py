"""Reads arrays that other programs made, and chooses a role for every array.

The roles are states, labels and kept columns of a split. Options decide which array has
which role; without options the names of the arrays decide. The shapes never decide.
Nothing is unpickled.
"""

import math
import re
import shlex
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

FILE_SUFFIXES = (".h5", ".hdf", ".hdf5", ".npy", ".npz", ".safetensors")
STRINGS = "str"  # ``Array.dtype`` of an array of texts
STATES = "states"
LABELS = "labels"
ROLE_BY_NAME = {
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
"""Usual name of an array in other programs -> its role."""
LAYER_WORDS = "embeddings|embedding|hidden_states|states|features|layers|layer"
"""Words that stand before a layer's number in the name of an array, as a pattern."""
NUMBERED_LAYER = re.compile(r"(?:layers?|hidden_states)[/._-]?\d")
"""Words in the name of an array whose number is that of a layer and not a year."""
SPLIT_WORDS = (
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
EXPECTED_NAMES = (
    "states (embeddings, hidden_states, features, X, layer_0...) and labels "
    "(targets, y), in files called train.*, test.*, or as train/states, train_states, "
    "X_train"
)
ALL_LAYERS = -1  # stands for a layer's number where one array has all layers
NAMING_HINT = (
    "say which is which: --array SPLIT=NAME --labels SPLIT=NAME; SPLIT=FILE:NAME of "
    "which file; where there is only train, gaam train --folds 5 tests on parts of it"
)


class Array:
    """An array of NumPy, torch, h5py or safetensors, which is read when needed.

    ``dtype`` is the name of its type; texts have the type 'str'.

    Args:
        name: its name in the file, or in messages.
        values: the array itself, which can be sliced.
        file: the file that holds it; the empty path for an array of this program.
    """

    def __init__(self, name: str, values: Any, file: Path = Path()) -> None:
        self.name = name
        self.file = file
        self.where = f"{file}: {name}" if file.name else name
        refuse_mask(values, self.where)
        with reading_file(self.where):
            if isinstance(values, (list, tuple)):
                values = np.asarray(values)
            self.shape, self.dtype = _shape_and_type(values)
        self._values = values

    def __str__(self) -> str:
        return f"{self.where}: {self.dtype} {self.shape}"

    def read(self, index: Any = slice(None)) -> NDArray[Any]:
        """Read the part of the array that ``index`` selects.

        Returns:
            The part; bfloat16 as its bits in uint16, texts as an array of str objects.
        """
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

    def read_one_per_row(
        self,
        role: str,
        *,
        is_valid: Callable[[Any], bool],
        expected: str,
        num_rows: int | None = None,
    ) -> list[Any]:
        """Read an array that has a whole number or a text for every row.

        Args:
            role: what the array is used for, for messages.
            is_valid: tells whether a value may be used.
            expected: the valid values in words, for messages.
            num_rows: number of values that the array must have; None for any number.

        Returns:
            One int or str for every row.

        Raises:
            DataError: the array has another type or shape, or an invalid value.
        """
        # an error shows the type and the shape, unless a single value is at fault
        type_or_value = f"{self.dtype} {self.shape}"
        where = self.where
        has_discrete_type = (
            self.dtype.startswith(("int", "uint")) or self.dtype == STRINGS
        )
        has_one_value_per_row = len(self.shape) == 1 and (
            num_rows is None or self.shape[0] == num_rows
        )
        if has_discrete_type and has_one_value_per_row:
            values: list[Any] = self.read().tolist()
            bad_rows = (row for row, value in enumerate(values) if not is_valid(value))
            first_bad_row = next(bad_rows, None)
            if first_bad_row is None:
                return values
            type_or_value = excerpt(values[first_bad_row])
            where += f", row {first_bad_row + 1}"
        count = "" if num_rows is None else f" of {num_rows:,}"
        raise DataError(
            f"the array '{self.name}' cannot be {role}",
            expected=f"one for every row{count}: {expected}",
            found=type_or_value,
            where=where,
        )


def refuse_mask(values: Any, where: str) -> None:
    """Refuse values of which some are masked: gaam would take what is under the mask.

    Args:
        values: an array, or a list of arrays or numbers.
        where: the name of the array, for messages.
    """
    parts = values if isinstance(values, (list, tuple)) else [values]
    if any(map(np.ma.is_masked, parts)):
        raise DataError(
            "values are masked, and gaam keeps no mask",
            expected="an array without masked values",
            found="a masked array of NumPy",
            where=where,
            hint="fill these values, or remove their rows",
        )


def _shape_and_type(values: Any) -> tuple[tuple[int, ...], str]:
    """The shape of an array, and the name of its type, such as 'float32'."""
    if hasattr(values, "get_shape"):
        # ``values`` is a slice object of safetensors, which has no ``dtype``. Its parts
        # are tensors, which have one: the empty part, or all of a single number.
        shape = tuple(values.get_shape())
        part = values[:0] if shape else values[...]
        dtype = part.dtype
    else:
        shape = tuple(values.shape)
        dtype = values.dtype
    if not isinstance(dtype, np.dtype):
        return shape, str(dtype).removeprefix("torch.")
    # NumPy keeps texts as objects (O), bytes (S) or str (U); ``Array.read`` refuses
    # objects that are not texts
    if dtype.kind in "OSU":
        return shape, STRINGS
    return shape, dtype.newbyteorder("=").name


def _to_numpy(tensor: Any) -> NDArray[Any]:
    """A tensor of torch as an array of NumPy; bfloat16 as its bits in int16."""
    import torch

    tensor = tensor.detach().cpu().contiguous()
    # NumPy has no bfloat16: its bits travel as integers
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    array: NDArray[Any] = tensor.numpy()
    return array


def _to_texts(part: Any) -> NDArray[Any]:
    """Make an array of str of texts, which HDF5 and NumPy may store as bytes.

    Raises:
        TypeError: an entry is not a text.
    """
    texts = []
    for value in part.tolist():
        text = value.decode() if isinstance(value, bytes) else value
        if not isinstance(text, str):
            raise TypeError("objects that are no strings")
        texts.append(text)
    return np.array(texts, object)


@dataclass(frozen=True, slots=True)
class SplitArrays:
    """The arrays of one split, by what they are used for."""

    states: Sequence[Array]
    """One array of all layers; or an array for each layer, in their order."""
    labels: Array | None
    """None for a split without labels."""
    columns: Mapping[str, Array]
    """Name of a kept column -> its array."""

    @property
    def all(self) -> list[Array]:
        """The arrays of all uses."""
        arrays = [*self.states, *self.columns.values()]
        if self.labels is not None:
            arrays.append(self.labels)
        return arrays


def open_file(path: Path, stack: ExitStack) -> list[Array]:
    """Open the arrays in a file, which is read as its suffix says.

    Args:
        path: the file.
        stack: closes the file when it is closed itself.

    Returns:
        The arrays, without single numbers.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: the suffix is not that of a file of arrays.
        DataError: the file cannot be read.
    """
    if not path.exists():
        raise NotFoundError(f"no file at '{path}'", where=str(path.absolute()))
    suffix = path.suffix.lower()
    if not path.is_file() or suffix not in FILE_SUFFIXES:
        raise ConfigError(
            f"no arrays are read from '{path.name}'",
            expected=f"a file that ends in one of: {', '.join(FILE_SUFFIXES)}",
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
        # No use accepts a type of this name. So such an array is refused if it is used,
        # and the message says why.
        if suffix in (".h5", ".hdf", ".hdf5") and not _is_complete(values):
            array.dtype = f"partly written {array.dtype}"
        arrays.append(array)
    return arrays


def _open_numpy(path: Path) -> dict[str, Any]:
    """The arrays of a .npy or .npz file by name; that of a .npy stays on disk."""
    try:
        # a pickle would run code
        loaded: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        if path.suffix.lower() == ".npy":
            return {path.stem: loaded}
        return dict(loaded)
    except ValueError as error:
        # what NumPy says of a .npy, and of an array in a .npz
        if not re.search("Python objects|Object arrays", str(error)):
            raise
        raise ValueError(
            "an array of Python objects, which only a pickle can hold; save texts as "
            "labels.astype(str)"
        ) from error


def _open_safetensors(path: Path, stack: ExitStack) -> dict[str, Any]:
    """The arrays of a safetensors file by name; their values are not read yet."""
    import safetensors

    # NumPy has no bfloat16: torch reads it
    tensors: Any = stack.enter_context(safetensors.safe_open(path, "pt"))
    return {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118


def _open_hdf5(path: Path, stack: ExitStack) -> dict[str, Any]:
    """The data sets of an HDF5 file by path; their values are not read yet."""
    import h5py

    datasets: dict[str, Any] = {}

    def add_dataset(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            datasets[name] = item

    file = stack.enter_context(h5py.File(path, "r", locking=False))
    # visititems follows no links, which may lead to other files
    file.visititems(add_dataset)
    return datasets


def _is_complete(dataset: Any) -> bool:
    """Whether an HDF5 file holds all values of a data set.

    HDF5 reads zeros in place of values that were never written, without any error.
    """
    # such a data set refers to values in other files, which may be missing
    if dataset.is_virtual or dataset.external:
        return False
    if not dataset.chunks:
        # HDF5 allocates a contiguous data set as a whole, or not at all
        return bool(dataset.size == 0 or dataset.id.get_storage_size() > 0)
    # the last chunk of an axis may be partly filled: -(-a // b) rounds up
    chunks_per_axis = [
        -(-length // chunk_length)
        for length, chunk_length in zip(dataset.shape, dataset.chunks, strict=False)
    ]
    return bool(dataset.id.get_num_chunks() >= math.prod(chunks_per_axis))


@dataclass(frozen=True, slots=True)
class _LayerArray:
    """An array of states, and the number of its layer.

    Labels and kept columns have no layers; their number means nothing.
    """

    layer: int  # from 0 or 1 on, as the names say; or ``ALL_LAYERS``
    array: Array


@dataclass(frozen=True, slots=True)
class _ParsedName:
    """What the name of an array says about it."""

    split: str  # '' if the name says none, or two
    role: str  # ``STATES``, ``LABELS`` or a kept column; '' for any other name
    layer: int  # or ``ALL_LAYERS``


_Candidates = dict[str, dict[str, list[_LayerArray]]]
"""Split -> role -> arrays that may have that role."""


def choose_arrays(
    arrays: Sequence[Array], config: ImportConfig
) -> tuple[Mapping[str, SplitArrays], list[Array]]:
    """Choose the states, labels and kept columns of every split among some arrays.

    Returns:
        Split -> its arrays; and the arrays that were not chosen.

    Raises:
        ConfigError: it is not clear which array has which role.
    """
    return _ArrayChooser(arrays, config).choose()


class _ArrayChooser:
    """Chooses the arrays of every split: by options, or else by the arrays' names."""

    def __init__(self, arrays: Sequence[Array], config: ImportConfig) -> None:
        self._arrays = arrays
        self._columns = config.keep_columns
        self._unlabelled = config.unlabelled  # splits
        self._states_option = names_by_split(config, "arrays")
        """The option ``--array``: split -> names of its arrays of states."""
        self._labels_option = names_by_split(config, "labels")
        """The option ``--labels``: split -> names of its arrays of labels."""

    def choose(self) -> tuple[Mapping[str, SplitArrays], list[Array]]:
        """Choose the arrays of every split.

        Returns:
            Split -> its arrays; and the arrays that were not chosen.

        Raises:
            ConfigError: it is not clear which array has which role.
        """
        # split -> role -> arrays that may have this role
        candidates = self._candidates_by_name()
        # options override names
        self._apply_options(candidates)
        if not candidates:
            raise self._no_split_error()
        # a split of --set unlabelled without any array is not ignored: it has no
        # states, for which ``_choose_for_split`` refuses it
        for split in self._unlabelled:
            candidates.setdefault(split, {})
        self._check_layers(candidates)

        is_only_split = len(candidates) == 1
        arrays_by_split = {
            split: self._choose_for_split(split, candidates[split], is_only_split)
            for split in sorted(candidates, key=self._split_position)
        }
        chosen = [array for arrays in arrays_by_split.values() for array in arrays.all]
        unused = [array for array in self._arrays if array not in chosen]
        return arrays_by_split, unused

    def _check_layers(self, candidates: _Candidates) -> None:
        """Refuse splits whose arrays are named after different layers.

        Layer 1 of one split would stand beside layer 2 of another.
        """
        layers_by_split = {}
        for split, roles in candidates.items():
            entries = roles.get(STATES, [])
            if self._have_known_layers(split, entries):
                layers_by_split[split] = sorted(entry.layer for entry in entries)
        if len(set(map(tuple, layers_by_split.values()))) > 1:
            ranges = [
                f"{split} {_range_in_words(layers)}"
                for split, layers in layers_by_split.items()
            ]
            raise self._unclear_error(
                f"the splits have different layers: {', '.join(ranges)}"
            )

    def _have_known_layers(self, split: str, entries: Sequence[_LayerArray]) -> bool:
        """Whether the numbers in the names of a split's states are those of layers.

        Args:
            split: its name.
            entries: its states.
        """
        # a pattern of the option says which number is that of the layer; names without
        # a pattern say which arrays to take, whatever numbers they have
        option = self._states_option.get(split)
        if option is not None:
            return len(option) == 1 and "*" in option[0]
        # the number of a single array may be a year
        if len(entries) == 1:
            return NUMBERED_LAYER.search(entries[0].array.name) is not None
        return len(entries) > 1

    def _candidates_by_name(self) -> _Candidates:
        """Split -> role -> the arrays whose names say this split and this role.

        If the option ``--array`` names splits, only these splits count.
        """
        candidates: _Candidates = {}
        for array in self._arrays:
            name = _parse_name(array, self._columns)
            if not name.split:
                continue
            has_chosen_splits = len(self._states_option) > 0
            if has_chosen_splits and name.split not in self._states_option:
                continue
            roles = candidates.setdefault(name.split, {})
            roles.setdefault(name.role, []).append(_LayerArray(name.layer, array))
        return candidates

    def _apply_options(self, candidates: _Candidates) -> None:
        """Replace candidates by the arrays that ``--array`` and ``--labels`` name.

        Args:
            candidates: split -> role -> arrays that may have it; this changes it.
        """
        option_by_role = {STATES: self._states_option, LABELS: self._labels_option}
        for role, array_names_by_split in option_by_role.items():
            for split, names in array_names_by_split.items():
                entries = [entry for name in names for entry in self._find_arrays(name)]
                # of several options, the order is that of the layers
                if len(names) > 1:
                    entries = [
                        _LayerArray(layer, entry.array)
                        for layer, entry in enumerate(entries)
                    ]
                candidates.setdefault(split, {})[role] = entries

    def _split_position(self, split: str) -> int:
        """Where a split stands in the order of all splits, to sort them.

        First come the splits in the order of ``--array``, then those in the order of
        ``SPLIT_WORDS``. All others share the last position: sorting keeps their order,
        which is that of the arrays.
        """
        splits_of_option = tuple(self._states_option)
        known_splits = (*splits_of_option, *SPLIT_WORDS)
        if split not in known_splits:
            return len(known_splits)
        return known_splits.index(split)

    def _choose_for_split(
        self,
        split: str,
        candidates: dict[str, list[_LayerArray]],
        is_only_split: bool,
    ) -> SplitArrays:
        """The arrays of a split.

        Args:
            split: its name.
            candidates: role -> arrays that may have the role.
            is_only_split: whether there is no other split. Then the array of a kept
                column need not name its split.

        Raises:
            ConfigError: a role has no array, or it is not clear which.
        """
        if STATES not in candidates:
            raise self._unclear_error(f"'{split}' has no states")
        layer_arrays = self._ordered_by_layer(
            candidates[STATES], f"the {STATES} of '{split}'"
        )
        states = [entry.array for entry in layer_arrays]

        labels: Array | None = None
        if split not in self._unlabelled:
            if LABELS not in candidates:
                raise self._unclear_error(
                    f"it is not clear which array has the {LABELS} of '{split}'",
                    f"--labels {split}=NAME, or --set unlabelled={split} where nobody "
                    "knows",
                )
            labels = self._only_array(candidates[LABELS], f"the {LABELS} of '{split}'")

        columns: dict[str, Array] = {}
        for column in self._columns:
            if column in candidates:
                subject = f"the {column} of '{split}'"
                columns[column] = self._only_array(candidates[column], subject)
            else:
                columns[column] = self._find_column_array(split, column, is_only_split)
        return SplitArrays(states=states, labels=labels, columns=columns)

    def _only_array(self, candidates: Sequence[_LayerArray], subject: str) -> Array:
        """The single array that may have a role.

        Args:
            candidates: at least one array.
            subject: what the array is, for messages: "the labels of 'test'".

        Raises:
            ConfigError: there are several arrays.
        """
        if len(candidates) > 1:
            raise self._unclear_error(f"several arrays could be {subject}")
        return candidates[0].array

    def _find_column_array(self, split: str, column: str, is_only_split: bool) -> Array:
        """The array that has the name of a kept column, without the name of a split.

        Such a name is clear only where there is one split.

        Args:
            split: name of the split.
            column: name of the kept column.
            is_only_split: whether there is no other split.

        Raises:
            ConfigError: there are several splits, or no such array, or several.
        """
        names = {array.name for array in self._arrays}
        if not is_only_split or column not in names:
            raise self._unclear_error(
                f"no array is the column '{column}' of '{split}'",
                f"name the array '{split}_{column}' or '{split}/{column}' in the file, "
                f"or '{column}' where there is one split",
            )
        [entry] = self._find_arrays(column)
        return entry.array

    def _find_arrays(self, name: str) -> list[_LayerArray]:
        """The arrays with a name that an option gives, in the order of their layers.

        Args:
            name: the name of one array. Or a name in which the first ``*`` stands for
                the number of a layer: it matches one array for each layer.

        Raises:
            ConfigError: no array has the name, a layer is missing, or several arrays
                have the same layer.
        """
        has_layer_number = "*" in name
        parts = [re.escape(part) for part in name.split("*", 1)]
        pattern = re.compile(r"(\d{1,6})".join(parts))
        layer_arrays = []
        for array in self._arrays:
            match = _match_array(pattern, array)
            if match is not None:
                layer = int(match[1]) if has_layer_number else ALL_LAYERS
                layer_arrays.append(_LayerArray(layer, array))
        if not layer_arrays:
            raise self._unclear_error(f"there is no array '{name}'")
        return self._ordered_by_layer(layer_arrays, f"'{name}'")

    def _ordered_by_layer(
        self, layer_arrays: Sequence[_LayerArray], subject: str
    ) -> list[_LayerArray]:
        """The arrays in the order of their layers.

        Args:
            layer_arrays: at least one array with its layer.
            subject: what the arrays are, for messages: "the states of 'test'".

        Raises:
            ConfigError: a layer between the first and the last one is missing, or two
                arrays have the same layer.
        """
        layers = sorted(entry.layer for entry in layer_arrays)
        # it is not clear which array is meant if two have the same layer, or if one has
        # all layers and others have single ones
        is_repeated = len(set(layers)) < len(layers)
        is_mixed = ALL_LAYERS in layers and len(layers) > 1
        if is_repeated or is_mixed:
            raise self._unclear_error(f"several arrays could be {subject}")
        missing_layers = set(range(layers[0], layers[-1])) - set(layers)
        if missing_layers:
            first_missing = min(missing_layers)
            raise self._unclear_error(f"layer {first_missing} of {subject} is missing")
        return sorted(layer_arrays, key=lambda entry: entry.layer)

    def _no_split_error(self) -> ConfigError:
        """The error for arrays of which none has a role in a split.

        Where one array is states and one labels, but no name says a split, all rows may
        be training rows: the hint says how to import these.
        """
        names_by_role: dict[str, list[str]] = {STATES: [], LABELS: []}
        for array in self._arrays:
            role = _parse_name(array, self._columns).role
            if role in names_by_role:
                names_by_role[role].append(array.name)
        if any(len(names) != 1 for names in names_by_role.values()):
            return self._unclear_error("it is not clear which arrays are states")
        [states_name] = names_by_role[STATES]
        [labels_name] = names_by_role[LABELS]
        return self._unclear_error(
            "no name says which split the arrays are",
            f"if these are all rows: --array {shlex.quote(f'train={states_name}')} "
            f"--labels {shlex.quote(f'train={labels_name}')}, then gaam train --folds "
            "5, which tests on parts of them",
        )

    def _unclear_error(self, message: str, hint: str = NAMING_HINT) -> ConfigError:
        """An error that says which names gaam understands and which arrays there are.

        Args:
            message: what is not clear.
            hint: what the user can do.
        """
        array_lines = "\n".join(map(str, self._arrays)) or "no arrays at all"
        return ConfigError(
            message, expected=EXPECTED_NAMES, found=array_lines, hint=hint
        )


def _range_in_words(layers: Sequence[int]) -> str:
    """The first and the last of some layers; of one layer its number."""
    if len(layers) == 1:
        return str(layers[0])
    return f"{layers[0]} to {layers[-1]}"


def _match_array(pattern: re.Pattern[str], array: Array) -> re.Match[str] | None:
    """Match a pattern with the name of an array; None if it does not match.

    The pattern may match ``NAME``, ``FILE:NAME`` or ``PATH/FILE:NAME``.
    """
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


def _parse_name(array: Array, columns: Sequence[str]) -> _ParsedName:
    """Read the split, the role and the layer in the name of an array.

    If the name of the array says no split, the name of its file may. Examples:

    - 'train_states': the states of 'train', all layers in one array
    - 'X_test': the states of 'test', too
    - 'dev2/layer_3': layer 3 of the states of 'dev2', a group of an HDF5 file
    - 'y' in 'test.npz': the labels of 'test'
    - 'weights': neither a split nor a role

    Args:
        array: the array.
        columns: names of kept columns, which are roles too.
    """
    role_words = "|".join((*ROLE_BY_NAME, *columns))
    split_words = "|".join(SPLIT_WORDS)
    role = f"(?P<role>{role_words})"
    # such as 'layer_3' or 'hidden_states.layer.3'
    layer = rf"(?:{LAYER_WORDS})[/._-]?(?:layer[/._-]?)?(?P<layer>\d{{1,6}})"
    # A split of any name may be a group of HDF5. But 'states/' and other names of roles
    # are no splits.
    group = rf"(?!(?:{role_words})/)(?P<group>{NAME_PATTERN.pattern})/"
    before = rf"(?:(?P<before>{split_words})[/._-]|{group})?"
    after = rf"(?:[/._-](?P<after>{split_words}))?"
    match = re.fullmatch(f"{before}(?:{role}|{layer}){after}", array.name, re.ASCII)
    if match is None:
        return _ParsedName(split="", role="", layer=ALL_LAYERS)

    splits = {match["before"], match["group"], match["after"]} - {None}
    if not splits:
        words_of_file = re.split(r"[^A-Za-z0-9]+", array.file.stem)
        splits = set(words_of_file).intersection(SPLIT_WORDS)
    # a name that says no split, or two, is not clear
    split = splits.pop() if len(splits) == 1 else ""

    # the pattern matches a word for a role, or else the number of a layer of states
    role_word = match["role"]
    if role_word is None:
        return _ParsedName(split=split, role=STATES, layer=int(match["layer"]))
    # any other word is the name of a kept column, which is its role
    role_name = ROLE_BY_NAME.get(role_word, role_word)
    return _ParsedName(split=split, role=role_name, layer=ALL_LAYERS)
