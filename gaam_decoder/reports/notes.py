"""What has to stand below a table for it to be read rightly: each note a function of the table.

``NOTES`` has what these runs caused in order of weight; the first of them are warnings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from gaam_cache.messages import brief
from gaam_cache.store.digest import short_digest
from gaam_decoder import stats
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports import literature
from gaam_decoder.reports.compare import DEFAULT_BASELINE, counterpart, is_of
from gaam_decoder.reports.rows import Row
from gaam_decoder.reports.table import ON_TRAINING_ROWS, Table
from gaam_decoder.reports.unit import DEFAULT, percent

CONTROLS = ("none", "scalar-mix")
FEW_ROWS = 30
"""Of test; below, one of them is more than three points. Or that choose."""
LONGEST_REASON = 300
"""Characters of the reason why a seed failed."""
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
        pairs = zip(table.labels(), table.rows, strict=True)
        names = ", ".join(label for label, row in pairs if holds(row))
        return f"{text}: {names}" if names else None

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
    for label, row in zip(table.labels(), table.rows, strict=True):
        which = f"seed {spell_numbers(sorted({*row.failed, *row.partly}))} failed"
        if len(row.failed) == len(row.seeds):
            which = f"all {len(row.seeds)} seeds failed" if row.seeds else "no seed is in all folds"
        reasons = sorted({brief(why, LONGEST_REASON) for why in row.failed.values()})[:3]
        reasons += ["not all folds have it"] * bool(row.partly)
        if row.failed or row.partly or not row.seeds:
            found.append(f"{label} {which}: {'; '.join(reasons)}")
    return f"what failed counts in no mean and no pair: {'; '.join(found)}" if found else None


def _no_control(table: Table) -> str | None:
    stepped = [row for row in table.rows if not (row.fitted or row.shuffled)]
    if not stepped or any(row.attention in CONTROLS and row.scores.seeds for row in stepped):
        return None
    return (
        "no control among these rows: whether a mechanism helps cannot be told without 'gaam train "
        "--attn none --attn scalar-mix'"
    )


def _few_rows(table: Table) -> str | None:
    rows = table.num_test_rows
    if int((table.rows[0].scores.labels_per_class > 0).sum()) == 1:
        return "only one class is among the test rows: how classes are told apart is not tested"
    if rows >= FEW_ROWS:
        return None
    one = f"{rows} test row{'s' * (rows > 1)}"
    return f"only {one}: each is {100 / rows:.1f} points, and intervals over rows say little"


def _few_seeds(table: Table) -> str | None:
    fewest = min((len(c.seeds) for c in table.comparisons if c), default=stats.LEAST_SEEDS)
    if fewest >= stats.LEAST_SEEDS:
        return None
    return (
        f"no claim with fewer than {stats.LEAST_SEEDS} seeds: of 2**{fewest} sign patterns even "
        f"the most extreme has p = {2 / 2**fewest:.3g}"
    )


def _unscaled(table: Table) -> str | None:
    text = "no temperature was fitted, so that probabilities are compared with no scaled row"
    lacks = _rows(text, lambda row: row.scores.seeds and row.scores.temperatures is None)
    return lacks(table) if table.temperature else None


def _shared_texts(table: Table) -> str | None:
    shared, found = table.cache.get("shared_texts", {}), []
    for train, test in sorted({_splits(row) for row in table.rows if not row.on_training_rows}):
        if count := shared.get(test, {}).get(train, 0):
            also = "another of them" if train == test else f"'{brief(train)}'"
            rows = f"{count:,} of the {table.cache['rows'][test]:,} rows of '{brief(test)}'"
            found.append(f"{rows} have a text that {also} has too, which inflates accuracy")
    return "; ".join(found)


def _fitted_states(table: Table) -> str | None:
    split = table.cache.get("fitted_on")
    if split is None or all(_splits(row)[1] != split for row in table.rows):
        return None
    of = f"the texts of '{brief(split)}', the tested rows among them"
    return f"the states were fitted on {of} (not on labels): hashed=true fits nothing"


def _splits(row: Row) -> tuple[str, str]:
    """What a row learned from and was tested on."""
    recipe = row.runs[0].recipe  # of a fold, which the row's no longer names
    train = recipe.get("train_split", "train")
    return train, train if recipe.get("fold") else recipe.get("test_split", "test")


def _not_compared(table: Table) -> str | None:
    rows, baseline = table.rows, table.baseline
    if baseline is None:
        return "no differences are shown: --baseline names a row" if len(rows) > 1 else None
    text = f"not compared, because no run of '{brief(baseline)}' has the same head and recipe"
    alone = {
        id(row) for row in rows if not (is_of(row, baseline) or counterpart(row, rows, baseline))
    }
    return _rows(text, lambda row: id(row) in alone and not (row.shuffled or row.fitted))(table)


def _against_probe(table: Table) -> str | None:
    by_verdict: dict[str, list[str]] = {}
    for label, claim in zip(table.labels(), table.against_probe, strict=True):
        if claim is not None:
            by_verdict.setdefault(claim.verdict, []).append(label)
    by_verdict = {"better": ["none of them"]} | by_verdict if by_verdict else {}
    parts = [f"{verdict}: {', '.join(of)}" for verdict, of in by_verdict.items()]
    probe = "against logistic regression on the same states, none + lbfgs (Holm in a family of its"
    return f"{probe} own): {'; '.join(parts)}" if by_verdict else None


def _other_grids(table: Table) -> str | None:
    alike = [row for row in table.rows if row.select == "val" and not row.fitted | row.shuffled]
    grids = {row.tunings and row.tunings[0].grid for row in alike}
    if len(grids) < 2 or not any(row.tunings for row in table.rows):
        return None
    return "not all rows had the same grid: what was tried more often has had more chances"


def _choosing(row: Row) -> int:
    """Rows of train that chose the epoch; about, by their share, where the runs do not say."""
    run, part = row.runs[0], (row.folds - 1) / row.folds if row.folds > 1 else 1
    rows = run.cache["rows"].get(run.setting("train_split"), FEW_ROWS / run.setting("val_fraction"))
    about = round(rows * part * run.setting("val_fraction"))
    return min(one.drawn.get("choose") or about for one in row.runs)


def _shuffled(table: Table) -> str | None:
    found = []
    for label, row in zip(table.labels(), table.rows, strict=True):
        if row.shuffled and row.mean is not None:
            low, high = (100 * level for level in chance(row))
            said = f"{label} {100 * row.mean:.1f}% for {low:.1f} to {high:.1f}%: "
            found.append(said + (f"{where} it" if (where := verdict(row)) else "no verdict of one"))
    return f"with shuffled labels, must be at chance: {'; '.join(found)}" if found else None


def chance(row: Row) -> tuple[float, float]:
    """Accuracies that a decoder without information reaches, as fractions.

    From that of one who guesses with the shares p_c of the classes among the test rows, the sum of
    p_c squared, to that of one who always says the most frequent class, the largest p_c.
    """
    count_C = row.scores.labels_per_class
    share_C = count_C / count_C.sum()
    return float((share_C**2).sum()), float(share_C.max())


def verdict(row: Row) -> Literal["above", "at", "below"] | None:
    """Where the interval of a row over seeds and test rows is beside chance; None for one seed.

    One seed is one permutation. A decoder that tells four topics apart and gives each the label
    that happens to be most frequent there is right on a quarter of the rows on average, and by luck
    on half of them: rows alone say nothing of that.
    """
    low, high = chance(row)
    found = row.scores.accuracy.two_level
    if found is None or len(row.scores.seeds) < 2:
        return None
    return "above" if found[0] > high else "below" if found[1] < low else "at"


NOTES: tuple[Note, ...] = (
    selected,
    _rows(f"{ON_TRAINING_ROWS}, no test accuracy", lambda row: row.on_training_rows),
    _rows(f"select test: {SELECT_NOTES['test']}", lambda row: row.select == "test"),
    _rows(
        "above chance with shuffled labels, so something leaks",
        lambda row: row.shuffled and verdict(row) == "above",
    ),
    _failures,
    _no_control,
    _few_rows,
    _few_seeds,
    _unscaled,
    _rows(
        "predicts one class for every test row (mean and sd count it)",
        lambda row: row.scores.one_class and row.scores.right.shape[1] >= FEW_ROWS,
    ),
    _shared_texts,
    _fitted_states,
    _not_compared,
    _against_probe,
    _rows("under-trained, the best epoch is the last (more --epochs)", lambda row: row.too_short),
    _rows("under-trained, lr or weight-decay is at the edge of its grid", lambda row: row.at_edge),
    _other_grids,
    _rows(
        "validation cannot tell the rate, or weight decay, from others; the intervals of "
        "differences hold what that may change",
        lambda row: row.unsure,
    ),
    _rows(
        "the penalty is at the edge of its grid, or a fit did not converge",
        lambda row: any(run.fit.get("edge") or run.fit.get("unconverged") for run in row.runs),
    ),
    _rows(
        f"fewer than {FEW_ROWS} rows chose the epoch, which no interval covers (val-fraction gives "
        "more)",
        lambda row: row.select == "val" and _choosing(row) < FEW_ROWS,
    ),
    _shuffled,
)
"""What these runs caused, in order of weight."""
GRAVE = 9
"""How many of them are warnings."""


def explained(table: Table) -> Iterator[str]:
    """How the numbers were made, as far as that is not the same of every report (GUIDE.md)."""
    for select in sorted({row.select for row in table.rows} - {"test"}):
        yield f"select {brief(select, 40)}: {SELECT_NOTES.get(select, 'not known here')}"
    if table.rows:
        yield f"majority class alone: {percent(chance(table.rows[0])[1])}% of the tested rows"
    if table.unchosen:
        names = ", ".join(table.labels()[place] for place in table.unchosen)
        yield f"not chosen among, for no seed with a validation accuracy is in all: {names}"
    if table.incomplete:
        yield f"not here, because folds are missing: {', '.join(table.incomplete)}"
    if table.score != DEFAULT:
        score = table.unit.score
        better = "larger" if score.larger_is_better else "smaller"
        no_claim = f"; no claim is made: {score.no_claim}" if score.no_claim else ""
        yield f"compared by {score.title}, of which {better} is better{no_claim}"
    if any(table.comparisons):
        yield (
            f"differences to '{brief(str(table.baseline))}' in {table.unit.of_differences}, within "
            "the same head and recipe; intervals and verdicts are of seeds and rows, corrected by "
            f"Holm for {table.num_tests}; equivalent: within {table.unit.margin(table.margin)}"
        )
    for label, row in zip(table.labels(), table.rows, strict=True):
        for tuning in dict.fromkeys(map(_grid, row.tunings)):
            yield f"{label}: {tuning}"
    if table.temperature:
        yield TEMPERATURE
    columns = zip(table.rows, table.published, strict=True)
    yield from literature.notes(table.cache, {r.attention: one for r, one in columns if one})
    yield f"cache {short_digest(table.cache['fingerprint'])}, {brief(table.where)}"
    yield f"versions: {versions(table)}"


def _grid(tuning: Any) -> str:
    """``seeds 0-1 chose lr 0.001 of 0.0001 (88.2%), 0.001 (89.1%) by validation``."""
    names = tuning.names or tuple(tuning.chosen)[:1]
    spelt = [" and ".join(f"{c.values[n]:.6g}" for n in names) for c in tuning.candidates]
    tried = [
        f"{value} ({'a seed lacks' if c.accuracy is None else percent(c.accuracy) + '%'})"
        for value, c in zip(spelt, tuning.candidates, strict=True)
    ]
    chosen = " and ".join(f"{name} {tuning.chosen[name]:.6g}" for name in names)
    report = "others report" if tuning.apart else "all report"
    of = f"{spell_numbers(tuning.seeds)} chose {chosen} of {', '.join(tried)}"
    return f"seeds {of} by validation, {report}"


def versions(table: Table) -> str:
    """What the runs of a table were made with; several values where they differ."""
    environments: list[dict[str, Any]] = [run.environment for run in table.all_runs()]
    parts = []
    for name in ("python", "torch", "numpy", "device"):
        values = sorted({brief(str(found.get(name, "unknown"))) for found in environments})
        parts.append(f"{name} {' and '.join(values)}")
    return ", ".join(parts)
