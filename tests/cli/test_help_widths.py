"""No help text is wider than the terminal, whatever its width."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from gaam_cache.terminal.help import NARROWEST, page, row

import cli
from tests.cli.commands import COMMANDS

ROOT: Any = typer.main.get_command(cli.app)
INDENT = 6
"""Of what stands below the name of an option."""
GROUPS = {"": ROOT} | {
    name: one for name, one in ROOT.commands.items() if getattr(one, "commands", None)
}


@pytest.mark.parametrize("name", [*GROUPS, *COMMANDS])
def test_no_line_is_wider_than_the_terminal_unless_a_word_is(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = GROUPS.get(name) or COMMANDS[name]
    context = one.make_context(f"gaam {name}".strip(), [], resilient_parsing=True)
    whole = None
    for width in range(NARROWEST, 121):
        monkeypatch.setenv("COLUMNS", str(width))
        shown = one.get_help(context)
        for line in shown.splitlines():
            words = line.split()
            assert len(line) <= width or (len(words) == 1 and len(words[0]) > width - INDENT), (
                width,
                line,
            )
        words = shown.split()
        whole = whole or words
        assert words == whole, width  # nothing is cut off, broken or left out
    for param in one.get_params(context):
        written, text = row(param, context)
        assert written in " ".join(whole or [])
        assert text in " ".join(whole or [])


def test_a_word_that_no_line_has_room_for_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "x" * 70
    for width in (40, 60):
        monkeypatch.setenv("COLUMNS", str(width))
        shown = page(f"Usage: {long}", f"It is {long} here.", {"A": [("--a", f"As {long} is.")]})
        assert [line for line in shown.splitlines() if len(line) > width]
        for line in shown.splitlines():
            assert len(line) <= width or line.strip() == long
