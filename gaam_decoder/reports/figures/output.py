"""A figure -> SVG for a page, or files for a paper."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from html import escape

from matplotlib.figure import Figure

from gaam_cache.messages import visible
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
    tags = "".join(re.findall("<[^>]+>", text))
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', tags))
    # between tags are names, which are left as they are
    text = re.sub("<[^>]+>", lambda found: _of_page(found[0], key, used), text)
    head, rest = text.split(">", 1)
    box = re.search(r'viewBox="[^"]+"', head)
    assert box is not None, "matplotlib always writes a viewBox"
    return (
        f'<svg role="img" aria-label="{escape(visible(alt))}" {box[0]} '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">' + rest
    )


def _of_page(tag: str, key: str, used: set[str]) -> str:
    """A tag whose ids are unique in the page, and whose colours are those of the page."""
    # most ids name nothing that is referred to
    tag = re.sub(
        r' id="([^"]+)"',
        lambda found: f' id="{key}-{found[1]}"' if found[1] in used else "",
        tag,
    )
    tag = tag.replace("url(#", f"url(#{key}-").replace('href="#', f'href="#{key}-')
    for name, colour in PALETTE.items():
        tag = tag.replace(colour, f"var(--{name})")
    return tag


def svg_file(draw: Callable[[], Figure], colours: Mapping[str, str], *, alt: str) -> bytes:
    """An SVG file for a page whose colours are known.

    Args:
        draw: makes the figure.
        colours: name -> colour, of all that are in ``PALETTE`` and of ``paper``.
        alt: what somebody who does not see it is told.
    """
    text = inline_svg(draw, key="p", alt=alt)
    for name in PALETTE:
        text = text.replace(f"var(--{name})", colours[name])
    head, rest = text.split(">", 1)
    font = "text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif!important}"
    line = "svg{stroke-linejoin:round;stroke-linecap:butt}"
    paper = f'<rect width="100%" height="100%" fill="{colours["paper"]}"/>'
    return f"{head}><style>{font}{line}</style>{paper}{rest}\n".encode()


def image_files(draw: Callable[[], Figure]) -> dict[str, bytes]:
    """A figure as PDF and as PNG (300 dots per inch, on white): suffix -> content."""
    files = {}
    with styled(only_our_font=True):
        figure = draw()
        for suffix in ("pdf", "png"):
            content = io.BytesIO()
            figure.savefig(
                content, format=suffix, dpi=300, facecolor="white", metadata=_NO_DATE[suffix]
            )
            files[suffix] = content.getvalue()
    return files
