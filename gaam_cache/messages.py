"""What is said: text from elsewhere made harmless, and the words of messages and cards."""

from __future__ import annotations

import difflib
import hashlib
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

LONGEST_WORD, LONGEST_NAME = 60, 120
"""Characters, of what a person wrote and of a name, that a message shows."""
MOST_MARKS = 4
"""On one letter: more than any script needs, and few enough to stay between the lines."""
MOST_CLASSES = 100
"""That a card names; of more it names so many and counts the rest."""
NOUNS = {"text": "texts", "audio": "sounds", "vision": "pictures"}
"""What people call rows of a kind."""
TODO = "TODO: "
"""With it begins a line of a card that a person has to fill in."""
_ESCAPED = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories that are obeyed, or not seen: control, direction, surrogates, separators."""
_UNSEEN = {
    *"\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0",
    *map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))),
}
"""Letters and marks of other categories that leave no trace: fillers, variation selectors."""
# what programs make links, mentions and references of, also after a backslash
_LINKED = re.compile(r"@|:(?=//)|(?<=www)\.|(?<=mailto):|(?<=xmpp):|#(?=\d)", re.IGNORECASE)


def visible(text: str, *, keep: str = "") -> str:
    """The text, with all that a terminal or reader would obey or hide as Python escapes it.

    Args:
        text: anything, from anywhere.
        keep: characters to leave alone, such as the line feeds of a message.
    """
    if text.isascii() and text.isprintable():
        return text
    shown, marks = [], 0
    for c in text:
        category = unicodedata.category(c)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        harmful = category in _ESCAPED or c in _UNSEEN or marks > MOST_MARKS
        harmful &= c not in keep
        shown.append(c.encode("unicode_escape", "surrogatepass").decode() if harmful else c)
    return "".join(shown)


def visible_values(value: Any) -> Any:
    """JSON values with every string in them, keys too, made visible."""
    if isinstance(value, dict):
        return {visible_values(key): visible_values(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [visible_values(entry) for entry in value]
    return visible(value) if isinstance(value, str) else value


def brief(text: str, longest: int = LONGEST_NAME, *, keep: str = "") -> str:
    """A name of bounded length: a hash stands for the middle, so that names stay different."""
    text = visible(text, keep=keep)
    if len(text) <= longest:
        return text
    digest = f"...{hashlib.sha256(text.encode()).hexdigest()[:8]}..."
    front = (longest - len(digest)) * 2 // 3
    return text[:front] + digest + text[front + len(digest) - longest :]


def tell(text: str, *, to: TextIO | None = None) -> None:
    """Print lines, whatever they are made of; default: on stdout."""
    print(visible(text, keep="\n"), file=to or sys.stdout)


def shortened(word: str) -> str:
    """What a person wrote, cut off where it is long."""
    return word if len(word) <= LONGEST_WORD else f"{word[: LONGEST_WORD - 3]}..."


def excerpt(value: object) -> str:
    """A value in quotes and on one line; its end is cut off where it is long."""
    shown, longest = repr(value), LONGEST_WORD if isinstance(value, str) else 100
    return shown if len(shown) <= longest + 2 else f"{shown[: longest - 3]}..."


def option_of(field: str) -> str:
    """How a field of a configuration is written on the command line."""
    return "--" + field.replace("_", "-")


def nearest(
    word: str, valid: Iterable[str], aliases: Mapping[str, str] | None = None
) -> str | None:
    """The valid name that was probably meant: its spelling is close, or it has that alias."""
    known = {_plain(alias): name for alias, name in (aliases or {}).items()}
    known |= {_plain(name): name for name in valid}
    plain = _plain(word[:LONGEST_WORD])
    parts = [one for one in known if plain and (one.startswith(plain) or plain.startswith(one))]
    found = difflib.get_close_matches(plain, known, 1, 0.8) or parts
    # 'best' is not 'test': of a short word one letter is much
    found = found or difflib.get_close_matches(plain, known, 1, 0.6)[: len(plain) > 4]
    return known[found[0]] if found else None


def did_you_mean(
    word: str, valid: Iterable[str], aliases: Mapping[str, str] | None = None
) -> str | None:
    """The question after it, for a message; None where nothing is near."""
    meant = nearest(word, valid, aliases)
    return f"did you mean '{meant}'?" if meant else None


def _plain(word: str) -> str:
    return word.strip().casefold().replace("_", "-").replace(" ", "-")


def duration(seconds: float) -> str:
    """Two units at most: '1 h 20 min'."""
    whole = max(0, round(seconds))
    for size, unit, part, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"


def install(extra: str) -> str:
    """The command that installs an extra: of a checkout its own, else of the package."""
    root = Path(__file__).resolve().parents[1]
    checkout = (root / "pyproject.toml").is_file()
    return f"pip install -e '{root}[{extra}]'" if checkout else f"pip install 'gaam[{extra}]'"


def escaped(text: str) -> str:
    """Text in which nothing is Markdown, HTML or a link, on one line; for a cell of a table."""
    words = " ".join(visible(text).split())
    words = _LINKED.sub(lambda found: f"\\x{ord(found[0]):02x}", words)
    return re.sub(r"[\\`*_{}\[\]<>|~&$]", lambda found: "\\" + found[0], words)


def plain(text: str) -> str:
    """A line of nothing but text: no heading, list or rule."""
    return re.sub(r"^(?:[#+=-]|\d+[.)])", lambda m: f"{m[0][:-1]}\\{m[0][-1]}", escaped(text))


def items(lines: Iterable[str]) -> list[str]:
    """A list in Markdown; each line is text."""
    return [f"- {plain(line)}" for line in lines]


def licences(of: Iterable[str]) -> list[str]:
    """The section of a card with a place for each licence."""
    return ["## Licences", "", *items(f"{TODO}of {one}" for one in of)]


def pipes(header: Sequence[str], lines: Iterable[Sequence[str]], left: Sequence[str]) -> list[str]:
    """A table as GitHub reads it; ``left`` names the columns that are text."""
    rule = [":--" if name in left else "--:" for name in header]
    body = [f"| {' | '.join(map(escaped, line))} |" for line in lines]
    return [f"| {' | '.join(map(escaped, header))} |", f"|{'|'.join(rule)}|", *body]


def front_matter(values: Mapping[str, Any], slots: Mapping[str, str]) -> list[str]:
    """The YAML at the beginning of a card, without values that are empty.

    Args:
        values: of JSON.
        slots: key -> what a person has to say there, as comments.
    """
    import yaml

    shown = {key: visible_values(value) for key, value in values.items() if value}
    lines = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=10**6).splitlines()
    return ["---", *lines, *(f"# {TODO}{key}: {meaning}" for key, meaning in slots.items()), "---"]
