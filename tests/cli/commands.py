"""Every command there is."""

from __future__ import annotations

from typing import Any

import typer

import cli

COMMANDS: dict[str, Any] = dict(typer.main.get_command(cli.app).commands)  # type: ignore[attr-defined]
"""By what is typed, such as ``train``."""
