"""Markdown of cards and reports, in which nothing from elsewhere is more than text."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gaam_cache.common.messages import visible, visible_values

MOST_CLASSES = 100  # that a card names; of more it names so many and counts the rest
NOUNS = {"text": "texts", "audio": "sounds", "vision": "pictures"}
"""What people call rows of a kind."""
TODO = "TODO: "  # with it begins a line of a card that a person has to fill in
_LINKED = re.compile(
    r"@|:(?=//)|(?<=www)\.|(?<=mailto):|(?<=xmpp):|#(?=\d)", re.IGNORECASE
)
"""What programs make links, mentions and references of, also after a backslash."""


def plain(text: str) -> str:
    """A line of Markdown that is nothing but text: no heading, list, rule, HTML or link."""
    return re.sub(
        r"^(?:[#+=-]|\d+[.)])", lambda m: f"{m[0][:-1]}\\{m[0][-1]}", _cell(text)
    )


def items(lines: Iterable[str]) -> list[str]:
    """A list in Markdown; each line is text."""
    return [f"- {plain(line)}" for line in lines]


def pipes(
    header: Sequence[str], lines: Iterable[Sequence[str]], left: Sequence[str]
) -> list[str]:
    """A table as GitHub reads it; ``left`` names the columns that are text."""
    rule = [":--" if name in left else "--:" for name in header]
    body = [f"| {' | '.join(map(_cell, line))} |" for line in lines]
    return [f"| {' | '.join(map(_cell, header))} |", f"|{'|'.join(rule)}|", *body]


def _cell(text: str) -> str:
    words = " ".join(visible(text).split())
    words = _LINKED.sub(lambda found: f"\\x{ord(found[0]):02x}", words)
    return re.sub(r"[\\`*_{}\[\]<>|~&$]", lambda found: "\\" + found[0], words)


def licences(of: Iterable[str]) -> list[str]:
    return ["## Licences", "", *items(f"{TODO}of {one}" for one in of)]


def front_matter(values: Mapping[str, Any], slots: Mapping[str, str]) -> list[str]:
    """The YAML at the beginning of a card; ``slots`` say what a person has to add, as comments."""
    import yaml

    shown = {key: visible_values(value) for key, value in values.items() if value}
    lines = yaml.safe_dump(
        shown, sort_keys=False, allow_unicode=True, width=10**6
    ).splitlines()
    return [
        "---",
        *lines,
        *(f"# {TODO}{key}: {meaning}" for key, meaning in slots.items()),
        "---",
    ]
