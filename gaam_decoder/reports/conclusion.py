"""The conclusion of a report: the main result of a table, and what to use."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gaam_cache.common.messages import brief, counted
from gaam_decoder import stats
from gaam_decoder.reports.cells import is_known_what_decides, what_would_decide
from gaam_decoder.reports.compare import (
    is_baseline,
    sampled_units,
    trained_in_steps,
)
from gaam_decoder.reports.recommend import (
    Recommendation,
    beats_all_compared,
    is_behind_probe,
    recommended,
    rivals_of_probe,
    why_none,
)
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.wording import capitalised, in_sentence, with_verb

NOT_TUNED = "not tuned: validation chose no learning rate"


class _Clauses(NamedTuple):
    """The clauses of a conclusion."""

    texts: list[str]
    advised: bool = False  # whether they name the decoder to use


def conclusion(table: Table, *, advice: bool = True) -> str:
    """The main result and what to use, without a full stop.

    Where a linear probe on the same states is better than the mechanisms, the
    conclusion says so.

    Args:
        table: the table that it concludes from.
        advice: whether it names the decoder to use, or says why there is none.
    """
    if not table.entries:
        noun = "accuracies" if table.task.has_classes else "scores"
        return f"There are no {noun}, because nothing was evaluated"

    recommendation = recommended(table) if advice else None
    if table.compared_entries:
        clauses = _clauses_on_mechanisms(table, recommendation)
    elif any(entry.probe_comparison for entry in table.entries):
        clauses = _clauses_on_decoders(table, recommendation)
    else:
        # this clause says itself that there is no answer
        advice = False
        clauses = _Clauses([_clause_without_comparison(table)])
    texts = list(clauses.texts)
    if recommendation and not clauses.advised:
        texts.append(recommendation.advice)
    if advice and why_none(table):
        texts.append(f"no decoder is recommended: {why_none(table)}")

    text = "; ".join(texts) + _conditions(table)
    if table.score_name != table.task.default_score:
        text = f"by {table.score.title}, {text}"

    # a name of a decoder keeps its case; these first words are the report's own
    if text.startswith(("no ", "by ", "every ", "nothing ", "the ")):
        return capitalised(text)
    return text


def _clauses_on_mechanisms(
    table: Table, recommendation: Recommendation | None
) -> _Clauses:
    """Clauses on the mechanisms that are compared with the baseline.

    They also say which are worse than the linear probe on the same states.

    Args:
        table: the table.
        recommendation: the decoder to use, if the table allows one.
    """
    claim_by_label = {
        entry.label: comparison.claim for entry, comparison in table.compared_entries
    }
    claims = claim_by_label.values()
    verdicts = {claim.verdict for claim in claims}

    # Too few seeds decide nothing. Where the rows or the score are why there is none,
    # the clauses give that reason: more seeds would not help.
    most_seeds = max(claim.num_seeds for claim in claims)
    if most_seeds < stats.LEAST_SEEDS and stats.NO_CLAIM not in verdicts:
        seeds = f"seeds: {most_seeds}, and other verdicts need {stats.LEAST_SEEDS}"
        return _Clauses([f"every difference is undecided ({seeds})"])

    baseline = f"'{brief(str(table.baseline))}'"
    texts = _verdict_clauses(table, claim_by_label, baseline, "mechanism")
    behind_probe = [
        compared.entry.label
        for compared in table.compared_entries
        if is_behind_probe(compared.entry)
    ]
    if not behind_probe:
        return _Clauses(texts)
    worse_than_probe = f"worse than {table.task.probe}"
    if len(behind_probe) < len(claims):
        return _Clauses([*texts, f"{with_verb(behind_probe)} {worse_than_probe}"])

    # all are worse than the probe: this clause names the probe as the one to use
    advises_probe = recommendation is not None and recommendation.entry.is_probe
    if advises_probe:
        worse_than_probe += ", which is the one to use"
    if verdicts in ({"better"}, {"worse"}):
        # the only clause is on all mechanisms, and can say this too
        texts = [f"{texts[0]}, and {worse_than_probe}"]
    else:
        subject = _subject_behind_probe(table, behind_probe)
        texts = [f"{subject} {worse_than_probe}", *texts]
    return _Clauses(texts, advises_probe)


def _subject_behind_probe(table: Table, behind_probe: Sequence[str]) -> str:
    """The subject of the clause that all compared mechanisms are behind the probe.

    Args:
        table: the table.
        behind_probe: labels of the mechanisms.
    """
    if len(behind_probe) == 1:
        return f"{behind_probe[0]} is"
    if beats_all_compared(table):
        return f"{rivals_of_probe(table)} is"
    baseline = f"'{brief(str(table.baseline))}'"
    mechanisms = [
        entry
        for entry in table.entries
        if not entry.is_probe and not is_baseline(entry, table.baseline)
    ]
    if all(map(is_behind_probe, mechanisms)):
        return f"every mechanism except {baseline} is"
    return f"every mechanism that is compared with {baseline} is"


def _clauses_on_decoders(
    table: Table, recommendation: Recommendation | None
) -> _Clauses:
    """Clauses on the decoders of a table without a baseline, against the linear probe.

    Args:
        table: the table.
        recommendation: the decoder to use, if the table allows one.
    """
    claim_by_label = {
        entry.label: entry.probe_comparison.claim
        for entry in table.entries
        if entry.probe_comparison
    }
    texts = _verdict_clauses(table, claim_by_label, table.task.probe, "decoder")
    all_worse = all(claim.verdict == "worse" for claim in claim_by_label.values())
    advises_probe = recommendation is not None and recommendation.entry.is_probe
    if advises_probe and all_worse:
        # the only clause ends with the name of the probe
        return _Clauses([f"{texts[0]}, which is the one to use"], advised=True)
    return _Clauses(texts)


def _verdict_clauses(
    table: Table, claim_by_label: Mapping[str, stats.Claim], rival: str, noun: str
) -> list[str]:
    """Clauses on decoders against one other decoder, a clause for each verdict.

    Args:
        table: the table.
        claim_by_label: label of a decoder -> the claim on it and the other decoder.
        rival: the other decoder in words.
        noun: what messages call the decoders.
    """
    labels_by_verdict: dict[str, list[str]] = {}
    for label, claim in claim_by_label.items():
        labels_by_verdict.setdefault(claim.verdict, []).append(label)
    equivalent = labels_by_verdict.get("equivalent", [])
    undecided = labels_by_verdict.get("undecided", [])
    without_claim = labels_by_verdict.get(stats.NO_CLAIM, [])

    texts = [
        f"{with_verb(labels_by_verdict[verdict])} {verdict} than {rival}"
        for verdict in ("better", "worse")
        if verdict in labels_by_verdict
    ]
    if not texts and (equivalent or undecided):
        spread = _spread(table, claim_by_label)
        texts.append(f"no {noun} is shown to differ from {rival}: {spread}")
    if equivalent:
        margin = table.score.size(table.margin)
        texts.append(f"{with_verb(equivalent)} equivalent to {rival} within {margin}")
    if 0 < len(undecided) < len(claim_by_label):
        texts.append(f"{with_verb(undecided)} undecided")
    if without_claim:
        reason = next(
            claim.no_claim_reason
            for claim in claim_by_label.values()
            if claim.no_claim_reason
        )
        names = ", ".join(without_claim)
        texts.append(f"no claim is made about {names}: {reason}")
    return texts


def _spread(table: Table, claim_by_label: Mapping[str, stats.Claim]) -> str:
    """The range of differences, the widest interval, and what would decide.

    What would decide is that for the largest undecided difference.
    """
    score = table.score
    claims = claim_by_label.values()
    low = score.difference(min(claim.difference for claim in claims))
    high = score.difference(max(claim.difference for claim in claims))
    unit = " points" if score.percent else ""
    text = f"a difference of {low}{unit}"
    if len(claims) > 1:
        spread = low if low == high else f"{low} to {high}"
        text = f"differences of {spread}{unit}"

    intervals = [claim.interval_corrected for claim in claims]
    widths = [interval[1] - interval[0] for interval in intervals if interval]
    if widths:
        noun = "an interval" if len(claims) == 1 else "intervals up to"
        text += f", {noun} {score.size(max(widths), '.2f')} wide"

    # What would decide takes a long search: only the largest undecided difference
    # gets one.
    for label, claim in sorted(
        claim_by_label.items(), key=lambda item: -abs(item[1].difference)
    ):
        needed = what_would_decide(claim)
        if needed:
            verb = "decide"
            # where no number is known, it is such as "more training rows"
            if is_known_what_decides(claim):
                verb = "give an even chance to decide"
            text += f"; {needed} would {verb} whether {in_sentence(label)} differs"
            break
    return text


def _clause_without_comparison(table: Table) -> str:
    """The clause of a table that compares nothing.

    With one entry it gives the mean score and its interval. With several it says that
    there is no verdict, and why.
    """
    first = table.entries[0]
    is_baseline_alone = {entry.attention for entry in table.entries} == {table.baseline}
    if len(table.entries) > 1 and is_baseline_alone:
        return (
            "nothing is compared, because every decoder has the mechanism "
            f"'{brief(str(table.baseline))}', which is the baseline: train others too"
        )
    interval = first.compared_score.seeds_rows_interval
    mean = first.compared_score.mean
    if len(table.entries) > 1 or interval is None or mean is None:
        return (
            "nothing is compared with a baseline, so there is no verdict on differences"
        )
    score = table.score
    sign = "%" if score.percent else ""
    units = sampled_units(table.entries, table.num_groups)
    return (
        f"the mean {score.title} of {first.label} is {score.text(mean)}{sign}, with a "
        f"95% confidence interval of {score.span(interval)}{sign} over {units}"
    )


def _conditions(table: Table) -> str:
    """The conditions of the conclusion, in brackets; notes say what else is weak."""
    trained = trained_in_steps(table.entries)
    conditions = []
    # the epoch was selected on test rows, or the test rows were training rows
    if any(entry.is_optimistic for entry in trained):
        conditions.append("some numbers are optimistic")

    untuned = [entry for entry in trained if not entry.tunings]
    if any(entry.is_candidate for entry in untuned):
        # a person asked for every learning rate: each is an entry of its own
        conditions.append("not tuned: every candidate stands for itself")
    elif untuned and len(untuned) == len(trained):
        conditions.append(NOT_TUNED)
    elif untuned:
        conditions.append(f"{len(untuned)} of {len(trained)} decoders not tuned")

    if any(compared.comparison.grids_differ for compared in table.compared_entries):
        conditions.append("not all were tuned over the same grid")
    num_undertrained = sum(entry.is_undertrained for entry in table.entries)
    if num_undertrained:
        conditions.append(
            f"{num_undertrained} of {counted(len(table.entries), 'decoder')} perhaps "
            "under-trained"
        )
    return f" ({', '.join(conditions)})" if conditions else ""
