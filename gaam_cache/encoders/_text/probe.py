"""What a loaded model does to a text that shares its batch, measured.

Nothing is read off a model's name. Texts of mixed lengths run alone, through transformers' own
``output_hidden_states``, and then in batches, through our path; from what differs follows how the
layers are seen, when there is a mask, and which texts may share a batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gaam_cache.encoders._deviation import ROUNDING, relative
from gaam_cache.encoders._text.forward import Forward, Mask, Unusable, hooks
from gaam_cache.encoders._text.probe_texts import (
    SHORT_LENGTHS,
    TEXTS,
    probe_batches,
    probe_lengths,
    probe_texts,
)
from gaam_cache.format.plan import BATCHINGS, Batching

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
    texts = probe_texts(lengths, forward.vocabulary, avoid, marks)
    try:
        alone = _alone(forward, texts, dtype)
    except Unusable:  # a mark may ask for more than text, such as a picture
        texts = probe_texts(lengths, forward.vocabulary, avoid, ())
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
    # of a model on several devices, its output comes back to the first of them
    return cut.shape == expected_BTD.shape and torch.equal(
        cut.to(expected_BTD.device), expected_BTD
    )


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


def _worst(
    forward: Forward,
    texts: list[list[int]],
    alone: list[dict[str, Tensor]],
    batching: Batching,
    dtype: str,
) -> float:
    """The largest deviation of a state in a batch from that of its text alone."""
    worst = 0.0
    for batch in probe_batches(texts, batching):
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
