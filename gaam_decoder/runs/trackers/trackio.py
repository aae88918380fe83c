"""Curves for Trackio: ``TRACKIO_DIR=runs/trackio trackio show``."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from gaam_decoder.runs.trackers._base import Curves, RunTracker

LONGEST = 600
"""Seconds for the curves of one group of seeds: a thousand times what they take."""
ALONE = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "TRACKIO_LOGBOOK_AUTONOTE": "0",
    "TRACKIO_STORAGE_MODE": "sqlite",
}
"""Variables that keep it from the network and from asking who one is, and in one data base: what it
writes otherwise on a network's file system cannot be replaced."""
REMOTE = ("TRACKIO_", "SPACE_", "SYSTEM", "HF_TOKEN")
"""Beginnings of variables by which it would send what it logs elsewhere."""
PROGRAM = """
import json, sys
import trackio
def there():
    try:
        return list(trackio.Api().runs("gaam"))
    except ValueError:  # nothing was written yet
        return []
told = json.load(sys.stdin)
names = {run["name"] for run in told}
for run in there():
    if run.name in names:
        run.delete()
for run in told:
    quiet = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
    trackio.init(project="gaam", name=run["name"], group=run["group"], **quiet)
    for epoch, values in run["epochs"]:
        trackio.log(values, step=epoch)
    trackio.finish()
if lost := names - {run.name for run in there()}:
    sys.exit(f"{len(lost)} of {len(names)} seeds were not written")
"""
"""What writes: in a process of its own, for its folder is that of a process, and so are threads."""


class Trackio(RunTracker):
    """A run of the project ``gaam`` for every seed, in a data base below the runs."""

    needs = "trackio"

    def check(self) -> None:
        """See whether Trackio is there."""
        if importlib.util.find_spec("trackio") is None:
            raise ImportError("No module named 'trackio'")

    def write(self, folder: Path, name: str, curves: Curves) -> None:
        """Log ``NAME seed N``."""
        told = [
            {"name": f"{name} seed {seed}", "group": name, "epochs": epochs}
            for seed, epochs in curves.items()
            if epochs
        ]
        folder.mkdir(parents=True, exist_ok=True)
        usual = {key: text for key, text in os.environ.items() if not key.startswith(REMOTE)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=json.dumps(told),
            env=usual | ALONE | {"TRACKIO_DIR": str(folder.absolute())},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LONGEST,
        )
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["it ended"])[-1])
