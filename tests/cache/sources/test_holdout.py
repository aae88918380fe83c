"""Two splits of a single file: which rows they have can never change unnoticed."""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError, NotFoundError
from gaam_cache.extraction.job import read_rows
from gaam_cache.sources._base import Rows, find_source
from gaam_cache.sources._holdout import held_out
from gaam_cache.sources._spool import TextSpool
from gaam_cache.sources._texts import Texts
from tests.conftest import write_csv

LABELS = st.lists(st.sampled_from(["a", "b", "c", "日本", "7"]), min_size=1, max_size=60)
FRACTIONS = st.floats(0.001, 0.999)
SEEDS = st.integers(0, 2**31 - 1)


@given(LABELS, FRACTIONS, SEEDS)
def test_every_class_has_its_share_in_both_parts(
    labels: list[str], fraction: float, seed: int
) -> None:
    held = held_out(labels, fraction, seed).tolist()
    assert held_out(labels, fraction, seed).tolist() == held
    for label, count in Counter(labels).items():
        there = sum(h for h, other in zip(held, labels, strict=True) if other == label)
        assert there == min(count - 1, max(1, round(fraction * count)))
        assert count == 1 or 0 < there < count


@given(LABELS, FRACTIONS, SEEDS)
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


@given(LABELS, FRACTIONS, SEEDS, st.permutations(["a", "b", "c", "日本", "7"]))
def test_what_classes_are_called_decides_nothing(
    labels: list[str], fraction: float, seed: int, names: list[str]
) -> None:
    called = dict(zip(["a", "b", "c", "日本", "7"], names, strict=True))
    renamed = [called[label] for label in labels]
    assert held_out(labels, fraction, seed).tolist() == held_out(renamed, fraction, seed).tolist()


def test_golden_rows() -> None:
    """Whoever changes the rule changes the meaning of every accuracy that was made by it."""
    labels = ["a", "b", "a", "c", "b"] * 8
    golden = {
        (0, 0.2): [6, 13, 14, 17, 25, 34, 35, 38],
        (7, 0.2): [3, 6, 7, 8, 19, 22, 32, 36],
        (2**31 - 1, 0.5): [
            *(3, 4, 5, 6, 7, 10, 12, 14, 15, 20, 23, 24, 26, 27, 28, 31, 33, 35, 36, 39)
        ],
    }
    for (seed, fraction), rows in golden.items():
        assert held_out(labels, fraction, seed).nonzero()[0].tolist() == rows


def test_seeds_decide() -> None:
    labels = ["a", "b"] * 20
    assert len({tuple(held_out(labels, 0.3, seed).tolist()) for seed in range(50)}) == 50


def config_of(path: Path, **options: object) -> ExtractConfig:
    return ExtractConfig(dataset=str(path), test_fraction=0.25, **options)  # type: ignore[arg-type]


def read_both(config: ExtractConfig) -> dict[str, Rows]:
    source = find_source(config.dataset)
    return {split: source.read(config, split) for split in config.splits}


ROWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.text("xyz", min_size=1, max_size=9)),
    min_size=2,
    max_size=40,
)


@given(ROWS, SEEDS, st.none() | st.integers(1, 9))
def test_both_parts_are_the_file(rows: list[tuple[str, str]], seed: int, limit: int | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "all.csv"
        write_csv(path, rows)
        config = config_of(path, split_seed=seed, keep_columns=("text",))
        if max(Counter(label for label, _ in rows).values()) < 2:
            with pytest.raises(DataError, match="nothing to hold out"):
                read_both(config)
            return
        parts = read_both(config)
        held = held_out([label for label, _ in rows], 0.25, seed)
        for split, want in (("train", False), ("test", True)):
            part = parts[split]
            expected = [row for row, h in zip(rows, held.tolist(), strict=True) if h == want]
            assert list(zip(part.labels, part.inputs, strict=True)) == expected
            assert list(part.kept["text"]) == list(part.inputs)
            assert isinstance(part.inputs, TextSpool)
            assert split in part.origin
            # a limit takes the first of each, and moves no row from one to the other
            limited = read_both(replace(config, limit=limit))[split]
            assert list(limited.inputs) == [text for _, text in expected[:limit]]
            assert list(limited.kept["text"]) == list(limited.inputs)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_formats_are_divided_alike(suffix: str, tmp_path: Path) -> None:
    import json

    import pyarrow
    import pyarrow.parquet

    rows = [("ab"[n % 2], f"text {n}") for n in range(20)]
    path = tmp_path / f"all.{suffix}"
    records = [{"label": label, "text": text} for label, text in rows]
    if suffix == "csv":
        write_csv(path, rows)
    elif suffix == "jsonl":
        path.write_text("\n".join(map(json.dumps, records)))
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
    held = held_out([label for label, _ in rows], 0.25, 3).nonzero()[0].tolist()
    for place in (path, tmp_path):
        checked = read_rows(config_of(place, split_seed=3))
        assert checked.rows["test"].inputs == [f"text {n}" for n in held]
        assert len(checked.rows["train"]) == 20 - len(held)
        assert checked.content == read_rows(config_of(path, split_seed=3)).content
    assert checked.content != read_rows(config_of(path, split_seed=4)).content


def test_both_parts_are_of_one_content_whatever_happens_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    write_csv(path, [("a", f"old {n}") for n in range(8)])
    config = config_of(path)
    source = find_source(config.dataset)
    first = source.read(config, "test")
    write_csv(path, [("a", f"new {n}") for n in range(9)])
    second = source.read(config, "train")
    assert sorted([*first.inputs, *second.inputs]) == sorted(f"old {n}" for n in range(8))


def test_rows_that_are_left_out_are_those_of_train(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    write_csv(path, [("a", "x" if n % 3 else " ") for n in range(12)])
    parts = read_both(config_of(path, skip_empty=True))
    assert [len(parts[name].skipped) for name in ("train", "test")] == [4, 0]
    assert sum(map(len, parts.values())) == 8


def test_without_a_fraction_the_message_says_so(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    write_csv(path, [("a", "x")])
    with pytest.raises(NotFoundError, match="--test-fraction"):
        read_rows(ExtractConfig(dataset=str(path)))


def test_a_folder_with_splits_of_its_own_is_not_divided(tmp_path: Path) -> None:
    for name in ("train", "test"):
        write_csv(tmp_path / f"{name}.csv", [("a", "x"), ("a", "y")])
    with pytest.raises(NotFoundError, match=r"single file(.|\n)*test\.csv, train\.csv"):
        read_rows(config_of(tmp_path))
    (tmp_path / "test.csv").unlink()
    assert len(read_rows(config_of(tmp_path)).rows["test"]) == 1


def test_lists_are_divided_too() -> None:
    from gaam_cache.sources._divide import divide

    rows = Texts(inputs=list("abcd"), labels=list("xxyy"), class_names=None, origin="here")
    parts = divide(rows, ExtractConfig(test_fraction=0.5))
    assert sorted([*parts["train"].inputs, *parts["test"].inputs]) == list("abcd")
