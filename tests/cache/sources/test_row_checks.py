"""What is suspicious about rows is said once, with an example; ordinary rows are left in peace."""

from __future__ import annotations

import random
import unicodedata
from itertools import product

from gaam_cache.sources import Rows, Texts
from gaam_cache.sources import _base as row_checks

Pairs = list[tuple[str, str]]


def split(*pairs: tuple[str, str]) -> Rows:
    labels, texts = [label for label, _ in pairs], [text for _, text in pairs]
    return Texts(inputs=texts, labels=labels, class_names=None, origin="here")


def check(**splits: Pairs) -> list[str]:
    rows = {name: split(*pairs) for name, pairs in splits.items()}
    labels = {label for pairs in splits.values() for label, _ in pairs}
    return row_checks.check_rows(rows, sorted(labels), list(row_checks.repeated_texts(rows)))


def test_each_thing_is_said_on_one_line_and_ordinary_rows_are_left_in_peace() -> None:
    assert check(train=[("a", "x"), ("b", "y"), ("b", "y")], test=[("b", "z"), ("a", "w")]) == []
    train = [("a", "one"), ("b", "two"), ("b", "three\nfour"), ("a", "one")]
    (message,) = check(train=train, test=[("b", "three four "), ("a", "one"), ("b", "five")])
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
        (message,) = check(**splits)
        assert said in message


def test_a_copy_that_is_written_otherwise_is_a_leak() -> None:
    for text in ("a plain text", "\u00c4rger \u00fcber Stra\u00dfen", "\u0130a \u03a3\u03c2"):
        spaced, composed = text.replace(" ", "\u00a0"), unicodedata.normalize("NFD", text.upper())
        for copy in (text.upper(), f" {text}\t", spaced, composed, text.replace("a", "\uff41")):
            train, test = [("a", text), ("b", "other")], [("a", copy), ("b", "new")]
            [message] = check(train=train, test=test)
            assert "1 of 2 rows of 'test'" in message


def test_shared_texts_are_those_of_brute_force() -> None:
    generator = random.Random(0)
    for _ in range(20):
        lengths = {name: generator.randint(1, 9) for name in ("train", "val", "test")}
        rows = {
            name: split(*(("a", generator.choice("uvwxyz  ")) for _ in range(length)))
            for name, length in lengths.items()
        }
        places = [(name, row) for name, part in rows.items() for row in range(len(part))]
        text = {place: rows[place[0]].inputs[place[1]].strip() for place in places}
        expected: dict[str, dict[str, int]] = {}
        for name, other in product(rows, rows):
            count = sum(
                any(q != p and q[0] == other and text[q] == text[p] for q in places)
                for p in places
                if p[0] == name
            )
            if count:
                expected.setdefault(name, {})[other] = count
        assert row_checks.shared_texts(list(row_checks.repeated_texts(rows))) == expected
