"""Markdown of cards and reports, in which text from elsewhere is plain text."""

import re
from collections.abc import Iterable, Mapping, Sequence

from gaam_cache.common.messages import visible, visible_values

MOST_CLASSES = 100  # names of classes on a card
NOUNS = {"text": "texts", "audio": "sounds", "vision": "pictures"}
"""Kind of an encoder -> the word for its rows."""
TODO = "TODO: "  # starts each line of a card that a person has to fill in
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


def licences(subjects: Iterable[str]) -> list[str]:
    """The section of a card with the licences that a person has to fill in."""
    lines = [f"{TODO}of {subject}" for subject in subjects]
    return ["## Licences", "", *items(lines)]


def front_matter(values: Mapping[str, object], slots: Mapping[str, str]) -> list[str]:
    """The YAML at the start of a card.

    Args:
        values: what is known; empty values are left out.
        slots: key -> meaning of what a person has to add, written as comments.
    """
    # few commands write a card, and all would wait for this import
    import yaml

    shown = {key: visible_values(value) for key, value in values.items() if value}
    text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=10**6)
    todo_lines = [f"# {TODO}{key}: {meaning}" for key, meaning in slots.items()]
    return ["---", *text.splitlines(), *todo_lines, "---"]
