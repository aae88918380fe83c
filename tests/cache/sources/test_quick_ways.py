"""What is done once for many rows gives what was done for each."""

from __future__ import annotations

import hashlib
import random
import sys
import unicodedata
from itertools import product
from typing import Any

import pytest

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.format.digest import hash_rows
from gaam_cache.sources._collect import collect
from gaam_cache.sources._kinds import OneKind
from gaam_cache.sources._table import Columns, Table
from gaam_cache.sources._texts import is_blank


def blank_by_definition(text: str) -> bool:
    return all(char.isspace() or unicodedata.category(char) in ("Cc", "Cf") for char in text)


def test_every_character_is_seen_or_not_as_defined() -> None:
    for number in range(sys.maxunicode + 1):
        char = chr(number)
        assert is_blank(char) == blank_by_definition(char), hex(number)
    characters = ["", " ", "\t", "\u200b", "\u00ad", "\x07", "a", "\u0665", "\u2167", "-", "\u6771"]
    for three in product(characters, repeat=3):
        assert is_blank("".join(three)) == blank_by_definition("".join(three))


def test_a_hash_of_rows_is_that_of_lengths_and_bytes() -> None:
    generator = random.Random(0)
    for _ in range(300):
        labels = [generator.choice(["", "a", "ab", "\u00e9", "\ud800", "7"]) for _ in range(9)]
        contents = [generator.randbytes(generator.randint(0, 70)) for _ in labels]
        whole = hashlib.sha256()
        for content, label in zip(contents, labels, strict=True):
            for part in (content, label.encode("utf-8", "surrogatepass")):
                whole.update(len(part).to_bytes(8, "little") + part)
        assert hash_rows(contents, labels) == whole.hexdigest()
    with pytest.raises(ValueError, match="shorter"):
        hash_rows([b"a", b"b"], ["a"])


def read(labels: list[Any], class_names: tuple[str, ...] | None) -> list[str]:
    records = [(f"row {i + 1}", {"text": "x", "label": label}) for i, label in enumerate(labels)]
    table = Table(["text", "label"], lambda columns: iter(records), class_names=class_names)
    rows = collect(
        table, Columns(("text",), "label"), ExtractConfig(), origin="here", kind=OneKind()
    )
    return list(rows.labels)


def test_a_label_means_the_same_whatever_was_read_before() -> None:
    """1, 1.0, True and '1' are one key of a dictionary, or look alike, and are four labels."""
    values: list[Any] = ["1", 1, 1.0, True, "True", 0, False, "0", "", " ", "a", None, "\ud800"]
    for class_names in (None, ("no", "yes")):
        alone: dict[int, Any] = {}
        for place, value in enumerate(values):
            try:
                alone[place] = read([value], class_names)[0]
            except DataError as error:
                alone[place] = str(error.message)
        good = [place for place in alone if alone[place] not in {"a label is missing or unusable"}]
        good = [place for place in good if "half a character" not in alone[place]]
        assert len(good) >= 5
        generator = random.Random(0)
        for _ in range(50):
            chosen = generator.choices(good, k=12)
            said = read([values[place] for place in chosen], class_names)
            assert said == [alone[place] for place in chosen]
            for bad in alone.keys() - set(good):
                with pytest.raises(DataError) as caught:
                    read([*(values[place] for place in chosen), values[bad]], class_names)
                assert caught.value.message == alone[bad]
                assert "row 13" in caught.value.details["where"]
