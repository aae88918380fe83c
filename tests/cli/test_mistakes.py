"""A slip of the finger is one message: what, and what to write instead; exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

import cli
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]
COMMANDS: dict[str, Any] = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]


def refused(outcome: Outcome) -> str:
    """The message of a refusal, which is the only thing that is said."""
    assert outcome.code == 2
    assert not outcome.out
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("error") == 1
    assert not set("╭│╰") & set(outcome.err)
    return outcome.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_it_cannot_take(command: str, gaam: Gaam) -> None:
    context = COMMANDS[command].make_context(command, [], resilient_parsing=True)
    params = COMMANDS[command].get_params(context)
    arguments = [one for one in params if one.param_type_name == "argument"]
    needed = [one.name for one in arguments if one.required]
    assert f"unknown command '{command}s-'" in refused(gaam(f"{command}s-"))
    assert f"did you mean '{command}'" in refused(gaam(f"{command[:-1]}"))
    assert "has no option --no-such" in refused(gaam(command, *needed, "--no-such"))
    assert "did you mean '--json'?" in refused(gaam(command, *needed, "--jsno"))
    assert "does not take a value" in refused(gaam(command, *needed, "--json=1"))
    if needed:
        assert f"gaam {command} needs " in refused(gaam(command))
    if command != "runs" and all(one.nargs == 1 for one in arguments):
        words = [one.name for one in arguments]
        said = refused(gaam(command, *words, "spare"))
        assert f"gaam {command} does not take 'spare'" in said
    for one in params:
        if one.param_type_name == "option" and not one.is_flag:
            assert f"'{one.opts[0]}' needs a value" in refused(gaam(command, *needed, one.opts[0]))
            if "int" in one.display_type(context) or "float" in one.display_type(context):
                said = refused(gaam(command, *needed, one.opts[0], "many"))
                assert f"bad value for {'/'.join(one.opts)}\n" in said
                assert "number" in said
                assert "found:    'many'" in said
                assert said == refused(gaam(command, *needed, f"{one.opts[0]}=many"))


def test_a_word_without_an_option_is_told_which_it_was_meant_for(
    gaam: Gaam, tiny_cache: Path
) -> None:
    for words, meant in {
        ("extract", "foo.csv"): "--dataset foo.csv",
        ("train", "gaam"): "--attn gaam",
        ("train", "--attn", "gaam", "mha"): "--attn mha",
        ("train", str(tiny_cache)): "--cache ",
        ("describe", "laplace"): "--attn laplace",
    }.items():
        assert f"to do:    {meant}" in refused(gaam(*words))


def test_without_a_command_the_help_is_shown(gaam: Gaam) -> None:
    shown = gaam()
    assert shown.code == 2
    assert shown.out == gaam("--help").out
    assert "has no option --verison" in refused(gaam("--verison"))
    assert "did you mean '--version'" in refused(gaam("--verison"))
