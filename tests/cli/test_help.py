"""Helps and what a shell is offered: all that there is, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer

import cli
from gaam_cache.common import settings
from tests.conftest import Outcome, built_commands

Gaam = Callable[..., Outcome]
COMMANDS = [
    command.name or getattr(command.callback, "__name__", "")
    for command in cli.app.registered_commands
]
MOST_OPTIONS = {
    "extract": 30,
    "import": 9,
    "train": 29,
    "report": 20,
    "predict": 14,
    "export": 10,
    "study": 10,
}
"""Of a command; all others have at most eight."""


def parameters_of(command: str) -> list[Any]:
    """The options and arguments of a command."""
    return list(built_commands().commands[command].params)


def test_there_are_thirteen_commands() -> None:
    assert set(COMMANDS) == set(built_commands().commands)
    assert len(COMMANDS) == 13


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_few_options(command: str) -> None:
    options = [
        parameter
        for parameter in parameters_of(command)
        if parameter.param_type_name == "option"
    ]
    assert len(options) <= MOST_OPTIONS.get(command, 8)


def names_in_help(command: str) -> list[str]:
    """The options of a command; of the program its commands."""
    if not command:
        return COMMANDS
    names = [name for parameter in parameters_of(command) for name in parameter.opts]
    # an argument has a name of another form in the help
    return [name for name in names if name.startswith("-")]


@pytest.mark.parametrize("command", ["", *COMMANDS])
@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_help_has_every_option_and_is_as_wide_as_the_terminal(
    command: str, width: int, gaam: Gaam, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    outcome = gaam(*command.split(), "--help")
    assert (outcome.code, outcome.err) == (0, "")
    too_long = [line for line in outcome.out.splitlines() if len(line) > width]
    assert too_long == []
    missing = [name for name in names_in_help(command) if name not in outcome.out]
    assert missing == []
    assert "<bool>" not in outcome.out, "a flag has no value"


@pytest.mark.parametrize("command", ["extract", "train", "report"])
def test_a_help_fits_two_screens(
    command: str, gaam: Gaam, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 80 columns and 48 lines."""
    monkeypatch.setenv("COLUMNS", "80")
    assert len(gaam(command, "--help").out.splitlines()) <= 96


@pytest.mark.parametrize("command", COMMANDS)
def test_no_sentence_of_an_option_names_its_default(command: str) -> None:
    for parameter in parameters_of(command):
        assert "default" not in (parameter.help or ""), parameter.name


def test_a_default_stands_after_the_sentence(
    gaam: Gaam, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = " ".join(gaam("train", "--help").out.split())
    assert "Passes over the training rows. [default: 25]" in text
    assert (
        "Learning rate; tuning seeds choose one of a list on validation rows. [default: (tune"
        in text
    )


def test_without_a_command_the_help_is_shown_and_the_exit_code_is_2(gaam: Gaam) -> None:
    outcome = gaam()
    assert (outcome.code, outcome.err) == (2, "")
    assert outcome.out == gaam("--help").out


@pytest.mark.parametrize("section", cli.SETTINGS)
def test_every_option_of_a_configuration_is_one_of_the_command(section: str) -> None:
    """A field has an option, or says that it is a key."""
    names: set[str] = set()
    for parameter in parameters_of(section):
        names |= {*parameter.opts, parameter.name}
    for setting in settings.settings_of(cli.SETTINGS[section]):
        has_option = f"--{setting.key}" in names or setting.key in names
        assert has_option == setting.option, setting.key


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


COMPLETIONS: dict[str, set[str]] = {
    "ex": {"extract", "export"},
    "train --tr": {"--train-rows"},
    "train --attn la": {"laplace", "last-layer", "layer-mean"},
    "extract --pool mean,l": {"mean,last"},
    "train --preset pa": {"paper"},
    "study pla": {"planted-gates"},
    "report --format la": {"latex"},
}
"""Words -> what a shell is offered for the last of them."""


@pytest.mark.parametrize("words", COMPLETIONS)
def test_a_shell_is_offered_commands_options_and_names(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_GAAM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"gaam {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    with pytest.raises(SystemExit):
        typer.main.get_command(cli.app)([], prog_name="gaam")
    captured = capsys.readouterr()
    assert set(captured.out.split()) == COMPLETIONS[words]
    assert captured.err == ""


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("extract --shard-rows 8", "--set shard-rows=VALUE"),
        ("train --schedule cosine", "--set schedule=VALUE"),
        ("train --num-seeds 3", "'--seeds'"),
        ("train --attm gaam", "'--attn'"),
        ("extract --limit x", "gaam extract --help"),
    ],
)
def test_an_option_that_became_a_key_and_one_that_is_mistyped_are_told(
    words: str, advice: str, gaam: Gaam
) -> None:
    outcome = gaam(*words.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert advice in outcome.err
