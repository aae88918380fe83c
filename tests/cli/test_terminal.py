"""Signals, streams, refusals of the machine, and text from elsewhere."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import cli
from gaam_cache.common import terminal
from gaam_cache.common.errors import CacheError, GaamError, StorageError
from gaam_cache.common.messages import brief, counted, visible, visible_values
from gaam_cache.store.plan import read_plan
from tests.conftest import Outcome
from tests.hostile_strings import HOSTILE, flooded, harmful

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1200, "1,200 rows")],
)
def test_a_noun_agrees_with_its_number(number: int, text: str) -> None:
    assert counted(number, "row") == text


@pytest.mark.parametrize("case", HOSTILE)
def test_nothing_of_a_hostile_name_is_obeyed(case: str) -> None:
    name = HOSTILE[case]
    shown = visible(name)
    assert not harmful(shown, keep="")
    assert not flooded(shown)
    assert visible(shown) == shown
    error = GaamError(
        f"no '{name}'", expected=name, found=f"'{name}'", hint=f"try {name}"
    )
    assert not harmful(str(error))
    values = {name: [{"a": (name, 1, None)}]}
    assert visible_values(values) == {shown: [{"a": [shown, 1, None]}]}


def test_no_character_of_unicode_escapes() -> None:
    characters = map(chr, range(sys.maxunicode + 1))
    assert not harmful(visible("a".join(characters)), keep="")


@pytest.mark.parametrize(
    "name",
    [
        "ag_news",
        "\u00e4\u00f6 \u00df",
        "\u4e2d\u6587",
        "e\u0301",
        "50% & co",
        "a\\b",
    ],
)
def test_ordinary_names_stay(name: str) -> None:
    assert visible(name) == name
    assert brief(name) == name


@pytest.mark.parametrize("longest", [20, 60, 120, 4000])
def test_long_names_are_bounded_and_stay_different(longest: int) -> None:
    first = "a" * 5000 + "b" + "a" * 5000
    second = "a" * 10001
    assert len(brief(first, longest)) == longest
    assert brief(first, longest) != brief(second, longest)


def test_without_a_terminal_a_plain_line_comes_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "LINE_SECONDS", 0.0)
    with terminal.show_progress("extract", "rows") as report:
        report(1, 4, "hashing\x1b")
        report(2, 4, "hashing")
    with terminal.show_progress("extract", "rows", quiet=True) as report:
        report(1, 4, "hashing")
    first, second = capsys.readouterr().err.splitlines()
    assert first == "extract 1/4 rows; hashing\\x1b"
    assert re.fullmatch(r"extract 2/4 rows, \d s left; hashing", second)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no memory"),
        ImportError("libtorch.so: failed to map segment from shared object"),
        ImportError("x.so: cannot allocate memory in static TLS block"),
    ],
    ids=str,
)
def test_a_lack_of_memory_is_one_message_whoever_wraps_it(error: BaseException) -> None:
    check_refusal(error, GaamError, when_wrapped=GaamError)


def test_a_lack_of_memory_for_an_array_is_one_message_whoever_wraps_it() -> None:
    # NumPy raises a subclass
    with pytest.raises(MemoryError) as caught:
        np.empty(2**60, np.uint8)
    check_refusal(caught.value, GaamError, when_wrapped=GaamError)


def test_a_full_disk_is_one_message_and_stays_the_cause_of_another() -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    check_refusal(error, StorageError, when_wrapped=CacheError)


def check_refusal(
    error: BaseException, expected: type[GaamError], *, when_wrapped: type[GaamError]
) -> None:
    """Check the message of an error, alone and as the cause of an error of ours."""
    refusal = terminal.error_for_user(error)
    assert refusal is not None
    assert type(refusal) is expected
    assert refusal.exit_code == 1
    wrapper = CacheError("a shard cannot be read")
    wrapper.__cause__ = error
    assert type(terminal.error_for_user(wrapper)) is when_wrapped


def test_a_bug_is_no_refusal() -> None:
    assert terminal.error_for_user(ValueError("a bug")) is None


def run(shell: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    """A shell in which ``$GAAM`` is the command; a pipe fails with any part of it."""
    gaam = f"{sys.executable} {ROOT / 'cli.py'}"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shell}"],
        env=os.environ | {"GAAM": gaam, "PYTHONPATH": str(ROOT)} | environ,
        capture_output=True,
    )


def test_a_pipe_that_is_closed_is_no_failure() -> None:
    closed = run("$GAAM describe --settings | head -1")
    assert (closed.returncode, closed.stderr) == (0, b"")


def test_a_full_disk_behind_stdout_is_one_message() -> None:
    full = run("$GAAM describe --settings > /dev/full")
    assert full.returncode == 1
    one_message = re.fullmatch(rb"error: .*\n(  .*\n)+", full.stderr)
    assert one_message, "no exception at exit either"


def test_a_stream_of_ascii_is_written_to() -> None:
    outcome = run("$GAAM describe --attn laplace", PYTHONIOENCODING="ascii")
    assert (outcome.returncode, outcome.stderr) == (0, b"")


def times_of_receipts(cache: Path) -> dict[Path, int]:
    """When the receipt of each shard was written."""
    return {path: path.stat().st_mtime_ns for path in cache.glob("shards/*.json")}


def test_an_interruption_keeps_what_is_finished_and_says_so(
    tmp_path: Path,
    encoders: dict[str, Path],
    dataset: Path,
    gaam: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SIGTERM comes when the first shard is there."""
    cache = tmp_path / "cache"
    command = (
        *("extract", "--encoder", encoders["bert"], "--dataset", dataset),
        *("--device", "cpu", "--out", cache),
        *("--set", "shard-rows=1", "--set", "batch-tokens=16"),
    )

    @contextmanager
    def stop_after_a_shard(
        *arguments: object, **options: object
    ) -> Iterator[terminal.ReportProgress]:
        def report(done: int, total: int, text: str) -> None:
            if times_of_receipts(cache):
                signal.raise_signal(signal.SIGTERM)

        yield report

    with monkeypatch.context() as patch:
        patch.setattr(cli, "show_progress", stop_after_a_shard)
        outcome = gaam(*command)
    assert (outcome.code, outcome.out) == (130, "")
    times = times_of_receipts(cache)
    num_shards = read_plan(cache).num_shards
    # the last lines, and no other
    kept = f"note: {len(times)} of {num_shards} shards are finished"
    assert outcome.err.splitlines() == [kept, terminal.INTERRUPTED_MESSAGE]
    assert gaam(*command, "-q").code == 0
    assert times.items() <= times_of_receipts(cache).items()
    assert gaam("verify", cache, "-q").code == 0
    other = ["shard-rows=2" if word == "shard-rows=1" else word for word in command]
    assert "shard-rows=2 has no effect" in gaam(*other).err


DROPPED = """
import os, signal
from gaam_cache.common import terminal

class Finalizer:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

terminal.unwind_on_signals()
with terminal.show_progress("work", "steps") as report:
    Finalizer()
    print("goes on", flush=True)
    report(1, 2, "")
    print("still goes on", flush=True)
"""


def test_an_interruption_that_python_drops_ends_the_work_at_its_next_report() -> None:
    """Of an exception in a finalizer Python only says that it was ignored."""
    done = subprocess.run(
        [sys.executable, "-c", DROPPED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Exception ignored" in done.stderr
    assert done.stdout == "goes on\n"
    assert done.returncode == -signal.SIGINT
