"""Which decoder of a table to use: the report says it, and ``load`` follows it.

The decision rests on the comparisons of a table alone. It needs no note, section or
format of a report.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from gaam_cache.common.messages import join_first
from gaam_decoder.reports.compare import is_baseline, trained_in_steps
from gaam_decoder.reports.entries import Entry
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.wording import NAMED
from gaam_decoder.stats import NO_CLAIM

UNBEATEN = "nothing is shown to be better than it"


class Recommendation(NamedTuple):
    """The decoder to use, and a clause that says so and why."""

    entry: Entry
    advice: str


class NoRecommendation(NamedTuple):
    """Why a table recommends no decoder, as a clause; empty for a single decoder."""

    reason: str


def recommended(table: Table) -> Recommendation | None:
    """The decoder to use and why; None where the table does not allow an answer.

    The answer is the best decoder if it is shown to be better than the baseline. Else
    it is the reference, if nothing is shown to be better than that: the linear probe if
    it has the best mean, otherwise the baseline. A smaller decoder takes its place if
    it is equivalent, or if it has the best mean and the fewest parameters of all. Where
    the baseline is shown to be worse than the linear probe, the probe takes its place.

    There is an answer only if the scores are comparable and sound. All decoders read
    the same layers and learn from equally many rows. Every tuning chose a candidate. No
    epoch is selected on test rows, and no decoder is tested on its training rows.
    """
    decision = _decide(table)
    return decision if isinstance(decision, Recommendation) else None


def why_none(table: Table) -> str:
    """A clause that says why a table recommends no decoder.

    It is empty if the table recommends one, or if there is no choice.
    """
    decision = _decide(table)
    return decision.reason if isinstance(decision, NoRecommendation) else ""


def _decide(table: Table) -> Recommendation | NoRecommendation:
    """The decision that ``recommended`` and ``why_none`` are about."""
    entries = [
        entry
        for entry in table.entries
        if entry.compared_score.mean is not None and not entry.labels_shuffled
    ]
    if len(entries) == 0:
        return NoRecommendation("no decoder has a score")
    obstacle = _why_not_comparable(entries)
    if obstacle:
        return NoRecommendation(obstacle)

    best = _best_entry(table, entries)
    if best.comparison and best.comparison.claim.verdict == "better":
        reason = f"best mean, shown to be better than '{table.baseline}'"
        return _recommend(best, reason)

    compared_with_probe = [entry for entry in table.entries if entry.probe_comparison]
    # decoders are compared with the baseline and with the linear probe; beside decoders
    # trained in steps, a head that is fitted at once is not compared with the baseline
    if best.fitted_at_once and trained_in_steps(entries):
        unbeaten = _unbeaten_probe(best, compared_with_probe)
    else:
        unbeaten = _unbeaten_baseline(table, entries)
    if isinstance(unbeaten, NoRecommendation):
        # with a single decoder there is no choice, and nothing to give a reason for
        return unbeaten if len(entries) > 1 else NoRecommendation(reason="")
    if unbeaten.is_probe and beats_all_compared(table):
        reason = f"shown to be better than {rivals_of_probe(table)}"
        return _recommend(unbeaten, reason)

    simpler = _simpler_equivalent(unbeaten, entries)
    if simpler:
        reason = f"equivalent to {unbeaten.label}, with fewer parameters"
        return _recommend(simpler, reason)
    return _choose(table, entries, best, unbeaten)


def _choose(
    table: Table, entries: Sequence[Entry], best: Entry, unbeaten: Entry
) -> Recommendation | NoRecommendation:
    """Recommend the reference, the best entry or the probe; the first that may be.

    1. The reference, if it has the best mean or the fewest parameters.
    2. The entry with the best mean, if it has the fewest parameters.
    3. The reference, because nothing is shown to be better.
    4. The linear probe, if it is shown to be better than the reference.

    What is shown to be worse than the probe is not recommended.

    Args:
        table: the table.
        entries: its entries that have a score.
        best: the entry with the best mean; it is not shown to be better.
        unbeaten: the linear probe or the baseline, whichever is the reference.
    """
    fewest_parameters = min(map(_num_parameters, entries))
    has_tests = _has_tests(entries)
    tested = UNBEATEN if has_tests else "no difference is tested"
    for entry in (unbeaten, best):
        if is_behind_probe(entry):
            continue
        reasons = []
        if entry is best:
            reasons.append("best mean")
        if _num_parameters(entry) == fewest_parameters:
            reasons.append("fewest parameters")
        # the reference needs one reason; another decoder that is larger has to be shown
        # to be better
        if len(reasons) == 2 or (reasons and entry is unbeaten):
            return _recommend(entry, ", ".join([*reasons, tested]))

    # the baseline stays in use until something is shown to be better
    if has_tests and not is_behind_probe(unbeaten):
        return _recommend(unbeaten, f"the baseline, {UNBEATEN}")
    probes = [entry for entry in entries if entry.is_probe]
    if len(probes) == 1 and not any(map(_is_ahead_of_probe, entries)):
        reason = f"shown to be better than '{table.baseline}', {UNBEATEN}"
        return _recommend(probes[0], reason)
    return NoRecommendation(
        f"{best.label} has the best mean, but is not shown to be better than "
        f"'{table.baseline}'"
    )


def _has_tests(entries: Sequence[Entry]) -> bool:
    """Whether any difference of entries is tested."""
    comparisons = [
        comparison
        for entry in entries
        for comparison in (entry.comparison, entry.probe_comparison)
        if comparison is not None
    ]
    return any(comparison.claim.verdict != NO_CLAIM for comparison in comparisons)


def _num_parameters(entry: Entry) -> float:
    """Number of parameters; infinite without any, for then the rows are kept instead.

    A head such as nearest neighbours keeps all training rows, and is not small.
    """
    return entry.parameters["total"] or math.inf


def _simpler_equivalent(reference: Entry, entries: Sequence[Entry]) -> Entry | None:
    """The smallest decoder that is equivalent to the reference, and smaller than it.

    None if there is none.

    Args:
        reference: the linear probe or the baseline.
        entries: the entries that have a score, the best mean first.
    """
    simpler = []
    for entry in entries:
        # A head that is fitted at once is never compared with the probe separately. In
        # a table of such heads alone the probe is the baseline.
        is_compared_with_probe = reference.is_probe and not entry.fitted_at_once
        comparison = (
            entry.probe_comparison if is_compared_with_probe else entry.comparison
        )
        is_equivalent = (
            comparison is not None and comparison.claim.verdict == "equivalent"
        )
        is_smaller = _num_parameters(entry) < _num_parameters(reference)
        if is_equivalent and is_smaller and not is_behind_probe(entry):
            simpler.append(entry)
    return min(simpler, key=_num_parameters, default=None)


def _best_entry(table: Table, entries: Sequence[Entry]) -> Entry:
    """The entry with the best mean; of equal means the baseline, then the probe.

    A more complex decoder gains nothing over those.

    Args:
        table: the table.
        entries: its entries that have a score, the best mean first.
    """
    best_mean = entries[0].compared_score.mean
    tied = [entry for entry in entries if entry.compared_score.mean == best_mean]
    baselines = _baselines(table, tied)
    probes = [entry for entry in tied if entry.is_probe]
    return [*baselines, *probes, *tied][0]


def _baselines(table: Table, entries: Sequence[Entry]) -> list[Entry]:
    """The entries of the baseline, as it is compared.

    Of a table with decoders trained in steps they are trained in steps, too.
    """
    comparable = trained_in_steps(table.entries) or table.entries
    return [
        entry
        for entry in entries
        if is_baseline(entry, table.baseline) and entry in comparable
    ]


def _recommend(entry: Entry, reason: str) -> Recommendation:
    """The recommendation of an entry, with a clause that gives the reason."""
    return Recommendation(entry, f"use {entry.label}: {reason}")


def _why_not_comparable(entries: Sequence[Entry]) -> str:
    """Why the scores of entries allow no choice among them; empty if they do."""
    if len({entry.recipe.get("layers") for entry in entries}) > 1:
        return "the decoders read different layers"
    if len({entry.num_drawn_rows for entry in entries}) > 1:
        return "the decoders learned from different numbers of rows"
    untuned = [entry.label for entry in entries if entry.tuning_failed]
    if untuned:
        return f"validation chose no candidate of {join_first(untuned, NAMED)}"
    if any(entry.is_optimistic for entry in entries):
        return "some scores are optimistic"
    return ""


def _unbeaten_probe(
    best: Entry, compared_with_probe: Sequence[Entry]
) -> Entry | NoRecommendation:
    """The best entry, if it is a linear probe that no decoder is shown to beat.

    There is none for another head that is fitted at once, because nothing is compared
    with it, and for a probe that nothing is compared with.

    Args:
        best: the entry with the best mean; its head is fitted at once.
        compared_with_probe: the entries that are compared with the linear probe.
    """
    if not best.is_probe or not compared_with_probe:
        return NoRecommendation(f"nothing is compared with {best.label}, the best mean")
    for entry in compared_with_probe:
        if _is_ahead_of_probe(entry):
            return NoRecommendation(
                f"{entry.label} is shown to be better than {best.label}, which has the "
                "best mean"
            )
    return best


def _unbeaten_baseline(
    table: Table, entries: Sequence[Entry]
) -> Entry | NoRecommendation:
    """The entry of the baseline, if no entry is shown to be better than it.

    Otherwise it is the reason why no baseline can be the reference.

    Args:
        table: the table.
        entries: its entries that have a score, the best mean first.
    """
    for entry, comparison in table.compared_entries:
        if comparison.claim.verdict == "better":
            return NoRecommendation(
                f"{entry.label} is shown to be better than '{table.baseline}', but "
                f"{entries[0].label} has the best mean"
            )
    if not any(entry.comparison or entry.probe_comparison for entry in table.entries):
        return NoRecommendation("nothing is compared with a baseline")
    baselines = _baselines(table, entries)
    if not baselines:
        return NoRecommendation("no baseline, such as 'none', is among the decoders")
    if len(baselines) > 1:
        labels = join_first([entry.label for entry in baselines], NAMED)
        return NoRecommendation(f"the baseline is several decoders: {labels}")
    return baselines[0]


def is_behind_probe(entry: Entry) -> bool:
    """Whether a decoder is shown to be worse than the linear probe."""
    return (
        entry.probe_comparison is not None
        and entry.probe_comparison.claim.verdict == "worse"
    )


def beats_all_compared(table: Table) -> bool:
    """Whether every decoder that is compared with the linear probe is worse than it.

    False where none is compared with it.
    """
    compared = [entry for entry in table.entries if entry.probe_comparison]
    return bool(compared) and all(map(is_behind_probe, compared))


def rivals_of_probe(table: Table) -> str:
    """The decoders that are compared with the linear probe, in words.

    They are every other decoder only if each of them is compared with it.
    """
    rivals = [entry for entry in table.entries if not entry.is_probe]
    num_compared = sum(entry.probe_comparison is not None for entry in rivals)
    if num_compared == len(rivals):
        return "every other decoder"
    return f"every compared decoder ({num_compared} of {len(rivals)})"


def _is_ahead_of_probe(entry: Entry) -> bool:
    """Whether a decoder is shown to be better than the linear probe."""
    return (
        entry.probe_comparison is not None
        and entry.probe_comparison.claim.verdict == "better"
    )
