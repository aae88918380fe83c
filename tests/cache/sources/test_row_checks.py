"""What is suspicious about rows is said once, with an example; ordinary rows are left in peace."""

from __future__ import annotations

import random
import unicodedata
import warnings
from itertools import product
from pathlib import Path

from gaam_cache.config import ExtractConfig
from gaam_cache.extraction.job import read_rows
from tests.tiny import write_csv

Pairs = list[tuple[str, str]]


def check(folder: Path, **splits: Pairs) -> tuple[list[str], dict[str, dict[str, int]]]:
    """What is said of rows, and how many they share."""
    for name, pairs in splits.items():
        write_csv(folder / f"{name}.csv", pairs)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = read_rows(ExtractConfig(dataset=str(folder), splits=tuple(splits)))
    return [str(one.message) for one in said], found.shared_texts


def test_each_thing_is_said_on_one_line_and_ordinary_rows_are_left_in_peace(
    tmp_path: Path,
) -> None:
    plain = {
        "train": [("a", "x"), ("b", "y"), ("b", "y")],
        "test": [("b", "z"), ("a", "w")],
    }
    assert check(tmp_path, **plain)[0] == []
    train = [("a", "one"), ("b", "two"), ("b", "three\nfour"), ("a", "one")]
    test = [("b", "three four "), ("a", "one"), ("b", "five")]
    [message], _ = check(tmp_path, train=train, test=test)
    assert "2 of 3 rows of 'test' (66.7%)" in message
    assert "row 1 of 'test' and row 3 of 'train': 'three four '" in message
    assert "\n" not in message
    cases: list[tuple[str, dict[str, Pairs]]] = [
        ("rows 1 and 4 are 'a' and 'b': 'x'", {
            "train": [("a", "x"), ("b", "y"), ("a", "x"), ("b", "x"), ("a", "y")],
        }),
        ("2 of 3 classes ('b', 'c')", {
            "train": [("a", "x"), ("b", "y"), ("c", "z")], "test": [("a", "u"), ("a", "v")],
        }),
        ("label 'a'", {"train": [("a", "x")], "test": [("a", "y")]}),
        ("'World' and 'world '", {"train": [("World", "x"), ("world ", "y"), ("b", "z")]}),
    ]  # fmt: skip
    for said, splits in cases:
        [message], _ = check(tmp_path, **splits)
        assert said in message


def test_a_copy_that_is_written_otherwise_is_a_leak(tmp_path: Path) -> None:
    for text in (
        "a plain text",
        "\u00c4rger \u00fcber Stra\u00dfen",
        "\u0130a \u03a3\u03c2",
    ):
        spaced, composed = (
            text.replace(" ", "\u00a0"),
            unicodedata.normalize("NFD", text.upper()),
        )
        for copy in (
            text.upper(),
            f" {text}\t",
            spaced,
            composed,
            text.replace("a", "\uff41"),
        ):
            train, test = [("a", text), ("b", "other")], [("a", copy), ("b", "new")]
            [message], _ = check(tmp_path, train=train, test=test)
            assert "1 of 2 rows of 'test'" in message


def test_shared_texts_are_those_of_brute_force(tmp_path: Path) -> None:
    generator = random.Random(0)
    for _ in range(20):
        rows = {
            name: [
                ("a", generator.choice(["u", "v ", " u", "v", "w", "x"]))
                for _ in range(count)
            ]
            for name in ("train", "val", "test")
            if (count := generator.randint(1, 9))
        }
        text = {(n, row): t.strip() for n in rows for row, (_, t) in enumerate(rows[n])}
        expected: dict[str, dict[str, int]] = {}
        for name, other in product(rows, rows):
            count = sum(
                any(q != p and q[0] == other and text[q] == text[p] for q in text)
                for p in text
                if p[0] == name
            )
            if count:
                expected.setdefault(name, {})[other] = count
        assert check(tmp_path, **rows)[1] == expected
