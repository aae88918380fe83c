"""The frame of all trackers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

Curves = Mapping[int, Sequence[tuple[int, Mapping[str, float]]]]
"""Of every seed the epochs, from 1, each with what is known of it: curve -> value."""


class RunTracker(ABC):
    """Shows the curves of finished seeds somewhere else, from what ``log.jsonl`` says of them.

    Nothing of a tracker is imported before it is used: modules here import its package in methods.
    """

    needs: ClassVar[str]
    """What is to be installed, as ``pip install`` has it."""

    @abstractmethod
    def check(self) -> None:
        """See whether it can be used, before anything is trained.

        Raises:
            ImportError: it is not installed.
        """

    @abstractmethod
    def write(self, folder: Path, name: str, curves: Curves) -> None:
        """Write curves of seeds that are finished.

        What is there of the same seeds is replaced: seeds of a training that was killed before
        they were kept are trained, and written, again.

        Args:
            folder: of this tracker, below the runs; nothing is written elsewhere, or sent.
            name: of what was trained, a file name.
            curves: of seeds that nobody else writes meanwhile.
        """
