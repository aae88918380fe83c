"""What the parser cannot take of a command, in the words that all refusals have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gaam_cache.errors import ConfigError
from gaam_cache.messages.checks import shortened
from gaam_cache.messages.spelling import nearest
from gaam_cache.terminal import help

MEANT = {"extract": "--dataset", "train": "--attn", "describe": "--attn"}
"""Option that a word without one was probably meant for, by command."""
WORDS = {"a valid integer": "a whole number", "a valid number": "a number"}
"""What pydantic calls a value -> what other refusals call it."""


def too_many(words: list[str], command: Any, ctx: Any) -> ConfigError:
    """The refusal of words that belong to no option; arguments as of ``explained``."""
    word = words[0]
    option = MEANT.get(command.name)
    if command.name == "train" and Path(word, "cache.json").exists():
        option = "--cache"
    hint = f"{option} {shortened(word)}" if option else f"{ctx.command_path} --help"
    return ConfigError(
        f"{ctx.command_path} does not take '{shortened(word)}'",
        expected=_usage(command, ctx),
        found=" ".join(map(shortened, words)),
        hint=hint,
    )


def explained(error: Any, command: Any, ctx: Any, args: list[str]) -> ConfigError:
    """The refusal that the parser's own stands for.

    Args:
        error: of typer.
        command: what refuses.
        ctx: its context.
        args: what was written after it.
    """
    params = command.get_params(ctx)
    called, usage = ctx.command_path, _usage(command, ctx)
    see = f"{called} --help"
    param = getattr(error, "param", None)
    if hasattr(error, "possibilities"):
        options = [name for one in params for name in (*one.opts, *one.secondary_opts)]
        meant = nearest(error.option_name, [name for name in options if name.startswith("--")])
        hint = f"did you mean '{meant}'? If not, {see}" if meant else see
        return ConfigError(f"{called} has no option {shortened(error.option_name)}", hint=hint)
    if param is not None and not error.message:
        name = help.argument(param) if param.param_type_name == "argument" else param.opts[0]
        return ConfigError(f"{called} needs {name}", expected=usage, hint=see)
    if param is not None:
        expected, _, _ = error.message.removeprefix("Input should be ").partition(", unable")
        expected = WORDS.get(expected, expected)
        return ConfigError(
            f"bad value for {'/'.join(param.opts)}",
            expected=expected,
            found=_value(param.opts, args),
            hint=see,
        )
    said = error.format_message().rstrip(".").replace("requires an argument", "needs a value")
    return ConfigError(f"{said[:1].lower()}{said[1:]}", expected=usage, hint=see)


def _usage(command: Any, ctx: Any) -> str:
    return " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])


def _value(names: list[str], args: list[str]) -> str | None:
    """What was written as the value of an option."""
    for place, word in enumerate(args):
        name, equals, value = word.partition("=")
        if name in names and (equals or place + 1 < len(args)):
            return repr(shortened(value if equals else args[place + 1]))
    return None
