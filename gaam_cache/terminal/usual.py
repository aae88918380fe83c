"""A group of commands of which one is meant where none is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gaam_cache.errors import ConfigError
from gaam_cache.messages.checks import problem_with, shortened
from gaam_cache.messages.spelling import nearest
from gaam_cache.terminal import help, panels
from gaam_cache.terminal.usage import Commands


class GroupWithUsual(Commands):
    """Commands of which one is meant where none is named: ``list``, so that it may have arguments.

    What has the name of a command is that command; a folder of that name is written ``./NAME``.
    """

    usual = "list"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the usual command in front, unless a command or help was asked for.

        Raises:
            ConfigError: a word that is nearly a command, and no folder.
        """
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        if not named and not ctx.resilient_parsing:
            self._check_spelling(args)
        if not named and (args or not ctx.resilient_parsing):  # a shell offers the commands
            args = [self.usual, *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Say which commands there are, and which is meant where none is named."""
        rows = {
            "Commands": [
                (name, help.first_paragraph(one.help)) for name, one in self.commands.items()
            ],
            panels.OTHER: [help.row(one, ctx) for one in self.get_params(ctx)],
        }
        formatter.write(help.page(self.get_usage(ctx), self.help, rows))

    def _check_spelling(self, args: list[str]) -> None:
        word = args[0] if args and not args[0].startswith("-") else ""
        meant = nearest(word, self.commands) if word and "/" not in word else None
        if meant and not problem_with(word) and not Path(word).exists():
            raise ConfigError(
                f"no folder and no command '{shortened(word)}'",
                expected=f"a folder, or one of: {', '.join(self.commands)}",
                found=shortened(word),
                hint=f"did you mean '{meant}'?",
            )
