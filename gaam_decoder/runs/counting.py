"""Which run a seed counts from, and which runs show no test accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_checks import TEST_FILE
from gaam_decoder.runs.run_name import ending

OF_TEST = ("test_split", "fold")
"""Settings that decide which rows are tested, and nothing of a final model, which tests none."""


def on_training_rows(recipe: Mapping[str, Any]) -> bool:
    """Whether the rows that are tested under a recipe are those that were learned from."""
    if recipe.get("fold") is not None:
        return False
    # also of two splits that hold the same rows
    same = recipe.get("test_split", "test") == recipe.get("train_split", "train")
    return same or bool(recipe.get("allow_train_as_test"))


def first_runs(runs: Iterable[RunResult]) -> dict[int, RunResult]:
    """For every seed the run that counts: the first that holds it, finished or failed.

    The first is that whose folder name would end first as ``run_name`` has it (``s0-9`` before
    ``s5``), and of runs of the same seeds that whose results have the smaller digest: what was
    renamed or moved, or is named in another order, counts as before.

    Args:
        runs: runs that differ in their seeds alone.

    Returns:
        Runs by seed, ascending.
    """
    found: dict[int, RunResult] = {}
    for run in sorted(runs, key=_place):
        for seed in run.seeds:
            found.setdefault(seed, run)
    return dict(sorted(found.items()))


def _place(run: RunResult) -> tuple[str, ...]:
    results = run.files.get(TEST_FILE, {}).get("sha256", "")
    return ending(run.key, run.seeds), results, run.path.name, str(run.path.absolute())


def by_seed(
    runs: Sequence[RunResult], read: Callable[[RunResult], NDArray[Any] | None]
) -> dict[int, NDArray[Any]]:
    """Entries of the seeds that finished, each from the run that counts for it.

    Args:
        runs: runs that differ in their seeds alone.
        read: (S, ...) of a run, one entry for each of its seeds; None where it has none.
    """
    found = {}
    for seed, run in first_runs(runs).items():
        if seed not in run.failed and (values := read(run)) is not None:
            found[seed] = values[run.seeds.index(seed)]
    return found
