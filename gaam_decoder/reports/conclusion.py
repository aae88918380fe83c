"""The conclusion of a report: the main result of a table, and what to use."""

from collections.abc import Iterable, Mapping

from gaam_cache.common.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.recommend import (
    Recommendation,
    is_behind_probe,
    recommended,
)
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.wording import with_verb

NOT_TUNED = "not tuned: validation chose no learning rate"


def conclusion(table: Table, *, advice: bool = True) -> str:
    """The main result and what to use, without a full stop.

    Where a linear probe on the same states is better than the mechanisms, the
    conclusion says so.

    Args:
        table: the table that it concludes from.
        advice: whether it names the decoder to use.
    """
    if not table.entries:
        values = "accuracies" if table.task.has_classes else "scores"
        return f"There are no {values}, because nothing was evaluated"

    # the clauses may name the decoder to use already: then no clause of its own does
    choice = recommended(table) if advice else None
    advised = False
    if table.compared_entries:
        parts, advised = _clauses_on_mechanisms(table, choice)
    elif any(entry.probe_comparison for entry in table.entries):
        parts, advised = _clauses_on_decoders(table, choice)
    else:
        parts = [_clause_without_comparison(table)]
    if choice and not advised:
        parts.append(choice.advice)

    text = "; ".join(parts) + _conditions(table)
    if table.score_name != table.task.default_score:
        text = f"by {table.score.title}, {text}"

    # a name of a decoder keeps its case; these first words are the report's own
    if text.startswith(("no ", "by ", "every ")):
        return text[0].upper() + text[1:]
    return text


def _clauses_on_mechanisms(
    table: Table, choice: Recommendation | None
) -> tuple[list[str], bool]:
    """Clauses on the mechanisms that are compared with the baseline.

    They also say which are worse than the linear probe on the same states.

    Args:
        table: the table.
        choice: the decoder to use, if the table allows a recommendation.

    Returns:
        The clauses, and whether they name the decoder to use.
    """
    claims = {
        entry.label: comparison.claim for entry, comparison in table.compared_entries
    }
    # mechanisms that are shown to be worse than the linear probe
    behind = [
        entry.label for entry, _ in table.compared_entries if is_behind_probe(entry)
    ]
    all_behind = len(behind) == len(claims)
    # where all are worse than the probe, the clause on that names the probe to use
    advised = bool(choice and choice.entry.is_probe and behind and all_behind)
    worse_than_probe = f"worse than {table.task.probe}"
    if advised:
        worse_than_probe += ", which is the one to use"

    # too few seeds allow no verdict
    most_seeds = max(claim.num_seeds for claim in claims.values())
    makes_no_claim = any(claim.verdict == stats.NO_CLAIM for claim in claims.values())
    if most_seeds < stats.LEAST_SEEDS and not makes_no_claim:
        seeds = f"seeds: {most_seeds}, and a claim needs {stats.LEAST_SEEDS}"
        return [f"There is no verdict on differences yet ({seeds})"], False

    parts = _clauses(table, claims, f"'{brief(str(table.baseline))}'", "mechanism")
    if not all_behind:
        if behind:
            parts.append(f"{with_verb(behind)} {worse_than_probe}")
        return parts, advised

    # one clause about all mechanisms can say both
    verdicts = {claim.verdict for claim in claims.values()}
    if verdicts in ({"better"}, {"worse"}):
        return [f"{parts[0]}, and {worse_than_probe}"], advised
    subject = f"{behind[0]} is" if len(behind) == 1 else "every mechanism is"
    return [f"{subject} {worse_than_probe}", *parts], advised


def _clauses_on_decoders(
    table: Table, choice: Recommendation | None
) -> tuple[list[str], bool]:
    """Clauses on the decoders that are compared with the linear probe alone.

    For a table without a baseline.

    Returns:
        The clauses, and whether they name the decoder to use (the probe).
    """
    claims = {
        entry.label: entry.probe_comparison.claim
        for entry in table.entries
        if entry.probe_comparison
    }
    parts = _clauses(table, claims, table.task.probe, "decoder")
    # a single clause that says so
    all_worse = len(parts) == 1 and " worse than " in parts[0]
    if choice and choice.entry.is_probe and all_worse:
        return [f"{parts[0]}, which is the one to use"], True
    return parts, False


def _clauses(
    table: Table, claims: Mapping[str, stats.Claim], rival: str, noun: str
) -> list[str]:
    """Clauses on decoders against one other decoder, a clause for each verdict.

    Args:
        table: the table.
        claims: label of a decoder -> the claim on it and the other decoder.
        rival: the other decoder in words.
        noun: what messages call the decoders.
    """
    # verdict -> labels of the decoders
    labels: dict[str, list[str]] = {}
    for label, claim in claims.items():
        labels.setdefault(claim.verdict, []).append(label)

    parts = [
        f"{with_verb(labels[verdict])} {verdict} than {rival}"
        for verdict in ("better", "worse")
        if verdict in labels
    ]
    if not parts and ("equivalent" in labels or "undecided" in labels):
        spread = _spread(table, claims.values())
        parts.append(f"no {noun} is shown to differ from {rival}: {spread}")
    if "equivalent" in labels:
        subject = with_verb(labels["equivalent"])
        margin = table.score.size(table.margin)
        parts.append(f"{subject} equivalent to {rival} within {margin}")
    if 0 < len(labels.get("undecided", ())) < len(claims):
        parts.append(f"{with_verb(labels['undecided'])} undecided")
    if stats.NO_CLAIM in labels:
        reason = next(
            claim.no_claim_reason for claim in claims.values() if claim.no_claim_reason
        )
        names = ", ".join(labels[stats.NO_CLAIM])
        parts.append(f"no claim is made about {names}: {reason}")
    return parts


def _spread(table: Table, claims: Iterable[stats.Claim]) -> str:
    """The range of differences, the widest interval, and how many rows would decide.

    The number of rows, or groups of rows, is that for the largest difference.
    """
    score = table.score
    claims = list(claims)
    low = score.difference(min(claim.difference for claim in claims))
    high = score.difference(max(claim.difference for claim in claims))
    text = f"differences of {low}"
    if high != low:
        text += f" to {high}"
    if score.percent:
        text += " points"

    intervals = [claim.interval_corrected for claim in claims]
    widths = [interval[1] - interval[0] for interval in intervals if interval]
    if widths:
        text += f", intervals up to {score.size(max(widths), '.2f')} wide"

    furthest = max(claims, key=lambda claim: abs(claim.difference))
    rows = furthest.rows_to_decide
    groups = furthest.groups_to_decide
    if rows:
        text += (
            f"; {table.num_test_rows:,} test rows cannot decide, about {rows:,} would"
        )
    elif groups:
        text += f"; {table.num_groups:,} groups cannot decide, about {groups:,} would"
    return text


def _clause_without_comparison(table: Table) -> str:
    """The clause of a table that compares nothing.

    Of a single entry it is the mean score with its interval; of several, that there is
    no verdict.
    """
    first = table.entries[0]
    interval = first.compared_score.seeds_rows_interval
    mean = first.compared_score.mean
    if len(table.entries) > 1 or interval is None or mean is None:
        return (
            "Nothing is compared with a baseline, so there is no verdict on differences"
        )
    score = table.score
    sign = "%" if score.percent else ""
    sampled_units = "groups of test rows" if table.num_groups else "test rows"
    return (
        f"The mean {score.title} of {first.label} is {score.text(mean)}{sign}, with a "
        f"95% confidence interval of {score.span(interval)}{sign} over seeds and "
        f"{sampled_units}"
    )


def _conditions(table: Table) -> str:
    """The conditions of the conclusion, in brackets; notes say what else is weak."""
    trained = [
        entry
        for entry in table.entries
        if not (entry.fitted_at_once or entry.labels_shuffled)
    ]
    conditions = []
    if any(entry.is_optimistic for entry in trained):
        conditions.append("some numbers are optimistic")

    untuned = [entry for entry in trained if not entry.tunings]
    if any(entry.is_candidate for entry in untuned):
        conditions.append("not tuned: every candidate stands for itself")
    elif untuned and len(untuned) == len(trained):
        conditions.append(NOT_TUNED)
    elif untuned:
        conditions.append(f"{len(untuned)} of {len(trained)} decoders not tuned")

    if any(comparison.grids_differ for _, comparison in table.compared_entries):
        conditions.append("not all were tuned over the same grid")
    num_undertrained = sum(entry.is_undertrained for entry in table.entries)
    if num_undertrained:
        conditions.append(
            f"{num_undertrained} of {len(table.entries)} decoders under-trained"
        )
    return f" ({', '.join(conditions)})" if conditions else ""
