"""Every help text can be read: headings, whole words, every option once, whatever the width."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import typer
from gaam_cache.terminal.help import row

import cli
import gaam_cache
from gaam_cache.terminal import panels
from gaam_decoder.config import TrainConfig
from gaam_decoder.planting.plant_config import PlantConfig

MANY = 10
"""Options that a person finds without headings."""
COMMANDS: dict[str, Any] = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
CONFIGS = {
    "extract": gaam_cache.ExtractConfig,
    "import": gaam_cache.ImportConfig,
    "plant": PlantConfig,
    "train": TrainConfig,
}
NOT_TYPED = {"import": {"files"}, "plant": {"out"}, "extract": {"tokens_per_second"}}
"""Fields that are no option: arguments, and what a file says."""
pytestmark = pytest.mark.parametrize("command", COMMANDS)


def options(command: str) -> Iterator[Any]:
    """All options of a command, --help too."""
    context = COMMANDS[command].make_context(command, [], resilient_parsing=True)
    for param in COMMANDS[command].get_params(context):
        if param.param_type_name == "option":
            yield param


def test_a_command_has_a_heading(command: str) -> None:
    headings = [heading for heading, names in panels.COMMANDS.items() if command in names]
    assert len(headings) == 1, f"put '{command}' into COMMANDS of gaam_cache/terminal/panels.py"


def test_every_option_of_a_command_with_many_has_a_heading(command: str) -> None:
    there = [param.name for param in options(command)]
    table = panels.OPTIONS.get(command, {})
    placed = [name for names in table.values() for name in names]
    assert len(placed) == len(set(placed))
    if len(there) > MANY or table:
        lost = sorted(set(there) - set(placed))
        assert not lost, f"put {lost} under a heading in gaam_cache/terminal/panels.py"
        assert 3 <= len(table[panels.FIRST]) <= MANY


def test_every_field_of_a_configuration_is_an_option(command: str) -> None:
    if command in CONFIGS:
        fields = {field.name for field in dataclasses.fields(CONFIGS[command])}
        there = {param.name for param in options(command)}
        assert fields - there == NOT_TYPED.get(command, set())


def test_words_to_choose_from_are_those_that_are_taken(command: str) -> None:
    if command in CONFIGS:
        hints = typing.get_type_hints(CONFIGS[command])
        choices = {
            name: typing.get_args(hint)
            for name, hint in hints.items()
            if typing.get_origin(hint) is Literal
        }
        named = {param.name: param for param in options(command)}
        assert choices or command == "import"
        for name, words in choices.items():
            assert tuple(named[name].metavar.split("|")) == words, name


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_is_cut_off_or_broken_within_a_word(
    command: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    context = COMMANDS[command].make_context(command, [], resilient_parsing=True)
    shown = COMMANDS[command].get_help(context)
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    assert "\033" not in shown  # no terminal
    words = re.sub(r"\s+", " ", shown)
    for param in options(command):
        name, text = row(param, context)
        assert name in words, name
        assert text in words, name
        assert text.endswith((".", "?")), name
        assert shown.count(f"\n  {name}") == 1


def test_headings_are_bold_on_a_terminal_alone(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = COMMANDS[command].make_context(command, [], resilient_parsing=True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    coloured = COMMANDS[command].get_help(context)
    assert f"\033[1m{panels.OTHER}\033[0m" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    plain = COMMANDS[command].get_help(context)
    assert "\033" not in plain
    assert re.sub("\033\\[[01]m", "", coloured) == plain
