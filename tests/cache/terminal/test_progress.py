from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.messages import duration
from gaam_cache.terminal import Course, counting, progress, show_progress
from tests.conftest import Outcome, random_rows, write_csv

LONG = "gaam:heads=2 + linear, layers 1-8, seeds 0-9 epoch 12/40 loss 0.312, a very long text " * 3


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def halfway(title: str, unit: str) -> Course:
    clock = Clock()
    course = Course(title, unit, clock=clock)
    course.update(100, 127_600, "loading")
    clock.now = 500.0  # before the first step: not its time
    course.update(100, 127_600, "loading")
    clock.now = 530.0
    course.update(3_100, 127_600, LONG)
    return course


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("title", ["extract", "train", "ablate", "verify"])
def test_count_and_time_left_come_first_at_any_width_and_the_text_is_cut(
    width: int, title: str
) -> None:
    unit = {"extract": "rows", "verify": "steps"}.get(title, "seed-epochs")
    line = halfway(title, unit).in_words(width)
    assert line.startswith(f"{title} 3,100/127,600 {unit}, 20 min 45 s left; gaam")
    assert len(line) <= width
    assert line.endswith("...")


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_terminal_shows_one_line_of_its_width(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    course = halfway("train", "seed-epochs")
    with progress._changing_line(course, console) as report:
        report(3_101, 127_600, LONG)
        report.line("a line that stays [bold]")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())
    lines = [line for line in re.split(r"[\r\n]+", shown) if line]
    assert "a line that stays [bold]" in lines
    assert any(line.startswith("train 3,101/127,600 seed-epochs, ") for line in lines)
    assert max(map(len, lines)) <= width


def test_work_of_unknown_length_shows_its_phase_how_long_and_how_much() -> None:
    clock = Clock()
    course = Course("extract", "rows", clock=clock)
    course.update(0, 0, "reading train.csv")
    clock.now = 75.0
    assert course.in_words() == "extract 1 min 15 s; reading train.csv"
    course.update(4096, 0, "reading train.csv")
    assert course.in_words() == "extract 4,096 rows, 1 min 15 s; reading train.csv"
    course.update(0, 0, "hashing 'train'")
    clock.now = 80.0
    assert course.in_words() == "extract 5 s; hashing 'train'"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1 min 00 s"), (7325, "2 h 2 min"), (200_000, "2 d 7 h")],
)
def test_a_duration_has_two_units_at_most(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_counting_reports_now_and_then_and_changes_nothing() -> None:
    told: list[tuple[int, int, str]] = []
    report: Callable[[int, int, str], None] = lambda *what: told.append(what)  # noqa: E731
    assert list(counting(range(5000), report, "x")) == list(range(5000))
    assert told == [(0, 0, "x"), (2048, 0, "x"), (4096, 0, "x")]


def test_without_a_terminal_a_plain_line_comes_every_thirty_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    with show_progress("extract", "rows") as report:
        for _ in range(65):
            clock.now += 1
            report(int(clock.now) * 10, 1000, "text")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"extract 300/1,000 rows, [0-9 mins]+ left; text", lines[0])


def test_reading_and_checking_rows_tell_how_far_they_are(
    tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    write_csv(
        tmp_path / "data" / "train.csv", [("a", "goal"), ("b", "bank"), *random_rows(2100, 1)]
    )
    config = ExtractConfig(
        **{
            **{name: getattr(tiny_config, name) for name in ("encoder", "out")},
            "dataset": str(tmp_path / "data"),
            "splits": ("train",),
        }
    )
    told: list[tuple[int, int, str]] = []
    gaam_cache.estimate(config, progress=lambda *what: told.append(what))
    assert not config.out.exists()
    phases = list(dict.fromkeys(text.partition(" ")[0] for _, _, text in told))
    assert phases == ["reading", "looking", "hashing", "tokenising", "loading", "timing"]
    for phase in phases[:3]:
        assert (2048, 0) in {(n, total) for n, total, text in told if text.startswith(phase)}


def in_terminal(arguments: list[str], when: bytes, number: int) -> Outcome:
    """Run in a terminal of 80 columns and send a signal when something is on it."""
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=slave,
        stdin=slave,
        env=environment,
        cwd=Path(__file__).parents[3],
    )
    os.close(slave)
    shown, sent = b"", False
    deadline = time.monotonic() + 1200
    while time.monotonic() < deadline:
        if select.select([master], [], [], 0.2)[0]:
            try:
                piece = os.read(master, 4096)
            except OSError:  # the other end is closed
                break
            shown += piece
        if not sent and when in shown:
            process.send_signal(number)
            sent = True
    out = process.communicate(timeout=600)[0]
    os.close(master)
    return Outcome(process.returncode, out.decode(), shown.decode())


def test_an_interrupted_extraction_in_a_terminal_says_what_it_keeps(
    tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    write_csv(
        tmp_path / "data" / "train.csv", [("a", "goal"), ("b", "bank"), *random_rows(9000, 1)]
    )
    out = tmp_path / "cache"
    arguments = ["extract", "--encoder", tiny_config.encoder, "--dataset", str(tmp_path / "data")]
    arguments += [
        "--split",
        "train",
        "--out",
        str(out),
        "--set",
        "shard-rows=20",
        "--device",
        "cpu",
    ]
    outcome = in_terminal([*arguments, "--set", "batch-tokens=64"], b" left; ", signal.SIGINT)
    kept = len(list(out.glob("shards/*.json")))
    total = -(-9002 // 20)
    assert outcome.code == 130, outcome
    assert outcome.out == ""
    last = outcome.err.replace("\r", "").strip().splitlines()[-1]
    assert last.endswith(
        f"interrupted; {kept} of {total} shards are kept, what was in work will be made again: "
        "run the same again"
    )
    assert kept < total
    assert re.search(r"extract [0-9,]+/9,002 rows, [0-9a-z ]+ left; ", outcome.err)
