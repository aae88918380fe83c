"""Helps and what a shell is offered: all that there is, as wide as the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

import cli
from gaam_cache import plugins, settings
from tests.conftest import Outcome

ROOT = Path(__file__).parents[2]
COMMANDS: dict[str, Any] = dict(typer.main.get_command(cli.app).commands)  # type: ignore[attr-defined]
MOST = {"extract": 26, "train": 29, "report": 16, "predict": 10}
"""Options of a command; of all others eight."""


def test_there_are_thirteen_commands_and_few_options() -> None:
    assert len(COMMANDS) == 13
    for name, command in COMMANDS.items():
        options = [one for one in command.params if one.param_type_name == "option"]
        assert len(options) <= MOST.get(name, 8), name


@pytest.mark.parametrize("command", ["", *COMMANDS])
@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_help_has_every_option_and_is_as_wide_as_the_terminal(
    command: str, width: int, gaam: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = gaam(*command.split(), "--help")
    assert (shown.code, shown.err) == (0, "")
    assert all(len(line) <= width for line in shown.out.splitlines())
    names = [name for one in COMMANDS[command].params for name in one.opts] if command else COMMANDS
    for name in names:
        assert name.startswith("-") <= (name in shown.out), name


def test_every_option_of_a_configuration_is_one_of_the_command() -> None:
    """A field has an option, or says that it is a key."""
    for section, config in cli.SETTINGS.items():
        there = {name for one in COMMANDS[section].params for name in (*one.opts, one.name)}
        for about in settings.keys(config):
            is_there = f"--{about['key']}" in there or about["key"] in there
            assert is_there == about["option"], (section, about["key"])


def offered(*words: str, shell: str = "bash") -> list[str]:
    """What a shell is offered for the last of some words; no torch is imported for it."""
    check = "import atexit, sys\nheavy = {'torch', 'transformers', 'datasets'}\n"
    check += "atexit.register(lambda: print(*heavy & set(sys.modules), file=sys.stderr))\n"
    check += "sys.argv[0] = 'gaam'\nfrom gaam_cache.terminal import entry; entry()"
    asking = {"COMP_WORDS": " ".join(("gaam", *words)), "COMP_CWORD": str(len(words))}
    done = subprocess.run(
        [sys.executable, "-c", check],
        env=os.environ | asking | {"_GAAM_COMPLETE": f"complete_{shell}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stderr.strip() == ""
    return done.stdout.split()


def test_a_shell_is_offered_commands_options_and_names() -> None:
    assert set(offered("ex")) == {"extract", "export"}
    assert "--train-rows" in offered("train", "--tr")
    laplace = [name for name in plugins.names("gaam_decoder.attention") if name.startswith("la")]
    assert offered("train", "--attn", "la") == laplace
    assert set(offered("extract", "--pool", "mean,l")) == {"mean,last"}
    assert offered("train", "--preset", "pa") == ["paper"]
    assert offered("study", "pla") == ["planted-gates"]
    assert offered("report", "--format", "la") == ["latex"]


def test_an_option_that_became_a_key_and_one_that_is_mistyped_are_told(
    gaam: Callable[..., Outcome],
) -> None:
    for words, hint in (
        ("extract --shard-rows 8", "--set shard-rows=VALUE"),
        ("train --attm gaam", "did you mean '--attn'?"),
        ("extract --limit x", "gaam extract --help"),
    ):
        outcome = gaam(*words.split())
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith("error: ")
        assert hint in outcome.err
