"""Two splits of a single file: which rows they have can never change unnoticed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gaam_cache
from gaam_cache.common.errors import ConfigError, GaamWarning, NotFoundError
from gaam_cache.config import ExtractConfig
from gaam_cache.sources import (
    Rows,
    find_source,
    held_out_groups,
    held_out_rows,
    rows_within_limit,
)
from gaam_cache.sources.rows.holdout import held_out_of_target
from gaam_cache.targets.classes import Classes
from gaam_cache.targets.label_sets import LabelSets
from gaam_cache.targets.numbers import Numbers
from tests.conftest import write_csv

LABELS = st.lists(
    st.sampled_from(["a", "b", "c", "日本", "7"]), min_size=1, max_size=60
)


@given(LABELS, st.floats(0.001, 0.999), st.integers(0, 2**31 - 1))
def test_the_rule_is_the_one_that_its_text_says(
    labels: list[str], fraction: float, seed: int
) -> None:
    """Followed by hand, class by class."""
    held = set()
    for label in set(labels):
        rows = [row for row, other in enumerate(labels) if other == label]
        rows.sort(
            key=lambda row: (hashlib.sha256(b"%d %d" % (seed, row)).digest()[:8], row)
        )
        held |= set(rows[: min(len(rows) - 1, max(1, round(fraction * len(rows))))])
    assert set(held_out_rows(labels, fraction, seed).nonzero()[0].tolist()) == held


@given(
    st.lists(st.integers(-9, 9), min_size=1, max_size=60),
    st.floats(0.001, 0.999),
    st.integers(0, 2**31 - 1),
)
def test_the_rule_of_numbers_is_the_one_that_its_text_says(
    numbers: list[int], fraction: float, seed: int
) -> None:
    """Followed by hand, block by block: as many rows as the share of all rows."""
    count = len(numbers)
    ranked = sorted(range(count), key=lambda row: (numbers[row], row))
    num_blocks = min(count - 1, max(1, round(fraction * count)))
    held = []
    for block in range(num_blocks):
        places = range(block * count // num_blocks, (block + 1) * count // num_blocks)
        held.append(
            min(
                (hashlib.sha256(b"%d %d" % (seed, row)).digest()[:8], row)
                for row in [ranked[place] for place in places]
            )[1]
        )
    labels = [f"[{number}.0]" for number in numbers]
    found = held_out_of_target(Numbers, labels, fraction, seed)
    assert found.nonzero()[0].tolist() == sorted(held)
    assert len(held) == num_blocks


@given(LABELS, st.floats(0.001, 0.999), st.integers(0, 2**31 - 1))
def test_classes_and_label_sets_give_the_share_of_every_class(
    labels: list[str], fraction: float, seed: int
) -> None:
    found = held_out_of_target(Classes, labels, fraction, seed)
    assert (found == held_out_rows(labels, fraction, seed)).all()
    sets = [json.dumps([label]) for label in labels]
    strata = LabelSets.strata(sets)
    found = held_out_of_target(LabelSets, sets, fraction, seed)
    assert (found == held_out_rows(strata, fraction, seed)).all()


def test_golden_rows() -> None:
    """Whoever changes the rule changes the meaning of every accuracy that was made by it."""
    for seed, rows in {
        0: [6, 13, 14, 17, 25, 34, 35, 38],
        7: [3, 6, 7, 8, 19, 22, 32, 36],
    }.items():
        assert (
            held_out_rows(["a", "b", "a", "c", "b"] * 8, 0.2, seed)
            .nonzero()[0]
            .tolist()
            == rows
        )


def groups_by_hand(
    labels: list[str], groups: list[str], millionths: int, seed: int
) -> set[str]:
    """The names of the groups that the rule holds out, as its text says, with whole numbers."""

    def counted(held: set[str]) -> dict[str, int]:
        rows = [
            label for label, group in zip(labels, groups, strict=True) if group in held
        ]
        return {label: rows.count(label) for label in set(labels)}

    total = counted(set(groups))

    def off(held: set[str]) -> int:
        return sum(
            abs(10**6 * count - millionths * total[c])
            for c, count in counted(held).items()
        )

    def allowed(held: set[str]) -> bool:
        return all(count < total[c] for c, count in counted(held).items())

    order = sorted(
        set(groups), key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest()
    )
    held = set[str]()
    for name in order:
        then = counted(held | {name})
        if all(10**6 * count <= millionths * total[c] for c, count in then.items()):
            held |= {name}
    while True:
        others = [name for name in order if name not in held and allowed(held | {name})]
        best = min(others, key=lambda name: off(held | {name}), default=None)
        if best is None or off(held | {best}) >= off(held):
            return held
        held |= {best}


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("stuvwé")),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 999_999),
    st.integers(0, 2**31 - 1),
)
def test_the_rule_of_whole_groups_is_the_one_that_its_text_says(
    rows: list[tuple[str, str]], millionths: int, seed: int
) -> None:
    labels, groups = [label for label, _ in rows], [group for _, group in rows]
    held = groups_by_hand(labels, groups, millionths, seed)
    found = held_out_groups(labels, groups, millionths / 1e6, seed)
    assert found.tolist() == [group in held for group in groups]


def test_whole_groups_are_held_out_near_the_fraction_and_of_every_class_its_share() -> (
    None
):
    labels, groups = [], []
    for number in range(
        60
    ):  # speakers of 3 to 20 rows, who say some words more than others
        rows = 3 + number % 18
        labels += ["abcd"[(row * (1 + number % 3)) % 4] for row in range(rows)]
        groups += [f"speaker {number}"] * rows
    held_N = held_out_groups(labels, groups, 0.2, 0)
    assert held_N.mean() == pytest.approx(0.2, abs=0.01)
    for label in "abcd":
        own_N = [other == label for other in labels]
        assert held_N[own_N].mean() == pytest.approx(0.2, abs=0.03)
    assert not {*compress(groups, held_N)} & {*compress(groups, ~held_N)}
    # golden: whoever changes the rule changes the meaning of every accuracy that was made by it
    some = ["ab"[n % 2] for n in range(40)], [f"g{n // 5}" for n in range(40)]
    held = {
        s: sorted({*compress(some[1], held_out_groups(*some, 0.25, s))}) for s in (0, 7)
    }
    assert held == {0: ["g0", "g5"], 7: ["g2", "g3"]}


def test_a_single_file_is_split_by_whole_groups_whose_column_is_kept(
    tmp_path: Path,
) -> None:
    lines = [f"{'ab'[n % 2]},text {n},speaker {n % 8}\n" for n in range(80)]
    (tmp_path / "all.csv").write_text("label,text,speaker\n" + "".join(lines))
    options: dict[str, Any] = {
        "dataset": str(tmp_path / "all.csv"),
        "encoder": "tfidf",
        "out": tmp_path / "c",
    }
    config = ExtractConfig(test_groups="speaker", **options)
    with pytest.warns(GaamWarning, match="2 of 8 groups of 'speaker', 20 of 80 rows"):
        gaam_cache.extract(config)
    cache = gaam_cache.open_cache(tmp_path / "c")
    train, test = (set(cache[name].column("speaker")) for name in ("train", "test"))
    assert (len(train), len(test), train & test) == (6, 2, set())
    assert gaam_cache.verify(tmp_path / "c", recompute_rows=4).good, (
        "rows are read again alike"
    )


@pytest.mark.parametrize(
    "case", ["one group", "a class of its own", "splits of its own"]
)
def test_groups_that_cannot_be_held_out_are_refused(case: str, tmp_path: Path) -> None:
    speaker_of = {"one group": "g", "a class of its own": "gh"}.get(case, "gh")
    lines = [
        f"{'ab'[n % 2]},text {n},{speaker_of[n % len(speaker_of)]}\n" for n in range(20)
    ]
    for name in ("train", "test"):
        (tmp_path / f"{name}.csv").write_text("label,text,who\n" + "".join(lines))
    own = case == "splits of its own"
    dataset = tmp_path if own else tmp_path / "train.csv"
    config = ExtractConfig(
        dataset=str(dataset), test_groups="who", test_fraction=None if own else 0.2
    )
    with pytest.raises(
        ConfigError, match="--test-groups" if own else "can be held out"
    ):
        read_both(config)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("", "no group in 'who'", id="empty"),
        pytest.param(" ", "no group in 'who'", id="white space"),
        pytest.param("\u200b", "no group in 'who'", id="an invisible mark"),
    ],
)
def test_rows_without_a_group_are_refused(
    name: str, message: str, tmp_path: Path
) -> None:
    names = [name, "a", "b", "c"]
    lines = [f"{'xy'[n % 2]},text {n},{names[n % 4]}\n" for n in range(40)]
    (tmp_path / "rows.csv").write_text("label,text,who\n" + "".join(lines), "utf-8")
    config = ExtractConfig(
        dataset=str(tmp_path / "rows.csv"), test_groups="who", test_fraction=0.2
    )
    with pytest.raises(ConfigError, match=message):
        read_both(config)


@pytest.mark.parametrize("spelling", ["S1", " s1", "s1 ", "\uff531"])
def test_groups_that_differ_in_spelling_alone_are_told(
    spelling: str, tmp_path: Path
) -> None:
    names = ["s1", spelling, "b", "c"]
    lines = [f"{'xy'[n % 2]},text {n},{names[n // 2 % 4]}\n" for n in range(40)]
    (tmp_path / "rows.csv").write_text("label,text,who\n" + "".join(lines), "utf-8")
    config = ExtractConfig(
        dataset=str(tmp_path / "rows.csv"), test_groups="who", test_fraction=0.2
    )
    with pytest.warns(GaamWarning, match="groups of 'who' that differ only in"):
        read_both(config)


def read_both(config: ExtractConfig) -> dict[str, Rows]:
    source = find_source(config.dataset)
    return {split: source.read(config, split) for split in config.splits}


def test_one_file_that_nobody_split_is_split_and_says_so(tmp_path: Path) -> None:
    write_csv(tmp_path / "all.csv", [("ab"[n % 2], f"text {n}") for n in range(40)])
    config = ExtractConfig(
        dataset=str(tmp_path / "all.csv"), encoder="tfidf", out=tmp_path / "c"
    )
    with pytest.warns(GaamWarning, match=r"20%(.|\n)*--test-fraction"):
        summary = gaam_cache.extract(config)
    assert summary.rows == {"train": 32, "test": 8}
    assert gaam_cache.verify(tmp_path / "c").good


def test_both_parts_are_the_file(tmp_path: Path) -> None:
    rows = [("abc"[n % 3], f"text {n}" if n % 5 else " ") for n in range(40)]
    path = tmp_path / "all.csv"
    write_csv(path, rows)
    config = ExtractConfig(
        dataset=str(path),
        test_fraction=0.25,
        skip_empty=True,
        keep_columns=("text",),
        split_seed=3,
    )
    parts = read_both(config)
    there = [(label, text) for label, text in rows if text.strip()]
    held = held_out_rows([label for label, _ in there], 0.25, 3).tolist()
    for split, want in (("train", False), ("test", True)):
        expected = [row for row, h in zip(there, held, strict=True) if h == want]
        assert (
            list(zip(parts[split].labels, parts[split].inputs, strict=True)) == expected
        )
        assert list(parts[split].kept_columns["text"]) == list(parts[split].inputs)
        # a limit takes the first rows of every class of each, and moves none to the other
        for limit in (4, 7):
            taken = rows_within_limit(
                [label for label, _ in expected], limit
            ).nonzero()[0]
            part = read_both(replace(config, limit=limit))[split]
            assert list(part.inputs) == [expected[row][1] for row in taken]
        first = read_both(replace(config, limit=4, limit_rule="first"))[split]
        assert list(first.inputs) == [text for _, text in expected[:4]]
    assert [parts[name].num_skipped for name in ("train", "test")] == [8, 0]


def test_what_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    write_csv(tmp_path / "all.csv", [(f"{n}", "x") for n in range(12)])
    with pytest.raises(ConfigError):
        read_both(ExtractConfig(dataset=str(tmp_path / "all.csv"), test_fraction=0.5))
    write_csv(tmp_path / "more.csv", [("a", "x"), ("a", "y")])
    with pytest.raises(NotFoundError, match=r"all\.csv, more\.csv"):
        read_both(ExtractConfig(dataset=str(tmp_path), test_fraction=0.5))
    with pytest.raises(NotFoundError, match="--test-fraction"):
        read_both(ExtractConfig(dataset=str(tmp_path / "all.csv")))
