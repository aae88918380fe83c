"""Suspicious rows are told once, with an example; ordinary rows are left in peace."""

from __future__ import annotations

import random
import unicodedata
import warnings
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from gaam_cache.config import ExtractConfig
from gaam_cache.extraction.job import read_rows
from tests.tiny import write_csv

Pairs = list[tuple[str, str]]
"""Labels and texts."""
Counts = dict[str, dict[str, int]]


class Reading(NamedTuple):
    """The warnings about rows, and how many the splits share."""

    warnings: list[str]
    shared_texts: Counts


def read(folder: Path, **splits: Pairs) -> Reading:
    for name, pairs in splits.items():
        write_csv(folder / f"{name}.csv", pairs)
    config = ExtractConfig(dataset=str(folder), splits=tuple(splits))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = read_rows(config)
    return Reading([str(warning.message) for warning in caught], rows.shared_texts)


def test_ordinary_rows_are_left_in_peace(tmp_path: Path) -> None:
    train = [("a", "x"), ("b", "y"), ("b", "y")]
    test = [("b", "z"), ("a", "w")]
    assert read(tmp_path, train=train, test=test).warnings == []


def test_texts_in_two_splits_are_told_on_one_line(tmp_path: Path) -> None:
    train = [("a", "one"), ("b", "two"), ("b", "three\nfour"), ("a", "one")]
    test = [("b", "three four "), ("a", "one"), ("b", "five")]
    [message] = read(tmp_path, train=train, test=test).warnings
    assert "2 of 3 rows of 'test' (66.7%)" in message
    assert "row 1 of 'test' and row 3 of 'train': 'three four '" in message
    assert "\n" not in message


SUSPICIOUS: dict[str, tuple[str, dict[str, Pairs]]] = {
    "a text with two labels": (
        "rows 1 and 4 are 'a' and 'b': 'x'",
        {"train": [("a", "x"), ("b", "y"), ("a", "x"), ("b", "x"), ("a", "y")]},
    ),
    "classes that are never tested": (
        "2 of 3 classes ('b', 'c')",
        {
            "train": [("a", "x"), ("b", "y"), ("c", "z")],
            "test": [("a", "u"), ("a", "v")],
        },
    ),
    "one class": ("label 'a'", {"train": [("a", "x")], "test": [("a", "y")]}),
    "labels that differ in spelling": (
        "'World' and 'world '",
        {"train": [("World", "x"), ("world ", "y"), ("b", "z")]},
    ),
}
"""A part of the message, and the rows."""


@pytest.mark.parametrize("case", SUSPICIOUS)
def test_each_suspicion_is_told_once(case: str, tmp_path: Path) -> None:
    part, splits = SUSPICIOUS[case]
    [message] = read(tmp_path, **splits).warnings
    assert part in message


def copies_of(text: str) -> dict[str, str]:
    """The text, written otherwise."""
    return {
        "upper case": text.upper(),
        "white space around": f" {text}\t",
        "other white space": text.replace(" ", "\u00a0"),
        "decomposed letters": unicodedata.normalize("NFD", text.upper()),
        "full-width letters": text.replace("a", "\uff41"),
    }


@pytest.mark.parametrize(
    "text",
    ["a plain text", "\u00c4rger \u00fcber Stra\u00dfen", "\u0130a \u03a3\u03c2"],
)
def test_a_copy_that_is_written_otherwise_is_a_leak(text: str, tmp_path: Path) -> None:
    for case, copy in copies_of(text).items():
        train = [("a", text), ("b", "other")]
        test = [("a", copy), ("b", "new")]
        [message] = read(tmp_path, train=train, test=test).warnings
        assert "1 of 2 rows of 'test'" in message, case


def draw_splits(rng: random.Random) -> dict[str, Pairs]:
    """Three splits of one to nine rows, of few texts."""
    splits: dict[str, Pairs] = {}
    for name in ("train", "val", "test"):
        count = rng.randint(1, 9)
        texts = [rng.choice(["u", "v ", " u", "v", "w", "x"]) for _ in range(count)]
        splits[name] = [("a", text) for text in texts]
    return splits


def count_shared(splits: dict[str, Pairs]) -> Counts:
    """How many rows of a split have a copy in another one, or twice in the same."""
    texts = {
        (name, row): text.strip()
        for name, pairs in splits.items()
        for row, (_, text) in enumerate(pairs)
    }
    counts: Counts = {}
    for name, other_name in product(splits, splits):
        count = 0
        for place, text in texts.items():
            if place[0] != name:
                continue
            count += any(
                other_place != place and other_text == text
                for other_place, other_text in texts.items()
                if other_place[0] == other_name
            )
        if count:
            counts.setdefault(name, {})[other_name] = count
    return counts


@pytest.mark.parametrize("seed", range(20))
def test_shared_texts_are_those_of_brute_force(seed: int, tmp_path: Path) -> None:
    splits = draw_splits(random.Random(seed))
    assert read(tmp_path, **splits).shared_texts == count_shared(splits)
