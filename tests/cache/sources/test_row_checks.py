from __future__ import annotations

import hashlib
import random
import re
import sys
import tracemalloc
import unicodedata
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_each_two_splits_that_share_texts_get_a_line() -> None:
    rows = {"train": [("a", "x"), ("b", "y")], "val": [("a", "x"), ("b", "v")]}
    messages = check(**rows, test=[("a", "v"), ("b", "x")])
    assert [re.findall(r"'(train|val|test)'", message)[:2] for message in messages] == [
        ["val", "train"],
        ["test", "train"],
        ["test", "val"],
    ]
    assert [message.split(" of ")[0] for message in messages] == ["1", "1", "2"]


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


def test_many_absent_classes_are_not_all_listed() -> None:
    train = [(f"{i % 100:03}", f"x{i}") for i in range(200)]
    (message,) = check(train=train, test=[("000", "y")])
    assert "99 of 100 classes" in message
    assert "'010', ..." in message
    assert len(message) < 300


def test_a_single_class_and_look_alike_classes_are_told() -> None:
    (message,) = check(train=[("a", "x")], test=[("a", "y")])
    assert "every row has the label 'a'" in message
    train = [("World", "x"), ("world ", "y"), ("Sports", "z")]
    (message,) = check(train=train)
    assert "'World' and 'world '" in message
    assert "Sports" not in message


@given(
    parts=st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("stuvw")), min_size=1),
        min_size=1,
        max_size=3,
    )
)
def test_counts_equal_those_of_a_plain_count(parts: list[Pairs]) -> None:
    rows = {f"s{i}": split(*pairs) for i, pairs in enumerate(parts)}
    groups = list(row_checks.repeated_texts(rows))
    told = {}
    for message in row_checks.leaks(rows, groups):
        count, total, second, first = (
            re.findall(r"\d+|'s\d'", message.replace("%", ""))[:2]
            + (re.findall(r"'(s\d)'", message)[:2])
        )
        told[first, second] = (int(count), int(total))
    expected = {}
    for first, second in combinations(rows, 2):
        shared = [text for text in rows[second].inputs if text in set(rows[first].inputs)]
        if shared:
            expected[first, second] = (len(shared), len(rows[second]))
    assert told == expected
    told_labels = {}
    for message in row_checks.contradictions(rows, groups):
        told_labels[re.search(r"'(s\d)'", message)[1]] = int(message.split()[0])  # type: ignore[index]
    expected_labels = {}
    for name, part in rows.items():
        pairs = set(zip(part.inputs, part.labels, strict=True))
        if count := sum({(text, "a"), (text, "b")} <= pairs for text in set(part.inputs)):
            expected_labels[name] = count
    assert told_labels == expected_labels


COPIES: dict[str, Callable[[str], str]] = {
    "capitals": str.upper,
    "small": str.lower,
    "title": str.title,
    "spaces": lambda text: f" {text.replace(' ', chr(9) * 2)} ",
    "no-break spaces": lambda text: text.replace(" ", "\u00a0"),
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "full width": lambda text: text.replace("a", "\uff41"),
    "all": lambda text: unicodedata.normalize("NFD", f"{text.upper()}\n"),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize(
    "text", ["a plain text", "\u00c4rger \u00fcber Stra\u00dfen", "\u0130a \u03a3\u03c2"]
)
def test_a_copy_that_is_written_otherwise_is_a_leak_and_no_contradiction(
    how: str, text: str
) -> None:
    """An encoder that reads all in small letters cannot tell them apart; another may."""
    copy = COPIES[how](text)
    rows = {"train": split(("a", text), ("b", "other")), "test": split(("a", copy), ("b", "new"))}
    groups = list(row_checks.repeated_texts(rows))
    assert row_checks.shared_texts(groups) == {"test": {"train": 1}, "train": {"test": 1}}
    [message] = row_checks.leaks(rows, groups)
    assert "1 of 2 rows of 'test'" in message
    both = {"train": split(("a", text), ("b", copy))}
    found = row_checks.contradictions(both, list(row_checks.repeated_texts(both)))
    assert bool(found) == (text.split() == copy.split())


def test_hashing_keeps_nothing_of_the_texts() -> None:
    generator = random.Random(0)
    texts = [f"{i} " + "x" * generator.randint(5_000, 6_000) for i in range(4_000)]
    rows = {"train": Texts(inputs=texts, labels=["a"] * 4_000, class_names=None, origin="here")}
    list(row_checks.repeated_texts(rows))  # what is allocated once is not counted
    tracemalloc.start()
    assert list(row_checks.repeated_texts(rows)) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200 * 4_000, "more than 200 bytes a row; the texts have 5,500"


def test_texts_whose_digests_half_agree_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = {b"x": b"1" * 8 + b"2" * 8, b"y": b"1" * 8 + b"3" * 8, b"z": b"3" * 8 + b"2" * 8}
    monkeypatch.setattr(row_checks, "_digest", halves.__getitem__)
    assert list(row_checks.repeated_texts({"s": split(*zip("aaa", "xyz", strict=True))})) == []
    repeated = list(row_checks.repeated_texts({"s": split(*zip("aaaa", "xyzy", strict=True))}))
    assert repeated == [[("s", 1), ("s", 3)]]
    assert len(hashlib.blake2b(b"", digest_size=row_checks.DIGEST_BYTES).digest()) == 16


def test_more_than_one_cut_row_in_a_hundred_is_told() -> None:
    assert row_checks.truncation(1000, 10, 512) == []
    (message,) = row_checks.truncation(1000, 11, 512)
    assert "11 of 1,000 rows (1.1%) are cut at 512 tokens" in message
    assert "--max-length" in message


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
        assert warning.filename == __file__
    assert summary.truncated == 1
    assert "1 rows at 4 tokens" in summary.in_words()


def test_the_command_shows_each_warning_on_one_line_of_stderr_every_time(
    gaam: Callable[..., Outcome], encoders: dict[str, Path], tmp_path: Path
) -> None:
    shown, filters = warnings.showwarning, list(warnings.filters)
    arguments = ["extract", "--encoder", encoders["bert"], "--dataset", suspicious(tmp_path / "d")]
    for name in ("one", "two"):
        outcome = gaam(*arguments, "--out", tmp_path / name, "--max-length", 4)
        assert outcome.code == 0
        lines = [line for line in outcome.err.splitlines() if line.startswith("warning: ")]
        assert len(lines) == 4
        assert "warning" not in outcome.out
        assert "truncated    1 rows at 4 tokens" in outcome.out
    assert (warnings.showwarning, list(warnings.filters)) == (shown, filters)


def test_other_warnings_are_shown_as_ever(
    gaam: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def warn_twice(config: ExtractConfig, **options: object) -> None:
        warnings.warn("not ours", RuntimeWarning, stacklevel=1)
        warnings.warn("two\nlines", GaamWarning, stacklevel=1)
        raise gaam_cache.GaamError("enough")

    # by module: as an attribute of the package, 'extract' is the function
    monkeypatch.setattr(sys.modules["gaam_cache.extraction.extract"], "extract", warn_twice)
    with pytest.warns(RuntimeWarning, match="not ours"):
        outcome = gaam("extract", "--out", tmp_path / "c")
    assert outcome.err == "warning: two lines\nerror: enough\n"


@pytest.mark.parametrize("seed", range(30))
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


def test_labels_that_are_measurements_are_remarked_upon() -> None:
    train = [(f"{number / 7:.4f}", f"text {number}") for number in range(40)]
    assert [m for m in check(train=train) if "--label-column" in m]
    assert not [m for m in check(train=[(a[:3], t) for a, t in train] * 2) if "--label-column" in m]
