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

    The answer is the best decoder if it is shown to be better than the baseline. Else
    it is the reference, if nothing is shown to be better than that: the linear probe if
    it has the best mean, otherwise the baseline.

    There is an answer only if the scores are comparable and sound. All decoders read
    the same layers and learn from equally many rows. Every tuning chose a candidate. No
    epoch is selected on test rows, and no decoder is tested on its training rows.
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

    compared_with_probe = [entry for entry in table.entries if entry.probe_comparison]
    if best.fitted_at_once:
        reference = _unbeaten_probe(best, compared_with_probe)
    else:
        reference = _unbeaten_baseline(table, entries)
    if reference is None:
        return None
    if reference.is_probe and all(map(is_behind_probe, compared_with_probe)):
        return _recommend(reference, "shown to be better than every other decoder")

    reasons = []
    if best is reference:
        reasons.append("best mean")
    fewest_parameters = min(entry.parameters["total"] for entry in entries)
    if reference.parameters["total"] == fewest_parameters:
        reasons.append("fewest parameters")
    # a decoder that is neither the best nor the smallest has nothing for it
    if not reasons:
        return None
    reasons.append("nothing is shown to be better than it")
    return _recommend(reference, ", ".join(reasons))


def _recommend(entry: Entry, reason: str) -> Recommendation:
    """The recommendation of an entry, with a clause that gives the reason."""
    return Recommendation(entry, f"use {entry.label}: {reason}")


def _unbeaten_probe(best: Entry, compared_with_probe: Sequence[Entry]) -> Entry | None:
    """The best entry, if it is a linear probe that no decoder is shown to beat.

    None for another head that is fitted at once, because nothing is compared with it,
    and for a probe that nothing is compared with.

    Args:
        best: the entry with the best mean; its head is fitted at once.
        compared_with_probe: the entries that are compared with the linear probe.
    """
    if not best.is_probe or not compared_with_probe:
        return None
    if any(_is_ahead_of_probe(entry) for entry in compared_with_probe):
        return None
    return best


def _unbeaten_baseline(table: Table, entries: Sequence[Entry]) -> Entry | None:
    """The entry of the baseline, if no entry is shown to be better than it.

    None if nothing was compared, or if the baseline has several entries, such as one
    for each head.

    Args:
        table: the table.
        entries: its entries that have a score.
    """
    is_any_compared = any(
        entry.comparison or entry.probe_comparison for entry in table.entries
    )
    is_any_better = any(
        comparison.claim.verdict == "better" for _, comparison in table.compared_entries
    )
    if is_any_better or not is_any_compared:
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
