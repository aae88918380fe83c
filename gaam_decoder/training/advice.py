"""What a training that ended too early is told."""

from __future__ import annotations

from collections.abc import Sequence

from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import TUNED, choose
from gaam_decoder.stats import later_than_chance

NAMED = 3
"""Of many, these are named."""


def advice(runs: Sequence[RunResult]) -> list[str]:
    """A line for every row that is under-trained: by its best epoch, or by its rate.

    Args:
        runs: what a training returned.
    """
    found = choose(runs)
    late: dict[int, list[str]] = {}
    for run in found.runs:
        count, seeds = len(run.still_learning), len(run.finished)
        if count and later_than_chance(count, seeds, run.recipe["epochs"]):  # a fit has none
            title = f"{run.title} ({count} of {seeds} seeds)"
            late.setdefault(run.recipe["epochs"], []).append(title)
    lines = [
        f"under-trained: the best epoch is the last of {'; '.join(names[:NAMED])}"
        + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        + f"; try --epochs {2 * epochs}"
        for epochs, names in late.items()
    ]
    for key, tuning in found.tunings.items():
        title = next(f"{run.attention} + {run.head}" for run in found.runs if run.key == key)
        for name in (name for name in TUNED if name in tuning.at_edge):
            tried = sorted({candidate.values[name] for candidate in tuning.candidates})
            chosen = tuning.chosen[name]
            beyond = chosen * 3 if chosen == tried[-1] else chosen / 3
            option = "--" + name.replace("_", "-")
            if beyond:  # below a weight decay of 0 there is nothing
                lines.append(
                    f"under-trained: {title} is best at {option} {chosen:g}, the edge of its "
                    f"grid; try {option} {beyond:.3g} too"
                )
    return list(dict.fromkeys(lines))
