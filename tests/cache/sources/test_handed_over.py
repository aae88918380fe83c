from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, HubError, StorageError
from gaam_cache.extraction import workers
from gaam_cache.format import sealed
from gaam_cache.sources._base import NO_LABEL, Rows, find_source
from gaam_cache.sources._handed_over import (
    FILE_NAME,
    CheckedRows,
    hand_over,
    needed,
    put_away,
    take_over,
)
from gaam_cache.sources._spool import TextSpool
from gaam_cache.sources._texts import Texts
from tests.conftest import write_csv

KEY = "0123456789abcdef" * 2
ODD = [
    "",
    " ",
    "a",
    "\x00",
    "\n",
    "\ufeff",
    "\U0001f600",
    "日本語",
    "e\u0301",
    "\u202e",
    "x" * 70000,
]
ODD += ["\U0001f600" * 20000, '"', ",", "\\", "\r\n", "\u2028", "\U0010ffff"]


def rows_of(texts: list[str], labels: list[str], **about: str | None) -> Texts:
    spool = TextSpool()
    for text in texts:
        spool.append(text)
    names = tuple(dict.fromkeys(labels))
    origin = about.get("origin") or "somewhere"
    return Texts(
        inputs=spool,
        labels=labels,
        class_names=names,
        origin=origin,
        revision=about.get("revision"),
    )


def checked_of(parts: dict[str, Texts]) -> CheckedRows:
    names = tuple(dict.fromkeys(label for part in parts.values() for label in part.labels))
    rows: dict[str, Rows] = dict(parts)
    shared = {name: dict.fromkeys(parts, 1) for name in reversed(parts)}
    return CheckedRows(rows, names, {name: f"hash of {name}" for name in parts}, shared)


def assert_same(found: CheckedRows | None, given: CheckedRows) -> None:
    assert found is not None
    assert found.class_names == given.class_names
    # in order: the plan lists them so
    assert list(found.content.items()) == list(given.content.items())
    assert [(k, [*v.items()]) for k, v in found.shared_texts.items()] == [
        (k, [*v.items()]) for k, v in given.shared_texts.items()
    ]
    assert list(found.rows) == list(given.rows)
    for name, part in given.rows.items():
        other = found.rows[name]
        assert type(other) is type(part)
        assert [*other.inputs] == [*part.inputs]
        assert [other.inputs[row] for row in range(len(part))] == [*part.inputs]
        assert other.inputs[1:3] == part.inputs[1:3]
        assert [*other.contents()] == [*part.contents()]
        assert [*other.labels] == [*part.labels]
        assert (other.origin, other.revision) == (part.origin, part.revision)
        assert other.class_names == given.class_names
        assert other.labelled == part.labelled
        assert [*other.skipped] == [*part.skipped]
        assert [(k, [*v]) for k, v in other.kept.items()] == [
            (k, [*v]) for k, v in part.kept.items()
        ]


def test_odd_texts_in_any_number_of_splits_arrive_as_they_were(tmp_path: Path) -> None:
    for count in range(1, 6):
        parts = {}
        for place, name in enumerate(["train", "test", "a.b", "Zz", "_0"][:count]):
            texts = ODD[place:] + ODD[:place]
            labels = [f"class {n % 3}, 日本" for n in range(len(texts))]
            parts[name] = rows_of(texts, labels, origin=f"日本/{name}", revision="a" * 40)
        checked = checked_of(dict(reversed(parts.items())))
        assert hand_over(checked, tmp_path, KEY)
        assert_same(take_over(tmp_path, KEY), checked)
        put_away(tmp_path, KEY)
        assert take_over(tmp_path, KEY) is None
        assert not list(tmp_path.iterdir())


TEXTS = st.lists(st.text(st.characters(exclude_categories=("Cs",))), min_size=1, max_size=20)


@given(TEXTS, st.integers(1, 4))
def test_any_texts_arrive_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], classes: int
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    labels = [f"{number % classes}" for number in range(len(texts))]
    checked = checked_of({"train": rows_of(texts, labels), "test": rows_of(texts[:1], labels[:1])})
    assert hand_over(checked, folder, KEY)
    assert_same(take_over(folder, KEY), checked)


def test_what_rows_have_beside_texts_arrives_as_it_was(tmp_path: Path) -> None:
    """Kept columns of any number and values, rows that were left out, splits without labels."""
    texts = ["goal", "cup", "", "bank"]
    for columns, spooled, left_out, labelled in product(
        range(4), (True, False), (0, 1, 300), (True, False)
    ):
        train = rows_of(texts, ["a", "b", "a", "b"])
        kept: dict[str, Sequence[str]] = {}
        for number in range(columns):
            values = [*ODD[number : number + 3], "x" * number]
            kept[f"Column_{number}"] = rows_of(values, values).inputs if spooled else values
        skipped = [f"lines {number} to {number + 1}" for number in range(left_out)]
        train = replace(train, kept=kept, skipped=skipped)
        test = rows_of(["new"], ["a" if labelled else NO_LABEL])
        test = replace(test, labelled=labelled, class_names=("a", "b"))
        checked = CheckedRows(
            {"train": train, "test": test}, ("a", "b"), {"train": "1", "test": "2"}, {}
        )
        assert hand_over(checked, tmp_path, KEY)
        assert_same(take_over(tmp_path, KEY), checked)


def test_what_is_damaged_is_not_taken(tmp_path: Path) -> None:
    """Any one byte, any length, and a file under the name of another."""
    checked = checked_of({"train": rows_of(["goal cup", "bank"], ["a", "b"])})
    assert hand_over(checked, tmp_path, KEY)
    path = tmp_path / FILE_NAME.format(KEY)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert take_over(tmp_path, KEY) is None, place
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert take_over(tmp_path, KEY) is None, length
    path.write_bytes(whole + b"\0")
    assert take_over(tmp_path, KEY) is None
    path.write_bytes(whole)
    assert_same(take_over(tmp_path, KEY), checked)
    other = "fedcba9876543210" * 2
    path.rename(tmp_path / FILE_NAME.format(other))
    assert take_over(tmp_path, other) is None
    # its name has but a part of the key
    path.write_bytes(whole)
    assert take_over(tmp_path, KEY[:16] + "0" * 16) is None
    for odd in (lambda: path.mkdir(), lambda: os.mkfifo(path), lambda: path.symlink_to("nowhere")):
        path.unlink(missing_ok=True) if not path.is_dir() else path.rmdir()
        odd()
        if not path.is_dir():
            assert take_over(tmp_path, KEY) is None


def test_what_is_changed_after_it_was_opened_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any byte of the texts, in place, for whoever has the file open; what is whole is read."""
    monkeypatch.setattr(sealed, "PIECE_BYTES", 64)
    texts = [f"text {number} of many" for number in range(40)]
    checked = checked_of({"train": rows_of(texts, ["a", "b"] * 20)})
    assert hand_over(checked, tmp_path, KEY)
    path = tmp_path / FILE_NAME.format(KEY)
    whole = path.read_bytes()
    begin = whole.index(b"text 0")
    for place in range(begin, len(whole)):
        found = take_over(tmp_path, KEY)
        assert found is not None
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([whole[place] ^ 1]))
        refused = 0
        for row, text in enumerate(texts):
            try:
                assert found.rows["train"].inputs[row] == text
            except StorageError:
                refused += 1
        assert 1 <= refused < 10, place
        with path.open("r+b") as file:
            file.write(whole)
    found = take_over(tmp_path, KEY)
    assert found is not None
    os.truncate(path, len(whole) - 1)
    with pytest.raises(StorageError, match="were changed"):
        list(found.rows["train"].inputs)


def test_only_texts_are_handed_over(tmp_path: Path) -> None:
    texts = rows_of(["a", "b"], ["x", "y"])
    for inputs in (["a", "b"], ("a", "b")):
        listed = replace(texts, inputs=inputs)
        assert not hand_over(checked_of({"train": texts, "test": listed}), tmp_path, KEY)
    assert not list(tmp_path.iterdir())


def test_rows_that_must_be_there_and_are_not_are_an_error_of_usage() -> None:
    checked = checked_of({"train": rows_of(["a"], ["x"])})
    assert needed(checked, KEY) is checked
    with pytest.raises(ConfigError, match="are gone") as caught:
        needed(None, KEY)
    assert caught.value.exit_code == 2


@pytest.fixture
def config(tmp_path: Path) -> ExtractConfig:
    for split in ("train", "test"):
        write_csv(tmp_path / "data" / f"{split}.csv", [("a", f"goal {split}"), ("b", "bank")])
    return ExtractConfig(dataset=str(tmp_path / "data"), out=tmp_path / "out")


def test_rows_are_told_apart_by_all_that_decides_them(config: ExtractConfig) -> None:
    generator = random.Random(0)
    keys = [workers._key(config)]
    assert workers._key(config) == keys[0]
    train = Path(config.dataset) / "train.csv"
    changes = [
        lambda: train.write_text(train.read_text() + "a,cup\n"),
        lambda: train.write_text(train.read_text().replace("cup", "cap")),
        lambda: os.utime(train, ns=(0, generator.randrange(10**18))),
        lambda: train.rename(train.with_suffix(".old")) and write_csv(train, [("a", "goal")]),
    ]
    for change in changes:
        change()
        keys.append(workers._key(config))
    others = (
        replace(config, text_columns=("text", "text")),
        replace(config, text_columns=("label",), label_column="text"),
        replace(config, splits=("test", "train")),
        replace(config, splits=("train",)),
        replace(config, limit=1),
        replace(config, limit=2),
    )
    keys += [workers._key(other) for other in others]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    # what does not decide them
    for same in (replace(config, batch_tokens=7), replace(config, device="cpu", rank="1/2")):
        assert workers._key(same) == workers._key(config)


def test_a_file_that_was_changed_between_ranks_is_read_again(config: ExtractConfig) -> None:
    config = replace(config, rank="0/2")

    def rows() -> CheckedRows:
        key = workers._key(config)
        assert key is not None
        return workers._rows_of_rank(config, key, lambda *said: None)

    first = rows()
    assert len(list(config.out.glob("rows-*"))) == 1
    assert_same(rows(), first)
    train = Path(config.dataset) / "train.csv"
    train.write_text(train.read_text().replace("goal", "gaol"))
    second = rows()
    assert second.rows["train"].inputs[0] == "gaol train"
    assert second.content["train"] != first.content["train"]
    assert second.content["test"] == first.content["test"]
    assert not list(config.out.glob("leases/*"))


def test_rows_of_a_file_that_cannot_be_told_apart_are_no_ones_to_hand_over(
    config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = type(find_source(config.dataset))
    monkeypatch.setattr(source, "state", lambda self, config: None)
    assert workers._key(config) is None


def test_rows_of_the_hub_are_those_of_a_commit(
    config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A branch that moves, a hub that is out of reach, with and without a commit from before."""
    config = replace(config, dataset="someone/news")
    answers: dict[str, str | None] = {"reached": "a" * 40, "remembered": "b" * 40}

    def resolve(name: str, revision: str | None, *, kind: str) -> str:
        if answers["reached"] is None:
            raise HubError("out of reach")
        return answers["reached"]

    monkeypatch.setattr("gaam_cache.sources.hub.resolve_revision", resolve)
    monkeypatch.setattr(
        "gaam_cache.sources.hub.recall", lambda *asked, **kind: answers["remembered"]
    )
    first = workers._key(config)
    assert first == workers._key(config)
    answers["reached"] = "c" * 40
    moved = workers._key(config)
    answers["reached"] = None
    remembered = workers._key(config)
    answers["remembered"] = "a" * 40
    assert workers._key(config) == first
    answers["remembered"] = None
    assert workers._key(config) is None, "then each rank reads for itself"
    assert len({first, moved, remembered}) == 3
    assert None not in (first, moved, remembered)
