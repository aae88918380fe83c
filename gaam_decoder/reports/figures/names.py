"""Names in pictures: short, and never the same for two."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gaam_decoder.reports.figures.style import drawable, shorten
from gaam_decoder.reports.table.row_names import numbered

LEAST_FRONT = 6
"""Characters of the beginning that stay, where a name is cut to what tells it apart."""
MARK = "\N{HORIZONTAL ELLIPSIS}"


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


def wrapped(label: str, width: int) -> str:
    """A label on two lines where it is longer than one, parted where an option ends if it can."""
    if len(label) <= width:
        return label
    ends = [found.end() for found in re.finditer(r"[ ,:=_+-]+", label)]
    fits = [end for end in ends if end <= width and len(label) - end <= width]
    place = max(fits, default=max(width, len(label) - width))
    return f"{label[:place].rstrip()}\n{label[place:]}"


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
