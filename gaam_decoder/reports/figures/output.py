"""A figure -> SVG for a page, or files for a paper."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from gaam_decoder.reports.figures.style import PALETTE, styled

_NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}


def inline_svg(draw: Callable[[], Figure], *, key: str, alt: str) -> str:
    """An ``<svg>`` element to stand in a page: no fixed size, its colours CSS variables.

    Args:
        draw: makes the figure.
        key: unique in the page; ids inside the picture begin with it.
        alt: what somebody who does not see it is told.
    """
    stream = io.StringIO()
    with styled():
        draw().savefig(stream, format="svg", metadata=_NO_DATE["svg"])
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    # an id must be unique in a page, and most of these name nothing that is referred to
    text = re.sub(
        r' id="([^"]+)"',
        lambda found: f' id="{key}-{found[1]}"' if found[1] in used else "",
        text,
    )
    text = re.sub(r"url\(#", f"url(#{key}-", text)
    text = re.sub(r'href="#', f'href="#{key}-', text)
    for name, colour in PALETTE.items():
        text = text.replace(colour, f"var(--{name})")
    head, rest = text.split(">", 1)
    box = re.search(r'viewBox="[^"]+"', head)
    assert box is not None, "matplotlib always writes a viewBox"
    return (
        f'<svg role="img" aria-label="{escape(alt)}" {box[0]} '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">' + rest
    )


def save_figure(draw: Callable[[], Figure], folder: Path, name: str) -> list[Path]:
    """Write NAME.pdf and NAME.png (300 dots per inch, on white).

    Raises:
        OSError: the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.pdf", folder / f"{name}.png"]
    with styled():
        figure = draw()
        for path in paths:
            metadata = _NO_DATE[path.suffix[1:]]
            figure.savefig(path, dpi=300, facecolor="white", metadata=metadata)
    return paths
