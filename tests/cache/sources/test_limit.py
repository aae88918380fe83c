"""``--limit N``: of every class its share, the first rows, and no more is read than that."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

import gaam_cache
from gaam_cache.common.errors import ConfigError, DataError
from gaam_cache.config import ExtractConfig
from gaam_cache.sources import Rows, find_source, rows_within_limit
from gaam_cache.store.plan import PLAN_FILE, read_plan
from tests.conftest import Outcome, write_csv

LABELS = st.lists(st.sampled_from("aaaaaaaabbbcd"), min_size=1, max_size=24)


def best_shares(counts: Counter[str], limit: int) -> set[tuple[tuple[str, int], ...]]:
    """By brute force: all ways to part ``limit`` rows that are nearest to the shares.

    A class has one row at least where the limit allows it; else nearest is least squares, which
    largest remainders give.
    """
    least = int(limit >= len(counts))
    share = {
        name: Fraction(limit * count, counts.total()) for name, count in counts.items()
    }
    ways = {}
    for rows in product(*(range(least, count + 1) for count in counts.values())):
        if sum(rows) == limit:
            way = dict(zip(counts, rows, strict=True))
            ways[tuple(sorted(way.items()))] = sum(
                (way[name] - share[name]) ** 2 for name in way
            )
    return {way for way, far in ways.items() if far == min(ways.values())}


@given(LABELS, st.integers(1, 30))
def test_every_class_has_its_share_and_it_is_the_first_rows(
    labels: list[str], limit: int
) -> None:
    counts = Counter(labels)
    taken = [
        row
        for row, taken in enumerate(rows_within_limit(labels, limit).tolist())
        if taken
    ]
    shares = Counter(labels[row] for row in taken)
    assert len(taken) == min(limit, len(labels))
    for name, count in shares.items():
        of_class = [row for row, label in enumerate(labels) if label == name]
        assert [row for row in taken if labels[row] == name] == of_class[:count]
    if limit < len(labels) and min(limit * n for n in counts.values()) >= len(labels):
        found = tuple(sorted((name, shares[name]) for name in counts))
        assert found in best_shares(counts, limit)
    if limit >= len(counts):
        assert shares.keys() == counts.keys()


def test_golden_rows() -> None:
    """Whoever changes the rule changes the rows of every cache that was made with a limit."""
    labels = ["a"] * 60 + ["b"] * 30 + ["c"] * 9 + ["d"]
    for limit, shares in {3: (2, 1, 0, 0), 4: (1, 1, 1, 1), 10: (5, 3, 1, 1)}.items():
        rows = rows_within_limit(labels, limit).nonzero()[0].tolist()
        assert (
            tuple(Counter(labels[row] for row in rows)[name] for name in "abcd")
            == shares
        )
    assert rows_within_limit(labels, 10).nonzero()[0].tolist() == [
        0,
        1,
        2,
        3,
        4,
        60,
        61,
        62,
        90,
        99,
    ]


def sound(seed: int, frames: int = 4000) -> bytes:
    file, x_T = io.BytesIO(), np.random.default_rng(seed).uniform(-0.5, 0.5, frames)
    soundfile.write(file, x_T, 16000, format="WAV")
    return file.getvalue()


def in_csv(root: Path, labels: list[str]) -> None:
    write_csv(
        root / "train.csv", [(label, f"text {n}") for n, label in enumerate(labels)]
    )


def in_parquet(root: Path, labels: list[str]) -> None:
    texts = [f"text {n}" for n in range(len(labels))]
    root.mkdir(parents=True)
    table = pyarrow.table({"label": labels, "text": texts})
    pyarrow.parquet.write_table(table, root / "train.parquet")


def in_folders(root: Path, labels: list[str]) -> None:
    """Of every class the last sounds are no sounds: whoever decodes them is refused."""
    for n, label in enumerate(labels):
        path = root / "train" / label / f"{n:03}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sound(n) if labels[:n].count(label) < 3 else b"no sound")


def in_table_of_files(root: Path, labels: list[str]) -> None:
    in_folders(root / "files", labels)
    rows = [
        (f"files/train/{label}/{n:03}.wav", label) for n, label in enumerate(labels)
    ]
    write_csv(root / "train.csv", rows, header="file,label")


LAYOUTS = [in_csv, in_parquet, in_folders, in_table_of_files]
SORTED = [*"aaaaaaaaaa", *"bbbbbbbb", *"cccccc"]


def read(root: Path, limit: int | None, **options: object) -> Rows:
    config = ExtractConfig(dataset=str(root), splits=("train",), limit=limit)
    config = replace(config, **options)  # type: ignore[arg-type]
    return find_source(config.dataset).read(config, "train")


@pytest.mark.parametrize("lay_out", LAYOUTS, ids=lambda one: one.__name__)
def test_a_sorted_data_set_gives_rows_of_every_class_and_nothing_else_is_read(
    lay_out: Callable[[Path, list[str]], None], tmp_path: Path
) -> None:
    lay_out(tmp_path / "d", SORTED)
    rows = read(tmp_path / "d", 7)
    assert list(rows.labels) == [*"aaabbcc"]
    numbers = [
        re.findall(r"\d+", str(getattr(one, "name", one)))[-1] for one in rows.inputs
    ]
    assert list(map(int, numbers)) == [0, 1, 2, 10, 11, 18, 19]


def test_without_labels_it_is_the_first_rows(tmp_path: Path) -> None:
    in_csv(tmp_path, SORTED)
    (tmp_path / "new.txt").write_text("one\ntwo\nthree\n")
    config = ExtractConfig(
        dataset=str(tmp_path), splits=("train", "new"), unlabelled=("new",), limit=2
    )
    assert list(find_source(config.dataset).read(config, "new").inputs) == [
        "one",
        "two",
    ]


def test_both_parts_of_a_file_have_their_share_and_pieces_stay_together(
    tmp_path: Path,
) -> None:
    labels = [*"aaaaaaaaaaaaaaa", *"bbbbb"]
    for n, label in enumerate(labels):
        path = tmp_path / label / f"{n:03}.wav"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(sound(n))
    config = ExtractConfig(
        dataset=str(tmp_path), test_fraction=0.4, clip_seconds=0.1, clip_mode="split"
    )
    source = find_source(config.dataset)
    whole = {split: source.read(config, split) for split in config.splits}
    source = find_source(config.dataset)
    some = {
        split: source.read(replace(config, limit=4), split) for split in config.splits
    }
    for split, rows in some.items():
        clips, every = (
            list(rows.kept_columns["clip_of"]),
            list(whole[split].kept_columns["clip_of"]),
        )
        sounds = list(dict.fromkeys(clips))
        assert Counter(name[0] for name in sounds) == {"a": 3, "b": 1}
        assert sounds == [name for name in dict.fromkeys(every) if name in sounds]
        assert [clips.count(name) for name in sounds] == [
            every.count(name) for name in sounds
        ]
    assert not {*some["train"].kept_columns["clip_of"]} & {
        *some["test"].kept_columns["clip_of"]
    }


def test_labels_are_read_to_the_end_and_inputs_are_not(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("label,text\na,x\nb,y\na, \n")
    assert list(read(path, 2).inputs) == ["x", "y"]
    assert read(path, 3, skip_empty=True).num_skipped == 1
    path.write_text("label,text\na,x\nb,y\n,z\n")
    with pytest.raises(DataError, match="line 4"):
        read(path, 2)


def test_too_few_rows_for_the_classes_are_told(
    tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    for split, labels in (("train", [*"aaabbc"]), ("test", [*"ccca"])):
        write_csv(
            tmp_path / f"{split}.csv",
            [(one, f"{split} {n}") for n, one in enumerate(labels)],
        )
    command = (
        "extract",
        "--encoder",
        "tfidf",
        "--dataset",
        tmp_path,
        "--out",
        tmp_path / "c",
    )
    refused = gaam(*command, "--limit", 2)
    assert refused.code == 3
    assert "'c' occurs in 'test'" in refused.err
    assert "raise --limit" in refused.err
    assert gaam(*command, "--limit", 3).code == 0


def test_a_cache_of_the_rule_before_is_read_again_and_named(
    tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    """Before 0.3 a limit took the first rows, and a plan did not say so."""
    for split in ("train", "test"):
        rows = [("aaab"[n % 4], f"{split} {n}") for n in range(20)]
        write_csv(tmp_path / f"{split}.csv", rows)
    out = tmp_path / "old"
    config = ExtractConfig(
        dataset=str(tmp_path), encoder="tfidf", limit=7, limit_rule="first", out=out
    )
    gaam_cache.extract(config)
    plan = read_plan(out)
    settings = dict(plan.dataset.settings)
    assert settings.pop("limit_rule") == "first"
    plan = replace(plan, dataset=replace(plan.dataset, settings=settings))
    (out / PLAN_FILE).write_text(plan.to_json())
    assert gaam_cache.verify(out, recompute_rows=3).good
    with pytest.raises(ConfigError, match=r"limit_rule(.|\n)*--set limit-rule=first"):
        gaam_cache.extract(replace(config, limit_rule="classes"))
    assert gaam_cache.extract(config).shards_made == 0
    new = replace(config, limit_rule="classes", out=tmp_path / "new")
    gaam_cache.extract(new)
    assert gaam_cache.verify(new.out, recompute_rows=3).good
