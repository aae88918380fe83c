"""Text from elsewhere in Markdown and in the YAML at its beginning: shown, never obeyed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gaam_cache.messages.foreign_text import visible

# what programs make links, mentions and references of, also after a backslash: as an escape
_LINKED = re.compile(r"@|:(?=//)|(?<=www)\.|(?<=mailto):|(?<=xmpp):|#(?=\d)", re.IGNORECASE)
_ACTIVE = re.compile(r"[\\`*_{}\[\]<>|~&$]")
_FIRST = re.compile(r"^(?:[#+=-]|\d+[.)])")
"""At the beginning of a line: headings, lists, rules."""
TODO = "TODO: "
"""With it begins a line of front matter that a person has to fill in; a comment until then."""


def escaped(text: str) -> str:
    """Text in which nothing is Markdown, HTML or a link, on one line; for a cell of a table."""
    words = " ".join(visible(text).split())
    words = _LINKED.sub(lambda found: f"\\x{ord(found[0]):02x}", words)
    return _ACTIVE.sub(lambda found: "\\" + found[0], words)


def plain(text: str) -> str:
    """A line of nothing but text."""
    return _FIRST.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", escaped(text))


def items(lines: Iterable[str]) -> list[str]:
    """A list; each line is text."""
    return [f"- {plain(line)}" for line in lines]


def pipes(header: Sequence[str], lines: Iterable[Sequence[str]], left: Sequence[str]) -> list[str]:
    """A table as GitHub reads it.

    Args:
        header: names of the columns.
        lines: cells of every line.
        left: names of the columns that are text.
    """
    rule = [":--" if name in left else "--:" for name in header]
    body = [f"| {' | '.join(map(escaped, line))} |" for line in lines]
    return [f"| {' | '.join(map(escaped, header))} |", f"|{'|'.join(rule)}|", *body]


def front_matter(values: Mapping[str, Any], slots: Mapping[str, str]) -> list[str]:
    """What stands at the beginning of a card, between its rules, in YAML.

    Args:
        values: strings, lists of them, and lists of mappings of strings; empty ones are left out.
        slots: key -> what a person has to say there, as comments.
    """
    lines = ["---"]
    for key, value in values.items():
        if value:
            lines += _entry(key, value, "")
    lines += [f"# {TODO}{key}: {meaning}" for key, meaning in slots.items()]
    return [*lines, "---"]


def _entry(key: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, str):
        yield f"{indent}{key}: {_quoted(value)}"
        return
    yield f"{indent}{key}:"
    for one in value:
        if isinstance(one, str):
            yield f"{indent}- {_quoted(one)}"
            continue
        parts = [line for name, inner in one.items() for line in _entry(name, inner, "")]
        yield from (f"{indent}{'  ' if place else '- '}{line}" for place, line in enumerate(parts))


def _quoted(text: str) -> str:
    """A string of JSON is one of YAML where every character can be seen."""
    return json.dumps(visible(text), ensure_ascii=False)
