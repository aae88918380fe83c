"""What is said of a table: the answer in one sentence, and notes, each a function of the table.

``NOTES`` has what these runs caused in order of weight; the first of them are warnings.
"""

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gaam_cache.messages import brief
from gaam_cache.store.files import short_digest
from gaam_decoder import stats
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.compare import DEFAULT_BASELINE, is_of
from gaam_decoder.reports.groups import in_words
from gaam_decoder.reports.rows import DEFAULT, Row
from gaam_decoder.reports.table import ON_TRAINING_ROWS, Table
from gaam_decoder.runs.groups import EQUAL_ROWS
from gaam_decoder.runs.tuning import Tuning
from gaam_decoder.stats.scores._base import percent

CONTROLS = ("none", "scalar-mix")
FEW_ROWS = 30  # of test: below, one is more than three points; or that choose
NAMED, LISTED = 3, 8  # decoders that the conclusion, and a note, name; of more, the rest is counted
SELECT_NOTES = {
    "val": "epoch chosen on a held-out part of train",
    "last": "last epoch, nothing chosen",
    "test": "epoch chosen on test: optimistic, do not quote as test accuracy",
}
TEMPERATURE = (
    "a temperature was fitted for every seed and fold by the log loss of the rows that chose the "
    "epoch (Guo et al. 2017); log loss, Brier score, ECE and the reliability diagram are of logits "
    "divided by it, all else, AUROC too, of logits as they are"
)
Note = Callable[[Table], str | None]


def notes(table: Table) -> list[str]:
    """All notes of a table: what these runs caused, then how numbers are made."""
    return [*caused(table), *explained(table)]


def caused(table: Table, most: int | None = None) -> list[str]:
    """What these runs caused and a reader must know, what weighs most first."""
    functions = NOTES[:most] if table.rows else NOTES[:1]
    return [said for function in functions if (said := function(table))]


def warnings(table: Table) -> list[str]:
    """What nobody may miss."""
    return [f"{said[0].upper()}{said[1:]}." for said in caused(table, GRAVE)]


def _rows(text: str, holds: Callable[[Row], Any]) -> Note:
    """The note that names the rows of which something holds."""

    def note(table: Table) -> str | None:
        names = [row.label for row in table.rows if holds(row)]
        return f"{text}: {_listed(names, LISTED)}" if names else None

    return note


def selected(table: Table) -> str | None:
    """What was left out, and what that does to p-values and to the baseline."""
    if (selection := table.selection) is None:
        return None
    said = f"this report is of {brief(selection.in_words(), 600)}"
    if selection.left_out and table.num_tests:
        of = f"all {selection.total:,} runs, those that filters left out among them"
        if table.uncounted > 0:
            of = f"this report, not for those of {table.uncounted:,} runs that were not named: "
            of += "chosen after a look at the results, p-values are too small"
        said += f"; Holm corrects for the {table.num_tests} comparisons of {of}"
    if table.baseline is None and (by := selection.lost.get(DEFAULT_BASELINE)):
        said += f"; the baseline '{DEFAULT_BASELINE}' is among what {by} left out"
    return said


def _failures(table: Table) -> str | None:
    found = []
    for row in (row for row in table.rows if row.failed):
        which = f"seed {spell_numbers(sorted(row.failed))}" if row.finished else "every seed"
        reasons = sorted({brief(why, 300) for why in row.failed.values()})[:3]
        found.append(f"{row.label} {which} failed: {'; '.join(reasons)}")
    return f"what failed counts in no mean and no pair: {'; '.join(found)}" if found else None


def _no_control(table: Table) -> str | None:
    stepped = [row for row in table.rows if not (row.fitted or row.shuffled)]
    if not stepped or any(row.attention in CONTROLS and row.finished for row in stepped):
        return None
    return "no control: whether a mechanism helps is open without 'gaam train --attn none'"


def _few_rows(table: Table) -> str | None:
    if (rows := table.num_test_rows) >= FEW_ROWS:
        return None
    return f"only {rows} test rows: each is {100 / rows:.1f} points, and intervals say little"


def _few_seeds(table: Table) -> str | None:
    least = stats.LEAST_SEEDS
    if (fewest := min((len(c.seeds) for _, c in table.compared), default=least)) >= least:
        return None
    return f"no claim with fewer than {least} seeds: p is {2 / 2**fewest:.3g} at least"


def _like_groups(table: Table) -> str | None:
    """Columns that may say that rows are no independent draws."""
    if not table.like_groups:
        return None
    columns = ", ".join(
        f"'{brief(name)}' ({count} values)" for name, count in table.like_groups.items()
    )
    first = shlex.quote(next(iter(table.like_groups)))
    return (
        f"accuracy varies with {columns} more than chance allows: where rows of one value belong "
        f"together, intervals and verdicts are too sure without --groups {brief(first)}"
    )


def _groups_not_known(table: Table) -> str | None:
    """Rows that belong together, and count as if they did not."""
    if table.groups is None:
        return None
    if names := table.groups.unknown:
        relations = ", ".join(map(in_words, names))
        text = f"rows that belong together ({relations}) count as independent"
        return f"{text}: the runs do not name them"
    recipe = table.rows[0].runs[0].recipe
    split = recipe.get("test_split", "test")
    if recipe.get("fold"):
        split = recipe.get("train_split", "train")
    copies = table.cache.get("shared_texts", {}).get(split, {}).get(split, 0)
    if not copies or EQUAL_ROWS in table.groups.names:
        return None
    text = f"{copies:,} rows of '{brief(split)}' are copies of others and count as independent"
    return f"{text}: the cache does not say which"


def _one_class(row: Row) -> bool:
    predicted_C = row.confusion.sum(0)
    return bool(len(predicted_C) > 1 and row.finished and (predicted_C > 0).sum() == 1)


def _leaks(table: Table) -> str | None:
    found, splits = [], set()
    for recipe in (row.runs[0].recipe for row in table.rows if not row.on_training_rows):
        train = recipe.get("train_split", "train")
        splits.add((train, train if recipe.get("fold") else recipe.get("test_split", "test")))
    for train, test in sorted(splits):
        if count := table.cache.get("shared_texts", {}).get(test, {}).get(train, 0):
            also = "another of them" if train == test else f"'{brief(train)}'"
            rows = f"{count:,} of the {table.cache['rows'][test]:,} rows of '{brief(test)}'"
            found.append(f"{rows} have a text that {also} has too, which inflates accuracy")
    if table.cache.get("fitted_on") in {test for _, test in splits}:
        found.append("the states were fitted on the texts that test (not on labels)")
    return "; ".join(found)


def _not_compared(table: Table) -> str | None:
    if (baseline := table.baseline) is None:
        return "no differences are shown: --baseline names a row" if len(table.rows) > 1 else None

    def alone(row: Row) -> bool:
        return not (row.compared or is_of(row, baseline) or row.shuffled or row.fitted)

    text = f"not compared, no '{brief(baseline)}' of the same head, recipe and seeds"
    return _rows(text, alone)(table)


def _against_probe(table: Table) -> str | None:
    of = {"better": list[str]()}
    for row in table.rows:
        if row.probed:
            of.setdefault(row.probed.claim.verdict, []).append(row.label)
    parts = [f"{verdict}: {_listed(rows, LISTED) or 'no row'}" for verdict, rows in of.items()]
    said = "against logistic regression on the same states, none + lbfgs (Holm in its own family): "
    return (said + "; ".join(parts)) * any(row.probed for row in table.rows)


def _few_chose(row: Row) -> bool:
    """Whether few rows chose the epoch; by their share, where the runs do not say how many."""
    if row.select != "val":
        return False
    run, learned = row.runs[0], 1 - (row.folds > 1) / row.folds
    about = run.cache["rows"].get(run.setting("train_split"), 0) * run.setting("val_fraction")
    return 0 < min(one.drawn.get("choose") or about * learned for one in row.runs) < FEW_ROWS


def _few_learned(table: Table) -> str | None:
    rows = min((row.train_rows for row, _ in table.compared), default=math.inf)
    if rows >= table.num_test_rows:
        return None
    # as many groups as have so many rows, if they are as large as those that are tested
    count = rows * (table.num_groups or table.num_test_rows) / table.num_test_rows
    text = (
        f"test {table.units} count as no more than training {table.units} ({count:,.0f} at least)"
    )
    return f"{text} in differences: which were drawn matters as much (--folds 5 tests on all)"


def chance(row: Row) -> float:
    """Accuracy without information, a fraction: the share of the largest class of test rows."""
    return float(row.labels_per_class.max() / row.labels_per_class.sum())


def _above_chance(row: Row) -> bool:
    """Whether shuffled labels were learned; one seed is one permutation, which says nothing."""
    found = row.accuracy.two_level if row.shuffled and len(row.finished) > 1 else None
    return found is not None and found[0] > chance(row)


# in order of weight
NOTES: tuple[Note, ...] = (
    selected,
    _rows(f"{ON_TRAINING_ROWS}, no test accuracy", lambda row: row.on_training_rows),
    _rows(f"select test: {SELECT_NOTES['test']}", lambda row: row.select == "test"),
    _rows("above chance with shuffled labels, so something leaks", _above_chance),
    _failures,
    _no_control,
    _few_rows,
    _few_seeds,
    _like_groups,
    _groups_not_known,
    _leaks,
    _rows("every seed predicts one and the same class", _one_class),
    _not_compared,
    _against_probe,
    _few_learned,
    _rows("under-trained, the best epoch is the last (more --epochs)", lambda row: row.too_short),
    _rows(
        "under-trained, lr or weight-decay (of a fit, the penalty) is at the edge of its grid",
        lambda row: row.at_edge or any(run.fit.get("edge") for run in row.runs),
    ),
    _rows(
        "validation cannot tell the rate, or decay, from others; differences' intervals hold that",
        lambda row: row.unsure,
    ),
    _rows(f"fewer than {FEW_ROWS} rows chose the epoch, which no interval covers", _few_chose),
    _rows(
        "not chosen among, for no seed with a validation accuracy is in all", lambda r: r.unchosen
    ),
)
GRAVE = 10  # how many of them are warnings


def explained(table: Table) -> Iterator[str]:
    """How the numbers were made, as far as that is not the same of every report (GUIDE.md)."""
    for select in sorted({row.select for row in table.rows} - {"test"}):
        yield f"select {brief(select, 40)}: {SELECT_NOTES.get(select, 'not known here')}"
    if table.rows:
        yield f"majority class alone: {percent(chance(table.rows[0]))}% of the tested rows"
    if table.incomplete:
        yield f"not here, because folds are missing: {', '.join(table.incomplete)}"
    unit = table.unit
    if table.score != DEFAULT:
        better = "larger" if unit.larger_is_better else "smaller"
        no_claim = f"; no claim is made: {unit.no_claim}" if unit.no_claim else ""
        yield f"compared by {unit.title}, of which {better} is better{no_claim}"
    if table.compared:
        yield (
            f"differences to '{brief(str(table.baseline))}' in {unit.of_differences}, within the "
            f"same head and recipe; intervals and verdicts are of seeds and {table.units}, "
            f"corrected by Holm for {table.num_tests}; equivalent: within "
            f"{unit.size(table.margin)}"
        )
    for row in table.rows:
        for tuning in dict.fromkeys(map(_grid, row.tunings)):
            yield f"{row.label}: {tuning}"
    if table.temperature:
        yield TEMPERATURE
    yield f"cache {short_digest(table.cache['fingerprint'])}, {brief(table.where)}"
    names = ("python", "torch", "numpy", "device")
    made_by = {n: {str(run.environment.get(n, "unknown")) for run in table.runs} for n in names}
    told = (f"{name} {' and '.join(map(brief, sorted(of)))}" for name, of in made_by.items())
    yield f"versions: {', '.join(told)}"


def _grid(tuning: Tuning) -> str:
    """``seeds 0-1 chose lr 0.001 of 0.0001 (88.2%), 0.001 (89.1%) by validation``."""
    names, tried = tuning.names or tuple(tuning.chosen)[:1], []
    for one in tuning.candidates:
        value = " and ".join(f"{one.values[name]:.6g}" for name in names)
        told = "a seed lacks" if one.accuracy is None else f"{percent(one.accuracy)}%"
        tried.append(f"{value} ({told})")
    chosen = " and ".join(f"{name} {tuning.chosen[name]:.6g}" for name in names)
    of = f"{spell_numbers(tuning.seeds)} chose {chosen} of {', '.join(tried)}"
    return f"seeds {of} by validation, {'others' if tuning.apart else 'all'} report"


def conclusion(table: Table, *, advice: bool = True) -> str:
    """What is shown and what to use, without its full stop."""
    if not table.rows:
        return "Nothing is said of accuracies, for nothing was evaluated"
    if not table.compared:
        return _alone(table)
    of: dict[str, list[str]] = {}
    for row, compared in table.compared:
        of.setdefault(compared.claim.verdict, []).append(row.label)
    most, baseline = max(len(c.seeds) for _, c in table.compared), brief(str(table.baseline))
    if most < stats.LEAST_SEEDS and "no claim" not in of:
        seeds = f"seeds: {most}, and a claim needs {stats.LEAST_SEEDS}"
        return f"Nothing is said of differences yet ({seeds})"
    parts = [f"{_named(of[v])} {v} than '{baseline}'" for v in ("better", "worse") if v in of]
    if not parts and ("equivalent" in of or "undecided" in of):
        parts.append(f"no mechanism is shown to differ from '{baseline}': {_spread(table)}")
    if "equivalent" in of:
        margin = table.unit.size(table.margin)
        parts.append(f"{_named(of['equivalent'])} equivalent to '{baseline}' within {margin}")
    if 0 < len(of.get("undecided", ())) < len(table.compared):
        parts.append(f"{_named(of['undecided'])} undecided")
    if "no claim" in of:
        why = next(c.claim.no_claim for _, c in table.compared if c.claim.verdict == "no claim")
        parts.append(f"no claim is made of {', '.join(of['no claim'])}: {why}")
    if advice and (use := recommended(table)):
        parts.append(use[1])
    by = "" if table.score == DEFAULT else f"by {table.unit.title}, "
    text = by + "; ".join(parts) + _conditions(table)
    # names stay as they are written; ours is the first word only where no name begins
    return text[0].upper() + text[1:] if text.startswith(("no ", "by ")) else text


def _spread(table: Table) -> str:
    unit, claims = table.unit, [compared.claim for _, compared in table.compared]
    low, high = (unit.difference(f(c.difference for c in claims)) for f in (min, max))
    text = f"differences of {' to '.join(dict.fromkeys((low, high)))}{' points' * unit.percent}"
    if widths := [i[1] - i[0] for i in (c.interval_corrected for c in claims) if i]:
        text += f", intervals up to {unit.size(max(widths), '.2f')} wide"
    furthest = max(claims, key=lambda claim: abs(claim.difference))
    if rows := furthest.rows_to_decide:
        text += f"; {table.num_test_rows:,} test rows cannot tell, about {rows:,} would"
    elif groups := furthest.groups_to_decide:
        text += f"; {table.num_groups:,} groups cannot tell, about {groups:,} would"
    return text


def recommended(table: Table) -> tuple[Row, str] | None:
    """The row to use and why, where that can be said: of the same states, nothing optimistic."""
    rows = [row for row in table.rows if row.chosen.mean is not None and not row.shuffled]
    given = {(row.drawn, row.recipe.get("layers")) for row in rows}
    if len(given) != 1 or any(row.unchosen or row.optimistic for row in rows):
        return None
    best, better = rows[0], [r for r, c in table.compared if c.claim.verdict == "better"]
    if best in better:
        return best, f"use {best.label}: best mean, shown to be better than '{table.baseline}'"
    verdicts = {row.probed.claim.verdict for row in table.rows if row.probed}
    base = [row for row in rows if row.attention == table.baseline and not row.fitted]
    if best.fitted:
        base = [best] if verdicts and "better" not in verdicts else []
    if len(base) != 1 or (better and not best.fitted):
        return None
    fewest = base[0].parameters["total"] == min(row.parameters["total"] for row in rows)
    reasons = ["best mean"] * (best is base[0]) + ["fewest parameters"] * fewest
    said = f"use {base[0].label}: {', '.join(reasons)}, nothing is shown to be better than it"
    return (base[0], said) if reasons else None


def _alone(table: Table) -> str:
    if len(table.rows) > 1 or not (found := table.rows[0].chosen.two_level):
        return "Nothing is compared with a baseline, so that nothing is said of differences"
    unit = table.unit
    of = f"{brief(table.rows[0].attention)} {f'{unit.title} ' * (table.score != DEFAULT)}"
    said = f"{of}{unit.span(found)}{'%' * unit.percent} in 95 of 100 cases"
    other = "groups of test rows" if table.num_groups else "test rows"
    return f"Other seeds on other {other} of the kind give {said}{_conditions(table)}"


def _conditions(table: Table) -> str:
    """What the answer rests on; what else makes numbers weak the notes say."""
    made, found = [c for _, c in table.compared], []
    if any(row.optimistic and not row.shuffled for row in table.rows):
        found.append("some of it from numbers that are optimistic")
    if made and not any(row.tunings for row in table.rows):
        found.append("at recipes that were tuned for none of them")
    if any(c.other_grid for c in made):
        found.append("though not all had the same grid")
    if late := sum(row.undertrained for row in table.rows):
        found.append(f"and {late} of {len(table.rows)} rows under-trained")
    return f" ({', '.join(found)})" * bool(found)


def _named(names: Sequence[str]) -> str:
    return f"{_listed(names, NAMED)} {'are' if len(names) > 1 else 'is'}"


def _listed(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" * (len(names) > most)
    return ", ".join(names[:most]) + more
