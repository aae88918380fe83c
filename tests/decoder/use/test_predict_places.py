"""What is wrong with a row is said with the line where it stands, whatever was read before it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError, GaamWarning, NumericsError
from gaam_cache.sources import _given
from gaam_cache.tables.table import Table
from gaam_decoder.use.files.rows import Kept
from gaam_decoder.use.predict import predict
from gaam_decoder.use.predict_config import PredictConfig
from gaam_decoder.use.predictor import Predictor
from tests.decoder.use.stand_in import stand_in
from tests.decoder.use.test_predict_rows import load

PIECES = 4
ROWS = 7 * PIECES


class StoppedError(Exception):
    """The work was cut off."""


@pytest.fixture
def predictor(tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch) -> Predictor:
    """A real one, for pieces of seven rows; it cannot encode the text 'bad'."""
    monkeypatch.setattr(Table, "chunk_rows", 7)
    _, found = load(tiny_config, epochs=1)
    monkeypatch.setattr("gaam_decoder.use.predict.predictor_of", lambda config: found)
    text = _given._text
    refused = DataError("it cannot be encoded")
    monkeypatch.setattr(_given, "_text", lambda row: refused if row == "bad" else text(row))
    return found


def write(path: Path, bad: int | None, *, first: str = "goal", empty: tuple[int, ...] = ()) -> str:
    """Rows of two lines each, some of which are empty; where the bad one stands."""
    texts = [first, *["bank"] * (ROWS - 1)]
    if bad is not None:
        texts[bad] = "bad"
    for row in empty:
        texts[row] = ""
    path.write_text("text,n\n" + "".join(f'{text},"two\nlines"\n' for text in texts))
    return f"{path}, lines {2 + 2 * (bad or 0)} to {3 + 2 * (bad or 0)}"


@pytest.mark.parametrize("skip_empty", [False, True])
def test_behind_pieces_that_were_kept(
    skip_empty: bool, predictor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    source = tmp_path / "in.csv"
    empty = (1, 8, 10, 22) if skip_empty else ()
    config = PredictConfig(
        run=tmp_path / "run", file=source, out=tmp_path / "out.csv", skip_empty=skip_empty
    )
    add = Kept.add
    for stop in range(1, PIECES):
        kept: list[Any] = []

        def add_some(self: Kept, piece: Any, record: Any, seen: Any = kept, to: int = stop) -> None:
            add(self, piece, record)
            seen.append(piece)
            if len(seen) == to:
                raise StoppedError

        write(source, ROWS - 1, empty=empty)  # in the last piece, which is not reached
        with monkeypatch.context() as patch:
            patch.setattr(Kept, "add", add_some)
            with pytest.raises(StoppedError):
                predict(config)
        write(source, None, empty=empty)
        with monkeypatch.context() as patch:
            patch.setattr(predictor, "_ensemble", lambda x: torch.full((3, len(x), 2), torch.nan))
            with pytest.raises(NumericsError) as broken:
                predict(config)
        where = f"{source}, lines {2 + 14 * stop} to {3 + 14 * stop}"
        assert broken.value.details["where"] == where
        for first in ("goal", "vote"):  # as it was; and so that a gap is in front of what is kept
            where = write(source, ROWS - 2, first=first, empty=empty)
            with pytest.raises(DataError, match="cannot be encoded") as caught:
                predict(config)
            assert caught.value.details["where"] == where
        for path in sorted((tmp_path / "out.csv.partial").iterdir()):
            path.unlink()


TABLES: dict[str, tuple[str, str, list[str], int]] = {
    "between": ("csv", "text,n\na,1\n\n\nb,2\n", ["a", "b"], 2),
    "with returns": ("csv", "text,n\r\na,1\r\n\r\nb,2\r\n", ["a", "b"], 1),
    "in front": ("csv", "\n\ntext,n\na,1\n", ["a"], 2),
    "behind the header": ("csv", "text,n\n\na,1\n", ["a"], 1),
    "at the end": ("csv", "text,n\na,1\n\n\n", ["a"], 0),
    "of objects": ("jsonl", '{"text": "a"}\n\n \n{"text": "b"}\n\n', ["a", "b"], 2),
    "in a field": ("csv", 'text,n\n"a\n\nb",1\n', ["a\n\nb"], 0),
}


@pytest.mark.parametrize("name", TABLES)
def test_blank_lines_that_are_no_rows_are_counted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, content, texts, blank = TABLES[name]
    for how, given in ways(tmp_path, content, end).items():
        predictor, _ = stand_in(monkeypatch, tmp_path / "run")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            given(skip_empty=False)
        assert predictor.asked == texts, how
        said = [str(one.message) for one in caught if one.category is GaamWarning]
        assert len(said) == bool(blank), how
        assert all(f"{blank} line" in one and "blank" in one for one in said)


ONE_COLUMN: dict[str, tuple[str, list[int], int]] = {
    "between": ("text\na\n\nb\n", [3], 3),
    "two at the end": ("text\na\n\n\n", [3, 4], 3),
    "behind the header": ("text\n\na\n", [2], 2),
    "with returns": ("text\r\na\r\n\r\nb\r\n", [3], 3),
    "in quotes": ('text\na\n""\nb\n', [3], 3),
}


@pytest.mark.parametrize("name", ONE_COLUMN)
def test_a_blank_line_of_a_single_column_is_a_row_of_an_empty_text(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, lines, rows = ONE_COLUMN[name]
    every = ways(tmp_path, content, "csv")
    if name != "in quotes":
        every |= {"lines": ways(tmp_path, content.partition("\n")[2], "text")["stdin"]}
    for how, given in every.items():
        predictor, _ = stand_in(monkeypatch, tmp_path / "run")
        with pytest.raises(DataError, match="a text is empty") as caught:
            given(skip_empty=False)
        before = 1 if how == "lines" else 0
        assert f"line {lines[0] - before}" in str(caught.value), how
        assert not predictor.asked
        with pytest.warns(GaamWarning, match=f"of {len(lines)} of {rows} rows"):
            given(skip_empty=True)
        assert predictor.asked == [text for text in ("a", "b") if text in content.split()[1:]], how


def ways(folder: Path, content: str, end: str) -> dict[str, Callable[..., object]]:
    """The same rows out of a file and out of stdin, each to stdout."""
    source = folder / f"in.{end}"
    source.write_bytes(content.encode())

    def of_stdin(**about: Any) -> object:
        with source.open("rb") as stdin:
            config = PredictConfig(run=folder / "run", texts=("-",), format=end, **about)
            return predict(config, stdin=stdin)

    found: dict[str, Callable[..., object]] = {"stdin": of_stdin}
    if end != "text":
        found["file"] = lambda **about: predict(
            PredictConfig(run=folder / "run", file=source, **about)
        )
    return found


def test_any_character_is_a_delimiter_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gaam: Callable[..., Any]
) -> None:
    words = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
    characters = [*"\t ,;|^~:#&é\u00a0\u3000\x1f", *words]
    source = tmp_path / "in.csv"
    for given in characters:
        predictor, run = stand_in(monkeypatch, tmp_path / "run")
        between = words.get(given, given)
        source.write_text(f"text{between}n\ngoal{between}1\n")
        outcome = gaam("predict", run, "--file", source, "--set", f"delimiter={given}")
        assert outcome.code == 0, (given, outcome.err)
        assert predictor.asked == ["goal"], given
        assert outcome.out.startswith(f"text{between}n{between}predicted"), given
    for given in ("", '"', "\n", "\r", ",,", "\t\t", "  "):
        outcome = gaam("predict", run, "--file", source, "--set", f"delimiter={given}")
        assert (outcome.code, "delimiter" in outcome.err) == (2, True), given
        assert "one character" in outcome.err
        assert not outcome.out
