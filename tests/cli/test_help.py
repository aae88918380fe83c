"""Helps and what a shell is offered: all that there is, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer

import cli
from gaam_cache.common import plugins, settings
from tests.conftest import Outcome

COMMANDS: dict[str, Any] = dict(typer.main.get_command(cli.app).commands)  # type: ignore[attr-defined]
MOST = {"extract": 30, "import": 9, "train": 29, "report": 18, "predict": 13}
"""Options of a command; of all others eight."""


def test_there_are_thirteen_commands_and_few_options() -> None:
    assert len(COMMANDS) == 13
    for name, command in COMMANDS.items():
        options = [one for one in command.params if one.param_type_name == "option"]
        assert len(options) <= MOST.get(name, 8), name


@pytest.mark.parametrize("command", ["", *COMMANDS])
@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_help_has_every_option_and_is_as_wide_as_the_terminal(
    command: str,
    width: int,
    gaam: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = gaam(*command.split(), "--help")
    assert (shown.code, shown.err) == (0, "")
    assert all(len(line) <= width for line in shown.out.splitlines())
    names = (
        [name for one in COMMANDS[command].params for name in one.opts]
        if command
        else COMMANDS
    )
    for name in names:
        assert name.startswith("-") <= (name in shown.out), name


@pytest.mark.parametrize("command", ["extract", "train", "report"])
def test_a_help_fits_two_screens(
    command: str, gaam: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 80 columns and 48 lines."""
    monkeypatch.setenv("COLUMNS", "80")
    assert len(gaam(command, "--help").out.splitlines()) <= 96


def test_a_default_stands_after_the_sentence_and_a_flag_has_no_value(
    gaam: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, command in COMMANDS.items():
        for one in command.params:
            assert "default" not in (one.help or ""), (name, one.name)
    monkeypatch.setenv("COLUMNS", "100")
    for command in ("", *COMMANDS):
        assert "<bool>" not in gaam(*command.split(), "--help").out
    shown = " ".join(gaam("train", "--help").out.split())
    assert "Passes over the training rows. [default: 25]" in shown
    assert "Learning rate; a list is tuned on validation rows. [default: (tune" in shown


def test_without_a_command_the_help_is_shown_and_the_exit_code_is_2(
    gaam: Callable[..., Outcome],
) -> None:
    outcome = gaam()
    assert (outcome.code, outcome.err) == (2, "")
    assert outcome.out == gaam("--help").out


def test_every_option_of_a_configuration_is_one_of_the_command() -> None:
    """A field has an option, or says that it is a key."""
    for section, config in cli.SETTINGS.items():
        there = {
            name for one in COMMANDS[section].params for name in (*one.opts, one.name)
        }
        for setting in settings.settings_of(config):
            is_there = f"--{setting.key}" in there or setting.key in there
            assert is_there == setting.option, (section, setting.key)


OPTION_TYPES: dict[str, Any] = {
    "LIST": list[str],
    "true|false": bool,
    "N": int,
    "NUMBER": float,
    "PATH": Path,
}
"""Type of a setting -> type of its parameter; every other parameter is text."""


@pytest.mark.parametrize("section", cli.SETTINGS)
def test_a_parameter_has_the_type_of_its_field(section: str) -> None:
    command = cli.import_ if section == "import" else getattr(cli, section)
    hints = get_type_hints(command)
    for setting in settings.settings_of(cli.SETTINGS[section]):
        # the files to import are an argument, which has paths
        if not setting.option or setting.name == "files":
            continue
        expected = OPTION_TYPES.get(setting.type, str)
        assert hints[setting.name] in (expected, expected | None), setting.name


OFFERED: dict[str, set[str]] = {
    "ex": {"extract", "export"},
    "train --tr": {"--train-rows"},
    "train --attn la": {
        one for one in plugins.names("gaam_decoder.attention") if one[:2] == "la"
    },
    "extract --pool mean,l": {"mean,last"},
    "train --preset pa": {"paper"},
    "study pla": {"planted-gates"},
    "report --format la": {"latex"},
}
"""For the last of some words."""


@pytest.mark.parametrize("words", OFFERED)
def test_a_shell_is_offered_commands_options_and_names(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_GAAM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"gaam {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    with pytest.raises(SystemExit):
        typer.main.get_command(cli.app)([], prog_name="gaam")
    shown = capsys.readouterr()
    assert (set(shown.out.split()), shown.err) == (OFFERED[words], "")


def test_an_option_that_became_a_key_and_one_that_is_mistyped_are_told(
    gaam: Callable[..., Outcome],
) -> None:
    for words, hint in (
        ("extract --shard-rows 8", "--set shard-rows=VALUE"),
        ("train --schedule cosine", "--set schedule=VALUE"),
        ("train --num-seeds 3", "'--seeds'"),
        ("train --attm gaam", "'--attn'"),
        ("extract --limit x", "gaam extract --help"),
    ):
        outcome = gaam(*words.split())
        assert (outcome.code, outcome.out) == (2, "")
        assert hint in outcome.err
