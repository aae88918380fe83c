"""A command of the command line that takes every word as it was meant, or says that it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from gaam_cache.errors import ConfigError
from gaam_cache.messages.checks import problem_with, shortened

TEXTS = frozenset({"texts"})
"""Arguments that may be any text: they name nothing."""


class Command(TyperCommand):
    """Refuses an option with one value that is given twice, and values that are empty.

    The parser would keep the last of several values silently, and an empty path is the folder that
    one happens to be in.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as every command does, after a look at all that was written.

        Raises:
            ConfigError: naming the option and its values.
        """
        for name, single, values in self._written(ctx, args):
            for value in values:
                if name not in TEXTS and (problem := problem_with(value)):
                    raise ConfigError(
                        f"bad value for {name}", expected=problem, found=repr(shortened(value))
                    )
            if single and len(values) > 1:
                raise ConfigError(
                    f"{name} is given {'twice' if len(values) == 2 else f'{len(values)} times'}",
                    expected="one value",
                    found=" and ".join(map(shortened, values)),
                    hint="leave out all but one; only options that say so are repeatable",
                )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command, in a folder that exists: torch would end the process without one.

        Raises:
            OSError: the current folder is gone.
        """
        Path.cwd()
        return super().invoke(ctx)

    def _written(self, ctx: Any, args: list[str]) -> list[tuple[str, bool, list[str]]]:
        """Name, whether it takes one value, and values of everything that was given."""
        params = [p for p in self.get_params(ctx) if not getattr(p, "is_flag", False)]
        options = [param for param in params if param.param_type_name == "option"]
        single: list[Any] = [option for option in options if not option.multiple]
        for option in single:
            option.multiple = True
        try:
            given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        finally:
            for option in single:
                option.multiple = False
        found = []
        for param in params:
            value = given.get(param.name)
            if isinstance(value, str):
                found.append((f"the argument {str(param.name).upper()}", True, [value]))
            elif value:
                found.append(("/".join(param.opts), param in single, list(value)))
        return found
