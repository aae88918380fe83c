"""Curves for TensorBoard, beside the log of a run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gaam_cache.errors import ConfigError
from gaam_decoder.runs.seed_result import SeedResult

CURVES = ("loss", "train_accuracy", "accuracy", "selection_loss", "lr")


def check_tracker(name: str) -> None:
    """Refuse what cannot be tracked, before anything is trained.

    Raises:
        ConfigError: TensorBoard is asked for and not installed.
    """
    if name == "none":
        return
    try:
        import torch.utils.tensorboard  # noqa: F401 only whether it is there
    except ImportError as error:
        raise ConfigError(
            "--track tensorboard needs TensorBoard",
            found=str(error),
            hint="pip install tensorboard",
        ) from error


def track_seeds(folder: Path, results: Iterable[SeedResult]) -> None:
    """Write the curves of seeds that are finished, one folder for each."""
    from torch.utils.tensorboard import SummaryWriter

    for result in results:
        with SummaryWriter(str(folder / f"seed-{result.seed}")) as writer:
            for entry in result.log:
                for curve in CURVES:
                    if entry.get(curve) is not None:
                        writer.add_scalar(curve, entry[curve], entry["epoch"])
