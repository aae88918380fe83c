"""What makes the numbers of a table weak, or no answer at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from gaam_cache.messages import brief
from gaam_decoder.analysis.gates import layers_of_a_head
from gaam_decoder.reports.comparisons.against_baseline import CONTROLS, is_of
from gaam_decoder.reports.table.base import ON_TRAINING_ROWS, Table
from gaam_decoder.reports.table.rows import Row
from gaam_decoder.runs.result import RunResult

FEW_ROWS = 30
"""Test rows; below, one of them is more than three points."""
LONGEST_REASON = 300
"""Characters of the reason why a seed failed."""


def on_training_rows(table: Table) -> Iterator[str]:
    """Which rows show no test accuracy at all."""
    found = [label for label, r in labelled(table) if r.on_training_rows]
    if found:
        yield (
            f"{ON_TRAINING_ROWS}: {', '.join(found)}; what was learned by heart counts as right, "
            "do not quote as test accuracy"
        )


def labelled(table: Table) -> Iterator[tuple[str, Row]]:
    """Every row with its label."""
    return zip(table.labels(), table.rows, strict=True)


def failures(table: Table) -> Iterator[str]:
    """Which seeds failed and why, and which ones several runs have."""
    for label, row in labelled(table):
        seeds_of: dict[str, list[int]] = {}
        for seed, why in sorted(row.failed.items()):
            seeds_of.setdefault(why, []).append(seed)
        for why, seeds in seeds_of.items():
            if len(seeds) == len(row.seeds):
                yield f"{label}: {_all_failed(row)}"
            else:
                yield f"{label} seed {counted(seeds)} failed: {brief(why, LONGEST_REASON)}"
        if row.partly:
            yield f"{label}: without seed {counted(row.partly)}, which not all of its folds have"
        if row.repeated:
            yield (
                f"{label}: several runs have seed {counted(row.repeated)}; the first by their "
                "seeds, as the names of their folders end, counts"
            )
        if len({str(run.environment["code"]) for run in row.runs}) > 1:
            yield f"{label}: seeds were trained by different code of the mechanism, head or loss"
    if any(row.failed for row in table.rows):
        yield "failed seeds count in no mean, and drop out of pairs"


def _all_failed(row: Row) -> str:
    if not row.seeds:
        return "no seed is in all of its folds"
    reasons = sorted({brief(why, LONGEST_REASON) for why in row.failed.values()})
    count = f"all {len(row.seeds)} seeds" if len(row.seeds) > 1 else "its one seed"
    return f"{count} failed: {'; '.join(reasons[:3])}{'; and more' if len(reasons) > 3 else ''}"


def of_one_class(table: Table) -> Iterator[str]:
    """Which seeds say nothing of a row that they are given."""
    if table.num_test_rows < FEW_ROWS:
        return
    found = [
        f"{label} seed {counted(row.scores.one_class)}"
        for label, row in labelled(table)
        if row.scores.one_class and not row.shuffled
    ]
    if found:
        fold = " of a fold" * any(row.folds > 1 for row in table.rows)
        yield (
            f"predicts one class for every test row{fold}, as where training never began or "
            f"collapsed (mean and sd count it): {'; '.join(found)}"
        )


def few_rows(table: Table) -> Iterator[str]:
    """Why these rows say little."""
    rows = table.num_test_rows
    if rows < FEW_ROWS:
        one = "1 test row" if rows == 1 else f"{rows} test rows"
        yield f"only {one}: each is {100 / rows:.1f} points, and intervals over rows say little"
    tested = int((table.rows[0].scores.labels_per_class > 0).sum())
    if len(table.cache["class_names"]) == 1:
        yield "there is one class in all: every answer is right"
    elif tested == 1:
        yield "only one class is among the test rows: how classes are told apart is not tested"


def few_choose(table: Table) -> Iterator[str]:
    """Which rows were chosen by so few that many candidates are alike to them."""
    labels_of: dict[tuple[int, str], list[str]] = {}
    for label, row in labelled(table):
        if row.select == "val":
            count = min(_choosing(run, row.folds) for run in row.runs)
            if count < FEW_ROWS:
                exact = all(run.drawn for run in row.runs)
                labels_of.setdefault((count, "" if exact else "about "), []).append(label)
    if labels_of:
        of = "; ".join(
            f"{about}{count} of {', '.join(some)}"
            for (count, about), some in sorted(labels_of.items())
        )
        yield (
            f"few rows chose the epoch, and a rate where that was tuned: {of}: many candidates are "
            "alike to so few, and no interval covers their choice; val-fraction gives them more"
        )


def _choosing(run: RunResult, folds: int) -> int:
    """Rows of train that chose the epoch of a run; about, by their share, where it does not say.

    Enough of a split that the cache does not know.
    """
    if run.drawn:
        return run.drawn["choose"]
    if run.recipe.get("groups") and (found := run.validation) is not None:
        return len(found.rows)  # whole groups may be far from their share
    rows = run.cache["rows"].get(run.setting("train_split"))
    if rows is None:
        return FEW_ROWS
    learned = rows * (folds - 1) / folds if folds > 1 else rows
    return round(learned * run.setting("val_fraction"))


def shared_texts(table: Table) -> Iterator[str]:
    """How many of the tested rows were seen in training, in the same words."""
    shared = table.cache.get("shared_texts", {})
    for train, test in sorted({_splits(row) for row in table.rows if not row.on_training_rows}):
        if not (count := shared.get(test, {}).get(train, 0)):
            continue
        rows = table.cache["rows"][test]
        yield (
            f"{count:,} of the {rows:,} rows of '{brief(test)}' have a text that "
            + (
                "another of them has too: folds may share it, which inflates accuracy"
                if train == test
                else f"'{brief(train)}' has too, which inflates accuracy"
            )
        )


def weighted(table: Table) -> Iterator[str]:
    """In which rows classes counted by a weight, and where that ends."""
    found = {label: of for label, row in labelled(table) if (of := row.recipe.get("class_weights"))}
    if found:
        which = "all rows" if len(found) == len(table.rows) else ", ".join(found)
        how = brief(str(next(iter(found.values()))), 40)
        yield (
            f"class-weights {how}: in the training loss of {which} an example counts by its "
            "class; what chooses the epoch and what is tested count every one alike"
        )


def drawn(table: Table) -> Iterator[str]:
    """That some rows learned from some of the training rows, and what their intervals leave out."""
    if not any(row.drawn for row in table.rows):
        return
    yield (
        "--train-rows: rows of train are drawn once, by split-seed, for all seeds and "
        "mechanisms, each class in its share or in equal numbers; those that choose the epoch are "
        "among them"
        if any(row.select == "val" for row in table.rows)
        else "--train-rows: rows of train are drawn once, by split-seed, for all seeds "
        "and mechanisms, each class in its share or in equal numbers"
    )
    if table.rows[0].repeats == 1:
        yield (
            "no interval covers which rows were drawn, which matters most where they are few: "
            "--folds with repeats draws others each time"
        )


def fitted_states(table: Table) -> Iterator[str]:
    """Whether what made the states has seen the tested rows, or others, without their labels."""
    split = table.cache.get("fitted_on")
    few = [row for row in table.rows if row.drawn and _splits(row)[0] == split]
    if split is not None and few:
        yield (
            f"the states were fitted on the texts of all rows of '{brief(split)}', also where a "
            "decoder learned from some of them"
        )
    if split is not None and any(_splits(row)[1] == split for row in table.rows):
        yield (
            f"the states were fitted on the texts of '{brief(split)}', the tested rows among them "
            "(not on labels): hashed=true fits nothing"
        )


def pairs_of_layers(table: Table) -> Iterator[str]:
    """Which gates can have no shape: see ``analysis.gates.layers_of_a_head``."""
    found = [label for label, row in labelled(table) if layers_of_a_head(row.runs) == 2]  # noqa: PLR2004
    if found:
        yield (
            f"{', '.join(found)}: heads over two layers each, whose standardised values are -1 or "
            "1 but where both are nearly equal: the shape of a density can hardly matter there; "
            "a comparison of these says nothing of the distribution"
        )


def _splits(row: Row) -> tuple[str, str]:
    """What a row learned from and was tested on."""
    recipe = row.runs[0].recipe  # of a fold, which the row's no longer names
    train = recipe.get("train_split", "train")
    return train, train if recipe.get("fold") else recipe.get("test_split", "test")


def counted(seeds: Sequence[int], most: int = 20) -> str:
    """Seeds in a list that stays readable."""
    more = f" and {len(seeds) - most} more" if len(seeds) > most else ""
    return ", ".join(map(str, seeds[:most])) + more


def controls(rows: tuple[Row, ...]) -> Iterator[str]:
    """What shows whether attention helps at all."""
    rows = tuple(row for row in rows if not (row.fitted or row.shuffled))
    there = [name for name in CONTROLS if any(row.attention == name for row in rows)]
    finished = {row.attention for row in rows if row.scores.seeds}
    if useful := [name for name in there if name in finished]:
        yield f"control: {', '.join(useful)}; a mechanism that helps is better than these"
    elif there:
        yield (
            f"no seed of the control {', '.join(there)} finished"
            + (" in all folds" if rows[0].folds > 1 else "")
            + ": whether a mechanism helps cannot be told"
        )
    else:
        yield (
            "no control among these rows: whether a mechanism helps cannot be told without "
            "'gaam train --attn none --attn scalar-mix'"
        )


def baseline_failure(table: Table) -> str:
    """That the baseline was trained, and why there is nothing to compare with all the same."""
    rows = [row for row in table.rows if is_of(row, table.baseline)]
    if not rows or any(row.scores.seeds for row in rows):
        return ""
    return f"the baseline '{brief(rows[0].attention)}' was trained, but {_all_failed(rows[0])}"


FEWEST_SEEDS = 2
"""Of a verdict."""


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
    found = row.two_level
    if found is None or len(row.scores.seeds) < FEWEST_SEEDS:
        return None
    if found[0] > high:
        return "above"
    return "below" if found[1] < low else "at"


def shuffled(table: Table) -> Iterator[str]:
    """For each of these rows whether it is at chance, and what it means if not."""
    for label, row in zip(table.labels(), table.rows, strict=True):
        if not row.shuffled or row.mean is None:
            continue
        low, high = (100 * level for level in chance(row))
        text = f"{label}: must be at chance ({low:.1f} to {high:.1f}%: guesses by the shares of "
        text += f"the classes, or always the most frequent); {100 * row.mean:.1f}% "
        where = verdict(row)
        if where is None:
            text += "of one permutation, which by luck may be far from it: no verdict without "
            text += "several seeds"
            text += ", of which a fit has one" if row.fitted else ""
        elif where == "above":
            text += "is ABOVE it: something tells the decoder what it must not know"
            text += " (the test rows chose the epoch)" if row.select == "test" else ""
        elif where == "below":
            text += "is below it: the rows that learn and those that are tested are not independent"
        else:
            text += "is, within its interval"
        yield text


def leaks(table: Table) -> Iterator[str]:
    """That something leaks, for a place that nobody may miss."""
    above = [
        label
        for label, row in zip(table.labels(), table.rows, strict=True)
        if row.shuffled and row.scores.seeds and verdict(row) == "above"
    ]
    if above:
        yield f"Above chance with shuffled labels, so something leaks: {', '.join(above)}."
