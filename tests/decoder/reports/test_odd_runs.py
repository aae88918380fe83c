"""Collections of runs that hardly have anything to report, in every format."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gaam_cache.errors import CacheError
from gaam_decoder import RunResult
from gaam_decoder.reports.figures.output import inline_svg
from gaam_decoder.reports.notes.notes import notes, warnings
from gaam_decoder.reports.pictures.pictures import pictures
from gaam_decoder.reports.table.base import ON_TRAINING_ROWS
from gaam_decoder.reports.table.build import build_tables
from tests.decoder.reports.conftest import FORMATS, answers, build_run, seen

WHY = "loss became too large in epoch 1: try --lr 0.0001"


def right(num_seeds: int, num_rows: int, share: float) -> np.ndarray:
    return np.arange(num_rows)[None].repeat(num_seeds, 0) < share * num_rows


def failing(name: str, num_seeds: int, num_rows: int = 40, **changes: Any) -> RunResult:
    failed = dict.fromkeys(range(num_seeds), WHY)
    return build_run(name, right(num_seeds, num_rows, 1), failed=failed, **changes)


def one_class(run: RunResult, label: int = 0) -> RunResult:
    vars(run)["labels"] = np.full_like(run.labels, label)
    return run


SHARED = {"shared_texts": {"test": {"train": 7, "test": 5}, "train": {"train": 4, "test": 6}}}
MANY = tuple(f"class {number}" for number in range(1000))
ODD: dict[str, Callable[[], list[RunResult]]] = {
    "no seed finished": lambda: [failing("gaam", 3), failing("none", 3)],
    "the one seed failed": lambda: [failing("gaam", 1)],
    "one seed": lambda: [
        build_run("gaam", answers(1, 0.8, 1)), build_run("none", answers(1, 0.7, 2)),
    ],
    "two seeds of many failed": lambda: [
        build_run("gaam", answers(7, 0.8, 1), failed={1: WHY, 2: WHY}),
        build_run("none", answers(7, 0.8, 2)),
    ],
    "always right": lambda: [build_run(name, right(7, 40, 1)) for name in ("gaam", "none")],
    "never right": lambda: [build_run(name, right(7, 40, 0)) for name in ("gaam", "none")],
    "all or nothing": lambda: [
        build_run("gaam", np.concatenate([right(1, 40, 1), right(1, 40, 0)])),
        build_run("none", np.concatenate([right(1, 40, 0), right(1, 40, 1)])),
    ],
    "one test row": lambda: [build_run("gaam", right(7, 1, 1)), build_run("none", right(7, 1, 0))],
    "a class that never occurs": lambda: [
        one_class(build_run(name, right(3, 40, 0.5), classes=("a", "b")))
        for name in ("gaam", "none")
    ],
    "one class in all": lambda: [build_run("gaam", right(3, 40, 1), classes=("a",))],
    "a thousand classes": lambda: [build_run("gaam", answers(2, 0.5, 1), classes=MANY)],
    "the baseline failed": lambda: [
        build_run("gaam", answers(6, 0.8, 1)), failing("none", 6, 400),
    ],
    "the baseline failed under one head": lambda: [
        build_run("gaam", answers(6, 0.8, 1)), failing("none", 6, 400),
        build_run("gaam", answers(6, 0.8, 1), head="conv"),
        build_run("none", answers(6, 0.8, 1), head="conv"),
    ],
    "no seed in common": lambda: [
        build_run("gaam", answers(2, 0.8, 1)), build_run("none", answers(2, 0.8, 2), seeds=(5, 6)),
    ],
    "training rows": lambda: [
        build_run(name, answers(6, 0.9, 1), test_split="train", allow_train_as_test=True)
        for name in ("gaam", "none")
    ],
    "texts in both splits": lambda: [
        build_run(name, answers(3, 0.8, 1), cache=SHARED) for name in ("gaam", "none")
    ],
    "texts in several folds": lambda: [
        build_run("gaam", right(3, 3, 0.5), fold=f"{fold}/3", cache=SHARED) for fold in (1, 2, 3)
    ],
    "every kind": lambda: [
        build_run("gaam", answers(6, 0.8, 1)),
        failing("mha", 6, 400),
        build_run("none", answers(2, 0.8, 2)),
        build_run("none", right(1, 1, 1)), failing("laplace", 2, 1),
        build_run("gaam", answers(2, 0.8, 2), select="test"),
        build_run("gaam", answers(2, 0.8, 2), fold="1/2"),
        build_run("gaam", answers(2, 0.8, 2), test_split="train"),
        build_run("gaam", answers(2, 0.8, 2), pool="last"),
        build_run("gaam", answers(2, 0.8, 2), pool="mean"),
    ],
}  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("undrawn")
def test_every_format_shows_it_without_what_is_no_number() -> None:
    for what, make in ODD.items():
        tables = build_tables(make())
        for format in FORMATS:
            text = seen(format, tables)
            assert not re.search(r"\b(nan|inf|None|Infinity|NaN)\b", text), (what, format)
            if format not in ("csv", "json"):
                spans = re.findall(r"([+-]?[0-9.]+)\$? to \$?([+-]?[0-9.]+)", text)
                for low, high in spans:
                    assert float(low) <= float(high), (format, low, high)
                    if low[0] not in "+-":  # an accuracy
                        assert 0 <= float(low) <= float(high) <= 100, (format, low, high)
                # nor can an interval be read with another sign
                assert not re.search(r"[0-9](-|\.\.|\u2013)[+-]?[0-9]+\.", text), format


@pytest.mark.filterwarnings("error")
def test_its_pictures_can_be_drawn() -> None:
    for make in ODD.values():
        for table in build_tables(make()):
            for picture in pictures(table):
                if picture.kind in ("accuracy", "differences") or picture.name.endswith("gaam"):
                    svg = inline_svg(picture.draw, key="k", alt=picture.alt)
                    assert not re.search(r">[^<]*\b(nan|inf|None)\b", svg)
                    assert not re.search(r"\b(nan|inf|None)\b", picture.alt + picture.caption)


SAID = {
    "no seed finished": f"gaam: all 3 seeds failed: {WHY}",
    "the one seed failed": f"gaam: its one seed failed: {WHY}",
    "two seeds of many failed": f"gaam seed 1, 2 failed: {WHY}",
    "the baseline failed": "the baseline 'none' was trained, but all 6 seeds failed",
    "the baseline failed under one head": "all seeds of 'none' with the same head",
    "one test row": "only 1 test row: each is 100.0 points",
    "a class that never occurs": "only one class is among the test rows",
    "one class in all": "there is one class in all",
    "training rows": ON_TRAINING_ROWS,
    "texts in both splits": "7 of the 400 rows of 'test' have a text that 'train' has too",
    "texts in several folds": "4 of the 9 rows of 'train' have a text that another of them",
}


@pytest.mark.usefixtures("undrawn")
def test_what_makes_numbers_weak_is_said() -> None:
    for what, words in SAID.items():
        tables = build_tables(ODD[what]())
        for format in set(FORMATS) - {"csv"}:
            assert words in seen(format, tables), (what, format)


def test_nothing_is_said_of_what_is_in_order() -> None:
    runs = [build_run("gaam", answers(7, 0.8, 1)), build_run("none", answers(7, 0.8, 2))]
    [table] = build_tables(runs)
    text = "\n".join(notes(table))
    for words in (
        "only",
        "failed",
        "no certainty",
        "best epoch",
        "one class",
        "text",
        ON_TRAINING_ROWS,
    ):
        assert words not in text, words
    assert warnings(table) == []


def test_a_seed_whose_best_epoch_is_the_last_may_not_be_done() -> None:
    for select, expected in (("val", True), ("test", True), ("last", False)):
        run = build_run("gaam", answers(4, 0.8, 1), select=select, failed={3: WHY})
        run.epochs.update({1: 3, 2: 3, 3: 3})
        [table] = build_tables([run])
        found = [note for note in notes(table) if "best epoch is the last" in note]
        assert [note.rpartition(": ")[2].split()[0] for note in found] == ["gaam"] * expected
        assert table.to_dict()["rows"][0]["best_epoch_is_last"] == ([1, 2] if expected else [])


def test_no_more_late_seeds_than_chance_has_are_no_sign_of_a_short_training() -> None:
    """Of 8 seeds and 15 epochs: one in two plateaus has a late seed or more, one in ten two."""
    for late in (0, 1, 2, 8):
        run = build_run("gaam", answers(8, 0.8, 1), epochs=15)
        run.epochs.update(dict.fromkeys(range(late), 15))
        [table] = build_tables([run])
        text = "\n".join(notes(table))
        assert ("under-trained, the best epoch" in text) == (late > 1) == table.rows[0].undertrained
        assert len(table.to_dict()["rows"][0]["best_epoch_is_last"]) == late


@pytest.mark.usefixtures("undrawn")
def test_a_row_on_training_rows_is_marked_beside_its_name() -> None:
    honest = [build_run("gaam", answers(3, 0.8, 1))]
    taught = [build_run("gaam", answers(3, 0.8, 1), test_split="train")]
    # two splits that hold the same rows have other names
    copied = [build_run("gaam", answers(3, 0.8, 1), allow_train_as_test=True)]
    of_fold = [build_run("gaam", answers(3, 0.8, 1), fold="1/2", test_split="train")]
    marks = {"json": r'tested_on_training_rows": true', "csv": "True,True"}
    for format in FORMATS:
        mark = marks.get(format, r"gaam .*tested on its own .*training rows")
        found = [
            bool(re.search(mark, seen(format, build_tables(runs))))
            for runs in (honest, taught, copied, of_fold)
        ]
        assert found == [False, True, True, False], format
    [table] = build_tables(taught)
    assert table.labels() == ["gaam test=train"]
    assert table.rows[0].optimistic


def test_logits_that_are_no_numbers_are_damage_and_not_a_class() -> None:
    for bad in (np.nan, np.inf):
        run = build_run("gaam", answers(3, 0.8, 1))
        run.logits[1, 5, 0] = bad
        with pytest.raises(CacheError, match="test logits that are no numbers"):
            build_tables([run])
