"""On a terminal ``gaam train`` shows one table that changes; elsewhere plain lines."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from gaam_cache.common import terminal
from gaam_cache.common.live_table import LiveTable
from tests.cli.pseudo_terminal import HEIGHT, Screen, run_on_terminal, screens
from tests.conftest import Outcome

DECODERS = ["last-layer + linear", "none + linear", "none + lbfgs"]


def train_command(cache: Path, runs: Path, epochs: int = 2) -> list[object]:
    """A training of two decoders and the linear probe."""
    return [
        *("train", "--cache", cache, "--runs", runs, "--device", "cpu"),
        *("--attn", "last-layer", "--attn", "none", "--seeds", 2, "--epochs", epochs),
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_one_table_that_changes(
    width: int, tiny_cache: Path, tmp_path: Path
) -> None:
    session = run_on_terminal(train_command(tiny_cache, tmp_path / "runs"), width)
    assert session.code == 0, session.output
    shown = screens(session.output, width)
    # while it trains
    assert any(re.search(r"tuning \d of 4", "\n".join(lines)) for lines in shown)
    # at the end there is a line for each decoder, and the next command
    lines = shown[-1]
    first = lines.index(next(line for line in lines if line.startswith("decoder ")))
    table = lines[first + 2 : first + 2 + len(DECODERS)]
    assert [re.split("  +", line)[0] for line in table] == DECODERS
    assert all(line.endswith(" done") for line in table)
    assert (
        lines[first + 2 + len(DECODERS)]
        == f"next: gaam report {tmp_path / 'runs'}"[:width]
    )
    # nothing else stays: neither the bar, nor a line on each run
    assert not any("seed-epochs" in line or "a seed, seeds:" in line for line in lines)
    assert all(len(line) <= width for line in lines)


def test_an_interruption_leaves_the_terminal_sound(
    tiny_cache: Path, tmp_path: Path
) -> None:
    command = train_command(tiny_cache, tmp_path / "runs", epochs=100_000)
    # so many epochs are worth a compiler, for which this test would wait
    command += ["--set", "compile=off"]
    session = run_on_terminal(command, 80, interrupt_after=r"[1-9]\d*/\d{6}")
    assert session.code == terminal.INTERRUPTED_EXIT_CODE
    assert not session.attributes_changed
    screen = Screen(80)
    screen.write(session.output)
    assert screen.cursor_is_visible
    # the table is gone, and the message stands below the line on the tuning
    assert screen.lines[0].startswith("tuning: 3 tuning seeds")
    assert screen.lines[2:] == [terminal.INTERRUPTED_MESSAGE]


def test_the_cursor_is_never_hidden_for_long(tiny_cache: Path, tmp_path: Path) -> None:
    """A second Ctrl-C ends the process at once: it cannot show the cursor again."""
    session = run_on_terminal(train_command(tiny_cache, tmp_path / "runs"), 80)
    _, _, rest = session.output.partition("\x1b[?25l")
    assert rest.index("\x1b[?25h") < rest.index("decoder")


def test_without_a_terminal_there_are_plain_lines(
    tiny_cache: Path, tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    outcome = gaam(*train_command(tiny_cache, tmp_path / "runs"))
    assert "\x1b" not in outcome.out + outcome.err
    lines = outcome.out.splitlines()
    assert any(line.startswith("none + linear, pool mean, lr ") for line in lines)
    assert lines[-2] == f"next: gaam report {tmp_path / 'runs'}"


def test_of_a_long_table_the_lines_around_the_last_change_are_shown() -> None:
    table = LiveTable(("decoder", "state"))
    for number in range(100):
        table.set_row(f"decoder {number}", "waiting")
    table.set_row("decoder 40", "seed 1\x1b")
    stream = io.StringIO()
    Console(file=stream, width=60, height=HEIGHT).print(table)
    lines = stream.getvalue().splitlines()
    assert len(lines) < HEIGHT
    assert any(re.fullmatch(r"decoder 40  seed 1\\x1b *", line) for line in lines)
    first, last = re.findall(r"\d+", lines[-1])[:2]
    assert lines[2].startswith(f"decoder {int(first) - 1} ")
    assert lines[-2].startswith(f"decoder {int(last) - 1} ")


def test_the_printed_table_has_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    table = LiveTable(("decoder", "state"))
    for number in range(100):
        table.set_row(f"decoder {number}", "done")
    table.print()
    assert capsys.readouterr().out.count("done") == 100
