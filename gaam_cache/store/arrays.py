"""Arrays of others: of files, or as a program hands them over; and which are taken as what.

Nothing is unpickled. Of an npz an array is read whole when its first row is; everything else is
read from the file as it is asked for. What is taken is what options say, else what names do, and
never what shapes do: ``train/embeddings``, ``train_embeddings``, ``X_train`` or ``embeddings`` in a
file ``train.npz``; ``layer_0``, ``hidden_states/0`` and so on in any of these.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.config import NAME_PATTERN, ImportConfig, of_splits
from gaam_cache.errors import ConfigError, DataError, GaamError, NotFoundError
from gaam_cache.store.files import raise_if_refused

STRINGS = "str"
STATES, LABELS, NUM_TOKENS = "states", "labels", "num_tokens"
WORDS = {
    **dict.fromkeys(("embeddings", "embedding", "hidden_states", "states"), STATES),
    **dict.fromkeys(("features", "X"), STATES),
    **dict.fromkeys(("labels", "label", "targets", "target", "y"), LABELS),
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
HINT = "say which is which: --array SPLIT=NAME --labels SPLIT=NAME; SPLIT=FILE:NAME of which file"
MOST_SHOWN = 40
"""Arrays that a message lists."""


class Array:
    """Anything with a shape and a type that can be sliced, or a list: NumPy, torch, h5py, a map.

    ``name`` is that in its ``file``, with groups before it and '/' between.
    """

    def __init__(
        self, name: str, values: Any, file: Path = Path(), *, shape: Any = None, dtype: str = ""
    ) -> None:
        self.name, self.file, self.where = name, file, f"{file}: {name}" if file.name else name
        with refusing(name):
            if isinstance(values, (list, tuple)):
                texts = any(isinstance(one, str) for one in values)
                values = np.array(values, object if texts else None)
            self.shape = tuple(int(n) for n in (values.shape if shape is None else shape))
            self.dtype = dtype or _dtype_word(values)
            """As NumPy calls it, or 'bfloat16', or 'str' for strings of any kind."""
        self._values = values.detach() if hasattr(values, "detach") else values

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype} {self.shape}"

    def read(self, index: Any = slice(None)) -> NDArray[Any]:
        """A part; bfloat16 comes as its bits in uint16, strings as objects."""
        with refusing(self.where):
            part = self._values[index]
            if hasattr(part, "cpu"):  # a tensor
                part = part.cpu().contiguous()
                if self.dtype == "bfloat16":
                    import torch

                    part = part.view(torch.int16)
                part = part.numpy()
            if self.dtype == STRINGS:
                texts = [t.decode() if isinstance(t, bytes) else t for t in part.tolist()]
                return np.array([*texts, None], object)[:-1]  # of the None no array of "U"
            found = np.ascontiguousarray(part)
            return found.view("<u2") if self.dtype == "bfloat16" else found


def _dtype_word(values: Any) -> str:
    word = str(values.dtype)
    if word.startswith("torch.") or word == "bfloat16":  # of ml_dtypes
        return word.removeprefix("torch.")
    dtype = np.dtype(values.dtype)
    if dtype.hasobject:
        of_h5py = dtype.metadata and dtype.metadata.get("vlen") in (str, bytes)
        ours = isinstance(values, np.ndarray) and values.ndim == 1
        texts = of_h5py or (ours and all(isinstance(one, str) for one in values.tolist()))
        return STRINGS if texts else "object"
    return STRINGS if dtype.kind in "US" else dtype.newbyteorder("=").name


@contextmanager
def refusing(where: str) -> Iterator[None]:
    """Whatever a library says of a file or value becomes one message."""
    try:
        yield
    except GaamError:
        raise
    except Exception as error:  # noqa: BLE001 whatever a library raises: the file is bad
        raise_if_refused(error, Path(where))
        raise DataError(
            f"'{Path(where).name}' cannot be read",
            expected="a whole file of the kind that its suffix says, or an array or list",
            found=" ".join(str(error).split()) or type(error).__name__,
            where=where,
        ) from error


def open_file(path: Path, stack: ExitStack) -> list[Array]:
    """The arrays of a file, by its suffix; ``stack`` closes it."""
    if not path.exists():
        raise NotFoundError(f"no file at '{path}'", where=str(path.absolute()))
    suffix = path.suffix.lower()
    if not path.is_file() or suffix not in READERS:
        raise ConfigError(
            f"no arrays are read from '{path.name}'",
            expected=f"a file that ends in one of: {', '.join(sorted(READERS))}",
            found=None if path.is_file() else "a folder or pipe",
            where=str(path.absolute()),
            hint="save the arrays as safetensors; of a pickle, such as a .pt, nothing is read: "
            "it runs code",
        )
    with refusing(str(path)):
        return list(READERS[suffix](path, stack))


def _npy(path: Path, stack: ExitStack) -> Iterator[Array]:
    array = Array(path.stem, np.load(path, mmap_mode="r", allow_pickle=False), path)
    array.where = str(path)
    yield array


class _Member:
    """An array of an npz."""

    def __init__(self, archive: Any, name: str) -> None:
        form = np.lib.format
        with archive.zip.open(f"{name}.npy") as file:
            old = form.read_magic(file) == (1, 0)
            header = (form.read_array_header_1_0 if old else form.read_array_header_2_0)(file)
        self.shape, _, self.dtype = header
        self._values = cache(lambda: archive[name])

    def __getitem__(self, index: Any) -> NDArray[Any]:
        found: NDArray[Any] = self._values()[index]
        return found


def _npz(path: Path, stack: ExitStack) -> Iterator[Array]:
    archive = stack.enter_context(np.load(path, allow_pickle=False))
    for name in archive.files:
        yield Array(name, _Member(archive, name), path)


def _safetensors(path: Path, stack: ExitStack) -> Iterator[Array]:
    import safetensors

    file = stack.enter_context(safetensors.safe_open(path, "pt"))  # NumPy has no bfloat16
    for name in file.keys():  # noqa: SIM118 it is no dictionary
        part = file.get_slice(name)
        word = part.get_dtype()
        for short, long in (("BF16", "bfloat16"), ("F", "float"), ("I", "int"), ("U", "uint")):
            word = word.replace(short, long) if word.startswith(short) else word
        yield Array(name, part, path, shape=part.get_shape(), dtype=word)


def _hdf5(path: Path, stack: ExitStack) -> Iterator[Array]:
    import h5py

    found: list[Any] = []
    file = stack.enter_context(h5py.File(path, "r", locking=False))
    file.visititems(lambda _, thing: found.append(thing))  # follows no soft or external links
    for one in found:
        if not isinstance(one, h5py.Dataset) or one.shape is None:
            continue
        word = ""
        there = one.id.get_num_chunks() if one.chunks else bool(one.id.get_storage_size())
        pairs = zip(one.shape, one.chunks or one.shape, strict=True)
        if one.is_virtual or one.external:
            word = "in other files"
        elif one.size and there < math.prod(-(-n // m) for n, m in pairs):
            word = f"partly written {one.dtype}"  # the rest would be read as zeros
        yield Array(one.name.lstrip("/"), one, path, dtype=word)


READERS = {
    **dict.fromkeys((".h5", ".hdf5", ".hdf"), _hdf5),
    ".npy": _npy,
    ".npz": _npz,
    ".safetensors": _safetensors,
}


class Taken(NamedTuple):
    """The arrays of one split: states in one, or in one for every layer; labels if known."""

    states: Sequence[Array]
    labels: Array | None
    num_tokens: Array | None
    columns: Mapping[str, Array]


Numbered = Sequence[tuple[int | None, Array]]
"""Arrays, each with the number of its layer, or None where it is no layer."""


class Offer:
    """All arrays of all files, what their names say, and how they are asked for."""

    def __init__(self, arrays: Sequence[Array], kept: Sequence[str]) -> None:
        """``kept`` are further words, each of which is a role of its own."""
        self._arrays = arrays
        self.said: dict[tuple[str, str], list[tuple[int | None, Array]]] = {}
        """Split and role -> arrays that say to be that."""
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
            if len(split) == 1:  # else it says none, or two
                of_role = self.said.setdefault((split.pop(), role), [])
                of_role.append((int(layer) if layer else None, array))

    def find(self, asked: str) -> list[Array]:
        """The array of that name, or those of a pattern, in the order of their numbers."""
        pattern = r"(\d{1,6})".join(map(re.escape, asked.split("*", 1)))
        found: list[tuple[int | None, Array]] = []
        for array in self._arrays:
            names = (
                array.name,
                *(f"{file}:{array.name}" for file in (array.file.name, array.file)),
            )
            if match := next(filter(None, (re.fullmatch(pattern, name) for name in names)), None):
                found.append((int(match[1]) if "*" in asked else None, array))
        if not found:
            raise self.unclear(f"there is no array '{asked}'")
        return self._ordered(found, f"'{asked}'")

    def of(self, split: str, role: str) -> list[Array]:
        """Those that say to be that of a split: none, one, or one for each layer."""
        found = self.said.get((split, role), [])
        return self._ordered(found, f"the {role} of '{split}'") if found else []

    def _ordered(self, found: Numbered, what: str) -> list[Array]:
        """The one array, or one for each layer, none missing and none there twice."""
        layers = dict(found)
        numbers = [number for number in layers if number is not None]
        if len(layers) < len(found) or (None in layers and numbers):
            raise self.unclear(f"several arrays could be {what}")
        asked = range(min(numbers), max(numbers) + 1) if numbers else (None,)
        if missing := [number for number in asked if number not in layers]:
            raise self.unclear(f"layer {missing[0]} of {what} is missing")
        return [layers[number] for number in asked]

    def unclear(self, message: str, hint: str = HINT) -> ConfigError:
        """The one refusal of what is not clear: it lists what there is."""
        lines = [f"{array.file.name}: {array}" for array in self._arrays]
        lines[MOST_SHOWN:] = [f"and {len(lines) - MOST_SHOWN:,} more"] * (len(lines) > MOST_SHOWN)
        found = "\n".join(lines) or "no arrays at all"
        return ConfigError(message, expected=UNDERSTOOD, found=found, hint=hint)


def choose(arrays: Sequence[Array], config: ImportConfig) -> tuple[dict[str, Taken], list[Array]]:
    """The arrays of every split, and what is left."""
    offer, explicit = Offer(arrays, config.keep_columns), of_splits(config, "arrays")
    labels, tokens = of_splits(config, "labels"), of_splits(config, "num_tokens")
    states = {
        split: [array for name in names for array in offer.find(name)]
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

    def one(split: str, role: str, asked: Mapping[str, list[str]]) -> Array | None:
        found = offer.find(asked[split][0]) if split in asked else offer.of(split, role)
        used.update(found[:1])
        return found[0] if found else None

    splits, used = {}, {array for part in states.values() for array in part}
    for split in states:
        known = None if split in config.unlabelled else one(split, LABELS, labels)
        if known is None and split not in config.unlabelled:
            hint = f"--labels {split}=NAME, or --set unlabelled={split} where nobody knows"
            raise offer.unclear(f"it is not clear which array has the labels of '{split}'", hint)
        columns = {}
        for name in config.keep_columns:
            if (column := one(split, name, {})) is None:
                hint = f"call it {split}/{name} or {split}_{name}, or {name} in a file {split}.*"
                raise offer.unclear(f"'{split}' has no column '{name}'", hint)
            columns[name] = column
        splits[split] = Taken(states[split], known, one(split, NUM_TOKENS, tokens), columns)
    return splits, [array for array in arrays if array not in used]
