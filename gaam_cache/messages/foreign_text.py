"""Text from elsewhere (names, paths, messages) made harmless to look at.

What a terminal, an editor or a reader would obey instead of showing is shown as an escape:
control characters, characters that change the direction of text or cannot be seen, marks piled
upon marks, and halves of characters that no encoding can write.
"""

from __future__ import annotations

import hashlib
import sys
import unicodedata
from typing import Any, TextIO

_SHOWN_AS_ESCAPES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories: control, format (direction, width zero), surrogates, private, unassigned,
separators of lines and of paragraphs."""
_UNSEEN = {
    *"\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0",
    *map(chr, range(0xFE00, 0xFE10)),
    *map(chr, range(0xE0100, 0xE01F0)),
}
"""Letters and marks of other categories that leave no trace: fillers, variation selectors."""
_MARKS = {"Mn", "Me"}
MOST_MARKS = 4
"""On one letter; more than any script needs, and few enough to stay between the lines."""
LONGEST_NAME = 120
"""Characters of a name that people are shown."""


def visible(text: str, *, keep: str = "") -> str:
    """The text, in which everything that is not to be obeyed is an escape as Python writes it.

    Args:
        text: anything, from anywhere.
        keep: characters to leave alone, such as a line feed in a message of several lines.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = []
    marks = 0
    for c in text:
        category = unicodedata.category(c)
        marks = marks + 1 if category in _MARKS else 0
        harmful = category in _SHOWN_AS_ESCAPES or c in _UNSEEN or marks > MOST_MARKS
        shown.append(_escaped(c) if harmful and c not in keep else c)
    return "".join(shown)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def visible_values(value: Any) -> Any:
    """JSON values with every string in them, keys too, made visible."""
    if isinstance(value, dict):
        return {visible_values(key): visible_values(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [visible_values(entry) for entry in value]
    return visible(value) if isinstance(value, str) else value


def brief(text: str, longest: int = LONGEST_NAME, *, keep: str = "") -> str:
    """A name of bounded length for people to read.

    What is left out of the middle is replaced by the beginning of the SHA-256 of the whole, so
    that different names stay different.

    Args:
        text: a name.
        longest: characters it may have; at least 20.
        keep: see ``visible``.
    """
    text = visible(text, keep=keep)
    if len(text) <= longest:
        return text
    digest = f"...{hashlib.sha256(text.encode()).hexdigest()[:8]}..."
    front = (longest - len(digest)) * 2 // 3
    return text[:front] + digest + text[front + len(digest) - longest :]


def tell(text: str, *, to: TextIO | None = None) -> None:
    """Print text, whatever it is made of.

    Args:
        text: one line or several.
        to: default: stdout.

    Raises:
        OSError: the stream refused.
    """
    print(visible(text, keep="\n"), file=to or sys.stdout)
