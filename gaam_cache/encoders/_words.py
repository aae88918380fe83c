"""The words of a text, in any language."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

IDEOGRAPHS = ((0x3040, 0x30FF), (0x3400, 0x9FFF), (0x20000, 0x3FFFF))
"""Scripts without spaces between words, of which every character counts as one."""


def words_of(text: str) -> list[str]:
    """Runs of letters, marks and digits after NFKC and case folding.

    A script without spaces between words gives a word for every character.
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    return plain.translate(_SPACED).split()


class _Spaced(dict[int, str]):
    """Characters of words as they are, single ones of some scripts apart, all others as spaces."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        word = unicodedata.category(char)[0] in "LMN" or char == "_"
        if any(first <= code <= last for first, last in IDEOGRAPHS):
            self[code] = f" {char} " if word else " "
        else:
            self[code] = char if word else " "
        return self[code]


_SPACED = _Spaced()


def grams(words: Sequence[str], longest: int) -> Iterator[str]:
    """Sequences of up to ``longest`` neighbouring words, joined by a space."""
    for size in range(1, longest + 1):
        for start in range(len(words) - size + 1):
            yield " ".join(words[start : start + size])
