"""Files of arrays as people make them, with the libraries that people use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray

import gaam_cache

FORMATS = ("safetensors", "npz", "compressed.npz", "h5", "gzip.h5", "npy")
"""Ends of file names; what stands before the suffix says how it is made."""


def save(path: Path, arrays: Mapping[str, Any]) -> list[Path]:
    """Write arrays in the format of the name's end; bfloat16 is a tensor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        tensors = {
            name: torch.as_tensor(value).contiguous() for name, value in arrays.items()
        }
        safetensors.torch.save_file(tensors, path)
    elif path.suffix == ".npz":
        is_compressed = ".compressed" in path.suffixes
        write = np.savez_compressed if is_compressed else np.savez
        write(path, **arrays)
    elif path.suffix == ".npy":
        return save_one_by_one(path.parent, arrays)
    else:
        save_hdf5(path, arrays)
    return [path]


def save_one_by_one(folder: Path, arrays: Mapping[str, Any]) -> list[Path]:
    """Write each array into a file with its name."""
    files: list[Path] = []
    for name, value in arrays.items():
        file = folder / f"{name.replace('/', '_')}.npy"
        np.save(file, value)
        files.append(file)
    return files


def save_hdf5(path: Path, arrays: Mapping[str, Any]) -> None:
    compression = "gzip" if ".gzip" in path.suffixes else None
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            # HDF5 has no texts of NumPy
            is_text = np.asarray(value).dtype.kind == "U"
            data = value.tolist() if is_text else value
            file.create_dataset(name, data=data, compression=compression)


def states(
    rows: int, layers: int = 3, features: int = 4, *, seed: int = 0
) -> NDArray[np.float32]:
    """Numbers that no two rows share."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, layers, features)).astype(np.float32)


def labels(rows: int) -> NDArray[np.int64]:
    """Three classes in turn."""
    return np.arange(rows) % 3


def config(*files: Path, out: Path, **options: Any) -> gaam_cache.ImportConfig:
    """An import with few rows a shard."""
    settings: dict[str, Any] = {
        "files": tuple(map(str, files)),
        "out": out,
        "shard_rows": 8,
    }
    return gaam_cache.ImportConfig(**(settings | options))


def run(*files: Path, out: Path, progress: Any = None, **options: Any) -> Any:
    """The same, done."""
    settings = config(*files, out=out, **options)
    return gaam_cache.import_states(settings, progress=progress)
