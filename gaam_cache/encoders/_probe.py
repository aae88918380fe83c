"""What a loaded model does to a row that shares its batch, measured.

Nothing is read off a model's name. Rows of mixed lengths run alone, through transformers' own
``output_hidden_states``, and then in batches, through our path; from what differs follows how the
layers are seen, when there is a mask, and which rows may share a batch.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gaam_cache.encoders._forward import Forward, Mask, Unusable, hooks
from gaam_cache.store.plan import BATCHINGS, Batching
from gaam_cache.store.rounding import ROUNDING, proof_limit, relative

ROWS = 2  # rows of each of the lengths that are tried together; of a greater one there is one
Items = Sequence[Any]
"""Rows as a model's ``Forward`` takes them: their ``len`` decides what may share a batch, and
``[::-1]`` makes another one of the same length."""


def probe(
    forward: Forward, candidates: Sequence[Items], *, dtype: str, longest: int
) -> tuple[Batching, int, int]:
    """Measure a model, and set ``forward`` to run it so that every state is that of a row alone.

    Returns which rows may share a batch, the number of layers, and the hidden size.

    ``candidates`` are rows to try it on, from the shortest to the longest; where the model fails on
    them, the next ones. Up to ``longest`` there are ``ROWS`` of each length, tried together.
    """
    for place, rows in enumerate(candidates):
        try:
            alone = _alone(forward, rows, dtype)
            break
        except Unusable:
            if place == len(candidates) - 1:
                raise
    forward.renews = forward.changes
    _check_again(forward, rows, alone, dtype)
    some = next(iter(alone[0].values()))
    typical = [row for row in rows if len(row) <= longest][-1]
    stack = _find_stack(forward, typical, some.shape[1])
    masks: list[Mask] = ["where padded", "always"]
    if forward.is_causal(rows):
        masks.insert(0, "never")
    if not forward.takes_mask:
        masks = ["never"]
    least, lengths = math.inf, [len(row) for row in rows]
    for forward.stack in dict.fromkeys((stack, None)):
        for batching in BATCHINGS:
            for forward.mask in masks:
                worst = _worst(forward, rows, alone, _batches(lengths, batching, longest), dtype)
                limit = ROUNDING[dtype]
                if dtype != "float32" and limit < worst <= proof_limit(dtype):
                    # on an H200 40 layers of 5,120 features round by 3.4%, in copies of a row too
                    limit = 2 * _worst(forward, rows, alone, _copies(lengths, longest), dtype)
                if worst <= limit:
                    return batching, some.shape[1], some.shape[2]
                least = min(least, worst)
    raise Unusable(f"with a mask or without, its states are off by {least:.1e} of their norm")


def _alone(forward: Forward, rows: Items, dtype: str) -> list[dict[str, Tensor]]:
    """States of every row alone, from the last to the first."""
    alone = [forward.reference(row) for row in reversed(rows)][::-1]
    for states in (states for pooled in alone for states in pooled.values()):
        if not bool(torch.isfinite(states).all()):
            place = int((~torch.isfinite(states)).any(-1)[0].nonzero()[0])
            layer = place + forward.first_layer
            raise Unusable(f"layer {layer} yields numbers that are not finite: another --dtype?")
    return alone


def _check_again(forward: Forward, rows: Items, alone: list[dict[str, Tensor]], dtype: str) -> None:
    """Refuse a model that is another one in another order, though each row has a fresh copy."""
    for number in [*range(0, len(rows), ROWS), len(rows) - 1]:
        for name, states in forward.reference(rows[number]).items():
            apart = _apart(alone[number][name], states)
            if not apart <= ROUNDING[dtype]:
                why = "it keeps something of what it read before, or draws random numbers"
                raise Unusable(f"the same row gives other states twice ({apart:.1e}): {why}")


def _apart(states: Tensor, alone: Tensor) -> float:
    return float(relative(states.cpu().numpy(), alone.cpu().numpy()).max())


def _find_stack(forward: Forward, row: Any, num_layers: int) -> str | None:
    """Name of the list of layers whose outputs are the hidden states; none if there is none."""
    batch = forward.batch([row, row[::-1]])
    stacks = [
        (name, module)
        for name, module in forward.model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == num_layers + forward.first_layer - 1
    ]
    for name, stack in stacks:
        seen: dict[int, Any] = {}
        try:
            with hooks(stack, seen.__setitem__, first_layer=forward.first_layer):
                output, expected = forward.hidden_states(batch)
        except Unusable:
            return None
        numbered = enumerate(expected, start=forward.first_layer)
        same = [_same(seen.get(layer), x_BTD) for layer, x_BTD in numbered]
        last = getattr(output, "last_hidden_state", None)
        if all(same[:-1]) and (same[-1] or _same(last, expected[-1])):
            forward.last_from_output = not same[-1]
            return name
    return None


def _same(seen: Any, expected_BTD: Tensor) -> bool:
    """Whether a layer's output is its hidden state, but for more padding on the right."""
    if not isinstance(seen, Tensor) or seen.ndim != 3 or len(seen) != len(expected_BTD):
        return False
    cut = seen[:, : expected_BTD.shape[1]]
    if cut.shape != expected_BTD.shape:
        return False
    # of a model on several devices, its output comes back to the first of them
    return torch.equal(cut.to(expected_BTD.device), expected_BTD)


def _worst(
    forward: Forward,
    rows: Items,
    alone: list[dict[str, Tensor]],
    batches: Iterator[list[int]],
    dtype: str,
) -> float:
    """The largest deviation of a state in a batch from that of its row alone."""
    worst = 0.0
    for batch in batches:
        try:
            states = forward([rows[number] for number in batch])
        except Unusable:
            return math.inf
        for row, number in enumerate(batch):
            for name, expected in alone[number].items():
                worst = max(worst, _apart(states[name][row], expected[0]))
        if worst > proof_limit(dtype):
            break
    return worst


def _copies(lengths: Sequence[int], longest: int) -> Iterator[list[int]]:
    """Batches of one row: nothing in them shifts it, but other kernels compute it than alone."""
    for number, length in enumerate(lengths):
        yield from ([number] * n for n in {ROWS, len(lengths) if length <= longest else ROWS})


def _batches(lengths: Sequence[int], batching: Batching, longest: int) -> Iterator[list[int]]:
    """Batches, as numbers of rows, of the kind that an extraction would make; all of them."""
    numbers = range(len(lengths))
    if batching == "alone":
        yield from ([number] for number in numbers)
        return
    for length in sorted(set(lengths)):
        same = [number for number in numbers if lengths[number] == length]
        if len(same) > 1 or batching == "equal lengths":
            yield same * (ROWS // len(same) if len(same) < ROWS else 1)
    if batching == "padded":
        short = [number for number in numbers if lengths[number] <= longest]
        yield short
        for number in numbers[len(short) :]:
            # a single token hides what moves positions alone: to the first one, all are the same
            for partner in dict.fromkeys((0, len(short) - 1, number - 1)):
                yield [number, partner]
