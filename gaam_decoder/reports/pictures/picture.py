"""One picture of a report."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """One picture: where it belongs, what is said below it and instead of it, how it is drawn."""

    kind: str
    """accuracy, differences, curves, attention, learned, confusion, or the name of a section."""
    name: str
    """Fit for a file name."""
    title: str
    caption: str
    alt: str
    draw: Callable[[], Figure]


def slug(label: str) -> str:
    """A label as part of a file name, in ASCII; others may have the same."""
    return re.sub(r"[^\w.=-]+", "_", label, flags=re.ASCII)[:100]
