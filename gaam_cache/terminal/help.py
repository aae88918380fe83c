"""What ``--help`` prints: headings, and under each what one can write and what it means.

Plain lines, broken between words, whatever the width: nothing is cut off. A terminal that shows
colours has headings and names in bold.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

WIDEST = 100
"""Columns of a line at most: longer ones are hard to read."""
NARROWEST = 40
"""Columns below which lines may run over; above, only a word that is longer than a line does."""
MARGIN = "  "
NAMES = 24
"""Columns of what is written at most; what needs more has a line of its own."""
TEXT = 52
"""Columns of what it means, rather than of what is written, where lines are short."""
VALUES = {"int": "N", "float": "NUMBER", "path": "PATH", "file": "PATH", "str": "TEXT"}
"""What an option takes whose line in ``cli.py`` says nothing else."""


def page(usage: str, text: str | None, panels: Mapping[str, list[tuple[str, str]]]) -> str:
    """A help text, as wide as the terminal within reason, or 80 columns where there is none.

    Args:
        usage: the first line.
        text: paragraphs, as in a docstring.
        panels: headings, each with pairs of what is written and what it means.
    """
    width = max(NARROWEST, min(WIDEST, shutil.get_terminal_size((80, 24)).columns))
    paragraphs = [one for one in inspect.cleandoc(text or "").split("\n\n") if one]
    blocks = [_hanging(usage, width), *(_wrapped(one, width) for one in paragraphs)]
    most = min(NAMES, max(width - 2 * len(MARGIN) - TEXT, len("-h, --help")))
    names = max(len(name) for rows in panels.values() for name, _ in rows if len(name) <= most)
    blocks += [_panel(heading, rows, names, width) for heading, rows in panels.items()]
    return "\n\n".join(blocks) + "\n"


def row(param: Any, ctx: Any) -> tuple[str, str]:
    """How an option or argument is written (``-o, --out PATH``), and what it means."""
    text = " ".join((param.help or "").split())
    default = param.default
    if param.param_type_name == "argument":
        name = argument(param)
    elif param.is_flag:
        name = "/".join([", ".join(sorted(param.opts, key=len)), *param.secondary_opts])
        default = None
    else:
        kind = re.findall("[a-z]+", param.display_type(ctx))  # <int range>, <list[str]>
        value = param.metavar or VALUES[next((one for one in kind if one in VALUES), "str")]
        name = f"{', '.join(sorted(param.opts, key=len))} {value}"
    if default is None or param.required or not param.show_default:
        return name, text
    return name, f"{text.removesuffix('.')} (default: {default})."


def argument(param: Any) -> str:
    """How an argument is written: ``RUN``, ``FILE...``."""
    name = str(param.metavar or param.name).strip("[].").upper()
    return name if param.nargs == 1 else f"{name}..."


def first_paragraph(text: str | None) -> str:
    """What stands beside a command in the list of all."""
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())


def _panel(heading: str, rows: list[tuple[str, str]], names: int, width: int) -> str:
    lines = [_bold(heading)]
    indent = MARGIN + " " * names + MARGIN
    for name, text in rows:
        longest = max(map(len, text.split()), default=0)
        if len(name) > names or len(indent) + longest > width:
            hanging = indent if len(indent) + longest <= width else 2 * MARGIN
            written = _hanging(name, width - len(MARGIN)).splitlines()
            lines += [MARGIN + _bold(line) for line in written]
            lines += [hanging + line for line in _wrapped(text, width - len(hanging)).splitlines()]
        else:
            first, *more = _wrapped(text, width - len(indent)).splitlines() or [""]
            lines.append(MARGIN + _bold(name) + " " * (names - len(name)) + MARGIN + first)
            lines += [indent + line for line in more]
    return "\n".join(lines)


def _hanging(text: str, width: int) -> str:
    """Lines of what is written, all but the first indented: none is wider than it must be."""
    return _wrapped(text, width, indent=2 * MARGIN) if len(text) > width else text


def _wrapped(text: str, width: int, indent: str = "") -> str:
    """Lines broken at spaces alone: a name that is broken cannot be copied."""
    words = " ".join(text.split())
    return textwrap.fill(
        words, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if _coloured() else text


def _coloured() -> bool:
    dull = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    return not dull and sys.stdout.isatty()
