"""What the files of a run hold."""

from __future__ import annotations

import numpy as np

from gaam_decoder import RunResult
from gaam_decoder.runs.tensor_files import TensorFile


def tensors(run: RunResult, name: str) -> dict[str, np.ndarray]:
    """All arrays of one of its files, by name."""
    with run.opened(name) as file:
        found = TensorFile(file)
        return {key: found.read(key) for key in found}
