"""What has to stand below a table for it to be read rightly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from gaam_cache.messages import brief
from gaam_cache.store.digest import short_digest
from gaam_decoder import stats
from gaam_decoder.reports.comparisons import literature
from gaam_decoder.reports.comparisons.against_baseline import (
    CONTROLS,
    DEFAULT_BASELINE,
    counterpart,
)
from gaam_decoder.reports.notes import claims, tuned
from gaam_decoder.reports.notes.weaknesses import (
    baseline_failure,
    controls,
    counted,
    drawn,
    failures,
    few_choose,
    few_rows,
    fitted_states,
    labelled,
    leaks,
    of_one_class,
    on_training_rows,
    pairs_of_layers,
    shared_texts,
    shuffled,
    weighted,
)
from gaam_decoder.reports.table import scaled
from gaam_decoder.reports.table.base import ON_TRAINING_ROWS, Table
from gaam_decoder.reports.table.final_models import all_runs
from gaam_decoder.reports.writing.numbers import percent
from gaam_decoder.reports.writing.unit import DEFAULT
from gaam_decoder.runs.result import fit_in_words
from gaam_decoder.stats.seeds_alone import Verdict

SELECT_NOTES = {
    "val": "epoch chosen on a held-out part of train",
    "last": "last epoch, nothing chosen",
    "test": "epoch chosen on test: optimistic, do not quote as test accuracy",
}
NO_WIDTH = 1e-9
VERSIONS = ("python", "torch", "numpy", "device")


def notes(table: Table) -> list[str]:
    """All notes of a table: what these runs caused, then how numbers are made."""
    return [*caused(table), *_explained(table)]


def caused(table: Table) -> list[str]:
    """What these runs caused and a reader must know, what weighs most first."""
    if not table.rows:
        return list(selected(table))
    return [
        *selected(table),
        *on_training_rows(table),
        *[f"select test: {SELECT_NOTES['test']}"] * any(r.select == "test" for r in table.rows),
        *leaks(table),
        *failures(table),
        *of_one_class(table),
        *few_rows(table),
        *shared_texts(table),
        *_left_out(table),
        *scaled.warnings(table),
        *beaten(table),
        *tuned.doubts(table),
        *probes(table, doubtful=True),
        *few_choose(table),
        *pairs_of_layers(table),
        *shuffled(table),
        *drawn(table),
        *weighted(table),
        *(() if _controlled(table) else controls(table.rows)),
    ]


def _explained(table: Table) -> list[str]:
    """How the numbers were made."""
    if not table.rows:
        return list(_provenance(table))
    shown = {
        row.attention: found
        for row, found in zip(table.rows, table.published, strict=True)
        if found is not None
    }
    selects = sorted({row.select for row in table.rows} - {"test"})
    return [
        *(f"select {brief(s, 40)}: {SELECT_NOTES.get(s, 'not known here')}" for s in selects),
        *fitted_states(table),
        f"majority class alone: {_of_accuracy(table)}{percent(table.majority_accuracy)}%",
        *(controls(table.rows) if _controlled(table) else ()),
        *tuned.notes(table),
        *probes(table, doubtful=False),
        *_intervals(table),
        *_comparisons(table),
        *scaled.notes(table),
        *literature.notes(table.cache, shown),
        *_provenance(table),
    ]


def warnings(table: Table) -> list[str]:
    """What nobody may miss."""
    found = [f"A selection: {why}." for why in selected(table)]
    if not table.rows:
        return found
    if taught := sum(row.on_training_rows for row in table.rows):
        found.append(
            f"No test accuracy: {taught} of {len(table.rows)} rows are {ON_TRAINING_ROWS}."
        )
    if optimistic := [r for r in table.rows if r.select == "test"]:
        found.append(
            f"Optimistic: in {len(optimistic)} of {len(table.rows)} rows the epoch was chosen on "
            "the test rows themselves."
        )
    if failed := sum(len(row.failed) for row in table.rows):
        verb = "seeds failed and count" if failed > 1 else "seed failed and counts"
        found.append(f"{failed} {verb} in no mean.")
    if why := baseline_failure(table):
        found.append(f"{why[0].upper()}{why[1:]}.")
    found += leaks(table)
    found += scaled.warnings(table)
    if not _controlled(table):
        found.append(
            "No control: without 'none' or 'scalar-mix' nothing shows what attention adds."
        )
    found += [f"{why[0].upper()}{why[1:]}." for why in few_rows(table)]
    if any(c is not None and len(c.seeds) < stats.LEAST_SEEDS for c in table.comparisons):
        found.append(f"Fewer than {stats.LEAST_SEEDS} paired seeds: no claim is made.")
    return found


def _controlled(table: Table) -> bool:
    """Whether a control finished, or nothing is trained by steps."""
    stepped = [row for row in table.rows if not (row.fitted or row.shuffled)]
    return not stepped or any(r.attention in CONTROLS and r.scores.seeds for r in stepped)


def _of_accuracy(table: Table) -> str:
    """What a number is of where others are not."""
    return "" if table.score == DEFAULT else "accuracy "


def _counts(table: Table) -> str:
    return "the share in which it is right" if table.unit.score.hits else "the mean of all"


def _intervals(table: Table) -> Iterator[str]:
    yield (
        "sd and the first 95% interval (Student's t) are over seeds; the test rows are taken as "
        "given"
    )
    yield (
        f"the second (+ rows) is over seeds and the {table.num_test_rows:,} test rows: what other "
        "seeds on another test set of this kind might give"
    )
    if any(row.recipe.get("groups") for row in table.rows):
        yield "rows of one group (--groups) count as independent: intervals may be too narrow"
    if table.rows[0].repeats > 1:
        yield (
            f"every row is tested {table.rows[0].repeats} times, by decoders that did not learn "
            f"from it, and counts as {_counts(table)}; a seed is all of these "
            "cross-validations, and s/seed their time"
        )
    elif table.rows[0].folds > 1:
        yield (
            "every row is tested once, by decoders that did not learn from it; a seed is a whole "
            "cross-validation, and s/seed its time; other training rows might give other results"
        )
    if table.incomplete:
        yield f"not here, because folds are missing: {', '.join(table.incomplete)}"
    if any(len(row.scores.seeds) == 1 and not row.fitted for row in table.rows):
        yield "a row with one finished seed has no interval: train more with --seeds"
    bounds = [row.chosen_interval for row in table.rows]
    bounds += [found.claim.on_these_rows.interval for found in table.comparisons if found]
    if any(found and found[1] - found[0] < NO_WIDTH for found in bounds):
        yield (
            "an interval over seeds without width is no certainty: all seeds are right on equally "
            "many rows, or differ alike"
        )


def _left_out(table: Table) -> Iterator[str]:
    """What is compared with nothing, and why."""
    if table.baseline is None:
        if len(table.rows) > 1:
            yield (
                "no differences are shown: no run of the baseline on this cache and these test rows"
                if table.asked
                else "no differences are shown: there is no row 'none'; name one with --baseline"
            ) + ("; every pair is compared below" if table.pairs and table.pairs.there else "")
        return
    baseline = brief(table.baseline)
    if why := baseline_failure(table):
        yield f"no differences are shown: {why}"
    alone: list[str] = []
    without: list[str] = []
    for (label, row), comparison in zip(labelled(table), table.comparisons, strict=True):
        open_ = comparison is None and row.scores.seeds and not row.shuffled
        if open_ and row.attention != table.baseline:
            other = counterpart(row, table.rows, table.baseline)
            if other is not None and not scaled.same_scale(row, other):
                continue  # a warning says it
            (alone if other is None or other.scores.seeds else without).append(label)
    if alone:
        yield (
            f"not compared, because no run of '{baseline}' has the same head, recipe and "
            f"seeds: {', '.join(alone)}"
        )
    if without and not why:
        yield (
            f"not compared, because all seeds of '{baseline}' with the same head and recipe "
            f"failed: {', '.join(without)}"
        )


def _comparisons(table: Table) -> Iterator[str]:
    found = [comparison for comparison in table.comparisons if comparison is not None]
    if not found:
        return
    yield (
        f"differences to '{brief(str(table.baseline))}' in {table.unit.of_differences}, paired by "
        "seed (same head initialisation, same order of rows), within the same head and recipe"
    )
    dropped = {
        label: c.dropped for label, c in zip(table.labels(), table.comparisons, strict=True) if c
    }
    for label, seeds in dropped.items():
        if seeds:
            yield f"{label}: without seed {counted(seeds)}, which one of the two lacks"
    yield from claims.how_it_was_tested(table)
    yield (
        f"MDD: smallest true difference that a paired t test over seeds at {stats.ALPHA} finds "
        "with a power of 80% on these test rows, before any correction"
    )


def _provenance(table: Table) -> Iterator[str]:
    yield f"cache {short_digest(table.cache['fingerprint'])}, {brief(table.where)}"
    yield f"versions: {versions(table)}"


def versions(table: Table) -> str:
    """What the runs of a table were made with; several values where they differ."""
    environments: list[dict[str, Any]] = [run.environment for run in all_runs(table)]
    parts = []
    for name in VERSIONS:
        values = sorted({brief(str(found.get(name, "unknown"))) for found in environments})
        parts.append(f"{name} {' and '.join(values)}")
    return ", ".join(parts)


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


def probes(table: Table, *, doubtful: bool) -> Iterator[str]:
    """What was chosen for each whose fit can be doubted, or of the others, by its values."""
    found = [pair for pair in zip(table.labels(), table.rows, strict=True) if pair[1].fitted]
    for label, row in found:
        for run in row.runs:
            doubt = bool(run.fit.get("edge") or run.fit.get("unconverged"))
            if run.failure is not None or doubt != doubtful:
                continue
            fold = f" (fold {run.recipe['fold']})" if row.folds > 1 else ""
            text = f"{label}{fold}: {fit_in_words(run.fit)}"
            if run.fit.get("edge"):
                text += "; beyond it there may be a better one"
            yield text
    if found and not doubtful:
        yield (
            "a head that is fitted at once has no seeds: its accuracy is one number, whose "
            "interval is over test rows alone"
        )


def beaten(table: Table) -> Iterator[str]:
    """Which rows are better than the probe, by the test that decides elsewhere."""
    by_verdict: dict[str, list[str]] = {}
    for label, claim in zip(table.labels(), table.against_probe, strict=True):
        if claim is not None:
            by_verdict.setdefault(claim.verdict, []).append(label)
    if by_verdict:
        parts = [
            f"{verdict}: {', '.join(by_verdict.get(verdict, ['none of them']))}"
            for verdict in get_args(Verdict)
            if verdict == "better" or verdict in by_verdict
        ]
        yield (
            "against logistic regression on the same states, none + lbfgs (Holm in a family of "
            f"their own): {'; '.join(parts)}"
        )
