"""A file of results is there completely or not at all, and what was predicted is not again."""

from __future__ import annotations

import errno
import json
import os
import signal
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.engines.sharing.lease import Leases
from gaam_cache.errors import ConfigError, DataError, GaamError, GaamWarning, StorageError
from gaam_cache.tables.table import Table
from gaam_decoder.use.files import partial
from gaam_decoder.use.files.journal import Journal, Record
from gaam_decoder.use.files.partial import kept_in_words
from gaam_decoder.use.predict import predict
from gaam_decoder.use.predict_config import PredictConfig
from tests.decoder.use.stand_in import StandIn, stand_in

ROWS = 33
PIECES = 5
ENDS = ("csv", "jsonl", "parquet")
Predicts = Callable[..., tuple[StandIn, dict[str, Any]]]


class StoppedError(Exception):
    """The work was cut off."""


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Predicts:
    """A table of five pieces, what a run says of it, and where that goes."""
    monkeypatch.setattr(Table, "chunk_rows", 7)
    table_of(tmp_path / "in.csv")

    def begin(to: str = "csv", **about: Any) -> tuple[StandIn, dict[str, Any]]:
        predictor, run = stand_in(monkeypatch, tmp_path / "run", **about)
        paths = {"run": run, "file": tmp_path / "in.csv", "out": tmp_path / f"out.{to}"}
        return predictor, paths

    return begin


def table_of(path: Path, *, rows: Iterable[int] = range(ROWS)) -> None:
    path.write_text("text,n\n" + "".join(f"text {i},{i}\n" for i in rows))


def uninterrupted(work: Predicts, to: str = "csv") -> bytes:
    _, paths = work(to)
    out = paths["out"].with_name(f"whole.{to}")
    predict(PredictConfig(**{**paths, "out": out}))
    assert not folder_of(out).exists()
    content = out.read_bytes()
    out.unlink()
    return content


def folder_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


def in_child(act: Callable[[], Any]) -> int:
    """The status of a process that does it: by what it dies of, or what it returns."""
    child = os.fork()
    if child == 0:
        status = 7
        try:
            status = int(act() or 0)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die(*about: Any, **more: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_for_the_result(path: Path, *about: Any) -> None:
    if path.name == partial.RESULT:
        die()
    os.rename(path, *about)  # noqa: PTH104 this stands for it


@pytest.mark.parametrize("to", ENDS)
def test_killed_before_any_piece_it_goes_on_to_the_same_bytes(to: str, work: Predicts) -> None:
    whole = uninterrupted(work, to)
    for place in range(PIECES):
        _, paths = work(to, meanwhile=lambda number, at=place: number == at and die())
        assert in_child(lambda p=paths: predict(PredictConfig(**p))) == -signal.SIGKILL
        assert not paths["out"].exists()
        # a piece is handed over while the one before it is predicted
        assert f"{7 * place:,} rows" in kept_in_words(paths["out"]) or place == 0
        predictor, paths = work(to)
        found = predict(PredictConfig(**paths))
        assert (predictor.pieces, found.to_dict()["resumed"]) == (PIECES - place, 7 * place)
        assert paths["out"].read_bytes() == whole
        assert not folder_of(paths["out"]).exists()
        paths["out"].unlink()


STEPS = {
    "before the journal is begun": (partial, "Journal", die),
    "before the file is written": (partial, "write_synced", die),
    "before the journal says that it is finished": (Journal, "finish", die),
    "before the file has its name": (Path, "rename", die_for_the_result),
    "after the file has its name": (partial, "sync_folder", die),
    "before the announcements are taken away": (partial.Leases, "close", die),
}


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_of_publishing_it_goes_on(
    step: str, work: Predicts, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = uninterrupted(work)
    _, paths = work()
    with monkeypatch.context() as patch:
        patch.setattr(*STEPS[step])
        assert in_child(lambda: predict(PredictConfig(**paths))) == -signal.SIGKILL
    assert not paths["out"].exists() or paths["out"].read_bytes() == whole
    predictor, paths = work()
    if paths["out"].exists() and not (folder_of(paths["out"]) / "journal").exists():
        with pytest.raises(ConfigError, match="there already"):
            predict(PredictConfig(**paths))
        return
    predict(PredictConfig(**paths))
    assert not predictor.pieces or step == "before the journal is begun"
    assert paths["out"].read_bytes() == whole
    assert not folder_of(paths["out"]).exists()


def interrupted(work: Predicts, at: int = PIECES - 1, to: str = "csv") -> dict[str, Any]:
    """Stop before a piece; what is there then is as a kill leaves it."""

    def stop(number: int) -> None:
        if number == at:
            raise StoppedError

    _, paths = work(to, meanwhile=stop)
    with pytest.raises(StoppedError):
        predict(PredictConfig(**paths))
    return paths


def boundaries(content: bytes) -> list[int]:
    """Where lines end, and a byte before and behind; and some places between."""
    ends = [0, *(i + 1 for i, byte in enumerate(content) if byte == ord("\n"))]
    near = {place + step for place in ends for step in (-1, 0, 1)}
    return sorted({*near, *range(0, len(content), 97)} & {*range(len(content) + 1)})


def test_a_journal_cut_off_goes_on_to_the_same_bytes(
    work: Predicts, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = uninterrupted(work)
    paths = interrupted(work)
    file = folder_of(paths["out"]) / "journal"
    content = file.read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    assert len(ends) == PIECES  # what is done, and all but one of the pieces
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # else most of the time
    for length in boundaries(content):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content[:length])
        predictor, paths = work()
        predict(PredictConfig(**paths))
        assert predictor.pieces == PIECES - max(0, sum(end <= length for end in ends) - 1)
        assert paths["out"].read_bytes() == whole
        paths["out"].unlink()


def test_a_journal_cut_off_or_changed_at_any_byte_has_nothing_but_what_was_written(
    work: Predicts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = interrupted(work)
    content = (folder_of(paths["out"]) / "journal").read_bytes()
    recipe = json.loads(content.split(b"\n")[0].partition(b" ")[2])
    path = tmp_path / "journal"
    path.write_bytes(content)
    with Journal(path, recipe) as log:
        known = [log.get(number) for number in range(PIECES)]
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    for place in range(len(content)):
        changed = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        for damaged in (content[:place], changed)[: 1 + (place % 3 == 0)]:
            path.write_bytes(damaged)
            whole = max(0, sum(end <= place for end in ends) - 1)
            with Journal(path, recipe) as log:
                assert [log.get(number) for number in range(PIECES)] == [
                    *known[:whole],
                    *[None] * (PIECES - whole),
                ]
            assert path.read_bytes() == content[: ends[whole]]


def test_records_of_any_bytes_are_read_as_they_were_written(tmp_path: Path) -> None:
    recipe = {"a": 1, "b": "\u2028\n"}
    records = [
        Record(2, "x", [[0, 1], None], [[0.1 + 0.2, 5e-324], None], [1 / 3, None]),
        Record(0, "", [], [], []),
    ]
    path = tmp_path / "journal"
    with Journal(path, recipe) as log:
        for number, record in enumerate(records):
            log.add(number, record)
        assert [log.get(number) for number in range(3)] == [*records, None]
    with Journal(path, recipe) as log:
        assert [log.get(number) for number in range(3)] == [*records, None]
        assert log.rows == 2
        log.add(1, records[0])
    with Journal(path, recipe) as log:
        assert log.get(1) == records[0]


@pytest.mark.parametrize("change", ["a value", "a row more", "a row less", "a row moved"])
def test_rows_that_change_between_runs_are_predicted_again_and_said(
    change: str, work: Predicts
) -> None:
    paths = interrupted(work)
    rows = {
        "a value": [*range(9), 99, *range(10, ROWS)],
        "a row more": range(ROWS + 1),
        "a row less": range(ROWS - 1),
        "a row moved": [1, 0, *range(2, ROWS)],
    }[change]
    table_of(paths["file"], rows=rows)
    predictor, paths = work()
    changed = change in ("a value", "a row moved")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predict(PredictConfig(**paths))
    assert ["again" in str(one.message) for one in caught] == [True] * changed
    assert predictor.pieces == 1 + changed
    resumed = paths["out"].read_bytes()
    paths["out"].unlink()
    assert resumed == uninterrupted(work)


def test_rows_that_change_while_they_are_predicted_are_refused_and_then_predicted_again(
    work: Predicts,
) -> None:
    _, paths = work()
    for change_at in range(PIECES):
        table_of(paths["file"])

        def change(number: int, at: int = change_at, file: Path = paths["file"]) -> None:
            if number == at:
                table_of(file, rows=[5, *range(1, ROWS)])

        _, paths = work(meanwhile=change)
        with pytest.raises(DataError, match="changed while"):
            predict(PredictConfig(**paths))
        assert not paths["out"].exists()
        work()
        predict(PredictConfig(**paths))
        content = paths["out"].read_bytes()
        assert b"text 5,0" not in content
        paths["out"].unlink()
        assert content == uninterrupted(work)


OTHERS: dict[str, dict[str, Any]] = {
    "top": {"top": 2},
    "temperatures": {"temperature": True},
    "prefix": {"prefix": "x_"},
    "skip_empty": {"skip_empty": True},
    "batch_tokens": {"batch_tokens": 7},
    "encoder": {"encoder": "elsewhere"},
    "encoding": {"encoding": "ascii"},
    "read": {"text_columns": ("n",)},
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_work_in_the_folder_is_refused_by_what_differs(name: str, work: Predicts) -> None:
    paths = interrupted(work)
    work()
    kept = (folder_of(paths["out"]) / "journal").read_bytes()
    with pytest.raises(ConfigError, match="another prediction") as caught:
        predict(PredictConfig(**paths, **OTHERS[name]))
    assert f"{name}: " in str(caught.value)
    assert (folder_of(paths["out"]) / "journal").read_bytes() == kept
    predictor, paths = work()
    predict(PredictConfig(**paths, **OTHERS[name], overwrite=True))
    assert predictor.pieces == PIECES


def test_another_run_in_the_folder_is_refused(work: Predicts) -> None:
    paths = interrupted(work)
    work()
    (paths["run"] / "run.json").write_text('{"other": 1}')
    with pytest.raises(ConfigError, match=r"run\.run\.json"):
        predict(PredictConfig(**paths))


def test_a_file_that_is_there_is_left_alone_unless_it_is_to_be_replaced(work: Predicts) -> None:
    whole = uninterrupted(work)
    predictor, paths = work()
    paths["out"].write_text("mine")
    with pytest.raises(ConfigError, match="--overwrite"):
        predict(PredictConfig(**paths))
    assert paths["out"].read_text() == "mine"
    assert not predictor.pieces
    assert not folder_of(paths["out"]).exists()
    predict(PredictConfig(**paths, overwrite=True))
    assert paths["out"].read_bytes() == whole


def test_a_file_that_appears_meanwhile_is_left_alone(work: Predicts, tmp_path: Path) -> None:
    _, paths = work(meanwhile=lambda number: (tmp_path / "out.csv").write_text("theirs"))
    with pytest.raises(ConfigError, match="there already"):
        predict(PredictConfig(**paths))
    assert paths["out"].read_text() == "theirs"


def test_the_file_that_is_read_is_never_written(work: Predicts, tmp_path: Path) -> None:
    _, paths = work()
    content = paths["file"].read_bytes()
    (tmp_path / "link.csv").symlink_to("in.csv")
    os.link(tmp_path / "in.csv", tmp_path / "hard.csv")
    for out in ("in.csv", "link.csv", "hard.csv"):
        for overwrite in (False, True):
            with pytest.raises(ConfigError, match="the file that is read"):
                predict(PredictConfig(**{**paths, "out": tmp_path / out}, overwrite=overwrite))
    assert paths["file"].read_bytes() == content
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ConfigError, match="nothing can be written"):
        predict(PredictConfig(**{**paths, "out": tmp_path / "folder.csv"}, overwrite=True))


def test_of_two_at_once_the_second_is_refused_and_a_dead_one_is_nobody(work: Predicts) -> None:
    predictor, paths = work()
    folder = folder_of(paths["out"])
    folder.mkdir()
    with Leases(folder / partial.LEASES) as other:
        other.take("work")
        with pytest.raises(StorageError, match="another process") as caught:
            predict(PredictConfig(**paths))
        assert f"process {os.getpid()}" in str(caught.value)
    assert not predictor.pieces
    in_child(lambda: (Leases(folder / partial.LEASES).take("work"), die()))
    predict(PredictConfig(**paths))
    assert paths["out"].exists()
    assert not folder.exists()


def test_a_disk_that_fills_up_at_any_write_keeps_what_was_there(
    work: Predicts, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = uninterrupted(work)
    syncs = os.fsync
    for place in range(100):
        _, paths = work()

        def until_full(left: int = place, paths: dict[str, Any] = paths) -> int:
            """2 where it is refused in words."""

            def full(descriptor: int) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise OSError(errno.ENOSPC, "No space left on device")
                syncs(descriptor)

            monkeypatch.setattr(os, "fsync", full)
            try:
                predict(PredictConfig(**paths))
            except GaamError as error:
                return 2 if "make room" in str(error) else 3
            return 0

        status = in_child(until_full)
        if paths["out"].exists():
            assert paths["out"].read_bytes() == whole
        if status == 0 and place > PIECES:
            break
        work()
        predict(PredictConfig(**paths, overwrite=True))
        assert status in (0, 2)  # 0: without a lease
        assert paths["out"].read_bytes() == whole
        paths["out"].unlink()
    assert 2 * PIECES < place < 99


def test_what_comes_by_stdin_is_compared_when_it_comes_again(work: Predicts) -> None:
    whole = uninterrupted(work)
    _, paths = work(meanwhile=lambda number: number == 3 and 1 / 0)
    content = paths.pop("file").read_bytes()
    source = paths["out"].with_name("again.csv")
    source.write_bytes(content)
    config = PredictConfig(**paths, texts=("-",), format="csv")
    with source.open("rb") as stdin, pytest.raises(ZeroDivisionError):
        predict(config, stdin=stdin)
    predictor, _ = work()
    with source.open("rb") as stdin:
        predict(config, stdin=stdin)
    assert predictor.pieces == 2
    assert paths["out"].read_bytes() == whole
    assert not folder_of(paths["out"]).exists()


def test_of_rows_that_cannot_be_used_the_others_are_kept(work: Predicts) -> None:
    whole = uninterrupted(work)
    paths = interrupted(work)
    good = paths["file"].read_text()
    paths["file"].write_text(good + ",33\n")
    work()
    with pytest.raises(DataError, match="line 35"):
        predict(PredictConfig(**paths))
    paths["file"].write_text(good)
    predictor, paths = work()
    predict(PredictConfig(**paths))
    assert predictor.pieces == 1
    assert paths["out"].read_bytes() == whole


def test_what_is_said_is_json(work: Predicts) -> None:
    _, paths = work()
    found = predict(PredictConfig(**paths))
    assert json.loads(json.dumps(found.to_dict()))["rows"] == ROWS
    assert f"{ROWS} rows predicted by the average of 3 seeds" in found.in_words()
    assert issubclass(GaamWarning, UserWarning)
