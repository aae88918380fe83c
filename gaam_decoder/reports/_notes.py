"""What has to stand below a table for it to be read rightly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gaam_cache.messages.foreign_text import brief
from gaam_decoder import stats
from gaam_decoder.reports import _literature
from gaam_decoder.reports._base import ON_TRAINING_ROWS, Table
from gaam_decoder.reports._compare import ALPHA, CONTROLS, LEAST_SEEDS, Comparison, counterpart
from gaam_decoder.reports._probe import probes
from gaam_decoder.reports._shuffled import leaks, shuffled
from gaam_decoder.reports._weaknesses import (
    baseline_failure,
    controls,
    counted,
    failures,
    few_rows,
    labelled,
    on_training_rows,
    shared_texts,
)
from gaam_decoder.stats.bootstrap import RESAMPLES
from gaam_decoder.stats.paired import DRAWS, EXACT_SEEDS

SELECT_NOTES = {
    "val": "epoch chosen on a held-out part of train",
    "last": "last epoch, nothing chosen",
    "test": "epoch chosen on test: optimistic, do not quote as test accuracy",
}
NO_WIDTH = 1e-9
VERSIONS = ("python", "torch", "numpy", "device")


def notes(table: Table) -> list[str]:
    """All notes of a table, what weighs most first."""
    shown = {
        row.attention: found
        for row, found in zip(table.rows, table.published, strict=True)
        if found is not None
    }
    selects = sorted({row.select for row in table.rows})
    return [
        *on_training_rows(table),
        *(f"select {brief(s, 40)}: {SELECT_NOTES.get(s, 'not known here')}" for s in selects),
        *failures(table),
        *few_rows(table),
        *shared_texts(table),
        f"majority class alone: {100 * table.majority_accuracy:.1f}%",
        *controls(table.rows),
        *shuffled(table),
        *probes(table),
        *_intervals(table),
        *_comparisons(table),
        *_literature.notes(table.cache, shown),
        *_provenance(table),
    ]


def claims(table: Table) -> list[str]:
    """What the comparisons allow to be said, one sentence for each that is significant."""
    sentences = []
    for label, comparison in zip(table.labels(), table.comparisons, strict=True):
        if comparison is not None and comparison.significant:
            points = 100 * comparison.difference
            word = "higher" if points > 0 else "lower"
            p = p_value(comparison.p_holm)
            equals = "<" if p[0] == "<" else "="
            sentences.append(
                f"{label} is {abs(points):.2f} points {word} than {brief(comparison.baseline)} "
                f"(Holm p {equals} {p.lstrip('<')}){_reservation(comparison)}"
            )
    return sentences


def _reservation(comparison: Comparison) -> str:
    """What the test over seeds leaves out: that the test rows are a sample as well."""
    if comparison.bootstrap is None or comparison.bootstrap[0] * comparison.bootstrap[1] > 0:
        return ""
    low, high = (100 * limit for limit in comparison.bootstrap)
    return (
        "; on these test rows, that is: with other rows of the kind it may be absent "
        f"({low:+.2f} to {high:+.2f})"
    )


def warnings(table: Table) -> list[str]:
    """What nobody may miss."""
    found = []
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
    stepped = [row for row in table.rows if not (row.fitted or row.shuffled)]
    if stepped and not any(row.attention in CONTROLS and row.scores.seeds for row in stepped):
        found.append(
            "No control: without 'none' or 'scalar-mix' nothing shows what attention adds."
        )
    found += [f"{why[0].upper()}{why[1:]}." for why in few_rows(table)]
    if any(c is not None and c.sign_flip is None for c in table.comparisons):
        found.append(f"Fewer than {LEAST_SEEDS} paired seeds: no claim of significance is made.")
    return found


def p_value(p: float | None) -> str:
    """A p-value for people."""
    if p is None:
        return "-"
    return "<0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def _intervals(table: Table) -> Iterator[str]:
    yield (
        "sd and the first 95% interval (Student's t) are over seeds; the test rows are taken as "
        "given"
    )
    yield (
        f"the second (+ rows) is a bootstrap over seeds and the {table.num_test_rows:,} test rows, "
        f"{RESAMPLES:,} resamples: what another test set of this kind might give"
    )
    if table.rows[0].folds > 1:
        yield (
            "every row is tested once, by decoders that did not learn from it; a seed is a whole "
            "cross-validation, and s/seed its time; other training rows might give other results"
        )
    if table.incomplete:
        yield f"not here, because folds are missing: {', '.join(table.incomplete)}"
    if any(len(row.scores.seeds) == 1 and not row.fitted for row in table.rows):
        yield "a row with one finished seed has no interval: train more with --seeds"
    bounds = [interval for row in table.rows for interval in (row.interval, row.bootstrap)]
    bounds += [
        one for found in table.comparisons if found for one in (found.interval, found.bootstrap)
    ]
    if any(found and found[1] - found[0] < NO_WIDTH for found in bounds):
        yield (
            "an interval without width is no certainty: all seeds are right on equally many rows "
            "(of a difference: differ alike), or all on the same"
        )
    for label, row in labelled(table):
        if late := row.still_learning:
            yield (
                f"{label}: in {len(late)} of {len(row.scores.seeds)} finished seeds the best epoch "
                "is the last: more --epochs may do better"
            )


def _comparisons(table: Table) -> Iterator[str]:
    found = [comparison for comparison in table.comparisons if comparison is not None]
    if table.covered:
        yield "a fold is not compared by itself: see the table over all folds"
        return
    if table.baseline is None:
        if len(table.rows) > 1:
            yield (
                "no differences are shown: no run of the baseline on this cache and these test rows"
                if table.asked
                else "no differences are shown: there is no row 'none'; name one with --baseline"
            )
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
    if not found:
        return
    yield (
        f"differences to '{baseline}' in accuracy points, paired by seed (same head "
        "initialisation, same order of rows), within the same head and recipe"
    )
    dropped = {
        label: c.dropped for label, c in zip(table.labels(), table.comparisons, strict=True) if c
    }
    for label, seeds in dropped.items():
        if seeds:
            yield f"{label}: without seed {counted(seeds)}, which one of the two lacks"
    yield from _p_values(table)
    yield (
        f"MDD: smallest true difference that a paired t test at {ALPHA} finds with a power of 80% "
        "at this number of seeds, before any correction"
    )


def _p_values(table: Table) -> Iterator[str]:
    found = [comparison for comparison in table.comparisons if comparison is not None]
    tested = [comparison for comparison in found if comparison.sign_flip is not None]
    if tested:
        exact = all(c.sign_flip.exact for c in tested if c.sign_flip)
        how = (
            "exact"
            if exact
            else f"exact up to {EXACT_SEEDS} seeds, above from {DRAWS:,} random patterns"
        )
        several = f"all {table.num_tests} comparisons" if table.num_tests > 1 else "the comparison"
        yield (
            f"p: sign-flip permutation test over seeds ({how}), corrected by Holm for "
            f"{several} of this report; McNemar's exact test of the majority "
            f"votes likewise, in a family of its own; * marks p Holm < {ALPHA}"
        )
        fewest = min(len(c.seeds) for c in tested)
        needed = stats.seeds_needed(table.num_tests, alpha=ALPHA)
        if fewest < needed:
            yield (
                f"with {fewest} seeds and {table.num_tests} comparisons no corrected p can be "
                f"below {ALPHA}; {needed} seeds would do"
            )
    if len(tested) < len(found):
        fewest = min(len(c.seeds) for c in found)
        yield (
            f"no claim of significance with fewer than {LEAST_SEEDS} seeds: of 2**{fewest} sign "
            f"patterns even the most extreme has p = {2 / 2**fewest:.3g}; "
            f"{stats.seeds_needed(max(1, len(found)), alpha=ALPHA)} seeds would do for "
            f"{len(found)} comparison{'s' if len(found) > 1 else ''}"
        )


def _provenance(table: Table) -> Iterator[str]:
    yield f"cache {table.cache['fingerprint'][:12]}, {brief(table.where)}"
    yield f"versions: {versions(table)}"


def versions(table: Table) -> str:
    """What the runs of a table were made with; several values where they differ."""
    environments: list[dict[str, Any]] = [run.environment for row in table.rows for run in row.runs]
    parts = []
    for name in VERSIONS:
        values = sorted({brief(str(found.get(name, "unknown"))) for found in environments})
        parts.append(f"{name} {' and '.join(values)}")
    return ", ".join(parts)
