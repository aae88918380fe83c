from __future__ import annotations

import hashlib
import random
import unicodedata
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import GaamWarning
from gaam_cache.sources import _row_checks as row_checks
from gaam_cache.sources._base import Rows, Texts
from tests.conftest import Outcome, write_csv

Pairs = list[tuple[str, str]]


def split(*pairs: tuple[str, str]) -> Rows:
    labels, texts = [label for label, _ in pairs], [text for _, text in pairs]
    return Texts(inputs=texts, labels=labels, class_names=None, origin="here")


def check(**splits: Pairs) -> list[str]:
    rows = {name: split(*pairs) for name, pairs in splits.items()}
    labels = {label for pairs in splits.values() for label, _ in pairs}
    return row_checks.check_rows(rows, sorted(labels), list(row_checks.repeated_texts(rows)))


def test_ordinary_rows_are_not_remarked_upon() -> None:
    assert check(train=[("a", "x"), ("b", "y"), ("b", "y")], test=[("b", "z"), ("a", "w")]) == []


def test_a_leak_is_counted_with_an_example() -> None:
    train = [("a", "one"), ("b", "two"), ("b", "three\nfour"), ("a", "one")]
    test = [("a", "new"), ("b", "three four "), ("a", "one"), ("b", "five")]
    (message,) = check(train=train, test=test)
    assert "2 of 4 rows of 'test' (50.0%)" in message
    assert "'train' has too" in message
    assert "row 2 of 'test' and row 3 of 'train': 'three four '" in message
    assert "\n" not in message


def test_one_text_with_two_labels_is_told_with_both() -> None:
    train = [("a", "x"), ("b", "y"), ("a", "x"), ("b", "x"), ("a", "y")]
    (message,) = check(train=train, test=[("a", "z"), ("b", "w")])
    assert message.startswith("2 texts have several labels in 'train'")
    assert "rows 1 and 4 are 'a' and 'b': 'x'" in message


def test_a_class_that_a_split_lacks_is_named() -> None:
    (message,) = check(train=[("a", "x"), ("b", "y"), ("c", "z")], test=[("a", "u"), ("a", "v")])
    assert "'test' has no row of 2 of 3 classes ('b', 'c')" in message
    assert "macro-F1" in message
    rows = {"train": split(("a", "x"), ("b", "y"))}
    (message,) = row_checks.check_rows(rows, ["a", "b", "declared"], [])
    assert "'train' has no row of 1 of 3 declared classes ('declared')" in message


def test_a_single_class_and_look_alike_classes_are_told() -> None:
    (message,) = check(train=[("a", "x")], test=[("a", "y")])
    assert "every row has the label 'a'" in message
    train = [("World", "x"), ("world ", "y"), ("Sports", "z")]
    (message,) = check(train=train)
    assert "'World' and 'world '" in message
    assert "Sports" not in message
    numbers, quotes = check(train=[("01", "x"), ("1.0", "y"), ("10", "z"), (' "q"', "w")])
    assert "'01' and '1.0'" in numbers
    assert "white space before a quote" in quotes


COPIES: list[Callable[[str], str]] = [
    str.upper,
    str.title,
    lambda text: f" {text.replace(' ', chr(9) * 2)} ",
    lambda text: text.replace(" ", "\u00a0"),
    lambda text: unicodedata.normalize("NFD", f"{text.upper()}\n"),
    lambda text: text.replace("a", "\uff41"),
]


def test_a_copy_that_is_written_otherwise_is_a_leak_and_no_contradiction() -> None:
    """An encoder that reads all in small letters cannot tell them apart; another may."""
    texts = ["a plain text", "\u00c4rger \u00fcber Stra\u00dfen", "\u0130a \u03a3\u03c2"]
    for how, text in product(COPIES, texts):
        new = {"test": split(("a", how(text)), ("b", "new"))}
        rows = {"train": split(("a", text), ("b", "other"))} | new
        groups = list(row_checks.repeated_texts(rows))
        assert row_checks.shared_texts(groups) == {"test": {"train": 1}, "train": {"test": 1}}
        [message] = row_checks.leaks(rows, groups)
        assert "1 of 2 rows of 'test'" in message
        both = {"train": split(("a", text), ("b", how(text)))}
        found = row_checks.contradictions(both, list(row_checks.repeated_texts(both)))
        assert bool(found) == (text.split() == how(text).split())


def test_texts_whose_digests_half_agree_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = {b"x": b"1" * 8 + b"2" * 8, b"y": b"1" * 8 + b"3" * 8, b"z": b"3" * 8 + b"2" * 8}
    monkeypatch.setattr(row_checks, "_digest", halves.__getitem__)
    assert list(row_checks.repeated_texts({"s": split(*zip("aaa", "xyz", strict=True))})) == []
    repeated = list(row_checks.repeated_texts({"s": split(*zip("aaaa", "xyzy", strict=True))}))
    assert repeated == [[("s", 1), ("s", 3)]]
    assert len(hashlib.blake2b(b"", digest_size=row_checks.DIGEST_BYTES).digest()) == 16


def suspicious(folder: Path) -> Path:
    write_csv(
        folder / "train.csv", [("a", "goal cup"), ("b", "bank"), ("a", "bank"), ("c", "vote")]
    )
    write_csv(folder / "test.csv", [("a", "goal cup"), ("b", "loan star atom army team price")])
    return folder


def test_extract_warns_where_it_was_called_from(tiny_config: ExtractConfig, tmp_path: Path) -> None:
    config = replace(tiny_config, dataset=str(suspicious(tmp_path / "d")), max_length=4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        summary = gaam_cache.extract(config)
    ours = [warning for warning in caught if warning.category is GaamWarning]
    starts = ["1 of 2 rows of 'test'", "1 text has several labels", "'test' has no row of 1 of 3"]
    starts += ["1 of 6 rows (16.7%) are cut at 4 tokens"]
    assert len(ours) == len(starts)
    for warning, start in zip(ours, starts, strict=True):
        assert str(warning.message).startswith(start)
    assert summary.truncated == 1
    assert "1 rows at 4 tokens" in summary.in_words()


def test_the_command_shows_each_warning_on_one_line_of_stderr(
    gaam: Callable[..., Outcome], encoders: dict[str, Path], tmp_path: Path
) -> None:
    data = suspicious(tmp_path / "d")
    outcome = gaam("extract", "--encoder", encoders["bert"], "--dataset", data,
                   "--out", tmp_path / "c", "--max-length", 4)  # fmt: skip
    assert outcome.code == 0
    lines = [line for line in outcome.err.splitlines() if line.startswith("warning: ")]
    assert len(lines) == 4
    assert "warning" not in outcome.out


@pytest.mark.parametrize("seed", range(9))
def test_shared_texts_are_those_of_brute_force(seed: int) -> None:
    generator = random.Random(seed)
    rows = {
        name: split(*(("a", generator.choice("uvwxyz  ")) for _ in range(generator.randint(1, 9))))
        for name in ("train", "val", "test")[: generator.randint(1, 3)]
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
