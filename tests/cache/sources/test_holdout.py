"""Two splits of a single file: which rows they have can never change unnoticed."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, GaamWarning, NotFoundError
from gaam_cache.sources import Rows, find_source, held_out, limited
from tests.conftest import write_csv

LABELS = st.lists(st.sampled_from(["a", "b", "c", "日本", "7"]), min_size=1, max_size=60)


@given(LABELS, st.floats(0.001, 0.999), st.integers(0, 2**31 - 1))
def test_the_rule_is_the_one_that_its_text_says(
    labels: list[str], fraction: float, seed: int
) -> None:
    """Followed by hand, class by class."""
    held = set()
    for label in set(labels):
        rows = [row for row, other in enumerate(labels) if other == label]
        rows.sort(key=lambda row: (hashlib.sha256(b"%d %d" % (seed, row)).digest()[:8], row))
        held |= set(rows[: min(len(rows) - 1, max(1, round(fraction * len(rows))))])
    assert set(held_out(labels, fraction, seed).nonzero()[0].tolist()) == held


def test_golden_rows() -> None:
    """Whoever changes the rule changes the meaning of every accuracy that was made by it."""
    for seed, rows in {0: [6, 13, 14, 17, 25, 34, 35, 38], 7: [3, 6, 7, 8, 19, 22, 32, 36]}.items():
        assert held_out(["a", "b", "a", "c", "b"] * 8, 0.2, seed).nonzero()[0].tolist() == rows


def read_both(config: ExtractConfig) -> dict[str, Rows]:
    source = find_source(config.dataset)
    return {split: source.read(config, split) for split in config.splits}


def test_one_file_that_nobody_split_is_split_and_says_so(tmp_path: Path) -> None:
    write_csv(tmp_path / "all.csv", [("ab"[n % 2], f"text {n}") for n in range(40)])
    config = ExtractConfig(dataset=str(tmp_path / "all.csv"), encoder="tfidf", out=tmp_path / "c")
    with pytest.warns(GaamWarning, match=r"20%(.|\n)*--test-fraction"):
        summary = gaam_cache.extract(config)
    assert summary.rows == {"train": 32, "test": 8}
    assert gaam_cache.verify(tmp_path / "c").good


def test_both_parts_are_the_file(tmp_path: Path) -> None:
    rows = [("abc"[n % 3], f"text {n}" if n % 5 else " ") for n in range(40)]
    path = tmp_path / "all.csv"
    write_csv(path, rows)
    config = ExtractConfig(
        dataset=str(path), test_fraction=0.25, skip_empty=True, keep_columns=("text",), split_seed=3
    )
    parts = read_both(config)
    there = [(label, text) for label, text in rows if text.strip()]
    held = held_out([label for label, _ in there], 0.25, 3).tolist()
    for split, want in (("train", False), ("test", True)):
        expected = [row for row, h in zip(there, held, strict=True) if h == want]
        assert list(zip(parts[split].labels, parts[split].inputs, strict=True)) == expected
        assert list(parts[split].kept["text"]) == list(parts[split].inputs)
        # a limit takes the first rows of every class of each, and moves none to the other
        for limit in (4, 7):
            taken = limited([label for label, _ in expected], limit).nonzero()[0]
            part = read_both(replace(config, limit=limit))[split]
            assert list(part.inputs) == [expected[row][1] for row in taken]
        first = read_both(replace(config, limit=4, limit_rule="first"))[split]
        assert list(first.inputs) == [text for _, text in expected[:4]]
    assert [parts[name].skipped for name in ("train", "test")] == [8, 0]


def test_what_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    write_csv(tmp_path / "all.csv", [(f"{n}", "x") for n in range(12)])
    with pytest.raises(ConfigError):
        read_both(ExtractConfig(dataset=str(tmp_path / "all.csv"), test_fraction=0.5))
    write_csv(tmp_path / "more.csv", [("a", "x"), ("a", "y")])
    with pytest.raises(NotFoundError, match=r"all\.csv, more\.csv"):
        read_both(ExtractConfig(dataset=str(tmp_path), test_fraction=0.5))
    with pytest.raises(NotFoundError, match="--test-fraction"):
        read_both(ExtractConfig(dataset=str(tmp_path / "all.csv")))
