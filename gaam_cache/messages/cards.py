"""What the cards of exported caches and decoders have in common."""

from __future__ import annotations

from collections.abc import Iterable

from gaam_cache.messages.markdown import TODO, items

NOUNS = {"text": "texts", "audio": "sounds", "vision": "pictures"}
"""What people call rows of a kind."""
MOST_CLASSES = 100
"""That a card names; of more it names so many and counts the rest."""


def licences(of: Iterable[str]) -> list[str]:
    """A section with a place for each licence, which a person has to fill in."""
    return ["## Licences", "", *items(f"{TODO}of {one}" for one in of)]
