"""Curves for TensorBoard: ``tensorboard --logdir runs/tensorboard``."""

from pathlib import Path

from gaam_decoder.runs.trackers import Curves, RunTracker


class TensorBoard(RunTracker):
    """A folder of event files for every seed."""

    needs = "tensorboard"

    def write(self, folder: Path, name: str, curves: Curves) -> None:
        """Write event files into the folder ``seed-N`` of every seed.

        They replace those of an earlier training.
        """
        from torch.utils.tensorboard import SummaryWriter

        for seed, epochs in curves.items():
            seed_folder = folder / name / f"seed-{seed}"
            # Events of an earlier training would be drawn into the same curves.
            for old_file in seed_folder.glob("events.out.*"):
                old_file.unlink()
            with SummaryWriter(str(seed_folder)) as writer:
                for epoch, values in epochs:
                    for curve, value in values.items():
                        writer.add_scalar(curve, value, epoch)
