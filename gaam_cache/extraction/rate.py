"""How long the batches of a sample take one worker: timed here, or assumed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.encoders._base import Encoder, Outline
from gaam_cache.encoders._inputs import Inputs
from gaam_cache.extraction.batching import padded_tokens
from gaam_cache.extraction.cards import Card

SAMPLE_SECONDS = 6.0
"""Time spent on encoding sample batches."""
WARM_UP_BATCHES = 2


class Rate(NamedTuple):
    """What one worker needs for a sample."""

    seconds: float
    source: str
    """Where that comes from, for people."""


def timed_rate(
    encoder: Encoder,
    inputs: Inputs,
    length_N: NDArray[np.int64],
    batches: Sequence[NDArray[np.int64]],
) -> Rate:
    """Time batches spread over all lengths, until the time for it is up."""

    def run(batch: NDArray[np.int64]) -> int:
        for states in encoder.encode(inputs.batch(batch)).values():
            states.sum().item()  # waits for the device
        return padded_tokens(length_N, [batch])

    order = np.random.default_rng(0).permutation(len(batches))
    for index in order[:WARM_UP_BATCHES]:
        run(batches[index])
    done = 0
    start = time.perf_counter()
    for index in order:
        done += run(batches[index])
        if time.perf_counter() - start > SAMPLE_SECONDS:
            break
    rate = done / (time.perf_counter() - start)
    return Rate(padded_tokens(length_N, batches) / rate, f"timed here, on {encoder.device}")


def assumed_rate(tokens_per_second: float, tokens: int) -> Rate:
    """As somebody says."""
    return Rate(tokens / tokens_per_second, "assumed: --assume-tokens-per-second")


def card_rate(
    card: Card,
    share: float,
    dtype: str,
    outline: Outline,
    length_N: NDArray[np.int64],
    batches: Sequence[NDArray[np.int64]],
) -> Rate:
    """The operations of all batches, padding included, at a share of what a card can do.

    Formula: ``sum over batches of B (linear T + quadratic T^2) / (share x peak)``.
    """
    operations = 0.0
    for batch in batches:
        longest = int(length_N[batch].max())
        operations += len(batch) * (outline.linear * longest + outline.quadratic * longest**2)
    how = "counted" if outline.counted else "estimated from the number of parameters, which is"
    how += "" if outline.counted else " wrong for mixtures of experts and the like"
    source = (
        f"assumed, not measured: {100 * share:g}% (--share) of {card.peaks[dtype] / 1e12:g} "
        f"TFLOP/s, the dense {dtype} peak of one {card.label} (--card), at "
        f"{operations / length_N.sum() / 1e9:.3g} GFLOP a token, {how}"
    )
    return Rate(operations / (share * card.peaks[dtype]), source)
