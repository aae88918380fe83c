"""What is said of a report that is of some runs only."""

from __future__ import annotations

from collections.abc import Iterator

from gaam_cache.messages import brief
from gaam_decoder.reports.comparisons.against_baseline import DEFAULT_BASELINE
from gaam_decoder.reports.table.base import Table


def selected(table: Table) -> Iterator[str]:
    """What was left out, and what that does to p-values and to the baseline."""
    selection = table.selection
    if selection is None:
        return
    yield f"this report is of {brief(selection.in_words(), 600)}"
    if not selection.left_out:
        return
    if table.num_tests:
        several = "comparisons" if table.num_tests > 1 else "comparison"
        of = f"Holm corrects for the {table.num_tests} {several} of"
        if table.uncounted > 0:
            yield (
                f"{of} this report, not for those of {table.uncounted:,} runs that were not named: "
                "chosen after a look at the results, p-values are too small"
            )
        else:
            yield f"{of} all {selection.total:,} runs, those that filters left out among them"
    if table.baseline is None and (by := selection.lost.get(DEFAULT_BASELINE)):
        yield f"the baseline '{DEFAULT_BASELINE}' is among what {by} left out"
