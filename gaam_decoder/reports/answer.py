"""The answer of a table in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from gaam_cache.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.compare import Comparison
from gaam_decoder.reports.rows import Row
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.unit import DEFAULT

NAMED = 3
"""Decoders that the conclusion names; of more, it counts the rest."""


def conclusion(table: Table) -> str:
    """What is shown and what to use, without its full stop."""
    if not table.rows:
        return "Nothing is said of accuracies, for nothing was evaluated"
    made = [(row.label, compared) for row, compared in table.compared]
    if not made:
        return _alone(table)
    of = {
        verdict: [label for label, c in made if c.claim.verdict == verdict]
        for verdict in ("better", "worse", "equivalent", "undecided", "no claim")
    }
    most, baseline = max(len(c.seeds) for _, c in made), brief(str(table.baseline))
    if most < stats.LEAST_SEEDS and not of["no claim"]:
        return (
            f"Nothing is said of differences yet: {most} seed{'s' * (most != 1)}, and a claim "
            f"needs {stats.LEAST_SEEDS}"
        )
    parts = [f"{_named(of[v])} {v} than '{baseline}'" for v in ("better", "worse") if of[v]]
    if not parts and (of["equivalent"] or of["undecided"]):
        spread = _spread([c for _, c in made], table)
        parts.append(f"no mechanism is shown to differ from '{baseline}': {spread}")
    if of["equivalent"]:
        margin = table.unit.size(table.margin)
        parts.append(f"{_named(of['equivalent'])} equivalent to '{baseline}' within {margin}")
    if of["undecided"] and len(of["undecided"]) < len(made):
        parts.append(f"{_named(of['undecided'])} undecided")
    if of["no claim"]:
        why = next(c.claim.no_claim for _, c in made if c.claim.verdict == "no claim")
        parts.append(f"of {', '.join(of['no claim'])} no claim is made: {why}")
    if use := recommended(table):
        parts.append(use[1])
    by = "" if table.score == DEFAULT else f"by {table.unit.score.title}, "
    text = by + "; ".join(parts) + _conditions(table)
    # names stay as they are written; ours is the first word only where no name begins
    return text[0].upper() + text[1:] if text.startswith(("no mechanism", "by ", "of ")) else text


def _spread(made: Sequence[Comparison], table: Table) -> str:
    """How large the differences are, how wide the widest interval is, and what would tell."""
    unit, claims = table.unit, [c.claim for c in made]
    low, high = (unit.difference(f(c.difference for c in claims)) for f in (min, max))
    text = f"differences of {low} to {high}" if len(claims) > 1 else f"a difference of {low}"
    text += " points" * unit.score.percent
    if widths := [i[1] - i[0] for i in (c.interval_corrected for c in claims) if i]:
        several = "s up to" * (len(widths) > 1)
        text += f", interval{several} {unit.size(max(widths), '.2f')} wide"
    largest = max(claims, key=lambda claim: abs(claim.difference))
    if rows := largest.rows_to_decide:
        text += f"; {table.num_test_rows:,} test rows cannot tell, about {rows:,} would"
    return text


def recommended(table: Table) -> tuple[Row, str] | None:
    """The row to use and why, where that can be said: of the same states, nothing optimistic."""
    better = [row.label for row, c in table.compared if c.claim.verdict == "better"]
    rows = [row for row in table.rows if row.scores.chosen.mean is not None and not row.shuffled]
    given = {(row.drawn, row.recipe.get("layers")) for row in rows}
    if (
        not rows
        or any(row.unchosen for row in rows)
        or len(given) > 1
        or any(row.optimistic for row in rows)
    ):
        return None
    sign = 1 if table.unit.score.larger_is_better else -1
    best = max(rows, key=lambda row: sign * (row.scores.chosen.mean or 0.0))
    if best.label in better:
        why = f"best mean, shown to be better than '{table.baseline}'"
        return best, f"use {best.label}: {why}"
    verdicts = {row.probed.verdict for row in table.rows if row.probed}
    base = [row for row in rows if row.attention == table.baseline and not row.fitted]
    base = [best] if best.fitted and verdicts and "better" not in verdicts else base
    if len(base) != 1 or (best.fitted and base != [best]) or (better and not best.fitted):
        return None
    fewest = base[0].parameters["total"] == min(row.parameters["total"] for row in rows)
    reasons = ["best mean"] * (best is base[0]) + ["fewest parameters"] * fewest
    said = f"use {base[0].label}: {', '.join(reasons)}, nothing is shown to be better than it"
    return (base[0], said) if reasons else None


def _alone(table: Table) -> str:
    """Where nothing is compared."""
    if len(table.rows) == 1 and (found := table.rows[0].scores.chosen.two_level):
        unit = table.unit
        of = f"{unit.score.title} " * (table.score != DEFAULT)
        return (
            f"Other seeds on other test rows of the kind give {brief(table.rows[0].attention)} "
            f"{of}{unit.span(found)}{'%' * unit.score.percent} in 95 of 100 cases"
        ) + _conditions(table)
    return "Nothing is compared with a baseline, so that nothing is said of differences"


def _conditions(table: Table) -> str:
    """What holds only under them."""
    made, found = [c for _, c in table.compared], []
    if any(row.optimistic and not row.shuffled for row in table.rows):
        found.append("some of it from numbers that are optimistic")
    if made and any(row.unchosen for row in table.rows):
        found.append("of several recipes, between which nothing chose")
    elif made and not any(row.tunings for row in table.rows):
        stepped = [row for row in table.rows if not row.fitted | row.shuffled]
        one = len({str(row.recipe) for row in stepped}) == 1
        which = "this one recipe, which was" if one else "recipes that were"
        found.append(f"at {which} tuned for none of them")
    if any(c.other_grid for c in made):
        found.append("though not all had the same grid")
    if unsure := sum(row.unsure for row in table.rows):
        found.append(f"the rate of {unsure} not told from others by validation")
    if late := sum(row.undertrained for row in table.rows):
        found.append(f"and {late} of {len(table.rows)} rows under-trained")
    return f" ({', '.join(found)})" if found else ""


def _named(names: Sequence[str]) -> str:
    """The first names and how many there are beyond them, with their verb."""
    more = f" and {len(names) - NAMED} more" * (len(names) > NAMED)
    return f"{', '.join(names[:NAMED])}{more} {'are' if len(names) > 1 else 'is'}"
