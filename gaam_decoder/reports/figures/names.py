"""Names in pictures: short, and never the same for two."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from gaam_decoder.reports.axes import numbered
from gaam_decoder.reports.figures.style import drawable, shorten

LEAST_FRONT = 6
"""Characters of the beginning that stay, where a name is cut to what tells it apart."""
MARK = "\N{HORIZONTAL ELLIPSIS}"
END = re.compile(r"[ ,:]+|(?<=[^\W\d_])-(?=[^\W\d_])")
"""Where a line may end: behind it. A hyphen before a digit is a sign, as in 1e-05."""


def distinct(labels: Sequence[str], longest: int) -> list[str]:
    """Labels of bounded length, no two of different labels alike; what is left out is marked.

    Those that would be alike when their middle is cut keep the part in which they differ; where
    they differ in parts that lie too far apart for that, they are numbered, as rows of a table are.
    """
    names = [drawable(label) for label in labels]
    short = [shorten(name, longest) for name in names]
    alike: dict[str, list[int]] = {}
    for place, text in enumerate(short):
        alike.setdefault(text, []).append(place)
    for places in alike.values():
        if len(places) > 1:
            for place in places:
                short[place] = _around([names[p] for p in places], names[place], longest)
    # only as long as it has to be: most are not numbered
    again = numbered(short)
    if again == short:
        return short
    room = longest - len(f" #{len(labels)}'")
    return numbered([a if a == b else shorten(b, room) for a, b in zip(short, again, strict=True)])


def on_two_lines(labels: Sequence[str], width: int) -> list[str]:
    """Labels on a line or two of bounded length, no two of different labels alike.

    A line ends between words or options: behind a space, a colon, a comma, or a hyphen between two
    words, never within a word or a number. Of what is too long for two lines, whole words are left
    out and marked; what would be alike then keeps the first word in which it differs, and where
    that is too long it stands on one line, as ``distinct`` makes it.
    """
    names = [drawable(label) for label in labels]
    found = [_parted(name, width) for name in names]
    for places in _alike(found):
        for place in places:
            found[place] = _from_difference([names[p] for p in places], names[place], width)
    lacking = [place for place, text in enumerate(found) if text is None]
    lacking += [place for places in _alike(found) for place in places]
    for place, text in zip(lacking, distinct([names[p] for p in lacking], width), strict=True):
        found[place] = text
    return distinct(names, width) if _alike(found) else [text for text in found if text is not None]


def _alike(texts: Sequence[str | None]) -> list[list[int]]:
    """Places of those that are the same."""
    by_text: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        if text is not None:
            by_text.setdefault(text, []).append(place)
    return [places for places in by_text.values() if len(places) > 1]


def _words(name: str) -> list[str]:
    """A name in parts, behind which a line may end."""
    ends = [found.end() for found in END.finditer(name)]
    return [name[a:b] for a, b in pairwise([0, *ends, len(name)]) if a < b]


def _parted(name: str, width: int) -> str | None:
    """A name on a line or two, of a longer one its beginning and its end; None if nothing fits."""
    if len(name) <= width:
        return name
    words = _words(name)
    for count in range(len(words) - 1, 0, -1):
        both = _line(words[:count]), _line(words[count:])
        if max(map(len, both)) <= width:
            return "\n".join(both)
    first = _front(words, width)
    back = [_line(words[start:]) for start in range(1, len(words))]
    second = next((text for text in back if text and len(text) <= width), None)
    return f"{first}\n{second}" if first and second else None


def _from_difference(alike: Sequence[str], name: str, width: int) -> str | None:
    """Its beginning, and what stands from the first word on in which these differ."""
    every = [_words(one) for one in alike]
    common = next((i for i, words in enumerate(zip(*every, strict=False)) if len(set(words)) > 1),
                  min(map(len, every)))  # fmt: skip
    words = _words(name)
    first = _front(words[:common], width, whole=True)
    rest = words[common:]
    second = _front(rest, width, whole=True) if rest else ""
    return f"{first}\n{second}".strip("\n") if first and second is not None else None


def _front(words: Sequence[str], width: int, *, whole: bool = False) -> str | None:
    """As many words as fit, and that others were left out; None of none."""
    if whole and len(_line(words)) <= width:
        return _line(words)
    for count in range(len(words) - 1, 0, -1):
        if len(text := f"{_line(words[:count])} {MARK}") <= width:
            return text
    return None


def _line(words: Sequence[str]) -> str:
    return "".join(words).strip()


def _around(alike: Sequence[str], name: str, longest: int) -> str:
    """Its beginning, and what stands from the first place on in which these differ."""
    first, last = min(alike), max(alike)  # all others have what these two begin with
    common = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    common = min(len(first), len(last)) if common is None else common
    word = max((found.end() for found in re.finditer(r"[ ,:]", name[:common])), default=0)
    start = word if common - word <= longest // 2 else common
    start = min(start, max(LEAST_FRONT, len(name) - (longest - LEAST_FRONT - 1)))
    front = max(LEAST_FRONT, longest - 1 - (len(name) - start))
    text = name if start <= front else f"{name[:front]}{MARK}{name[start:]}"
    return text if len(text) <= longest else f"{text[: longest - 1]}{MARK}"
