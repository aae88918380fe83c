"""What there is to say of rows whose head was fitted at once: a linear probe, and what it chose."""

from __future__ import annotations

from collections.abc import Iterator

from gaam_decoder.reports._base import Table
from gaam_decoder.runs.summary import fit_in_words


def probes(table: Table) -> Iterator[str]:
    """What was chosen for each, and whether others might have been better."""
    found = [pair for pair in zip(table.labels(), table.rows, strict=True) if pair[1].fitted]
    for label, row in found:
        for run in row.runs:
            if run.failure is not None:
                continue
            fold = f" (fold {run.recipe['fold']})" if row.folds > 1 else ""
            text = f"{label}{fold}: {fit_in_words(run.fit)}"
            if run.fit.get("edge"):
                text += "; beyond it there may be a better one"
            yield text
    if found:
        yield (
            "a head that is fitted at once has no seeds: its accuracy is one number, whose "
            "interval is over test rows alone"
        )
