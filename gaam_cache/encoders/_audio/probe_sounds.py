"""Sounds on which a model shows what neighbours do to them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gaam_cache.encoders._audio.clip import Clip
from gaam_cache.encoders._audio.hearing import Hearing

TWINS = (1, 2, 5, 12, 25, 47)
"""Positions of the sounds that are tried together, two of each; the longest is 0.9 s of most
encoders."""
LONGEST = 120
"""Of the longest one: beyond 80, where WavLM begins to round distances, and the 70 that others look
back. All together cost as much as a minute of sound; every shard proves longer ones."""


def probe_sounds(hearing: Hearing) -> tuple[list[Clip], int]:
    """Sounds from the shortest to the longest, and the samples of the longest one that has a twin.

    Where every sound is filled to one length there are few: each costs as much as the longest.

    Args:
        hearing: of the encoder.
    """
    least, most = hearing.positions(hearing.least_samples), hearing.positions(hearing.max_samples)
    if hearing.width is None:
        lengths = sorted({least, *(n for n in (*TWINS, LONGEST) if least < n < most), most})
        lengths = [n for n in lengths if n <= LONGEST] or [most]
        twins = TWINS[-1]
    else:
        lengths, twins = [max(1, most // 3), most], most // 3
    clips: list[Clip] = []
    longest = 0
    for number, length in enumerate(lengths):
        # at one end or the other of what has so many positions
        extent = hearing.last(length) if number % 2 else hearing.first(length)
        extent = max(hearing.least_samples, min(extent, hearing.max_samples))
        waves = [_sound(extent, hearing.rate, number, i) for i in range(1 + (length <= twins))]
        clips += map(hearing.clip_of, waves)
        if length <= twins:
            longest = extent
    return clips, longest


def _sound(samples: int, rate: int, number: int, twin: int) -> NDArray[np.float32]:
    """Noise; its twin is a rising tone that comes in after some silence."""
    if not twin:
        noise = np.random.default_rng(number).normal(scale=0.1, size=samples)
        return noise.astype(np.float32)
    t = np.arange(samples) / rate
    tone = 0.3 * np.sin(2 * np.pi * (200 + 40 * number + 300 * t) * t)
    tone[: samples // 4] = 0
    return tone.astype(np.float32)
