"""What gaam adds to Typer: options of configurations, and help under headings."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from gaam_cache.common import settings
from gaam_cache.common.errors import ConfigError

Config = TypeVar("Config")
Entries = dict[str, list[tuple[str, str]]]
"""Heading -> its entries, each with a name and a sentence."""


def from_config(
    config: type,
    field: str,
    *names: str,
    metavar: str | None = None,
    panel: str | None = None,
    offers: Callable[[str], list[str]] | None = None,
) -> Any:
    """The ``typer.Option`` of a field, with the field's default, meaning and name.

    It is the default of a command's parameter, and ``read_options`` then makes the
    configuration: ``epochs: int = from_config(TrainConfig, "epochs", metavar="N")``.

    Args:
        config: the class of the configuration.
        field: the name of the field, which is that of the parameter.
        names: of the option, if it has more names than the field's.
        metavar: what the help calls the value.
        panel: the heading of the help under which the option stands.
        offers: takes the beginning of a value, and returns the values that begin so; a
            shell completes words with it.
    """
    setting = settings.find_setting(config, field)
    default = setting.default
    # Typer takes None for a list that is not set. An entry None stands for all rows or
    # all layers, which no value of an option says.
    if default in ((), (None,)):
        default = None
    elif isinstance(default, tuple):
        default = [str(value) for value in default]
    return typer.Option(
        default,
        *(names or [f"--{setting.key}"]),
        help=setting.sentence(),
        # a text, or True for the default itself
        show_default=setting.shown_default or True,
        metavar=metavar,
        rich_help_panel=panel,
        autocompletion=offers,
        # gaam refuses unreadable files with a message of its own, and Typer need not
        readable=False,
    )


def read_options(config: type[Config], context: typer.Context) -> Config:
    """The configuration of a command, from its options, ``--config`` and ``--preset``.

    A file or a preset replaces a default, but not what a person typed. The context
    knows which of the two a parameter has; its value does not.
    """
    typed: dict[str, Any] = {}
    for name, value in context.params.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            typed[name] = value
    field_names = {field.name for field in settings.fields_of(config)}
    return settings.resolve(
        config,
        str(context.command.name),
        {name: value for name, value in typed.items() if name in field_names},
        sets=typed.get("sets"),
        config_file=typed.get("config_file"),
        preset=typed.get("preset"),
    )


class HelpCommand(TyperCommand):
    """A command whose help has its options under their headings, in plain text.

    It refuses an option of one value that is given twice, where Typer takes the last.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)  # the parser consumes its argument
        _, _, given = self.make_parser(ctx).parse_args(words)
        counts = Counter(given)
        for parameter, count in counts.items():
            takes_one = parameter.nargs == 1 and not parameter.multiple
            if count > 1 and takes_one and not getattr(parameter, "is_flag", False):
                name = max(parameter.opts, key=len)
                raise ConfigError(
                    f"{name} is given {count} times, and takes one value",
                    expected=f"{name} once",
                )
        return super().parse_args(ctx, args)

    def format_options(self, ctx: object, formatter: object) -> None:
        _write_entries(_parameters_by_heading(self, ctx), formatter)


class HelpGroup(TyperGroup):
    """The program, whose help has the commands under their headings."""

    def format_options(self, ctx: object, formatter: object) -> None:
        _write_entries(_parameters_by_heading(self, ctx), formatter)
        _write_entries(_commands_by_heading(self.commands.values()), formatter)


def _parameters_by_heading(command: TyperCommand | TyperGroup, context: Any) -> Entries:
    """Heading -> (name, help) of each argument and option of a command."""
    entries: Entries = {"Arguments": [], "Options": []}
    for parameter in command.get_params(context):
        entry = parameter.get_help_record(context)
        if entry is None:
            continue
        name, sentence = entry
        usual_heading = "Options"
        if parameter.param_type_name == "argument":
            usual_heading = "Arguments"
            # as the usage has it, without a type in brackets
            name = " ".join(parameter.get_usage_pieces(context))
        heading = getattr(parameter, "rich_help_panel", None) or usual_heading
        entries.setdefault(heading, []).append((name, sentence))
    return entries


def _commands_by_heading(commands: Iterable[Any]) -> Entries:
    """Heading -> (name, first paragraph of the help) of each command."""
    entries: Entries = {}
    for command in commands:
        first_paragraph = inspect.cleandoc(command.help).partition("\n\n")[0]
        heading = command.rich_help_panel or "Commands"
        entries.setdefault(heading, []).append((command.name, first_paragraph))
    return entries


def _write_entries(entries: Entries, formatter: Any) -> None:
    """Write the entries of a help page under their headings; empty ones are left out.

    Args:
        entries: heading -> (name, help) of each entry.
        formatter: Click's formatter, which receives them.
    """
    for heading, rows in entries.items():
        if not rows:
            continue
        # Click drops the colours where the output is no terminal
        with formatter.section(typer.style(heading, bold=True)):
            formatter.write_dl(
                [(typer.style(name, fg="cyan"), sentence) for name, sentence in rows]
            )
