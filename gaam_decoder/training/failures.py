"""Seeds that failed: which, why, and what to try."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from gaam_cache.errors import GaamWarning, NumericsError
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import first_runs

LARGE_RATE = 1e-3
"""Of AdamW on these decoders: from far above it, steps of a tenth would lead nowhere soon."""


def check_failures(runs: Sequence[RunResult], seeds: Sequence[int]) -> None:
    """Say which of the seeds asked for failed, and why.

    Args:
        runs: what a training returned; of runs that share a seed the first counts.
        seeds: those that were asked for.

    Raises:
        NumericsError: all seeds of a recipe failed; names every recipe of which this is so.

    Warns:
        GaamWarning: for every recipe of which some seeds failed.
    """
    hopeless = []
    for same in _by_key(runs):
        of_seed = first_runs(same)
        # what is fitted at once has a seed of its own
        asked = list(of_seed) if same[0].fit else [seed for seed in seeds if seed in of_seed]
        failed = {s: of_seed[s].failed[s] for s in asked if s in of_seed[s].failed}
        if not failed:
            continue
        first = min(failed)
        if len(failed) == len(asked):
            hopeless.append((same[0], f"{same[0].title}: {failed[first]}"))
        else:
            some = f"{len(failed)} of {len(asked)} seeds failed (seed {first}: {failed[first]})"
            warnings.warn(f"{same[0].title}: {some}", GaamWarning, stacklevel=2)
    if hopeless:
        run, _ = hopeless[0]
        raise NumericsError(
            f"every seed failed of {'; '.join(text for _, text in hopeless)}",
            expected="a training loss that stays finite",
            where=", ".join(str(run.path) for run, _ in hopeless),
            hint=what_to_try(run),
        )


def what_to_try(run: RunResult) -> str:
    """Options that may keep a loss finite which did not stay so."""
    if run.fit:
        return "look for states that are not finite: gaam verify CACHE"
    lower = f"try --lr {min(run.recipe['lr'] / 10, LARGE_RATE):g}"
    if run.recipe["dtype"] == "float16":
        return f"{lower} or --dtype bfloat16, whose range is that of float32"
    if run.recipe.get("clip_grad_norm") is None:
        return f"{lower} or --set clip-grad-norm=1"
    return f"{lower} or --set clip-grad-norm={min(1.0, run.recipe['clip_grad_norm'] / 10):g}"


def _by_key(runs: Sequence[RunResult]) -> list[list[RunResult]]:
    groups: dict[str, list[RunResult]] = {}
    for run in runs:
        groups.setdefault(run.key, []).append(run)
    return list(groups.values())
