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
    """Write arrays in the format that the end of the name says; bfloat16 is a tensor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        tensors = {
            name: torch.as_tensor(value).contiguous() for name, value in arrays.items()
        }
        safetensors.torch.save_file(tensors, path)
    elif path.suffix == ".npz":
        (np.savez_compressed if ".compressed" in path.suffixes else np.savez)(
            path, **arrays
        )
    elif path.suffix == ".npy":  # one array in a file, whose name is the array's
        paths = [path.with_name(f"{name.replace('/', '_')}.npy") for name in arrays]
        for one, value in zip(paths, arrays.values(), strict=True):
            np.save(one, value)
        return paths
    else:
        with h5py.File(path, "w") as file:
            for name, value in arrays.items():
                texts = np.asarray(value).dtype.kind == "U"
                packing = {"compression": "gzip"} if ".gzip" in path.suffixes else {}
                file.create_dataset(
                    name, data=value.tolist() if texts else value, **packing
                )
    return [path]


def states(
    rows: int, layers: int = 3, features: int = 4, *, seed: int = 0
) -> NDArray[np.float32]:
    """Numbers that no two rows share."""
    generator = np.random.default_rng(seed)
    return generator.standard_normal((rows, layers, features)).astype(np.float32)


def labels(rows: int) -> NDArray[np.int64]:
    """Three classes in turn."""
    return np.arange(rows) % 3


def config(*files: Path, out: Path, **options: Any) -> gaam_cache.ImportConfig:
    """An import with few rows a shard."""
    given = {"files": tuple(map(str, files)), "out": out, "shard_rows": 8, **options}
    return gaam_cache.ImportConfig(**given)


def run(*files: Path, out: Path, progress: Any = None, **options: Any) -> Any:
    """The same, done."""
    return gaam_cache.import_states(
        config(*files, out=out, **options), progress=progress
    )
