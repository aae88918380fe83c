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
from gaam_cache.common.messages import brief, visible, visible_values
from tests.conftest import Outcome
from tests.hostile_strings import HOSTILE, flooded, harmful

ROOT = Path(__file__).parents[2]


def test_nothing_of_a_hostile_name_is_obeyed() -> None:
    for name in HOSTILE.values():
        shown = visible(name)
        assert not harmful(shown, keep="")
        assert not flooded(shown)
        assert visible(shown) == shown
        error = GaamError(
            f"no '{name}'", expected=name, found=f"'{name}'", hint=f"try {name}"
        )
        assert not harmful(str(error))
        assert visible_values({name: [{"a": (name, 1, None)}]}) == {
            shown: [{"a": [shown, 1, None]}]
        }


def test_no_character_of_unicode_escapes_and_ordinary_names_stay() -> None:
    every = map(chr, range(sys.maxunicode + 1))
    assert not harmful(visible("a".join(every)), keep="")
    for name in (
        "ag_news",
        "\u00e4\u00f6 \u00df",
        "\u4e2d\u6587",
        "e\u0301",
        "50% & co",
        "a\\b",
    ):
        assert visible(name) == brief(name) == name


def test_long_names_are_bounded_and_stay_different() -> None:
    first, second = "a" * 5000 + "b" + "a" * 5000, "a" * 10001
    for longest in (20, 60, 120, 4000):
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


def test_what_the_machine_refuses_is_one_message_whoever_wraps_it() -> None:
    with pytest.raises(MemoryError) as caught:
        np.empty(2**60, np.uint8)
    of_memory: tuple[BaseException, ...] = (
        MemoryError(),
        caught.value,
        ImportError("libtorch.so: failed to map segment from shared object"),
        ImportError("x.so: cannot allocate memory in static TLS block"),
    )
    for error in (*of_memory, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
        found, wrapped = (
            terminal.as_refusal(error),
            CacheError("a shard cannot be read"),
        )
        wrapped.__cause__ = error
        whole = terminal.as_refusal(wrapped)
        assert type(found) is (GaamError if error in of_memory else StorageError)
        assert found.exit_code == 1
        assert type(whole) is (GaamError if error in of_memory else CacheError)
    assert terminal.as_refusal(ValueError("a bug")) is None


def run(shell: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    """A shell in which ``$GAAM`` is the command; a pipe fails with any part of it."""
    gaam = f"{sys.executable} {ROOT / 'cli.py'}"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shell}"],
        env=os.environ | {"GAAM": gaam, "PYTHONPATH": str(ROOT)} | environ,
        capture_output=True,
    )


def test_a_pipe_that_is_closed_is_no_failure_and_a_full_disk_is_one_message() -> None:
    closed = run("$GAAM describe --settings | head -1")
    assert (closed.returncode, closed.stderr) == (0, b"")
    full = run("$GAAM describe --settings > /dev/full")
    assert full.returncode == 1
    assert re.fullmatch(rb"error: .*\n(  .*\n)+", full.stderr), (
        "no exception at exit either"
    )
    ascii_only = run("$GAAM describe --attn laplace", PYTHONIOENCODING="ascii")
    assert (ascii_only.returncode, ascii_only.stderr) == (0, b"")


def test_an_interruption_keeps_what_is_finished_and_says_so(
    tmp_path: Path, encoders: dict[str, Path], dataset: Path, gaam: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """SIGTERM when the first shard is there."""
    words = [
        "extract",
        "--encoder",
        encoders["bert"],
        "--dataset",
        dataset,
        "--device",
        "cpu",
    ]
    words += [
        "--out",
        tmp_path / "cache",
        "--set",
        "shard-rows=1",
        "--set",
        "batch-tokens=16",
    ]

    @contextmanager
    def stopped(*given: object, **named: object) -> Iterator[terminal.Report]:
        def report(done: int, total: int, text: str) -> None:
            if list((tmp_path / "cache").glob("shards/*.json")):
                signal.raise_signal(signal.SIGTERM)

        yield report

    with monkeypatch.context() as patch:
        patch.setattr(cli, "show_progress", stopped)
        outcome = gaam(*words)
    assert (outcome.code, outcome.out) == (130, "")
    assert (
        outcome.err.splitlines().index(terminal.INTERRUPTED_MESSAGE)
        == outcome.err.count("\n") - 1
    )
    made = {
        path: path.stat().st_mtime_ns
        for path in (tmp_path / "cache").glob("shards/*.json")
    }
    assert gaam(*words, "-q").code == 0
    assert made.items() <= {path: path.stat().st_mtime_ns for path in made}.items()
    assert gaam("verify", tmp_path / "cache", "-q").code == 0
