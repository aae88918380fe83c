"""What is said of a table: the answer in one sentence, and notes, each a function of the table.

The answer names what to use; ``predict``, ``export`` and ``load`` ask ``recommended`` for the same.

``NOTES`` has what these runs caused in order of weight; the first of them are warnings.
"""

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gaam_cache.common.messages import brief
from gaam_cache.store.files import short_digest
from gaam_decoder import stats
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.compare import DEFAULT_BASELINE, counts_in_words, is_of
from gaam_decoder.reports.groups import in_words
from gaam_decoder.reports.rows import DEFAULT, Row
from gaam_decoder.reports.table import ON_TRAINING_ROWS, Table
from gaam_decoder.runs.groups import EQUAL_ROWS
from gaam_decoder.runs.tuning import tuning_in_words
from gaam_decoder.stats.scores.base import percent

CONTROLS = ("none", "scalar-mix")
FEW_ROWS = 30  # of test: below, one is more than three points; or that choose
NAMED, LISTED = (
    3,
    8,
)  # decoders that the conclusion, and a note, name; of more, the rest is counted
PROBE = "logistic regression (none + lbfgs)"
NOT_TUNED = "not tuned: validation chose no learning rate"
SELECT_NOTES = {
    "val": "epoch chosen on a held-out part of train",
    "last": "last epoch, no rows choose: learning rates are not tuned, and there is no "
    "logistic regression (none + lbfgs) to compare with",
    "test": "epoch chosen on test: optimistic, do not quote as test accuracy",
}
INTERVALS = (
    "95% CI: a confidence interval of the mean over seeds and {}; it does not predict what another "
    "test set gives"
)
UNDERTRAINED = (
    "† under-trained: longer training, or another rate than the chosen one, "
    "may do better"
)
TEMPERATURE = (
    "a temperature was fitted for every seed and fold by the log loss of the rows that chose the "
    "epoch (Guo et al. 2017); log loss, Brier score, ECE and the reliability diagram are of logits "
    "divided by it, all else, AUROC too, of logits as they are"
)
Note = Callable[[Table], str | None]
Recommendation = tuple[Row, str]  # a row, and in words that it is to be used, and why


def notes(table: Table) -> list[str]:
    """All notes of a table: what these runs caused, how to read it, how numbers are made."""
    return [*caused(table), *below(table), *explained(table)]


def below(table: Table) -> list[str]:
    """How to read the intervals and marks of a table: what stands below it, never folded."""
    lines = []
    if any(row.chosen.two_level for row in table.shown):
        unit = "groups of test rows" if table.num_groups else "test rows"
        corrected = (
            "; that of a difference is corrected (Holm)" if table.compared else ""
        )
        lines.append(INTERVALS.format(unit) + corrected)
    if any(row.undertrained for row in table.shown):
        lines.append(UNDERTRAINED)
    return lines


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
        said += f"; Holm corrects for all comparisons of this table ({_corrected_for(table)})"
        if table.uncounted > 0:
            said += f", but for none of the {table.uncounted:,} runs that were not named: chosen "
            said += "after a look at the results, p-values are too small"
        else:
            said += ", those that filters left out among them"
    if table.baseline is None and (by := selection.lost.get(DEFAULT_BASELINE)):
        said += f"; the baseline '{DEFAULT_BASELINE}' is among what {by} left out"
    return said


def _corrected_for(table: Table) -> str:
    return counts_in_words(table.num_tests)


def _failures(table: Table) -> str | None:
    lines = []
    for row in table.rows:
        if not row.failed:
            continue
        which = (
            f"seed {spell_numbers(sorted(row.failed))}"
            if row.finished
            else "every seed"
        )
        reasons = sorted({brief(why, 300) for why in _reasons(row)})[:3]
        lines.append(f"{row.label} {which} failed: {'; '.join(reasons)}")
    return (
        f"what failed counts in no mean and no pair: {'; '.join(lines)}"
        if lines
        else None
    )


def _reasons(row: Row) -> Iterator[str]:
    """Why seeds of a row failed, each reason once, however many folds it is the reason in."""
    folds: dict[str, list[str]] = {}
    for run in row.runs:
        for seed, why in run.failed.items():
            if seed in row.failed:
                folds.setdefault(why, []).append(str(run.recipe.get("fold") or ""))
    for why, of_runs in folds.items():
        names = sorted({name for name in of_runs if name})
        where = f"fold {names[0]}" if len(names) == 1 else f"{len(names)} folds"
        yield f"{where}: {why}" if names and row.folds > 1 else why


def _no_control(table: Table) -> str | None:
    stepped = [row for row in table.rows if not (row.fitted or row.shuffled)]
    if not stepped or any(
        row.attention in CONTROLS and row.finished for row in stepped
    ):
        return None
    return (
        "no control: whether a mechanism helps is open without 'gaam train --attn none'"
    )


def _few_rows(table: Table) -> str | None:
    if (rows := table.num_test_rows) >= FEW_ROWS:
        return None
    return f"only {rows} test rows: each is {100 / rows:.1f} points, and intervals say little"


def _few_seeds(table: Table) -> str | None:
    least = stats.LEAST_SEEDS
    if (
        fewest := min((len(c.seeds) for _, c in table.compared), default=least)
    ) >= least:
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
    for recipe in (
        row.runs[0].recipe for row in table.rows if not row.on_training_rows
    ):
        train = recipe.get("train_split", "train")
        splits.add(
            (train, train if recipe.get("fold") else recipe.get("test_split", "test"))
        )
    for train, test in sorted(splits):
        if count := table.cache.get("shared_texts", {}).get(test, {}).get(train, 0):
            also = "another of them" if train == test else f"'{brief(train)}'"
            rows = f"{count:,} of the {table.cache['rows'][test]:,} rows of '{brief(test)}'"
            found.append(
                f"{rows} have a text that {also} has too, which inflates accuracy"
            )
    if table.cache.get("fitted_on") in {test for _, test in splits}:
        found.append("the states were fitted on the texts that test (not on labels)")
    return "; ".join(found)


def _not_compared(table: Table) -> str | None:
    if (baseline := table.baseline) is None:
        return (
            "no differences are shown: --baseline names a row"
            if len(table.rows) > 1
            else None
        )

    def alone(row: Row) -> bool:
        return not (row.compared or is_of(row, baseline) or row.shuffled or row.fitted)

    text = f"not compared, no '{brief(baseline)}' of the same head, recipe and seeds"
    return _rows(text, alone)(table)


def _against_probe(table: Table) -> str | None:
    by_verdict: dict[str, list[str]] = {"better": []}
    for row in table.rows:
        if row.probed:
            by_verdict.setdefault(row.probed.claim.verdict, []).append(row.label)
    if not any(by_verdict.values()):
        return None
    parts = [
        f"{verdict}: {_listed(n, LISTED) or 'no row'}"
        for verdict, n in by_verdict.items()
    ]
    family = "against logistic regression on the same states, none + lbfgs (Holm in its own family)"
    return f"{family}: {'; '.join(parts)}"


def _few_chose(row: Row) -> bool:
    """Whether few rows chose the epoch; by their share, where the runs do not say how many."""
    if row.select != "val":
        return False
    run, learned = row.runs[0], 1 - (row.folds > 1) / row.folds
    about = run.cache["rows"].get(run.setting("train_split"), 0) * run.setting(
        "val_fraction"
    )
    return (
        0
        < min(one.drawn.get("choose") or about * learned for one in row.runs)
        < FEW_ROWS
    )


def _few_learned(table: Table) -> str | None:
    rows = min((row.train_rows for row, _ in table.compared), default=math.inf)
    if rows >= table.num_test_rows:
        return None
    # as many groups as have so many rows, if they are as large as those that are tested
    count = rows * (table.num_groups or table.num_test_rows) / table.num_test_rows
    text = f"test {table.units} count as no more than training {table.units} "
    text += f"({count:,.0f} at least)"
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
    _rows(
        "under-trained, the best epoch is the last (more --epochs)",
        lambda row: row.too_short,
    ),
    _rows(
        "under-trained, lr or weight-decay is at the edge of its grid",
        lambda row: row.at_edge,
    ),
    _rows(
        "a fit chose the smallest or largest penalty that was tried",
        lambda row: row.penalty_at_edge,
    ),
    _rows(
        "validation does not separate the rate, or decay, from others; intervals of differences "
        "include this uncertainty",
        lambda row: row.unsure,
    ),
    _rows(
        f"fewer than {FEW_ROWS} rows chose the epoch, which no interval covers",
        _few_chose,
    ),
    _rows(
        "not tuned: no seed has a validation accuracy for every candidate",
        lambda r: r.unchosen,
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
            f"corrected by Holm for {_corrected_for(table)}; equivalent: within "
            f"{unit.size(table.margin)}"
        )
    yield from _tuned(table)
    if table.temperature:
        yield TEMPERATURE
    yield f"cache {short_digest(table.cache['fingerprint'])}, {brief(table.where)}"
    names = ("python", "torch", "numpy", "device")
    made_by = {
        n: {str(run.environment.get(n, "unknown")) for run in table.runs} for n in names
    }
    told = (
        f"{name} {' and '.join(map(brief, sorted(of)))}" for name, of in made_by.items()
    )
    yield f"versions: {', '.join(told)}"


def _tuned(table: Table) -> Iterator[str]:
    """What validation chose: a line for each decoder, and who chose."""
    for row in table.rows:
        if row.tunings:
            yield f"{row.label}: {tuning_in_words(row.tunings)}"
    by_seeds = Counter((t.seeds, t.apart) for row in table.rows for t in row.tunings)
    for seeds, apart in by_seeds:
        reports = "others report" if apart else "they report, too"
        yield f"tuned: seeds {spell_numbers(seeds)} chose by validation accuracy, {reports}"


def conclusion(table: Table, *, advice: bool = True) -> str:
    """What is shown and what to use, without its full stop.

    Where logistic regression on the same states is better than the mechanisms, it says so.

    Args:
        table: what it is said of.
        advice: whether it names what to use.
    """
    if not table.rows:
        return "Nothing is said of accuracies, for nothing was evaluated"
    choice = recommended(table) if advice else None
    if table.compared:
        parts, advised = _of_mechanisms(table, choice)
    elif any(row.probed for row in table.rows):
        parts, advised = _of_decoders(table, choice)
    else:
        parts, advised = [_alone(table)], False
    if choice and not advised:
        parts.append(choice[1])
    by = "" if table.score == DEFAULT else f"by {table.unit.title}, "
    text = by + "; ".join(parts) + _conditions(table)
    # names stay as they are written; ours is the first word only where no name begins
    ours = ("no ", "by ", "every ")
    return text[0].upper() + text[1:] if text.startswith(ours) else text


def _of_mechanisms(
    table: Table, choice: Recommendation | None
) -> tuple[list[str], bool]:
    """What is shown of mechanisms, and whether that says already what to use."""
    claims = {row.label: compared.claim for row, compared in table.compared}
    behind = [row.label for row, _ in table.compared if _is_behind_probe(row)]
    worse_than_probe = f"worse than {PROBE}"
    advised = bool(
        choice and choice[0].fitted and behind and len(behind) == len(claims)
    )
    if advised:
        worse_than_probe += ", which is the one to use"
    most = max(claim.num_seeds for claim in claims.values())
    silent = any(claim.verdict == stats.NO_CLAIM for claim in claims.values())
    if most < stats.LEAST_SEEDS and not silent:
        seeds = f"seeds: {most}, and a claim needs {stats.LEAST_SEEDS}"
        return [f"Nothing is said of differences yet ({seeds})"], False
    parts = _clauses(table, claims, f"'{brief(str(table.baseline))}'", "mechanism")
    if len(behind) < len(claims):
        beside = [f"{_named(behind)} {worse_than_probe}"] if behind else []
        return [*parts, *beside], advised
    verdicts = {claim.verdict for claim in claims.values()}
    if len(verdicts) == 1 and verdicts < {"better", "worse"}:
        return [f"{parts[0]}, and {worse_than_probe}"], advised
    subject = f"{behind[0]} is" if len(behind) == 1 else "every mechanism is"
    return [f"{subject} {worse_than_probe}", *parts], advised


def _of_decoders(table: Table, choice: Recommendation | None) -> tuple[list[str], bool]:
    """The same of decoders without a baseline, compared with logistic regression alone."""
    claims = {row.label: row.probed.claim for row in table.rows if row.probed}
    parts = _clauses(table, claims, PROBE, "decoder")
    advised = bool(
        choice and choice[0].fitted and len(parts) == 1 and " worse than " in parts[0]
    )
    return [parts[0] + ", which is the one to use"] if advised else parts, advised


def _is_behind_probe(row: Row) -> bool:
    return row.probed is not None and row.probed.claim.verdict == "worse"


def _clauses(
    table: Table, claims: Mapping[str, stats.Claim], other: str, noun: str
) -> list[str]:
    """What is shown of decoders beside another, a clause for each verdict."""
    labels: dict[str, list[str]] = {}
    for label, claim in claims.items():
        labels.setdefault(claim.verdict, []).append(label)
    parts = [
        f"{_named(labels[verdict])} {verdict} than {other}"
        for verdict in ("better", "worse")
        if verdict in labels
    ]
    if not parts and ("equivalent" in labels or "undecided" in labels):
        spread = _spread(table, claims.values())
        parts.append(f"no {noun} is shown to differ from {other}: {spread}")
    if "equivalent" in labels:
        margin = table.unit.size(table.margin)
        parts.append(
            f"{_named(labels['equivalent'])} equivalent to {other} within {margin}"
        )
    if 0 < len(labels.get("undecided", ())) < len(claims):
        parts.append(f"{_named(labels['undecided'])} undecided")
    if stats.NO_CLAIM in labels:
        why = next(claim.no_claim for claim in claims.values() if claim.no_claim)
        parts.append(f"no claim is made of {', '.join(labels[stats.NO_CLAIM])}: {why}")
    return parts


def _spread(table: Table, given: Iterable[stats.Claim]) -> str:
    unit, claims = table.unit, list(given)
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


def recommended(table: Table) -> Recommendation | None:
    """The row to use and why, where that can be said: of the same states, nothing optimistic.

    The best, if it is shown to be better than the baseline. Else what nothing is shown to be better
    than: logistic regression where it is the best, or the baseline.
    """
    rows = [
        row for row in table.rows if row.chosen.mean is not None and not row.shuffled
    ]
    given = {(row.drawn, row.recipe.get("layers")) for row in rows}
    if len(given) != 1 or any(row.unchosen or row.optimistic for row in rows):
        return None
    best, better = (
        rows[0],
        [r for r, c in table.compared if c.claim.verdict == "better"],
    )
    if best in better:
        return (
            best,
            f"use {best.label}: best mean, shown to be better than '{table.baseline}'",
        )
    probed = [row for row in table.rows if row.probed]
    if not (table.compared or probed):
        return None
    if best.fitted:
        ahead = [
            row for row in probed if row.probed and row.probed.claim.verdict == "better"
        ]
        base = [best] if probed and not ahead else []
    else:
        of_baseline = [
            row for row in rows if row.attention == table.baseline and not row.fitted
        ]
        base = [] if better else of_baseline
    if len(base) != 1:
        return None
    if base[0].fitted and all(map(_is_behind_probe, probed)):
        return base[
            0
        ], f"use {base[0].label}: shown to be better than every other decoder"
    fewest = base[0].parameters["total"] == min(row.parameters["total"] for row in rows)
    reasons = ["best mean"] * (best is base[0]) + ["fewest parameters"] * fewest
    said = f"use {base[0].label}: {', '.join(reasons)}, nothing is shown to be better than it"
    return (base[0], said) if reasons else None


def _alone(table: Table) -> str:
    first = table.rows[0]
    interval, mean = first.chosen.two_level, first.chosen.mean
    if len(table.rows) > 1 or interval is None or mean is None:
        return "Nothing is compared with a baseline, so that nothing is said of differences"
    unit = table.unit
    sign = "%" if unit.percent else ""
    others = "groups of test rows" if table.num_groups else "test rows"
    return (
        f"The mean {unit.title} of {first.label} is {unit.text(mean)}{sign}, with a 95% confidence "
        f"interval of {unit.span(interval)}{sign} over seeds and {others}"
    )


def _conditions(table: Table) -> str:
    """What the answer rests on; what else makes numbers weak the notes say."""
    compared, conditions = [c for _, c in table.compared], []
    trained = [row for row in table.rows if not (row.fitted or row.shuffled)]
    if any(row.optimistic for row in trained):
        conditions.append("some of it from numbers that are optimistic")
    untuned = [row for row in trained if not row.tunings]
    if any(row.candidate for row in untuned):
        conditions.append("not tuned: every candidate stands for itself")
    elif untuned and len(untuned) == len(trained):
        conditions.append(NOT_TUNED)
    elif untuned:
        conditions.append(f"{len(untuned)} of {len(trained)} decoders not tuned")
    if any(c.other_grid for c in compared):
        conditions.append("though not all had the same grid")
    if late := sum(row.undertrained for row in table.rows):
        conditions.append(f"and {late} of {len(table.rows)} rows under-trained")
    return f" ({', '.join(conditions)})" if conditions else ""


def _named(names: Sequence[str]) -> str:
    """The names as the subject of a sentence, with its verb."""
    if 1 < len(names) <= NAMED:
        return f"{', '.join(names[:-1])} and {names[-1]} are"
    return f"{_listed(names, NAMED)} {'are' if len(names) > 1 else 'is'}"


def _listed(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" * (len(names) > most)
    return ", ".join(names[:most]) + more
