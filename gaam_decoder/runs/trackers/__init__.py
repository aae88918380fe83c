"""Trackers show the curves of finished seeds in other programs, by ``--set track``.

The log of a run has the same curves. Each file of this folder is one tracker.
"""

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
    from gaam_decoder.runs.write import SeedResult

CURVES = (
    "loss",
    "train_accuracy",
    "train_score",
    "accuracy",
    "score",
    "selection_loss",
    "lr",
)
Curves = Mapping[int, Sequence[tuple[int, Mapping[str, float]]]]
"""Of every seed the epochs, from 1, each with its known values: curve -> value."""


class RunTracker(ABC):
    """Shows the curves of finished seeds, which are those of ``log.jsonl``."""

    needs: ClassVar[str]
    """The package that ``write`` imports, by its name for pip."""

    @abstractmethod
    def write(self, folder: Path, name: str, curves: Curves) -> None:
        """Write the curves of ``name`` below ``folder``, and nowhere else."""


def check_tracker(name: str) -> None:
    """Refuse a tracker whose package is missing, before any training starts."""
    if name == "none":
        return
    package = plugins.load(__name__, name, kind="tracker").needs
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"--set track={name} needs {package}", hint=f"pip install {package}"
        ) from error


def track_seeds(
    name: str, runs: Path, title: str, results: Iterable[SeedResult]
) -> None:
    """Write the curves of finished seeds; a failure is a warning only.

    Args:
        name: the tracker, or none.
        runs: the folder of runs.
        title: the name under which the curves are shown.
        results: the seeds.
    """
    if name == "none":
        return
    curves = {result.seed: _curves_of_seed(result) for result in results}
    try:
        tracker = plugins.load(__name__, name, kind="tracker")()
        tracker.write(runs / name, title, curves)
    except Exception as error:  # noqa: BLE001 no error may cost the trained seeds
        message = (
            f"track {name} could not write curves of {title} "
            f"({type(error).__name__}: {error}): log.jsonl of the run has them"
        )
        warnings.warn(message, GaamWarning, stacklevel=2)


def _curves_of_seed(result: SeedResult) -> list[tuple[int, dict[str, float]]]:
    """The epochs of a seed, each with the known values of its curves by name."""
    epochs = []
    for entry in result.log:
        values = {
            curve: entry[curve] for curve in CURVES if entry.get(curve) is not None
        }
        epochs.append((entry["epoch"], values))
    return epochs
