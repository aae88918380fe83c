"""A command of the command line that takes every word as it was meant, or says that it cannot."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from gaam_cache import plugins
from gaam_cache.errors import ConfigError
from gaam_cache.messages.checks import problem_with, shortened
from gaam_cache.messages.foreign_text import tell
from gaam_cache.terminal import completion, help, panels, whole_numbers
from gaam_cache.terminal.mistakes import explained, too_many


class Commands(TyperGroup):
    """All commands, under the headings that the table has for them."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command, or say what a shell may offer for the word that is being typed."""
        completion.join_words()
        return super().main(*args, **kwargs)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what stands before a command; while one types only find it.

        To take values means to load pydantic: 0.1 s of processor time for every tab.
        """
        if not (args or ctx.resilient_parsing):
            tell(ctx.get_help())
            ctx.exit(2)
        own = self.params, self.add_help_option
        if ctx.resilient_parsing:
            self.params, self.add_help_option = [], False
        try:
            return super().parse_args(ctx, list(args))
        except TyperException as error:
            raise explained(error, self, ctx, args) from error
        finally:
            self.params, self.add_help_option = own

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command.

        Raises:
            ConfigError: there is no such command.
        """
        if args[0] in self.commands or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        raise plugins.unknown("command", args[0], self.commands, where="gaam COMMAND")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Say which commands there are, and how all are called."""
        commands = {name: one for name, one in self.commands.items() if not one.hidden}
        rows = {
            heading: [(str(one.name), help.first_paragraph(one.help)) for one in there]
            for heading, there in panels.headed(commands, panels.COMMANDS).items()
        }
        rows[panels.OTHER] = [help.row(one, ctx) for one in self.get_params(ctx)]
        formatter.write(help.page(self.get_usage(ctx), self.help, rows))


TEXTS = frozenset({"texts", "what", "--delimiter"})
"""What may be any text: it names nothing, or is a tab or a space alone, or more than a path."""


class Command(TyperCommand):
    """Refuses an option with one value that is given twice, and values that are empty.

    The parser would keep the last of several values silently, and an empty path is the folder that
    one happens to be in.
    """

    def __init__(self, name: str | None, **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        for param in self.params:
            offers = partial(completion.offers, param, str(name))
            vars(param)["shell_complete"] = offers

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as every command does, after a look at all that was written.

        Raises:
            ConfigError: naming the option and its values.
        """
        if ctx.resilient_parsing:  # a word is being typed: nothing is taken, or refused, yet
            ctx.params, rest, _ = self.make_parser(ctx).parse_args(args=list(args))
            return rest
        try:
            self._check_words(ctx, args)
            return super().parse_args(ctx, list(args))
        except TyperException as error:
            raise explained(error, self, ctx, args) from error

    def _check_words(self, ctx: Any, args: list[str]) -> None:
        """Look at all that was written before it is taken.

        Raises:
            ConfigError: a value that is empty, or one of several, or a word that is none.
        """
        written, rest = self._written(ctx, args)
        for param, name, single, values in written:
            whole = whole_numbers.is_whole(param, ctx)
            for value in values:
                if name not in TEXTS and (problem := problem_with(value)):
                    raise ConfigError(
                        f"bad value for {name}", expected=problem, found=repr(shortened(value))
                    )
                if whole:
                    whole_numbers.check(param, value, self, ctx)
            if single and len(values) > 1:
                raise ConfigError(
                    f"{name} is given {'twice' if len(values) == 2 else f'{len(values)} times'}",
                    expected="one value",
                    found=" and ".join(map(shortened, values)),
                    hint="leave out all but one; only options that say so are repeatable",
                )
        if rest:
            raise too_many(rest, self, ctx)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Options that may still be given."""
        there = [one for one in self.get_params(ctx) if one.param_type_name == "option"]
        there = [one for one in there if one.multiple or one.name not in ctx.params]
        names = [name for one in there for name in (*one.opts, *one.secondary_opts)]
        return [completion.Offer(name) for name in names if name.startswith(incomplete or "--")]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands after the name of the command: ``[OPTIONS] [RUNS]``."""
        arguments = [one for one in self.get_params(ctx) if one.param_type_name == "argument"]
        shown = [(help.argument(one), one.required) for one in arguments]
        return ["[OPTIONS]", *(name if required else f"[{name}]" for name, required in shown)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Say what the command does and takes."""
        params = [one for one in self.get_params(ctx) if not getattr(one, "hidden", False)]
        arguments = [one for one in params if one.param_type_name == "argument"]
        options = {str(one.name): one for one in params if one not in arguments}
        table = panels.OPTIONS.get(str(self.name), {})
        rows = {"Arguments": arguments} if arguments else {}
        rows |= panels.headed(options, table)
        shown = {heading: [help.row(one, ctx) for one in there] for heading, there in rows.items()}
        formatter.write(help.page(self.get_usage(ctx), self.help, shown))

    def invoke(self, ctx: Any) -> Any:
        """Run the command, in a folder that exists: torch would end the process without one.

        Raises:
            OSError: the current folder is gone.
        """
        Path.cwd()
        return super().invoke(ctx)

    def _written(
        self, ctx: Any, args: list[str]
    ) -> tuple[list[tuple[Any, str, bool, list[str]]], list[str]]:
        """Of all that was given what, its name, whether it takes one value, values; other words."""
        params = [p for p in self.get_params(ctx) if not getattr(p, "is_flag", False)]
        options = [param for param in params if param.param_type_name == "option"]
        single: list[Any] = [option for option in options if not option.multiple]
        for option in single:
            option.multiple = True
        try:
            given, rest, _ = self.make_parser(ctx).parse_args(args=list(args))
        finally:
            for option in single:
                option.multiple = False
        found = []
        for param in params:
            value = given.get(param.name)
            if isinstance(value, str):
                found.append((param, f"the argument {str(param.name).upper()}", True, [value]))
            elif value:
                found.append((param, "/".join(param.opts), param in single, list(value)))
        return found, rest
