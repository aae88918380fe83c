"""Whether all encoded the same: pooled states of the training rows beside the plain loop's.

N rows, L layers, D hidden size.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.cache import open_cache

States = NDArray[np.float32]
READER = Path(__file__).parent / "lmprobe_states.py"
"""Runs where lmprobe is."""


def states_of(folder: str, out: Path, python: Path, environment: Mapping[str, str]) -> States:
    """What a contestant encoded, (N, L, D), or (N, D) of the last layer."""
    if folder.startswith("gaam"):
        return np.asarray(open_cache(out / "cache")["train"].embeddings[:], dtype=np.float32)
    if folder == "lmprobe":
        subprocess.run([str(python), str(READER)], env=dict(environment), check=True)
        return _loaded(out.parent / "lmprobe-states.npy")
    return _loaded(out / "train.npy")


def _loaded(path: Path) -> States:
    found: States = np.load(path, allow_pickle=False)
    return found


def difference(states: States, plain_NLD: States) -> dict[str, Any]:
    """Largest differences to the plain loop.

    Args:
        states: (N, L, D), (N, L D), or (N, D) of the last layer, of length 1.
        plain_NLD: of the plain loop.

    Returns:
        ``largest``, of one number; ``rows``, how many differ by more than 1% of their length.
    """
    wanted_NLD = plain_NLD
    if states[0].size < plain_NLD[0].size:
        last_ND = plain_NLD[:, -1]
        wanted_NLD = last_ND / np.linalg.norm(last_ND, axis=1, keepdims=True)
    found_NF = states.reshape(len(states), -1).astype(np.float64)
    wanted_NF = wanted_NLD.reshape(len(plain_NLD), -1).astype(np.float64)
    if found_NF.shape != wanted_NF.shape:
        raise ValueError(f"states of shape {states.shape} beside {plain_NLD.shape}")
    off_NF = found_NF - wanted_NF
    share_N = np.linalg.norm(off_NF, axis=1) / np.linalg.norm(wanted_NF, axis=1)
    return {"largest": float(np.abs(off_NF).max()), "rows": int((share_N > 0.01).sum())}
