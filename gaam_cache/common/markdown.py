"""Markdown of cards and reports, in which text from elsewhere is plain text."""

import re
from collections.abc import Iterable, Sequence

from gaam_cache.common.messages import visible

MOST_CLASSES = 100  # names of classes on a card
NOUNS = {"text": "texts", "audio": "sounds", "vision": "pictures"}
"""Kind of an encoder -> the word for its rows."""
_LINK_MARKS = re.compile(
    r"@|:(?=//)|(?<=www)\.|(?<=mailto):|(?<=xmpp):|#(?=\d)", re.IGNORECASE
)
"""Characters that make links, mentions and references, even after a backslash."""
_LINE_START = re.compile(r"^(?:[#+=-]|\d+[.)])")
"""What makes a heading, a rule or a list of a line."""
_MARKUP = re.compile(r"[\\`*_{}\[\]<>|~&$]")


def plain(text: str) -> str:
    """A line of Markdown without any markup: no heading, list, rule, HTML or link."""

    def escape_last_character(match: re.Match[str]) -> str:
        start = match[0]
        return f"{start[:-1]}\\{start[-1]}"

    return _LINE_START.sub(escape_last_character, _cell(text))


def items(lines: Iterable[str]) -> list[str]:
    """A Markdown list of plain lines."""
    return [f"- {plain(line)}" for line in lines]


def pipes(
    header: Sequence[str], lines: Iterable[Sequence[str]], left: Sequence[str]
) -> list[str]:
    """A table in GitHub's Markdown; the columns in ``left`` are aligned left."""
    rule = [":--" if name in left else "--:" for name in header]
    body = [f"| {' | '.join(map(_cell, line))} |" for line in lines]
    return [f"| {' | '.join(map(_cell, header))} |", f"|{'|'.join(rule)}|", *body]


def _cell(text: str) -> str:
    """Text on one line, with every mark of Markdown escaped."""
    words = " ".join(visible(text).split())
    # GitHub links some marks even after a backslash: they become hexadecimal escapes
    words = _LINK_MARKS.sub(lambda match: f"\\x{ord(match[0]):02x}", words)
    return _MARKUP.sub(lambda match: "\\" + match[0], words)
