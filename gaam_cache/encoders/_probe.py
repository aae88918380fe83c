"""What a loaded model does to a text that shares its batch, measured.

Nothing is read off a model's name. Texts of mixed lengths run alone, through transformers' own
``output_hidden_states``, and then in batches, through our path; from what differs follows how the
layers are seen, when there is a mask, and which texts may share a batch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gaam_cache.batching import BATCHINGS, Batching
from gaam_cache.deviation import ROUNDING, relative
from gaam_cache.encoders._forward import Forward, Mask, Unusable, hooks

SHORT_LENGTHS = (1, 2, 5, 12, 23)
NEIGHBOURS = 4
"""Texts of equal length that share a batch of the probe."""
LONG_TEXTS = 4
"""Lengths just beyond a window or switch of the configuration that are tried, at most."""
WINDOW = re.compile(
    r"window|block|chunk|original_max|local|stride|conv.*kernel|max_distance|buckets"
)
"""Settings of a configuration that may name a length at which a model begins to act otherwise."""
CAUSAL_SHIFT = 1e-6
"""Largest relative effect of a later token that counts as none. To be taken for bidirectional by
mistake costs a causal model some speed; the other mistake would cost the states their truth."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Isolation:
    """Which texts may share a batch."""

    batching: Batching
    leaks: dict[str, float]
    """For every batching that was turned down: by how much it moves states, of their norm."""
    num_layers: int
    hidden_size: int


def probe(
    forward: Forward,
    *,
    dtype: str,
    max_length: int,
    shortest: int,
    avoid: Sequence[int],
    settings: dict[str, Any],
) -> Isolation:
    """Measure a model, and set ``forward`` to run it so that every state is that of a text alone.

    Args:
        forward: the model; its mask and its stack of layers are set here.
        dtype: arithmetic, which says how much of a deviation is rounding.
        max_length: longest text in tokens.
        shortest: tokens of the shortest text.
        avoid: token ids that mean something to the model: special tokens.
        settings: the model's configuration.

    Raises:
        Unusable: the model yields no state for every layer and token, or not the same twice.
    """
    make = _Texts(forward.vocabulary, avoid)
    lengths = probe_lengths(settings, shortest, max_length)
    alone = _alone(forward, make, lengths, dtype)
    some = next(iter(alone[lengths[0]].values()))
    stack = _find_stack(forward, make.text(min(lengths[-1], SHORT_LENGTHS[-1])), some.shape[1])
    masks: list[Mask] = ["where padded", "always"]
    if _is_causal(forward, make, lengths):
        masks.insert(0, "never")
    if not forward.takes_mask:
        masks = ["never"]
    least = math.inf
    for forward.stack in dict.fromkeys((stack, None)):
        leaks: dict[str, float] = {}
        for batching in BATCHINGS:
            for forward.mask in masks:
                worst = _worst(forward, make, batching, lengths, alone, dtype)
                if worst <= ROUNDING[dtype]:
                    return Isolation(
                        batching=batching,
                        leaks=leaks,
                        num_layers=some.shape[1],
                        hidden_size=some.shape[2],
                    )
                leaks[batching] = min(worst, leaks.get(batching, math.inf))
        least = min(least, leaks["alone"])
    raise Unusable(
        f"run without a mask or with one, its states are off by {least:.1e} of their norm"
    )


def probe_lengths(settings: dict[str, Any], shortest: int, max_length: int) -> list[int]:
    """Lengths of the texts that are tried, in order: short ones, beyond windows, the maximum."""
    beyond = sorted({w + 1 for w in _windows(settings) if SHORT_LENGTHS[-1] <= w < max_length})
    chosen = {shortest, *SHORT_LENGTHS, *beyond[:LONG_TEXTS], max_length}
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


class _Texts:
    """Token ids of texts that begin alike for nobody: a function of length and number."""

    def __init__(self, vocabulary: int | None, avoid: Sequence[int]) -> None:
        size = vocabulary or 256
        # from the middle: ids that mean something and are not declared lie at the ends
        free = [i for i in range(size // 4, size - size // 4) if i not in set(avoid)]
        self._free = free or list(range(size))

    def text(self, length: int, number: int = 0) -> list[int]:
        rng = np.random.default_rng([length, number])
        return [self._free[i] for i in rng.integers(len(self._free), size=length)]


def _alone(
    forward: Forward, make: _Texts, lengths: list[int], dtype: str
) -> dict[int, dict[str, Tensor]]:
    """States of every text alone, which must not depend on what was read before."""
    first = {n: forward.reference(make.text(n)) for n in reversed(lengths)}
    for length in lengths:
        again = forward.reference(make.text(length))
        for name, states in again.items():
            if not bool(torch.isfinite(states).all()):
                layer = int((~torch.isfinite(states)).any(-1)[0].nonzero()[0]) + 1
                raise Unusable(
                    f"layer {layer} yields numbers that are not finite in {dtype}: "
                    "try another --dtype"
                )
            apart = _apart(first[length][name], states)
            if not apart <= ROUNDING[dtype]:
                raise Unusable(
                    f"the same {length} tokens give other states the second time, off by "
                    f"{apart:.1e} of their norm: the model keeps something of what it read before, "
                    "or draws random numbers"
                )
    return first


def _apart(states: Tensor, alone: Tensor) -> float:
    return float(relative(states.cpu().numpy(), alone.cpu().numpy()).max())


def _find_stack(forward: Forward, ids: list[int], num_layers: int) -> nn.ModuleList | None:
    """Find the list of layers whose outputs are the hidden states; none if there is none."""
    ids_BT = torch.tensor([ids, ids[::-1]], device=forward.device)
    mask_BT = torch.ones_like(ids_BT)
    stacks = [
        module
        for module in forward.model.modules()
        if isinstance(module, nn.ModuleList) and len(module) == num_layers
    ]
    for stack in stacks:
        seen: dict[int, Any] = {}
        try:
            with hooks(stack, seen.__setitem__):
                output, expected = forward.hidden_states(ids_BT, mask_BT)
        except Unusable:
            return None
        same = [_same(seen.get(i), x_BTD) for i, x_BTD in enumerate(expected)]
        last = getattr(output, "last_hidden_state", None)
        if all(same[:-1]) and (same[-1] or _same(last, expected[-1])):
            forward.last_from_output = not same[-1]
            return stack
    return None


def _same(seen: Any, expected_BTD: Tensor) -> bool:
    """Whether a layer's output is its hidden state, but for more padding on the right."""
    if not isinstance(seen, Tensor) or seen.ndim != 3 or len(seen) != len(expected_BTD):
        return False
    cut = seen[:, : expected_BTD.shape[1]]
    return cut.shape == expected_BTD.shape and torch.equal(cut, expected_BTD)


def _is_causal(forward: Forward, make: _Texts, lengths: list[int]) -> bool:
    """Whether a later token shifts no earlier state: not at all, where a model is causal."""
    for length in {min(lengths[-1], SHORT_LENGTHS[-2]), lengths[-1]}:
        if length < 2:
            return False
        ids, other = make.text(length), make.text(length, 1)
        changed = [*ids[:-1], other[-1] if other[-1] != ids[-1] else other[0]]
        runs = []
        for tokens in (ids, changed):
            ids_BT = torch.tensor([tokens], device=forward.device)
            try:
                _, layers = forward.hidden_states(ids_BT, None)
            except Unusable:
                return False
            runs.append(layers[-1][:, :-1].float())
        if not bool((runs[0] - runs[1]).norm() <= CAUSAL_SHIFT * runs[0].norm()):
            return False
    return True


def _batches(make: _Texts, batching: Batching, lengths: list[int]) -> Iterator[list[list[int]]]:
    """Batches of the kind that an extraction would make, of texts whose states are known."""
    for length in lengths:
        yield [make.text(length)]
    if batching == "alone":
        return
    for length in lengths:
        count = NEIGHBOURS if length <= SHORT_LENGTHS[-1] else 2
        yield [make.text(length, number) for number in range(count)]
    if batching == "padded":
        yield [make.text(length) for length in lengths if length <= SHORT_LENGTHS[-1]]
        for long in lengths:
            if long > SHORT_LENGTHS[-1]:
                yield [make.text(long), make.text(lengths[len(lengths) // 2 - 1])]
                yield [make.text(long), make.text(lengths[0])]


def _worst(
    forward: Forward,
    make: _Texts,
    batching: Batching,
    lengths: list[int],
    alone: dict[int, dict[str, Tensor]],
    dtype: str,
) -> float:
    """The largest deviation of a state in a batch from that of its text alone."""
    worst = 0.0
    for batch in _batches(make, batching, lengths):
        try:
            states = forward(batch)
        except Unusable:
            return math.inf
        for row, ids in enumerate(batch):
            if ids != make.text(len(ids)):
                continue  # a neighbour
            for name, expected in alone[len(ids)].items():
                worst = max(worst, _apart(states[name][row], expected[0]))
        if worst > ROUNDING[dtype]:
            break
    return worst
