"""Arrays of others, read a stretch of rows at a time: of files, or as a program hands them over.

Nothing is unpickled. Of an npz an array is read whole when its first row is; everything else is
read from the file as it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import ConfigError, DataError, GaamError, NotFoundError
from gaam_cache.messages import shortened
from gaam_cache.store.files import raise_if_refused

STRINGS = "str"


class Array:
    """Anything with a shape and a type that can be sliced, or a list: NumPy, torch, h5py, a map.

    ``name`` is that in its ``file``, with groups before it and '/' between.
    """

    def __init__(
        self, name: str, values: Any, file: Path = Path(), shape: Any = None, dtype: str = ""
    ) -> None:
        self.name, self.file, self.where = name, file, f"{file}: {name}" if file.name else name
        if isinstance(values, (list, tuple)):
            texts = any(isinstance(one, str) for one in values)
            with refusing(name):
                values = np.array(values, object if texts else None)
        if shape is None and not (hasattr(values, "shape") and hasattr(values, "dtype")):
            raise DataError(
                f"{name} is no array",
                expected="an array that can be sliced, or a list of strings or whole numbers",
                found=type(values).__name__,
            )
        self.shape = tuple(int(n) for n in (values.shape if shape is None else shape))
        self._values = values.detach() if hasattr(values, "detach") else values
        self.dtype = dtype or _dtype_word(values)
        """As NumPy calls it, or 'bfloat16', or 'str' for strings of any kind."""

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype} {self.shape}"

    def read(self, rows: slice, layer: int | None = None) -> NDArray[Any]:
        """Rows, or those of a layer; bfloat16 comes as its bits in uint16, strings as objects."""
        with refusing(self.where):
            part = self._values[rows] if layer is None else self._values[layer, rows]
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


def open_file(path: Path, stack: ExitStack) -> list[Array]:
    """The arrays of a file, by its suffix; ``stack`` closes it."""
    if not path.exists():
        raise NotFoundError(f"no file at '{path}'", where=str(path.absolute()))
    suffix = path.suffix.lower()
    if not path.is_file() or suffix not in READERS:
        raise ConfigError(
            f"no arrays are read from '{shortened(path.name)}'",
            expected=f"a file that ends in one of: {', '.join(sorted(READERS))}",
            found=(suffix or "no suffix") if path.is_file() else "no file but a folder or pipe",
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
        yield Array(name, part, path, part.get_shape(), word)


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
