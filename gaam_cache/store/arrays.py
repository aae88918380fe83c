"""Arrays of others, read a stretch of rows at a time: of files, or as a program hands them over.

Nothing is unpickled. Of an npz an array is read whole when its first row is; everything else is
read from the file as it is asked for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import ConfigError, DataError, GaamError, NotFoundError
from gaam_cache.messages import shortened
from gaam_cache.store.files import raise_if_refused

STRINGS = "str"
HDF5 = (".h5", ".hdf5", ".hdf")
SUFFIXES = (".safetensors", ".npz", ".npy", *HDF5)
PICKLES = {".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt", ".joblib"}


class Array:
    """Anything with a shape and a type that can be sliced: NumPy, torch, h5py, a memory map.

    Args:
        name: in its file, with groups before it and '/' between; or for messages.
        values: the array; or a list of strings or of whole numbers.
        where: file and name, for messages; empty: the name.
        dtype: 'bfloat16' where the values are its bits; empty: that of the values.
    """

    def __init__(self, name: str, values: Any, where: str = "", dtype: str = "") -> None:
        self.name, self.where = name, where or name
        if isinstance(values, (list, tuple)) and values:
            kind = str if isinstance(values[0], str) else (int, np.integer)
            if all(isinstance(one, kind) and not isinstance(one, bool) for one in values):
                values = np.array(values, object if kind is str else np.int64)
        if not hasattr(values, "shape") or not hasattr(values, "dtype"):
            raise DataError(
                f"{name} is no array",
                expected="an array with a shape and a dtype that can be sliced, or a list of "
                "strings or of whole numbers",
                found=type(values).__name__,
            )
        self.shape = tuple(int(n) for n in values.shape)
        self._values = values.detach() if hasattr(values, "detach") else values
        self.dtype = dtype or _dtype_word(values)
        """As NumPy calls it, or 'bfloat16', or 'str' for strings of any kind."""

    def __str__(self) -> str:
        """Name, type and shape, for people."""
        return f"{self.name}: {self.dtype} {self.shape}"

    def read(self, start: int, stop: int, outer: int | None = None) -> NDArray[Any]:
        """Entries ``start`` to ``stop`` of the first axis, or, at ``outer`` of it, of the second.

        bfloat16 comes as its bits in uint16, strings as objects.
        """
        with refusing(self.where):
            rows = slice(start, stop)
            part = self._values[rows] if outer is None else self._values[outer, rows]
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


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """A file of arrays."""

    path: Path
    arrays: Sequence[Array]
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of classes that the file says itself, and where it does."""


@contextmanager
def refusing(where: str) -> Iterator[None]:
    """Whatever a library says of a file becomes one message."""
    try:
        yield
    except GaamError:
        raise
    except Exception as error:  # noqa: BLE001 whatever a library raises: the file is bad
        raise_if_refused(error, Path(where))
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DataError(
            f"'{Path(where).name}' cannot be read",
            expected="a whole file of its kind",
            found=" ".join(str(said).split()),
            where=where,
            hint="it is damaged, or of another kind than its suffix says",
        ) from error


def open_file(path: Path, stack: ExitStack) -> File:
    """The arrays of a file, by its suffix; ``stack`` closes it."""
    if not path.exists():
        raise NotFoundError(f"no file at '{path}'", where=str(path.absolute()))
    suffix = path.suffix.lower()
    if not path.is_file() or suffix not in SUFFIXES:
        pickle = "a pickle runs code when it is read: save the arrays as safetensors"
        raise ConfigError(
            f"no arrays are read from '{shortened(path.name)}'",
            expected=f"a file that ends in one of: {', '.join(sorted(SUFFIXES))}",
            found=(suffix or "no suffix") if path.is_file() else "no file but a folder or pipe",
            where=str(path.absolute()),
            hint=pickle if suffix in PICKLES else None,
        )
    with refusing(str(path)):
        if suffix in HDF5:
            return _open_hdf5(path, stack)
        if suffix == ".safetensors":
            return _open_safetensors(path, stack)
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        if suffix == ".npy":
            return File(path=path, arrays=[Array(path.stem, found, str(path))])
        archive = stack.enter_context(found)
        members = {name: _Member(archive, name) for name in archive.files}
        arrays = [Array(name, one, f"{path}: {name}") for name, one in members.items()]
        return File(path=path, arrays=arrays)


class _Member:
    """An array of an npz; it is read when its first row is."""

    def __init__(self, archive: Any, name: str) -> None:
        self._archive, self._name = archive, name
        self._values: NDArray[Any] | None = None
        member = name if name in archive.zip.namelist() else f"{name}.npy"
        with archive.zip.open(member) as file:
            version = np.lib.format.read_magic(file)
            old = version == (1, 0)
            read = (
                np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
            )
            self.shape, _, self.dtype = read(file)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        if self._values is None:
            self._values = self._archive[self._name]
        return self._values[index]


class _Slice:
    """An array of a safetensors file."""

    def __init__(self, part: Any, dtype: np.dtype[Any] | str) -> None:
        self._part, self.dtype = part, dtype
        self.shape = part.get_shape()

    def __getitem__(self, index: Any) -> Any:
        return self._part[index]


def _open_safetensors(path: Path, stack: ExitStack) -> File:
    import safetensors

    numpy = stack.enter_context(safetensors.safe_open(path, "numpy"))
    torch: Any = None
    arrays = []
    for name in numpy.keys():  # noqa: SIM118 it is no dictionary
        part = numpy.get_slice(name)
        kind = part.get_dtype()
        word = "bfloat16" if kind == "BF16" else _WORDS.get(kind, kind.lower())
        if kind == "BF16":  # NumPy has no such type
            torch = torch or stack.enter_context(safetensors.safe_open(path, "pt"))
            part = torch.get_slice(name)
        arrays.append(Array(name, _Slice(part, word), f"{path}: {name}", word))
    said = {}
    if names := (numpy.metadata() or {}).get("class_names"):
        said["class_names"] = tuple(json.loads(names))
        if not all(isinstance(one, str) for one in said["class_names"]):
            raise ValueError("'class_names' of the header is no list of strings")
    return File(path=path, arrays=arrays, class_names=said)


_WORDS = {
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}


def _open_hdf5(path: Path, stack: ExitStack) -> File:
    import h5py

    file = stack.enter_context(h5py.File(path, "r", locking=False))
    arrays, said = [], {}

    def visit(name: str, thing: Any) -> None:
        if "class_names" in thing.attrs:
            names = [n.decode() if isinstance(n, bytes) else n for n in thing.attrs["class_names"]]
            if not all(isinstance(one, str) for one in names):
                raise ValueError(f"the attribute 'class_names' at /{name} holds no strings")
            said[name] = tuple(names)
        if isinstance(thing, h5py.Dataset) and thing.shape is not None:
            bits = thing.dtype == np.uint16 and thing.attrs.get("dtype") in (
                "bfloat16",
                b"bfloat16",
            )
            share = _written(thing) if thing.size else 1
            word = "bfloat16" if bits else ""
            if thing.is_virtual or thing.external:
                word = "in other files"
            elif share < 1:  # the rest would be read as zeros
                word = f"{share:.0%}-written {thing.dtype}"
            arrays.append(Array(name, thing, f"{path}: {name}", word))

    visit("", file)
    file.visititems(visit)  # follows no soft or external links
    return File(path=path, arrays=arrays, class_names=said)


def _written(dataset: Any) -> float:
    """Share of its storage that exists."""
    if dataset.chunks is None:
        return float(dataset.id.get_storage_size() / (dataset.size * dataset.dtype.itemsize))
    pairs = zip(dataset.shape, dataset.chunks, strict=True)
    return float(dataset.id.get_num_chunks() / math.prod(-(-n // m) for n, m in pairs))
