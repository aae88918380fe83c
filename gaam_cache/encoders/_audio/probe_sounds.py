"""Sounds on which a model shows what neighbours do to them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gaam_cache.encoders._audio.clip import Clip
from gaam_cache.encoders._audio.hearing import Hearing
from gaam_cache.encoders._text.probe_texts import SHORT_LENGTHS, probe_lengths

LONGEST = 400
"""Positions of the longest sound that is tried, 8 s of most encoders: each takes long on a CPU, and
of longer ones the rows prove it by which every shard is checked."""


def probe_sounds(hearing: Hearing, settings: dict[str, object]) -> tuple[list[Clip], int]:
    """Sounds from the shortest to the longest, and the samples of the longest one that has a twin.

    Where every sound is filled to one length there are few: each costs as much as the longest.

    Args:
        hearing: of the encoder.
        settings: its configuration, which may name lengths at which a model acts otherwise.
    """
    least, most = hearing.positions(hearing.least_samples), hearing.positions(hearing.max_samples)
    if hearing.width is None:
        lengths = probe_lengths(settings, least, min(most, LONGEST))
        twins = SHORT_LENGTHS[-1]
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
