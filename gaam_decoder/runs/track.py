"""Curves of finished seeds where ``track`` says, beside the log of a run."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gaam_cache import plugins
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_cache.messages import shortened
from gaam_decoder.config_checks import TRACKERS
from gaam_decoder.runs.trackers._base import Curves, RunTracker

if TYPE_CHECKING:
    from gaam_decoder.runs.seed_result import SeedResult

CURVES = ("loss", "train_accuracy", "accuracy", "selection_loss", "lr")


def check_tracker(name: str) -> None:
    """Refuse what cannot be tracked, before anything is trained.

    Raises:
        ConfigError: the tracker is not installed, or does not work.
    """
    if name == "none":
        return
    tracker = _tracker(name)
    try:
        tracker.check()
    except ImportError as error:
        raise ConfigError(
            f"--set track={name} needs {tracker.needs}",
            expected="a package that is installed",
            found=str(error),
            hint=f"pip install {tracker.needs}, or leave track out",
        ) from error


def track_seeds(name: str, runs: Path, work: str, results: Iterable[SeedResult]) -> None:
    """Write the curves of seeds that are finished, and say it where that is refused.

    The seeds are trained: nothing that a tracker does may lose them.

    Args:
        name: of the tracker, or 'none'.
        runs: folder of the runs.
        work: what was trained, a file name.
        results: the seeds.
    """
    if name == "none":
        return
    try:
        _tracker(name).write(runs / name, work, curves(results))
    except Exception as error:  # noqa: BLE001 whatever it is, the seeds are trained
        said = shortened(" ".join(str(error).split()))
        warnings.warn(
            f"track {name} could not write curves of {work} ({type(error).__name__}: {said}): "
            "they are in log.jsonl of the run, which is kept",
            GaamWarning,
            stacklevel=2,
        )


def curves(results: Iterable[SeedResult]) -> Curves:
    """What the log of every seed says that can be drawn: numbers, epoch by epoch."""
    return {
        result.seed: [
            (entry["epoch"], {key: entry[key] for key in CURVES if _is_number(entry.get(key))})
            for entry in result.log
        ]
        for result in results
    }


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _tracker(name: str) -> RunTracker:
    cls: type[RunTracker] = plugins.load(TRACKERS, name, kind="tracker")
    return cls()
