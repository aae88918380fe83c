"""Curves of finished seeds where ``track`` says, beside the log of a run: the frame of trackers."""

from __future__ import annotations

import importlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError, GaamWarning

if TYPE_CHECKING:
    from gaam_decoder.runs.result import SeedResult

CURVES = ("loss", "train_accuracy", "accuracy", "selection_loss", "lr")
Curves = Mapping[int, Sequence[tuple[int, Mapping[str, float]]]]
"""Of every seed the epochs, from 1, each with what is known of it: curve -> value."""


class RunTracker(ABC):
    """Shows the curves of finished seeds somewhere else, from what ``log.jsonl`` says of them."""

    needs: ClassVar[str]  # the package that it imports in ``write``, as pip calls it

    @abstractmethod
    def write(self, folder: Path, name: str, curves: Curves) -> None:
        """Write curves of finished seeds of ``name`` below ``folder``, and nowhere else."""


def check_tracker(name: str) -> None:
    """Refuse what cannot be tracked, before anything is trained."""
    if name != "none":
        needs = plugins.load(__name__, name, kind="tracker").needs
        try:
            importlib.import_module(needs)
        except ImportError as error:
            hint = f"pip install {needs}"
            raise ConfigError(f"--set track={name} needs {needs}", hint=hint) from error


def track_seeds(
    name: str, runs: Path, work: str, results: Iterable[SeedResult]
) -> None:
    """Write the curves of seeds that are finished, a warning where that fails: they are trained."""
    if name == "none":
        return
    curves = {}
    for one in results:
        known = [(e["epoch"], {k: e.get(k) for k in CURVES}) for e in one.log]
        curves[one.seed] = [
            (n, {k: v for k, v in e.items() if v is not None}) for n, e in known
        ]
    try:
        plugins.load(__name__, name, kind="tracker")().write(runs / name, work, curves)
    except Exception as error:  # noqa: BLE001 whatever it is, the seeds are trained
        text = f"track {name} could not write curves of {work} ({type(error).__name__}: {error})"
        warnings.warn(
            f"{text}: log.jsonl of the run has them", GaamWarning, stacklevel=2
        )
