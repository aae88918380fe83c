"""What is said of a table: the answer in one sentence, a sentence a comparison, and notes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gaam_decoder import RunResult
from gaam_decoder.reports.conclusion import conclusion
from gaam_decoder.reports.drawing import inline_svg, overviews
from gaam_decoder.reports.notes import caused, notes, warnings
from gaam_decoder.reports.recommend import recommended
from gaam_decoder.reports.sections import sections
from gaam_decoder.reports.table import ON_TRAINING_ROWS, build_tables
from tests.decoder.reports.conftest import (
    FIT,
    FORMATS,
    answers,
    build_probe,
    build_run,
    seen,
    written,
)

WHY = "loss became too large in epoch 1: try --lr 0.0001"
Make = Callable[[], list[RunResult]]


def base(accuracy: float = 0.8, seed: int = 2, **changes: Any) -> RunResult:
    return build_run("none", answers(8, accuracy, seed), **changes)


def one(
    accuracy: float, seed: int = 1, name: str = "gaam", **changes: Any
) -> RunResult:
    run = build_run(name, answers(8, accuracy, seed), **changes)
    run.parameters["total"] += 1
    return run


def tuned(name: str, seed: int, best: float = 1e-3) -> list[RunResult]:
    rates = (1e-4, 1e-3, 1e-2)
    held = {lr: 0.9 if lr == best else 0.8 for lr in rates}
    about = {
        lr: {"lr": lr, "path": f"{name}{lr}", "validation": held[lr]} for lr in rates
    }
    return [build_run(name, answers(8, 0.8, seed), **about[lr]) for lr in rates]


ANSWERS: dict[str, tuple[Make, float, str]] = {
    "better": (
        lambda: [one(0.95), base()], 0.5, "gaam is better than 'none'; use gaam: |not tuned",
    ),
    "undecided": (
        lambda: [one(0.8), base()], 0.5, "No mechanism is shown to differ from 'none'",
    ),
    "too few rows": (lambda: [one(0.82), base(0.81)], 0.5, "400 test rows|about 750"),
    "all four": (
        lambda: [one(0.95), one(0.5, name="mha"), one(0.8, 2, "laplace"), one(0.815, 1, "mqa"),
                 base()],
        2, "gaam is better than 'none'; mha is worse than 'none'; laplace is equivalent to "
        "'none' within 2 points; mqa is undecided",
    ),
    "one pair of seeds": (
        lambda: [build_run("gaam", answers(1, 0.9, 1)), build_run("none", answers(1, 0.8, 2))],
        0.5, "seeds: 1| 6",
    ),
    "one decoder": (
        lambda: [one(0.8)], 0.5, "gaam is 80.0%, with a 95% confidence interval of 75.8 to 83.7%",
    ),
    "optimistic": (
        lambda: [one(0.95, select="test"), base(select="test")], 0.5, "is better|optimistic",
    ),
    "tuned": (lambda: [*tuned("gaam", 1), *tuned("none", 2)], 0.5, "No mechanism is shown"),
    "tuned at the edge": (
        lambda: [*tuned("gaam", 1, 1e-2), *tuned("none", 2)], 0.5, "1 of 2 decoders under-trained",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("undrawn")
def test_the_answer_says_what_the_numbers_allow_and_stands_first() -> None:
    for what, (make, margin, words) in ANSWERS.items():
        [table] = build_tables(make(), margin=margin)
        text = conclusion(table)
        assert all(part in text for part in words.split("|")), (what, text)
        assert not what.startswith("tuned") or "not tuned" not in text
        assert "in 95 of 100 cases" not in text, (
            "an interval of a mean predicts no test set"
        )
        content = json.loads(written("json", [table]))
        assert content["conclusion"] == text
        for format in (
            set(FORMATS) - {"csv", "json"} if what in ("all four", "undecided") else ()
        ):
            assert " ".join(text.split()) in seen(format, [table])[:1500], format


WHICH = ", which is the one to use"
LOGISTIC = "logistic regression (none + lbfgs)"
PROBED: dict[str, tuple[Make, str, str]] = {
    "better than the baseline, worse than the probe": (
        lambda: [one(0.88), one(0.87, name="sech"), base(0.8), build_probe(0.97)],
        f"gaam and sech are better than 'none', and worse than {LOGISTIC}{WHICH}", "none + lbfgs",
    ),
    "worse than both": (
        lambda: [one(0.6), base(0.8), build_probe(0.97)],
        f"gaam is worse than 'none', and worse than {LOGISTIC}{WHICH}", "none + lbfgs",
    ),
    "undecided beside the baseline": (
        lambda: [one(0.8), base(0.8), build_probe(0.97)],
        f"gaam is worse than {LOGISTIC}{WHICH}; no mechanism is shown to differ", "none + lbfgs",
    ),
    "several verdicts beside the baseline": (
        lambda: [one(0.9), one(0.6, name="mha"), base(0.8), build_probe(0.97)],
        f"Every mechanism is worse than {LOGISTIC}{WHICH}; gaam is better than 'none'; mha is",
        "none + lbfgs",
    ),
    "no baseline": (
        lambda: [one(0.8), one(0.7, name="mha"), build_probe(0.97)],
        f"gaam and mha are worse than {LOGISTIC}{WHICH}", "none + lbfgs",
    ),
    "some are worse than the probe": (
        lambda: [one(0.97), one(0.7, name="mha"), base(0.8), build_probe(0.96)],
        f"gaam is better than 'none'; mha is worse than 'none'; mha is worse than {LOGISTIC}; "
        "use gaam: ", "gaam",
    ),
    "none is worse than the probe": (
        lambda: [one(0.95), base(0.8), build_probe(0.8)],
        "gaam is better than 'none'; use gaam", "gaam",
    ),
    "states that differ": (  # of several sets of layers nothing can be advised
        lambda: [one(0.88), base(0.8), build_probe(0.97), base(0.8, layers="1", path="layer 1")],
        f"gaam is better than 'none', and worse than {LOGISTIC}", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PROBED)
@pytest.mark.usefixtures("undrawn")
def test_where_logistic_regression_wins_every_format_says_so_first(case: str) -> None:
    make, words, to_use = PROBED[case]
    [table] = build_tables(make())
    text = conclusion(table)
    assert text.startswith(words), text
    assert (WHICH in text) == (to_use == "none + lbfgs")
    # what predict, export and load take is what the sentence names
    choice = recommended(table)
    assert (choice[0].label if choice else "") == to_use
    assert WHICH not in conclusion(table, advice=False)
    for format in FORMATS:
        shown = seen(format, [table])
        assert " ".join(text.split()) in shown.replace('\\"', '"'), format
    page = written("html", [table])
    assert page.index('class="lead"') < page.index("<table") < page.index("<details")
    assert page.count("which is the one to use") == (WHICH in text)


LATE: dict[str, tuple[Make, str]] = {
    "the last epoch": (
        lambda: [one(0.8, select="last"), base(select="last")],
        "learning rates are not tuned|(not tuned: ",
    ),
    "one rate": (lambda: [one(0.8), base()], "(not tuned: "),
    "one decoder": (lambda: [one(0.8)], "(not tuned: "),
    "some": (
        lambda: [*tuned("gaam", 1), one(0.8, name="mha"), base()],
        "2 of 3 decoders not tuned",
    ),
}


@pytest.mark.parametrize("case", LATE)
@pytest.mark.usefixtures("undrawn")
def test_every_format_says_what_was_not_tuned(case: str) -> None:
    make, words = LATE[case]
    tables = build_tables(make())
    for format in FORMATS:
        for part in words.split("|"):
            if part != "learning rates are not tuned" or format not in (
                "terminal",
                "csv",
            ):
                assert part in seen(format, tables), format


@pytest.mark.usefixtures("undrawn")
def test_below_the_table_stands_what_an_interval_and_a_dagger_mean() -> None:
    late = one(0.8)
    late.epochs.update(dict.fromkeys(late.seeds, 3))
    edge = build_probe(0.8)
    vars(edge)["fit"] = replace(FIT, edge="highest")
    [table] = build_tables([late, *tuned("none", 2, 1e-2), one(0.7, name="mha"), edge])
    marked = [row.label for row in table.entries if row.undertrained]
    assert sorted(marked) == ["gaam", "none"], "a fit has no steps, and is not marked"
    assert any("penalty that was tried: none + lbfgs" in note for note in caused(table))
    for format in ("terminal", "markdown", "html", "latex", "json"):
        shown = (
            seen(format, [table]).replace("textdagger{}", "†").replace("\\u2020", "†")
        )
        assert "95% CI: a confidence interval of the mean" in shown, format
        assert "does not predict what another test set gives" in shown, format
        assert "† under-trained: longer training" in shown, format
        if format != "json":
            assert shown.count("†") >= len(marked) + 1, format
    [plain] = build_tables([one(0.8), base()])
    assert "†" not in seen("terminal", [plain])


def right(num_seeds: int, num_rows: int, share: float) -> np.ndarray:
    return np.arange(num_rows)[None].repeat(num_seeds, 0) < share * num_rows


def failing(name: str, num_seeds: int, num_rows: int = 40, **changes: Any) -> RunResult:
    failed = dict.fromkeys(range(num_seeds), WHY)
    return build_run(name, right(num_seeds, num_rows, 1), failed=failed, **changes)


def always_a() -> RunResult:
    labels = build_run("none", right(1, 40, 1), classes=("a", "b")).labels
    return build_run("none", [labels == 0] * 2, classes=("a", "b"))


@pytest.mark.parametrize("failing_folds", [(2,), (1, 2, 3)])
def test_a_failure_in_many_folds_is_one_reason(failing_folds: tuple[int, ...]) -> None:
    runs = [
        build_run(name, answers(8, 0.8, fold), fold=f"{fold}/3", failed=failed)
        for fold in (1, 2, 3)
        for name, failed in (
            ("gaam", {1: WHY} if fold in failing_folds else None),
            ("none", None),
        )
    ]
    [table] = build_tables(runs)
    [note] = [note for note in caused(table) if WHY in note]
    where = "fold 2/3" if failing_folds == (2,) else "3 folds"
    assert note.endswith(f"gaam seed 1 failed: {where}: {WHY}")


SHARED = {
    "shared_texts": {"test": {"train": 7, "test": 5}, "train": {"train": 4, "test": 6}}
}
TAUGHT = {"test_split": "train", "allow_train_as_test": True}
WEAK: dict[str, tuple[Make, str]] = {
    "two seeds of many failed": (
        lambda: [build_run("gaam", answers(7, 0.8, 1), failed={1: WHY, 2: WHY}), base()],
        f"gaam seed 1-2 failed: {WHY}",
    ),
    "no control": (lambda: [one(0.8), one(0.8, 2, "mha")], "gaam train --attn none"),
    "few rows": (
        lambda: [build_run("gaam", right(7, 25, 1)), build_run("none", right(7, 25, 0))],
        "25 test rows|4.0 points",
    ),
    "fewer than six seeds": (
        lambda: [build_run("gaam", np.ones((5, 400))), build_run("none", answers(5, 0.5, 2))],
        "no claim|6 seeds|0.0625",
    ),
    "training rows": (lambda: [one(0.9, **TAUGHT), base(**TAUGHT)], ON_TRAINING_ROWS),
    "chosen on test": (
        lambda: [one(0.9, select="test"), base(select="test")], "chosen on test|optimistic",
    ),
    "a leak": (
        lambda: [base(), one(0.95, shuffle_labels=True)], "leaks|gaam labels shuffled",
    ),
    "texts in both splits": (
        lambda: [one(0.8, cache=SHARED), base(cache=SHARED)],
        "7 of the 400 rows of 'test'|'train'",
    ),
    "one class predicted": (lambda: [always_a()], "same class"),
    "too short": (
        lambda: [build_run("none", answers(2, 0.8, 1), epochs=1)], "under-trained|--epochs",
    ),
    "every kind": (
        lambda: [
            one(0.8), failing("mha", 6, 400), build_run("none", right(1, 1, 1)),
            failing("laplace", 2, 1), one(0.8, select="test"), one(0.8, fold="1/2"),
            one(0.8, test_split="train"), one(0.8, pool="last"), one(0.8, pool="mean"),
        ], "",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("undrawn")
def test_what_makes_numbers_weak_is_said_and_nothing_is_written_that_is_no_number() -> (
    None
):
    for what, (make, words) in WEAK.items():
        tables = build_tables(make())
        parts, found = (
            words.split("|"),
            [note for table in tables for note in caused(table)],
        )
        assert any(all(part in note for part in parts) for note in found), what
        for format in FORMATS:
            text = seen(format, tables)
            assert all(part in text for part in parts) or format == "csv", (
                what,
                format,
            )
            assert not re.search(r"\b(nan|inf|None|Infinity|NaN)\b", text), (
                what,
                format,
            )
            for low, high in re.findall(
                r"([+-]?[0-9.]+)\$? to \$?([+-]?[0-9.]+)", text
            ):
                if format not in ("csv", "json"):
                    assert float(low) <= float(high), (what, format, low, high)
        for table in tables if what == "every kind" else ():
            of_sections = [one for found in sections(table) for one in found.parts[1]]
            for picture in [*overviews(table), *of_sections]:
                svg = inline_svg(picture, "k")
                assert not re.search(r">[^<]*\b(nan|inf|None)\b", svg)


def test_nothing_is_said_of_what_is_in_order() -> None:
    rows = {"rows": {"train": 9000, "test": 400}}
    [table] = build_tables([one(0.8, cache=rows), base(cache=rows)])
    assert caused(table) == warnings(table) == []
    assert any("corrected by Holm for 1" in note for note in notes(table))


def test_test_rows_count_as_no_more_than_training_rows() -> None:
    for rows in (9000, 400, 100):
        [table] = build_tables(
            [one(0.8, cache={"rows": {"train": rows, "test": 400}}), base()]
        )
        assert any(f"training rows ({rows:,} " in note for note in caused(table)) == (
            rows < 400
        )
