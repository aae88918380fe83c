"""What the files of a run hold."""

from __future__ import annotations

import numpy as np

from gaam_decoder import RunResult


def tensors(run: RunResult, name: str) -> dict[str, np.ndarray]:
    """All arrays of one of its files, by name."""
    with run.tensors(name) as file:
        return file.get_tensors()
