"""What there is to say of rows whose head was fitted at once: a linear probe, and what it chose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from gaam_decoder.reports.table.base import Table
from gaam_decoder.runs.result import fit_in_words
from gaam_decoder.stats.seeds_alone import Verdict


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


def beaten(table: Table) -> Iterator[str]:
    """Which rows are better than the probe, by the test that decides elsewhere."""
    by_verdict: dict[str, list[str]] = {}
    for label, claim in zip(table.labels(), table.against_probe, strict=True):
        if claim is not None:
            by_verdict.setdefault(claim.verdict, []).append(label)
    if by_verdict:
        parts = [
            f"{verdict}: {', '.join(by_verdict.get(verdict, ['none of them']))}"
            for verdict in get_args(Verdict)
            if verdict == "better" or verdict in by_verdict
        ]
        yield (
            "against logistic regression on the same states, none + lbfgs (Holm in a family of "
            f"their own): {'; '.join(parts)}"
        )
