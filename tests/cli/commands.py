"""Every command there is, those within a group by both words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import typer

import cli


def _all(commands: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in commands.items():
        if within := getattr(command, "commands", None):
            yield from _all(within, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


COMMANDS: dict[str, Any] = dict(_all(typer.main.get_command(cli.app).commands))  # type: ignore[attr-defined]
"""By what is typed, such as ``train`` and ``runs remove``."""
