"""Texts on which a model shows what neighbours do to them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gaam_cache.encoders._model.probe import ROWS

SHORT_LENGTHS = (1, 2, 3, 5, 8, 12, 17, 23, 31, 47, 64)
"""Of texts that are tried together: neighbours enough for what only now and then goes wrong, as
choices among equals do."""
LONG_TEXTS = 4
"""Lengths just beyond a window or switch of the configuration that are tried, at most."""
WINDOW = re.compile(
    r"window|block|chunk|original_max|local|stride|conv.*kernel|max_distance|buckets"
)
"""Settings of a configuration that may name a length at which a model begins to act otherwise."""


def probe_lengths(settings: dict[str, Any], shortest: int, max_length: int) -> list[int]:
    """Lengths of the texts that are tried, in order: short ones, beyond windows, the maximum.

    And one that is no multiple of a block, where the maximum is: BigBird fills up others.
    """
    windows = set(_windows(settings))
    beyond = sorted({w + 1 for w in windows if SHORT_LENGTHS[-1] <= w < max_length})
    blocks = any(w > 1 and max_length % w == 0 for w in windows)
    chosen = {shortest, *SHORT_LENGTHS, *beyond[:LONG_TEXTS], max_length - blocks, max_length}
    return sorted(n for n in chosen if min(shortest, max_length) <= n <= max_length)


def _windows(settings: Any, name: str = "") -> Iterator[int]:
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from _windows(value, f"{name}.{key}")
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from _windows(value, name)
    elif type(settings) is int and WINDOW.search(name):
        yield settings


def probe_texts(
    lengths: list[int], vocabulary: int | None, avoid: Sequence[int], marks: Sequence[int]
) -> list[list[int]]:
    """Token ids of texts that begin alike for nobody, from the shortest to the longest.

    The second text of every length has the marks in it, spread from its first to its last token.
    """
    size = vocabulary or 256
    # from the middle: ids that mean something and are not declared lie at the ends
    free = [i for i in range(size // 4, size - size // 4) if i not in set(avoid)] or [0]
    rng = np.random.default_rng(0)
    counts = [ROWS if length <= SHORT_LENGTHS[-1] else 1 for length in lengths]
    texts = []
    for length, count in zip(lengths, counts, strict=True):
        for number in range(count):
            ids = [free[i] for i in rng.integers(len(free), size=length)]
            for i, mark in enumerate(marks if number else ()):
                ids[i * (length - 1) // max(1, len(marks) - 1)] = mark
            texts.append(ids)
    return texts
