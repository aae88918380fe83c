"""Text from elsewhere (names, paths, messages) made harmless to look at.

What a terminal, an editor or a reader would obey instead of showing is shown as an escape:
control characters, characters that change the direction of text or cannot be seen, and halves of
characters that no encoding can write.
"""

from __future__ import annotations

import unicodedata

_SHOWN_AS_ESCAPES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories: control, format (direction, width zero), surrogates, private, unassigned,
separators of lines and of paragraphs."""


def visible(text: str, *, keep: str = "") -> str:
    """The text, in which everything that is not to be obeyed is an escape as Python writes it.

    Args:
        text: anything, from anywhere.
        keep: characters to leave alone, such as a line feed in a message of several lines.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c
        if c in keep or unicodedata.category(c) not in _SHOWN_AS_ESCAPES
        else c.encode("unicode_escape", "surrogatepass").decode("ascii")
        for c in text
    )
