"""Which decoder of a table to use: the report says it, and ``load`` follows it.

The decision rests on the comparisons of a table alone. It needs no note, section or
format of a report.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gaam_decoder.reports.entries import Entry
from gaam_decoder.reports.table import Table


class Recommendation(NamedTuple):
    """The decoder to use, and a clause that says so and why."""

    entry: Entry
    advice: str


def recommended(table: Table) -> Recommendation | None:
    """The decoder to use and why; None where the table does not allow an answer.

    All decoders must read the same layers and learn from equally many rows. None may be
    a candidate of a tuning that chose nothing, and no score may be optimistic: no epoch
    is selected on test rows, and no decoder is tested on its training rows. The answer
    is the best decoder if it is shown to be better than the baseline. Else it is the
    one that nothing is shown to be better than: the linear probe where it is the best,
    or the baseline.
    """
    entries = [
        entry
        for entry in table.entries
        if entry.compared_score.mean is not None and not entry.labels_shuffled
    ]
    # training rows and layers that each decoder reads
    inputs = {(entry.num_drawn_rows, entry.recipe.get("layers")) for entry in entries}
    has_doubtful_score = any(
        entry.tuning_failed or entry.is_optimistic for entry in entries
    )
    if len(inputs) != 1 or has_doubtful_score:
        return None

    # entries are sorted, the best mean first
    best = entries[0]
    if best.comparison and best.comparison.claim.verdict == "better":
        reason = f"best mean, shown to be better than '{table.baseline}'"
        return _recommend(best, reason)

    reference = _unbeaten_reference(table, entries)
    if reference is None:
        return None
    probed = [entry for entry in table.entries if entry.probe_comparison]
    if reference.is_probe and all(is_behind_probe(entry) for entry in probed):
        return _recommend(reference, "shown to be better than every other decoder")

    reasons = []
    if best is reference:
        reasons.append("best mean")
    fewest_parameters = min(entry.parameters["total"] for entry in entries)
    if reference.parameters["total"] == fewest_parameters:
        reasons.append("fewest parameters")
    if not reasons:
        return None
    reasons.append("nothing is shown to be better than it")
    return _recommend(reference, ", ".join(reasons))


def _recommend(entry: Entry, reason: str) -> Recommendation:
    """The recommendation of an entry, with a clause that gives the reason."""
    return Recommendation(entry, f"use {entry.label}: {reason}")


def _unbeaten_reference(table: Table, entries: Sequence[Entry]) -> Entry | None:
    """The reference that no entry is shown to be better than.

    The reference is the linear probe where that has the best mean, else the only
    entry of the baseline. None where an entry is better, or nothing was compared.

    Args:
        table: the table.
        entries: its entries that have a score, the best first.
    """
    probed = [entry for entry in table.entries if entry.probe_comparison]
    best = entries[0]
    if best.fitted_at_once:
        # other heads that are fitted at once are compared with nothing
        if not best.is_probe or not probed:
            return None
        if any(_is_ahead_of_probe(entry) for entry in probed):
            return None
        return best

    if any(
        comparison.claim.verdict == "better" for _, comparison in table.compared_entries
    ):
        return None
    if not table.compared_entries and not probed:
        return None
    baselines = [
        entry
        for entry in entries
        if entry.attention == table.baseline and not entry.fitted_at_once
    ]
    return baselines[0] if len(baselines) == 1 else None


def is_behind_probe(entry: Entry) -> bool:
    """Whether a decoder is shown to be worse than the linear probe."""
    return (
        entry.probe_comparison is not None
        and entry.probe_comparison.claim.verdict == "worse"
    )


def _is_ahead_of_probe(entry: Entry) -> bool:
    """Whether a decoder is shown to be better than the linear probe."""
    return (
        entry.probe_comparison is not None
        and entry.probe_comparison.claim.verdict == "better"
    )
