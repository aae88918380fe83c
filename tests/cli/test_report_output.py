"""Where a report goes, and what becomes of it where the machine refuses."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gaam_cache import plugins
from gaam_decoder.reports.writing import page_parts
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]
FORMATS = plugins.names("gaam_decoder.reports.formats")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two mechanisms, two seeds each, on a cache whose name no ASCII has."""
    from gaam_decoder import TrainConfig, train

    out = tmp_path_factory.mktemp("runs") / "l\u00e4ufe"
    names = ("laplace", "none")
    train(TrainConfig(cache=tiny_cache, runs=out, attn=names, seeds=(0, 1), epochs=1))
    return out


def one_message(outcome: Outcome, *parts: str) -> None:
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("error: cannot write '")
    assert outcome.err.count("error:") == 1
    assert "Traceback" not in outcome.err
    for part in ("found:", "where:", "to do:", *parts):
        assert part in outcome.err, outcome.err


def refused(outcome: Outcome, found: str) -> None:
    """Before any work."""
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: nothing can be written to '")
    assert found in outcome.err


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """No file can grow beyond that: the kernel refuses, for root too, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("format", FORMATS)
def test_a_report_to_a_file_is_there_whole_or_what_was_there_stays(
    format: str, gaam: Gaam, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        page_parts, "inline_svg", lambda draw, key, alt: "<svg></svg>"
    )  # they take long
    where = tmp_path / "there"
    where.mkdir()
    (where / "old").write_text("old")
    (where / "folder").mkdir()
    (where / "link").symlink_to("old")
    os.mkfifo(where / "pipe")
    old = files(where / "folder") | {"old": b"old", "link": b"old"}
    report = ["report", runs, "--format", format, "--out"]

    refused(gaam(*report, where / "folder"), "found:    a folder")
    refused(gaam(*report, where / "old" / "below"), "found:    a file")
    one_message(gaam(*report, "/proc/nothing-can-be-made-here"))
    outcome = gaam(*report, where / ("n" * 300))
    assert (outcome.code, outcome.out) == (2, "")
    assert "at most 255 bytes" in outcome.err
    one_message(gaam(*report, "/dev/full"), "No space left")
    one_message(gaam(*report, where / "pipe"))
    with room_for(100):
        one_message(gaam(*report, where / "old"), "make room")
        one_message(gaam(*report, where / "new"), "make room")
    assert Path("/dev/full").is_char_device(), "a device is written to, not replaced"
    (where / "pipe").unlink()
    assert files(where) == old

    first = gaam("report", runs, "--format", format)
    assert (first.code, first.err) == (0, "")
    for name in ("old", "new", "made/on/the/way"):
        outcome = gaam(*report, where / name)
        assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
        assert (where / name).read_text("utf-8") == first.out
    assert gaam(*report, where / "link").code == 0
    assert (where / "link").is_symlink()
    assert not list(where.rglob("*.tmp"))
    assert not list(where.rglob(".*"))


@pytest.mark.parametrize("sign", ["run.json", "cache.json", "../cache.json"])
@pytest.mark.parametrize("name", ["test.safetensors", "new", "link"])
def test_a_report_replaces_no_results(
    sign: str, name: str, gaam: Gaam, runs: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cache" / "shards"
    folder.mkdir(parents=True)
    (folder / sign).write_text("{}")
    (folder / "test.safetensors").write_text("results")
    (folder / "link").symlink_to("test.safetensors")
    outcome = gaam("report", runs, "--out", folder / name)
    assert outcome.code == 2
    assert "lies among results" in outcome.err
    assert (folder / "test.safetensors").read_text() == "results"
    assert not (folder / "new").exists()
    assert gaam("report", runs, "--out", tmp_path / "cache" / "table").code == (
        2 if sign == "../cache.json" else 0
    )


@pytest.mark.parametrize("columns", ["0", "1", "10", "40", "79", "80"])
def test_no_number_is_cut_on_a_narrow_screen(
    columns: str, gaam: Gaam, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = gaam("report", runs).out
    assert "\u2026" not in shown
    monkeypatch.setenv("COLUMNS", "80")
    assert gaam("report", runs).out == shown


def test_json_and_another_format_are_two_answers(gaam: Gaam, runs: Path) -> None:
    outcome = gaam("report", runs, "--json", "--format", "csv")
    assert (outcome.code, outcome.out) == (2, "")
    assert "--json is --format json" in outcome.err
    same = gaam("report", runs, "--json", "--format", "json")
    assert (
        same.out
        == gaam("report", runs, "--json").out
        == gaam("report", runs, "--format", "json").out
    )


def test_a_report_goes_into_a_pipe_that_is_read(gaam: Gaam, runs: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    # open for reading before the report begins; it fits into the buffer of a pipe or is read
    handle = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(handle, True)
    read: list[bytes] = []

    def take() -> None:
        with os.fdopen(handle, "rb") as file:
            read.append(file.read())

    expected = gaam("report", runs, "--json").out
    reader = threading.Thread(target=take)
    with (tmp_path / "pipe").open("wb"):  # the reader waits until all writers are gone
        reader.start()
        assert gaam("report", runs, "--json", "--out", tmp_path / "pipe").code == 0
    reader.join()
    assert read[0].decode() == expected
    assert (tmp_path / "pipe").is_fifo()


def test_pictures_that_cannot_be_written_are_one_message_and_no_report(
    gaam: Gaam, runs: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("old")
    for format in FORMATS:
        report = ["report", runs, "--format", format, "--figures"]
        out = tmp_path / "report"
        refused(gaam(*report, tmp_path / "file", "--out", out), "found:    a file")
        one_message(gaam(*report, "/proc/nothing-can-be-made-here"), "--figures")
        assert not out.exists()
    with room_for(100):
        one_message(gaam(*report, tmp_path / "full"), "--figures", "make room")
    assert files(tmp_path) == {"file": b"old"}
    assert gaam(*report, tmp_path / "figures").code == 0
    written = files(tmp_path / "figures")
    assert len(written) > 10
    assert all(content.startswith((b"%PDF", b"\x89PNG")) for content in written.values())


def run(*arguments: object, shell: str = "{}", **environment: str) -> subprocess.CompletedProcess:
    """Run ``gaam`` as a process of its own; ``shell`` says where its output goes."""
    command = " ".join([f"'{sys.executable}'", "-m", "cli", *map(str, arguments)])
    keep = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        ["bash", "-c", "set -o pipefail; " + shell.format(command)],
        cwd=ROOT,
        env=keep | environment,
        capture_output=True,
        timeout=1200,
    )


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1"},
    ],
    ids=["locale C", "ascii", "latin-1", "dumb"],
)
def test_no_locale_refuses_a_report(environment: dict[str, str], runs: Path) -> None:
    done = run("report", f"'{runs}'", **environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"laplace" in done.stdout
    assert b"\x1b" not in done.stdout
    encoding = environment.get("PYTHONIOENCODING", "utf-8" if "TERM" in environment else "ascii")
    done.stdout.decode(encoding)
    missing = run("report", f"'{runs}/nothing'", **environment)
    assert missing.returncode == 2
    assert b"Traceback" not in missing.stderr


def test_formats_for_programs_are_utf_8_in_every_locale(
    encoders: dict[str, Path], dataset: Path, tmp_path: Path
) -> None:
    """With the name of a data set that no ASCII has."""
    from gaam_cache import ExtractConfig, extract
    from gaam_decoder import TrainConfig, report, train

    data, cache, runs = (tmp_path / name for name in ("d\u00e4ten", "cache", "runs"))
    shutil.copytree(dataset, data)
    extract(ExtractConfig(encoder=str(encoders["bert"]), dataset=str(data), out=cache))
    train(TrainConfig(cache=cache, runs=runs, attn=("none",), seeds=(0,), epochs=1))
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    for format in ("html", "csv", "markdown"):
        done = run("report", f"'{runs}'", "--format", format, **locale)
        assert done.returncode == 0, done.stderr
        text = report(runs).text(format).encode()
        assert not text.isascii(), format
        assert re.sub(rb"\s+", b" ", done.stdout) == re.sub(rb"\s+", b" ", text)
