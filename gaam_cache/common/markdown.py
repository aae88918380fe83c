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


def escape_markdown(text: str) -> str:
    """A text as one line of Markdown that shows the text and has no effect.

    Marks are escaped that would make a heading, list, rule, HTML or link of it.
    """

    # in '1.' the dot makes the list, and a backslash before it stops this
    def escape_last_character(match: re.Match[str]) -> str:
        start = match[0]
        return f"{start[:-1]}\\{start[-1]}"

    return _LINE_START.sub(escape_last_character, _escaped_line(text))


def items(lines: Iterable[str]) -> list[str]:
    """The lines of a Markdown list; any markup in the given lines is escaped."""
    return [f"- {escape_markdown(line)}" for line in lines]


def pipe_table(
    header: Sequence[str], lines: Iterable[Sequence[str]], left_aligned: Sequence[str]
) -> list[str]:
    """The lines of a table in GitHub's Markdown.

    Args:
        header: names of the columns.
        lines: the cells of every line.
        left_aligned: names of the columns whose cells are on the left; the cells of
            all others are on the right.
    """
    # the line below the header sets the alignment of every column
    rule = [":--" if name in left_aligned else "--:" for name in header]
    body = [f"| {' | '.join(map(_escaped_line, line))} |" for line in lines]
    escaped_header = " | ".join(map(_escaped_line, header))
    return [f"| {escaped_header} |", f"|{'|'.join(rule)}|", *body]


def _escaped_line(text: str) -> str:
    """Text on one line, with every mark of Markdown escaped."""
    words = " ".join(visible(text).split())
    # GitHub makes links of some marks even after a backslash. A reader sees a
    # hexadecimal escape in their place, such as \x40 for @: the next step escapes its
    # backslash.
    words = _LINK_MARKS.sub(lambda match: f"\\x{ord(match[0]):02x}", words)
    return _MARKUP.sub(lambda match: "\\" + match[0], words)
