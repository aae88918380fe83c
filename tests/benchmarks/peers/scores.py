"""What a contestant found, as it says it itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gaam_decoder.runs.loading import load_runs


def accuracies_of(folder: str, out: Path, said: str) -> dict[str, list[float]]:
    """Mechanism -> test accuracy of every seed, as the contestant found it."""
    if folder.startswith("gaam"):
        head = "linear" if folder == "gaam" else "lbfgs"
        runs = load_runs(out / "runs", head=head)
        return {run.attention: [float(x) for x in run.accuracy] for run in runs}
    lines = [line.split() for line in said.splitlines() if line]
    return {name: [float(x) for x in numbers] for name, *numbers in lines}


def engines_of(out: Path) -> dict[str, dict[str, Any]]:
    """Mechanism -> whether gaam compiled it, and how long it trained."""
    return {
        run.attention: {
            "compiled": bool(run.engine.get("compiled")),
            "seconds": sum(run.seconds.values()),
        }
        for run in load_runs(out / "runs", head="linear")
    }
