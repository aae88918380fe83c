"""What a loaded model does to a row that shares its batch, measured.

Nothing is read off a model's name. Rows of mixed lengths run alone, through transformers' own
``output_hidden_states``, and then in batches, through our path; from what differs follows how the
layers are seen, when there is a mask, and which rows may share a batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self, get_args

import torch
from torch import Tensor, nn

from gaam_cache.common import devices
from gaam_cache.encoders._forward import Forward, Mask, Unusable, hooks
from gaam_cache.encoders._precision import exact_or_none
from gaam_cache.store.plan import BATCHINGS, Batching
from gaam_cache.store.rounding import ROUNDING, UNMOVED, proof_limit, relative

Items = Sequence[Any]
"""Rows as a model's ``Forward`` takes them: their ``len`` decides what may share a batch, and
``[::-1]`` makes another one of the same length."""
MOST_AGAIN = 4
"""Rows of a batch that are run once more in higher precision, at most; those that moved most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """How a model is to be run, and which rows may share a batch. JSON values."""

    batching: Batching
    num_layers: int  # that are run
    hidden_size: int
    mask: Mask
    stack: str | None
    last_from_output: bool
    renews: bool
    longest: int | None
    longest_shared: int | None  # these six as ``Forward`` has them
    acts_causal: (
        bool | None
    )  # whether a later token shifts no earlier state; None: nobody can say

    def apply(self, forward: Forward) -> None:
        """Let a forward run so."""
        forward.mask, forward.stack = self.mask, self.stack
        forward.last_from_output = self.last_from_output
        forward.renews = self.renews
        forward.longest = self.longest
        forward.longest_shared = self.longest_shared

    def fits(self, forward: Forward) -> bool:
        """Whether the model has the layers that are to be hooked."""
        if self.stack is None:
            return True
        stack = dict(forward.model.named_modules()).get(self.stack)
        layers = self.num_layers + forward.first_layer - 1
        return isinstance(stack, nn.ModuleList) and len(stack) == layers

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """What ``to_dict`` gave; TypeError or ValueError where it is something else."""
        measured = cls(**value)
        lengths = measured.longest, measured.longest_shared
        counts = (
            measured.num_layers,
            measured.hidden_size,
            *(n for n in lengths if n is not None),
        )
        flags = (measured.last_from_output, measured.renews, bool(measured.acts_causal))
        if measured.batching not in BATCHINGS or measured.mask not in get_args(Mask):
            raise ValueError("no such batching or mask")
        if not all(type(count) is int and count > 0 for count in counts):
            raise ValueError("a number of layers, features or positions is none")
        if not all(type(flag) is bool for flag in flags):
            raise ValueError("neither true nor false")
        if not isinstance(measured.stack, str | None):
            raise ValueError("the name of the layers is no text")
        return measured


def probe(
    forward: Forward,
    candidates: Sequence[Items],
    *,
    dtype: str,
    together: int,
    shared: int | None = None,
) -> Measured:
    """Measure how ``forward`` must run so that every state is that of a row alone.

    Args:
        forward: the model.
        candidates: rows to try it on, from the shortest to the longest; where the model fails on
            them, the next ones.
        dtype: of its arithmetic.
        together: rows up to this length are tried in one batch.
        shared: a longer row has two of the others beside it, up to this length, and is alone
            beyond; None: there is no such length.

    Raises:
        Unusable: no way of running the model gives every row the states that it has alone.
    """
    forward.longest = forward.longest_shared = None
    for place, rows in enumerate(candidates):
        try:
            return _Probe(forward, rows, dtype, together, shared).measure()
        except Unusable:
            if place == len(candidates) - 1:
                raise
    raise Unusable("there is no row to try it on")


class _Member(NamedTuple):
    """A row of a batch."""

    item: Any
    number: (
        int | None
    )  # among the rows of the probe; None where nobody knows its states


_Batch = list[_Member]


class _Moved(NamedTuple):
    """How far states of a batch are from those of their rows alone."""

    batch: _Batch
    apart: dict[
        int, float
    ]  # place in the batch -> relative distance, beyond what rounding adds


class _Probe:
    """One model and some rows; ``measure`` goes from the cheapest way of running it on."""

    def __init__(
        self,
        forward: Forward,
        rows: Items,
        dtype: str,
        together: int,
        shared: int | None,
    ) -> None:
        self._forward, self._rows, self._dtype = forward, rows, dtype
        self._short = [row for row in rows if len(row) <= together] or [rows[0]]
        self._shared = shared
        self._alone: list[dict[str, Tensor]] = []

    def measure(self) -> Measured:
        """The first way that passes: padded before equal lengths, no mask before one."""
        forward = self._forward
        forward.renews, forward.stack = True, None
        self._alone = self._states_alone()
        forward.renews = forward.changes
        self._check_again()
        some = next(iter(self._alone[0].values()))
        num_layers, hidden_size = some.shape[1:]
        stack = self._find_stack(num_layers)
        acts_causal = forward.is_causal(self._short)
        masks: list[Mask] = ["where padded", "always"]
        if acts_causal:
            masks.insert(0, "never")
        if not forward.takes_mask:
            masks = ["never"]
        least = math.inf
        for forward.stack in dict.fromkeys((stack, None)):
            for batching in BATCHINGS:
                for forward.mask in masks:
                    worst, moved = self._try(batching)
                    if (
                        moved
                        and worst <= proof_limit(self._dtype)
                        and self._is_rounding(moved)
                    ):
                        moved = []
                    if not moved:
                        return Measured(
                            batching=batching,
                            num_layers=num_layers,
                            hidden_size=hidden_size,
                            mask=forward.mask,
                            stack=forward.stack,
                            last_from_output=forward.last_from_output,
                            renews=forward.renews,
                            longest=len(self._rows[-1])
                            if forward.tries_lengths
                            else None,
                            longest_shared=self._shared,
                            acts_causal=acts_causal,
                        )
                    least = min(least, worst)
        raise Unusable(
            f"with a mask or without, its states are off by {least:.1e} of their norm"
        )

    def _states_alone(self) -> list[dict[str, Tensor]]:
        """States of every row alone, from the last to the first."""
        alone = [self._forward.reference(row) for row in reversed(self._rows)][::-1]
        for states in (states for pooled in alone for states in pooled.values()):
            if not bool(torch.isfinite(states).all()):
                place = int((~torch.isfinite(states)).any(-1)[0].nonzero()[0])
                layer = place + self._forward.first_layer
                raise Unusable(
                    f"layer {layer} yields numbers that are not finite: another --dtype?"
                )
        return alone

    def _check_again(self) -> None:
        """Refuse a model that is another one in another order, though each row has a fresh copy."""
        last = len(self._short) - 1
        for number in sorted({0, last // 2, last}):
            for name, states in self._forward.reference(self._rows[number]).items():
                apart = _apart(self._alone[number][name], states)
                if not apart <= ROUNDING[self._dtype]:
                    why = "it keeps something of what it read before, or draws random numbers"
                    raise Unusable(
                        f"the same row gives other states twice ({apart:.1e}): {why}"
                    )

    def _find_stack(self, num_layers: int) -> str | None:
        """Name of the list of layers whose outputs are the hidden states; none if there is none."""
        forward, row = self._forward, self._short[-1]
        batch = forward.batch([row, row[::-1]])
        stacks = [
            (name, module)
            for name, module in forward.model.named_modules()
            if isinstance(module, nn.ModuleList)
            and len(module) == num_layers + forward.first_layer - 1
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

    def _try(self, batching: Batching) -> tuple[float, list[_Moved]]:
        """The largest deviation of a state in a batch from that of its row alone; what deviates.

        It stops where the deviation is more than rounding can ever explain.
        """
        worst, moved = 0.0, list[_Moved]()
        for batch in self._batches(batching):
            try:
                states = self._forward([member.item for member in batch])
            except Unusable:
                return math.inf, [_Moved(batch, {})]
            apart = {}
            for place, (_, number) in enumerate(batch):
                if number is None:
                    continue
                alone = self._alone[number]
                far = max(_apart(states[name][place], alone[name][0]) for name in alone)
                worst = max(worst, far)
                if not far <= ROUNDING[self._dtype]:
                    apart[place] = far
            if apart:
                moved.append(_Moved(batch, apart))
            if worst > proof_limit(self._dtype):
                break
        return worst, moved

    def _batches(self, batching: Batching) -> Iterator[_Batch]:
        """Batches of the kind that an extraction would make; what moves most states comes first."""
        members = [_Member(row, number) for number, row in enumerate(self._rows)]
        if batching == "alone":
            yield from ([member] for member in members)
            return
        tried = set[tuple[int | None, ...]]()
        if batching == "padded":
            for numbers in self._padded():
                tried.add(tuple(numbers))
                yield [members[number] for number in numbers]
        for length in sorted({len(row) for row in self._rows}):
            same = [member for member in members if len(member.item) == length]
            if len(same) == 1 and not self._fills(length):
                same.append(_Member(same[0].item[::-1], None))
            if tuple(member.number for member in same) not in tried:
                yield same

    def _padded(self) -> Iterator[list[int]]:
        """Rows of different lengths: all short ones, and each longer one with two of the others."""
        count = len(self._short)
        yield list(range(count))
        for number in range(count, len(self._rows)):
            if self._fills(len(self._rows[number])):
                yield [number]
            else:
                # no single token: to it all positions are the same, which hides what moves them
                yield sorted({count - 1, number - 1, number})

    def _fills(self, length: int) -> bool:
        """Whether a row of this length is alone in its batch, whatever the model is like."""
        return self._shared is not None and length > self._shared

    def _is_rounding(self, moved: Sequence[_Moved]) -> bool:
        """Whether all that moved stays where it is in higher precision, with the same padding.

        Where that cannot be computed: whether copies of a row move as far, of which nothing but
        other kernels than those of a row alone is the cause.
        """
        exact = exact_or_none(self._forward)
        if exact is None:
            return all(map(self._copies_move, moved))
        for batch, apart in moved:
            longest = max(range(len(batch)), key=lambda place: len(batch[place].item))
            most = sorted(apart, key=lambda place: -apart[place])[:MOST_AGAIN]
            places = sorted({*most, longest, 0, len(batch) - 1})
            try:
                states = exact.together([batch[place].item for place in places])
                for row, place in enumerate(places):
                    if place not in most:
                        continue
                    for name, alone in exact.alone(batch[place].item).items():
                        if (
                            not _apart(states[name][row], alone[0])
                            <= UNMOVED[self._dtype]
                        ):
                            return False
            except Exception as error:
                if not isinstance(error, Unusable) and not devices.out_of_memory(error):
                    raise
                return all(map(self._copies_move, moved))
        return True

    def _copies_move(self, moved: _Moved) -> bool:
        """Whether copies of each row move half as far as it did beside others."""
        for place, far in moved.apart.items():
            item, number = moved.batch[place]
            alone, copies = self._alone[number or 0], 0.0
            for count in {2, len(moved.batch)}:
                states = self._forward([item] * count)
                for name in alone:
                    each = [_apart(x, alone[name][0]) for x in states[name]]
                    copies = max(copies, *each)
            if far > max(ROUNDING[self._dtype], 2 * copies):
                return False
        return bool(moved.apart)


def _apart(states: Tensor, alone: Tensor) -> float:
    return float(relative(states.cpu().numpy(), alone.cpu().numpy()).max())


def _same(seen: Any, expected_BTD: Tensor) -> bool:
    """Whether a layer's output is its hidden state, but for more padding on the right."""
    if not isinstance(seen, Tensor) or seen.ndim != 3 or len(seen) != len(expected_BTD):
        return False
    cut = seen[:, : expected_BTD.shape[1]]
    if cut.shape != expected_BTD.shape:
        return False
    # of a model on several devices, its output comes back to the first of them
    return torch.equal(cut.to(expected_BTD.device), expected_BTD)
