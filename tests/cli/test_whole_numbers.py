"""Every option of every command that takes one whole number says what was typed in its place."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import typer

import cli
from gaam_cache.terminal import whole_numbers
from tests.cli.commands import COMMANDS
from tests.conftest import Outcome

SEVERAL = ["0-3", "3-1", "0-0", "1,2", "1, 2", "0:3", "0..3", "00-3", "1-3,5"]
NONE = ["0+3", "abc", "1.5", "1e3", "0x10", "\u0663", "\u00bd", "5 6", "0_", "_1", "--5", "+-5"]
NONE += ["nan", "inf", "None", "true", "=3", "0-", "1" + "x" * 90]
TAKEN = {"5": 5, "-5": -5, "+5": 5, "007": 7, "1_000": 1000, " 5 ": 5, "5.0": 5, "-0": 0}
"""What the parser reads as people mean it."""


@functools.cache
def context(command: str) -> Any:
    root = typer.main.get_command(cli.app)
    return COMMANDS[command].make_context(
        command,
        [],
        resilient_parsing=True,
        parent=root.make_context("gaam", [], resilient_parsing=True),
    )


OPTIONS = [
    (command, param)
    for command, one in COMMANDS.items()
    for param in one.params
    if whole_numbers.is_whole(param, context(command))
]


def test_there_are_such_options() -> None:
    names = {max(param.opts, key=len) for _, param in OPTIONS}
    assert {"--seed", "--epochs", "--limit", "--top", "--layers", "--fold"} <= names
    assert len(OPTIONS) > 20


@pytest.mark.parametrize(
    ("command", "param"), OPTIONS, ids=lambda one: one if isinstance(one, str) else one.name
)
def test_what_is_no_whole_number_is_said_as_it_was_typed(
    command: str, param: Any, gaam: Callable[..., Outcome]
) -> None:
    for option in param.opts:
        for value in [*SEVERAL, *NONE]:
            outcome = gaam(*command.split(), f"{option}={value}")
            assert (outcome.code, outcome.out) == (2, ""), (value, outcome)
            assert outcome.err.startswith(f"error: bad value for {'/'.join(param.opts)}\n")
            expected = "one whole number" if value in SEVERAL else "a whole number"
            assert f"expected: {expected}\n" in outcome.err
            typed = value if len(value) < 60 else value[:57]
            assert f"found:    '{typed}" in outcome.err
            assert "to do:" in outcome.err


@pytest.mark.parametrize("command", sorted({command for command, _ in OPTIONS}))
def test_a_range_is_answered_with_the_option_that_takes_it(
    command: str, gaam: Callable[..., Outcome]
) -> None:
    """Of the same name in the plural where there is one, else the seeds of train."""
    there = {name for param in COMMANDS[command].params for name in param.opts}
    for of, param in OPTIONS:
        own = max(param.opts, key=len)
        if of != command:
            continue
        said = gaam(*command.split(), own, "0-3").err.partition("to do:")[2].strip()
        plural = {f"{own}s"} & there
        if plural and not any(f"{own}s" in other.opts for _, other in OPTIONS):
            assert said == f"{own}s 0-3"
        elif own == "--seed":
            assert "gaam train --seeds 0-3" in said
        else:
            assert said == f"give {own} one of them"


def test_the_option_of_several_is_named_where_a_command_has_it(
    gaam: Callable[..., Outcome],
) -> None:
    param = next(param for of, param in OPTIONS if of == "train" and param.name == "epochs")
    one = copy.copy(param)
    one.opts = ["--seed"]
    with pytest.raises(ValueError, match="bad value for --seed") as refused:
        whole_numbers.check(one, "0-3", COMMANDS["train"], context("train"))
    assert refused.value.details["to do"] == "--seeds 0-3"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("text", "value"), TAKEN.items())
def test_whole_numbers_are_taken(text: str, value: int) -> None:
    for command, param in OPTIONS:
        ctx = context(command)
        whole_numbers.check(param, text, COMMANDS[command], ctx)
        if "range" not in param.display_type(ctx):
            assert param.process_value(ctx, text) == value
