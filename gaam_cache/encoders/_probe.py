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

from gaam_cache.encoders._deviation import ROUNDING, relative
from gaam_cache.encoders._forward import Forward, Mask, Unusable, hooks
from gaam_cache.format.plan import BATCHINGS, Batching

SHORT_LENGTHS = (1, 2, 3, 5, 8, 12, 17, 23, 31, 47, 64)
"""Of texts that are tried together: neighbours enough for what only now and then goes wrong, as
choices among equals do."""
TEXTS = 2
"""Texts of each of those lengths; of a greater one there is one."""
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
    marks: Sequence[int],
    settings: dict[str, Any],
) -> Isolation:
    """Measure a model, and set ``forward`` to run it so that every state is that of a text alone.

    Args:
        forward: the model; its mask and its stack of layers are set here.
        dtype: arithmetic, which says how much of a deviation is rounding.
        max_length: longest text in tokens.
        shortest: tokens of the shortest text.
        avoid: token ids that mean something to the model: special tokens.
        marks: those of them that real texts have: what the tokenizer puts around a text, and what
            fills batches, which a text may hold too and a model may take for the end of it.
        settings: the model's configuration.

    Raises:
        Unusable: the model yields no state for every layer and token, or not the same twice.
    """
    lengths = probe_lengths(settings, shortest, max_length)
    texts = _texts(lengths, forward.vocabulary, avoid, marks)
    try:
        alone = _alone(forward, texts, dtype)
    except Unusable:  # a mark may ask for more than text, such as a picture
        texts = _texts(lengths, forward.vocabulary, avoid, ())
        alone = _alone(forward, texts, dtype)
    some = next(iter(alone[0].values()))
    stack = _find_stack(
        forward, [ids for ids in texts if len(ids) <= SHORT_LENGTHS[-1]][-1], some.shape[1]
    )
    masks: list[Mask] = ["where padded", "always"]
    if _is_causal(forward, texts):
        masks.insert(0, "never")
    if not forward.takes_mask:
        masks = ["never"]
    least = math.inf
    for forward.stack in dict.fromkeys((stack, None)):
        leaks: dict[str, float] = {}
        for batching in BATCHINGS:
            for forward.mask in masks:
                worst = _worst(forward, texts, alone, batching, dtype)
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


def _texts(
    lengths: list[int], vocabulary: int | None, avoid: Sequence[int], marks: Sequence[int]
) -> list[list[int]]:
    """Token ids of texts that begin alike for nobody, from the shortest to the longest.

    The second text of every length has the marks in it, spread from its first to its last token.
    """
    size = vocabulary or 256
    # from the middle: ids that mean something and are not declared lie at the ends
    free = [i for i in range(size // 4, size - size // 4) if i not in set(avoid)] or [0]
    rng = np.random.default_rng(0)
    counts = [TEXTS if length <= SHORT_LENGTHS[-1] else 1 for length in lengths]
    texts = []
    for length, count in zip(lengths, counts, strict=True):
        for number in range(count):
            ids = [free[i] for i in rng.integers(len(free), size=length)]
            for i, mark in enumerate(marks if number else ()):
                ids[i * (length - 1) // max(1, len(marks) - 1)] = mark
            texts.append(ids)
    return texts


def _alone(forward: Forward, texts: list[list[int]], dtype: str) -> list[dict[str, Tensor]]:
    """States of every text alone, which must not depend on what was read before."""
    first = [forward.reference(ids) for ids in reversed(texts)][::-1]
    for ids, before in zip(texts[::TEXTS] + texts[-1:], first[::TEXTS] + first[-1:], strict=True):
        for name, states in forward.reference(ids).items():
            if not bool(torch.isfinite(states).all()):
                layer = int((~torch.isfinite(states)).any(-1)[0].nonzero()[0]) + 1
                raise Unusable(
                    f"layer {layer} yields numbers that are not finite in {dtype}: "
                    "try another --dtype"
                )
            apart = _apart(before[name], states)
            if not apart <= ROUNDING[dtype]:
                raise Unusable(
                    f"the same {len(ids)} tokens give other states the second time, off by "
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


def _is_causal(forward: Forward, texts: list[list[int]]) -> bool:
    """Whether a later token shifts no earlier state: not at all, where a model is causal."""
    for ids in (texts[len(texts) // 2], texts[-1]):
        if len(ids) < 2:
            return False
        other = next((i for text in texts for i in text if i != ids[-1]), ids[-1])
        runs = []
        for tokens in (ids, [*ids[:-1], other]):
            ids_BT = torch.tensor([tokens], device=forward.device)
            try:
                _, layers = forward.hidden_states(ids_BT, None)
            except Unusable:
                return False
            runs.append(layers[-1][:, :-1].float())
        if not bool((runs[0] - runs[1]).norm() <= CAUSAL_SHIFT * runs[0].norm()):
            return False
    return True


def _batches(texts: list[list[int]], batching: Batching) -> Iterator[list[int]]:
    """Batches, as numbers of texts, of the kind that an extraction would make; all of them."""
    numbers = range(len(texts))
    if batching == "alone":
        yield from ([number] for number in numbers)
        return
    for length in sorted({len(ids) for ids in texts}):
        same = [number for number in numbers if len(texts[number]) == length]
        if len(same) > 1 or batching == "equal lengths":
            yield same * (TEXTS // len(same))
    if batching == "padded":
        short = [number for number in numbers if len(texts[number]) <= SHORT_LENGTHS[-1]]
        yield short
        for number in numbers[len(short) :]:
            # a single token hides what moves positions alone: to the first one, all are the same
            for partner in dict.fromkeys((0, len(short) - 1, number - 1)):
                yield [number, partner]


def _worst(
    forward: Forward,
    texts: list[list[int]],
    alone: list[dict[str, Tensor]],
    batching: Batching,
    dtype: str,
) -> float:
    """The largest deviation of a state in a batch from that of its text alone."""
    worst = 0.0
    for batch in _batches(texts, batching):
        try:
            states = forward([texts[number] for number in batch])
        except Unusable:
            return math.inf
        for row, number in enumerate(batch):
            for name, expected in alone[number].items():
                worst = max(worst, _apart(states[name][row], expected[0]))
        if worst > ROUNDING[dtype]:
            break
    return worst
