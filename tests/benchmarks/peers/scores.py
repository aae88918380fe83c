"""What a contestant found, as it says it itself."""

from __future__ import annotations

from pathlib import Path

from gaam_decoder.runs.loading import load_runs


def accuracies_of(folder: str, out: Path, said: str) -> dict[str, list[float]]:
    """Mechanism -> test accuracy of every seed, as the contestant found it."""
    if folder.startswith("gaam"):
        head = "linear" if folder == "gaam" else "lbfgs"
        runs = load_runs(out / "runs", head=head)
        return {run.attention: [float(x) for x in run.accuracy] for run in runs}
    lines = [line.split() for line in said.splitlines() if line]
    return {name: [float(x) for x in numbers] for name, *numbers in lines}


def compiled_of(out: Path) -> list[str]:
    """Mechanisms that gaam found enough work in to compile them."""
    return sorted(run.attention for run in load_runs(out / "runs") if run.engine.get("compiled"))
