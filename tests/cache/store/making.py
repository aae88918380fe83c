"""Files of arrays as people make them, with the libraries that people use."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from gaam_cache.import_config import ImportConfig
from gaam_cache.store.dtypes import as_float32
from gaam_cache.store.importing import ImportSummary, import_states

Arrays = Mapping[str, Any]
FORMATS = ("safetensors", "npz", "compressed.npz", "h5", "gzip.h5")
"""Ends of file names; what stands before the suffix says how it is made."""
TYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "uint8": "U8",
    "bool": "BOOL",
    "uint16": "U16",
    "int16": "I16",
}


class BFloat16:
    """An array of bfloat16, as its bits."""

    def __init__(self, values: NDArray[np.float32]) -> None:
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)
        self.bits: NDArray[np.uint16] = tensor.view(torch.int16).numpy().view(np.uint16)
        self.numbers = as_float32(self.bits)


def safetensors_bytes(arrays: Arrays, metadata: dict[str, str] | None = None) -> bytes:
    """A file that was written by hand, so that a test can make it lie."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    body = b""
    for name, values in arrays.items():
        bits = values.bits if isinstance(values, BFloat16) else np.ascontiguousarray(values)
        kind = "BF16" if isinstance(values, BFloat16) else TYPES[bits.dtype.name]
        span = [len(body), len(body) + bits.nbytes]
        header[name] = {"dtype": kind, "shape": list(bits.shape), "data_offsets": span}
        body += bits.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def save(path: Path, arrays: Arrays) -> Path:
    """Write arrays in the format that the end of the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = path.suffix
    if suffix == ".safetensors":
        texts = {n: v for n, v in arrays.items() if np.asarray(v).dtype.kind == "U"}
        assert set(texts) <= {"class_names"}  # it has no strings
        metadata = {n: json.dumps(np.asarray(v).tolist()) for n, v in texts.items()}
        path.write_bytes(
            safetensors_bytes({n: v for n, v in arrays.items() if n not in texts}, metadata)
        )
    elif suffix == ".npz":
        writer = np.savez_compressed if ".compressed" in path.suffixes else np.savez
        writer(path, **{name: np.asarray(values) for name, values in arrays.items()})
    else:
        with h5py.File(path, "w") as file:
            for name, values in arrays.items():
                if isinstance(values, BFloat16):
                    file[name] = values.bits
                    file[name].attrs["dtype"] = "bfloat16"
                elif np.asarray(values).dtype.kind == "U":
                    file[name] = np.asarray(values).tolist()
                elif ".gzip" in path.suffixes:
                    file.create_dataset(name, data=values, compression="gzip", shuffle=True)
                else:
                    file[name] = values
    return path


def states(rows: int, layers: int = 3, features: int = 4, *, seed: int = 0) -> NDArray[np.float32]:
    """Numbers that no two rows share."""
    generator = np.random.default_rng(seed)
    return generator.standard_normal((rows, layers, features)).astype(np.float32)


def labels(rows: int) -> NDArray[np.int64]:
    """Three classes in turn."""
    return np.arange(rows) % 3


def run(*files: Path, out: Path, **options: Any) -> ImportSummary:
    """An import with few rows a shard."""
    config = ImportConfig(files=tuple(map(str, files)), out=out, **{"shard_rows": 8, **options})
    return import_states(config)
