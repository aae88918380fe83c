"""Curves for Trackio: ``TRACKIO_DIR=runs/trackio trackio show``."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from unittest.mock import patch

from gaam_decoder.runs.trackers import Curves, RunTracker

ALONE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRACKIO_LOGBOOK_AUTONOTE": "0"}
ALONE |= {"GRADIO_ANALYTICS_ENABLED": "False", "TRACKIO_STORAGE_MODE": "sqlite"}
"""Variables that keep it from the network, in one data base; those of its own would not."""


class Trackio(RunTracker):
    """A run of the project ``gaam`` for every seed, in a data base below the runs."""

    needs = "trackio"

    def write(self, folder: Path, name: str, curves: Curves) -> None:
        """Log ``NAME seed N``; what Trackio prints is no result, and goes to stderr."""
        folder.mkdir(parents=True, exist_ok=True)
        ours = {f"{name} seed {seed}": epochs for seed, epochs in curves.items() if epochs}
        variables = {k: v for k, v in os.environ.items() if not k.startswith("TRACKIO_")} | ALONE
        variables["TRACKIO_DIR"] = str(folder.absolute())
        with patch.dict(os.environ, variables, clear=True), contextlib.redirect_stdout(sys.stderr):
            import trackio

            with contextlib.suppress(ValueError):  # nothing was written yet
                for run in list(trackio.Api().runs("gaam")):
                    if run.name in ours:
                        run.delete()
            quiet = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
            for title, epochs in ours.items():
                trackio.init(project="gaam", name=title, group=name, **quiet)
                for epoch, values in epochs:
                    trackio.log(values, step=epoch)
                trackio.finish()
