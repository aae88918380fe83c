"""What a table allows to be said, in words written from its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gaam_cache.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.comparisons.against_baseline import Comparison
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.writing.numbers import p_value
from gaam_decoder.reports.writing.unit import DEFAULT, Unit
from gaam_decoder.stats.claims import Claim
from gaam_decoder.stats.paired import DRAWS, EXACT_SEEDS, FEW

NAMED = 3
"""Decoders that the conclusion names; of more, it counts the rest."""


def conclusion(table: Table) -> str:
    """The answer in one sentence, without its full stop."""
    if not table.rows:
        return "Nothing is said of accuracies, for nothing was evaluated"
    made = [(label, c) for label, c in zip(table.labels(), table.comparisons, strict=True) if c]
    if not made:
        return _alone(table)
    most = max(len(c.seeds) for _, c in made)
    silent = [label for label, c in made if c.claim.no_claim]
    if most < stats.LEAST_SEEDS and not silent:
        return (
            f"Nothing is said of differences yet: {counted_seeds(most)}, and a claim needs "
            f"{stats.LEAST_SEEDS}"
        )
    baseline, margin = brief(str(table.baseline)), table.unit.margin(table.margin)
    of = {
        verdict: [label for label, c in made if c.claim.verdict == verdict]
        for verdict in ("better", "worse", "equivalent", "undecided")
    }
    parts = [f"{_named(of[v])} {v} than '{baseline}'" for v in ("better", "worse") if of[v]]
    if not parts and (of["equivalent"] or of["undecided"]):
        parts.append(f"no mechanism is shown to differ from '{baseline}'{_spread(made, table)}")
    if of["equivalent"]:
        parts.append(f"{_named(of['equivalent'])} equivalent to '{baseline}' within {margin}")
    if of["undecided"] and len(of["undecided"]) < len(made):
        parts.append(f"{_named(of['undecided'])} undecided")
    if silent:
        parts.append(f"of {_named(silent, '')} no claim is made")
    by = "" if table.score == DEFAULT else f"by {table.unit.score.title}, "
    text = by + "; ".join(parts) + _conditions(table, [c for _, c in made])
    # names stay as they are written; ours is the first word only where no name begins
    return text[0].upper() + text[1:] if text.startswith(("no mechanism", "by ", "of ")) else text


def _spread(made: Sequence[tuple[str, Comparison]], table: Table) -> str:
    """How large the differences are, and how wide the widest interval is."""
    unit, claims_ = table.unit, [c.claim for _, c in made]
    low, high = (f([c.difference for c in claims_]) for f in (min, max))
    text = f": differences of {unit.difference(low)} to {unit.difference(high)}"
    if len(claims_) == 1:
        text = f": a difference of {unit.difference(low)}"
    text += " points" if unit.score.percent else ""
    if widths := [c.interval[1] - c.interval[0] for c in claims_ if c.interval]:
        text += f", interval{'s up to' * (len(widths) > 1)} {unit.size(max(widths))} wide"
    return text


def _alone(table: Table) -> str:
    """Where nothing is compared."""
    if len(table.rows) == 1 and (found := table.rows[0].chosen_two_level):
        unit = table.unit
        of = "" if table.score == DEFAULT else f"{unit.score.title} "
        sign = "%" if unit.score.percent else ""
        return (
            f"Other seeds on other test rows of the kind give {brief(table.rows[0].attention)} "
            f"{of}{unit.span(found)}{sign} in 95 of 100 cases" + _conditions(table, [])
        )
    if table.pairs and table.pairs.there:
        return "There is no baseline; every pair is compared below"
    return "Nothing is said of differences, for nothing is compared"


def _conditions(table: Table, made: Sequence[Comparison]) -> str:
    """What holds only under them."""
    found = []
    if any(row.optimistic and not row.shuffled for row in table.rows):
        found.append("some of it from numbers that are optimistic")
    if made and table.unchosen:
        found.append("of several recipes, between which nothing chose")
    elif made and not any(row.tunings for row in table.rows):
        rows = [row for row in table.rows if not row.fitted | row.shuffled]
        one = len({str(row.recipe) for row in rows}) == 1
        which = "this one recipe, which was" if one else "recipes that were"
        found.append(f"at {which} tuned for none of them")
    if made and any(c.other_grid for c in made):
        found.append("though not all had the same grid")
    if late := sum(row.undertrained for row in table.rows):
        verb = "is" if late == 1 else "are"
        found.append(f"and {late} of {len(table.rows)} rows {verb} under-trained")
    return f" ({', '.join(found)})" if found else ""


def _named(names: Sequence[str], verb: str | None = None) -> str:
    more = len(names) - NAMED
    text = f"{', '.join(names[:NAMED])} and {more} more"
    if more <= 1:
        text = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"{text} {verb if verb is not None else 'is' if len(names) == 1 else 'are'}".strip()


def counted_seeds(count: int) -> str:
    """``1 seed`` or ``2 seeds``."""
    return f"{count} seed{'s' * (count != 1)}"


def claims(table: Table) -> list[str]:
    """A sentence for every comparison; with too few seeds for a claim, none."""
    return [
        f"{label} {_in_words(comparison, table.unit)}"
        for label, comparison in zip(table.labels(), table.comparisons, strict=True)
        if comparison is not None and len(comparison.seeds) >= stats.LEAST_SEEDS
    ]


def _in_words(comparison: Comparison, unit: Unit) -> str:
    found, baseline = comparison.claim, brief(comparison.baseline)
    where = f"95% {unit.span(found.interval, signed=True)}" if found.interval else ""
    beside = f", {where}" if where else ""
    difference, by = unit.difference(found.difference), ""
    if unit.score.title != DEFAULT:
        by = f" in {unit.score.title}"
    if found.significant:
        margin = unit.margin(found.margin)
        small = f", by less than the margin of {margin}" if found.negligible else ""
        text = f"is {found.verdict} than {baseline}{by} by {unit.size(found.difference)}"
        text += f" ({where}; Holm p {_equals(found.p_decisive)}){small}"
    elif found.verdict == "equivalent":
        text = f"is equivalent to {baseline}{by} within {unit.margin(found.margin)}"
        text += f" ({difference}{beside}; Holm p {_equals(found.p_equivalent_decisive)})"
    elif found.no_claim:
        text = f"minus {baseline}{by} is {difference}: no claim is made, for {found.no_claim}"
    else:
        text = f"is undecided{by} ({difference}{beside}): {_would_decide(found)}"
    return text + _here(found) + _elsewhere(comparison)


def _here(found: Claim) -> str:
    """What other test rows might not show."""
    here = found.on_these_rows
    if found.significant or here.verdict not in ("better", "worse") or here.sign_flip is None:
        return ""
    return (
        f"; on these test rows alone it is {here.verdict} (p {_equals(here.sign_flip.p)} over "
        "seeds), which other rows may not show"
    )


def _elsewhere(comparison: Comparison) -> str:
    """What another training set might not show."""
    other = comparison.other_training
    if other is None or not comparison.claim.significant or other.p < stats.ALPHA:
        return ""
    return f"; with another training set it may be absent (p {_equals(other.p)} over folds)"


def _would_decide(found: Claim) -> str:
    """What more there would have to be."""
    if found.p is None:
        return "there are too few test rows"
    seeds, rows = found.seeds_to_decide, found.rows_to_decide
    if seeds is not None and seeds > found.num_seeds:
        return f"about {seeds:,} seeds would decide, if what was seen is so"
    if seeds is not None:
        return "it is on the brink: a few more seeds may decide"
    if rows is not None:
        return (
            f"about {rows:,} test rows would decide, if what was seen is so and other seeds differ "
            "as these do"
        )
    if both := found.both_to_decide:
        return (
            f"about {both[0]:,} seeds on {both[1]:,} test rows would decide, if what was seen is so"
        )
    return "too few test rows differ to say what would decide"


def how_it_was_tested(table: Table) -> Iterator[str]:
    """What the p-values are of."""
    found = [comparison for comparison in table.comparisons if comparison is not None]
    tested = [c for c in found if c.claim.p_holm is not None]
    if found and table.score != DEFAULT:
        yield from _how_others_were_tested(table)
    if tested:
        few = (
            f"; where the two differ on fewer than {FEW} rows, an exact sign-flip test over rows "
            "has to agree"
            if table.unit.score.hits
            else ""
        )
        several = f"all {table.num_tests} comparisons" if table.num_tests > 1 else "the comparison"
        yield (
            "p and verdict: t test of crossed seeds and test rows (other seeds, other rows of the "
            f"kind{few}), corrected by Holm for {several} of this report; * marks p Holm "
            f"< {stats.ALPHA}; equivalent: two one-sided tests of the same kind against "
            f"{table.unit.margin(table.margin)} (--margin), corrected in a family of their own"
        )
        exact = all(c.claim.on_these_rows.sign_flip.exact for c in tested
                    if c.claim.on_these_rows.sign_flip)  # fmt: skip
        how = (
            "exact"
            if exact
            else f"exact up to {EXACT_SEEDS} seeds, above from {DRAWS:,} random patterns"
        )
        yield (
            "on these rows: t interval and sign-flip test over seeds, the test rows taken as given "
            f"({how}), uncorrected; they decide nothing"
        )
        if any(c.other_training for c in tested):
            yield (
                "p training: corrected resampled t test over folds (Nadeau and Bengio 2003), "
                "uncorrected: what another training set would give"
            )
    fewest = min((len(c.seeds) for c in found), default=stats.LEAST_SEEDS)
    if fewest < stats.LEAST_SEEDS:
        yield (
            f"no claim with fewer than {stats.LEAST_SEEDS} seeds: of 2**{fewest} sign patterns "
            f"even the most extreme has p = {2 / 2**fewest:.3g}"
        )


def _how_others_were_tested(table: Table) -> Iterator[str]:
    """What is another than of accuracies."""
    score = table.unit.score
    better = "larger" if score.larger_is_better else "smaller"
    yield f"{score.title}: {better} is better; it alone is compared (--score {table.score})"
    if score.no_claim:
        yield f"of {score.title} no claim is made: {score.no_claim}"
    elif not score.hits:
        yield (
            f"{score.title} is compared by what every test row adds to it (of what is no mean of "
            "rows, its influence by the infinitesimal jackknife); every interval and p counts one "
            "row of every kind that may be rare and was not seen"
        )


def _equals(p: float | None) -> str:
    text = p_value(p)
    return f"< {text[1:]}" if text.startswith("<") else f"= {text}"
