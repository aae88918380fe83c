"""The last epoch of seeds at work, in a file that says when it is damaged."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaam_cache.store.digest import open_sealed, seal_parts
from gaam_cache.store.files import write_file
from gaam_decoder.runs.tensor_files import TensorFile, tensor_parts

if TYPE_CHECKING:
    from torch import Tensor

SECONDS_BETWEEN_CHECKPOINTS = 2.0
SHARE_OF_TIME = 0.05
"""Of the training that writing checkpoints may take."""


class Checkpoint:
    """The state of one group of seeds after its last epoch, in one file.

    It is written so seldom that it takes a small share of the time: what a kill costs is the
    epochs since then, never the result.
    """

    def __init__(self, path: Path, begun: Mapping[str, Any] | None = None) -> None:
        """Use ``SeedStore.checkpoint``."""
        self.path = path
        self._begun = dict(begun or {})
        self._next = time.monotonic() + SECONDS_BETWEEN_CHECKPOINTS

    @property
    def due(self) -> bool:
        """Whether it is time to write one."""
        return time.monotonic() >= self._next

    def save(self, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        """Replace what was there.

        Raises:
            StorageError: the file system refused.
        """
        start = time.monotonic()
        publish(self.path, tensors, {**self._begun, **about})
        end = time.monotonic()
        wait = max(SECONDS_BETWEEN_CHECKPOINTS, (end - start) / SHARE_OF_TIME)
        self._next = end + wait

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors and the rest; None where there is none. ``SeedStore.load`` has looked at it."""
        try:
            return read(self.path)
        except (OSError, ValueError):
            return None


def publish(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write tensors and JSON values in one file that carries a digest of its name and content.

    Raises:
        StorageError: the file system refused.
    """
    arrays = {name: value.detach().cpu().numpy() for name, value in tensors.items()}
    parts = tensor_parts(arrays, {"about": json.dumps(about)})
    write_file(path, seal_parts(path.name, parts), option="--runs")


def read(path: Path, *, with_tensors: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What ``publish`` wrote.

    Raises:
        OSError: it cannot be read.
        ValueError: it is something else, or there is none.
    """
    try:
        with open_sealed(path) as file:
            found = TensorFile(file)
            about = json.loads(found.metadata["about"])
            if not with_tensors:
                return {}, about
            import torch

            return {name: torch.from_numpy(found.read(name)) for name in found}, about
    except (IsADirectoryError, FileNotFoundError, KeyError) as error:
        raise ValueError(f"{path.name} is no file of gaam: {error}") from error
