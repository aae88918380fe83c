"""The batching probe: it measures what a loaded model does to rows that share a batch.

Nothing is read off a model's name. The probe runs rows of mixed lengths alone, through
transformers' own ``output_hidden_states``, and then in batches, through gaam's forward.
The differences decide how the layers are read, when there is a mask, and which rows may
share a batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple, Self, get_args

import torch
from torch import Tensor, nn

from gaam_cache.common.devices import out_of_memory
from gaam_cache.encoders._forward import Forward, Mask, Unusable, hooks
from gaam_cache.encoders._precision import Exact, exact_or_none
from gaam_cache.store.plan import BATCHINGS, Batching
from gaam_cache.store.rounding import ROUNDING, UNMOVED, proof_limit, relative_deviation

Items = Sequence[Any]
"""Rows as a model's ``Forward`` takes them. Rows of equal ``len`` may always share a
batch, and ``[::-1]`` of a row is another row of the same length."""
MOST_AGAIN = 4
"""Rows of a batch that are run again in higher precision, at most: those with the
largest deviations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The result of a probe: how to run a model, and which rows may share a batch.

    JSON values. The fields from ``mask`` to ``longest_shared`` are those of
    ``Forward``.
    """

    batching: Batching
    num_layers: int  # number of layers that the model runs
    hidden_size: int
    mask: Mask
    stack: str | None
    last_from_output: bool
    renews: bool
    longest: int | None
    longest_shared: int | None
    acts_causal: bool | None
    """Whether later tokens leave earlier states unchanged; None if unknown."""

    def apply(self, forward: Forward) -> None:
        """Let a forward run as measured."""
        forward.mask = self.mask
        forward.stack = self.stack
        forward.last_from_output = self.last_from_output
        forward.renews = self.renews
        forward.longest = self.longest
        forward.longest_shared = self.longest_shared

    def fits(self, forward: Forward) -> bool:
        """Whether the model has the layers that need hooks."""
        if self.stack is None:
            return True
        stack = dict(forward.model.named_modules()).get(self.stack)
        expected_length = self.num_layers + forward.first_layer - 1
        return isinstance(stack, nn.ModuleList) and len(stack) == expected_length

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Read the result of ``to_dict``.

        Raises:
            TypeError: other keys.
            ValueError: other values.
        """
        measured = cls(**value)
        optional_lengths = (measured.longest, measured.longest_shared)
        lengths = [length for length in optional_lengths if length is not None]
        counts = [measured.num_layers, measured.hidden_size, *lengths]
        flags = (measured.last_from_output, measured.renews, bool(measured.acts_causal))

        if measured.batching not in BATCHINGS or measured.mask not in get_args(Mask):
            raise ValueError("no such batching or mask")
        # A saved file may hold any type: true would count as 1.
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
    short_length: int,
    longest_shared: int | None = None,
) -> Measured:
    """Measure how ``forward`` must run so that every row has the states of a row alone.

    Args:
        forward: the model.
        candidates: sets of rows, each from the shortest to the longest row. If the
            model fails on one set, the probe takes the next.
        dtype: arithmetic of the model.
        short_length: length up to which all rows are tried in one batch. A longer row
            shares its batch with two others.
        longest_shared: length above which a row is tried alone; None for no such
            length.

    Raises:
        Unusable: no way of running the model gives every row the states of a row alone.
    """
    # During the probe no length is untried: every batch goes the way that is measured.
    forward.longest = None
    forward.longest_shared = None
    for number, rows in enumerate(candidates, start=1):
        try:
            return _Probe(forward, rows, dtype, short_length, longest_shared).measure()
        except Unusable:
            if number == len(candidates):
                raise
    raise Unusable("there is no row to try it on")


class _Member(NamedTuple):
    """A row of a batch."""

    item: Any
    row: int | None
    """Its index among the rows of the probe; None if its states alone are unknown."""


_Batch = list[_Member]


class _Shift(NamedTuple):
    """A batch in which states deviate from those of a row alone."""

    batch: _Batch
    deviations: dict[int, float]
    """Slot of the batch -> relative deviation, where it exceeds ``ROUNDING``."""


class _Probe:
    """One model and one set of rows.

    ``measure`` tries the ways of running the model, from the cheapest one on.
    """

    def __init__(
        self,
        forward: Forward,
        rows: Items,
        dtype: str,
        short_length: int,
        longest_shared: int | None,
    ) -> None:
        self._forward = forward
        self._rows = rows
        self._dtype = dtype
        self._short = [row for row in rows if len(row) <= short_length] or [rows[0]]
        self._longest_shared = longest_shared
        self._alone: list[dict[str, Tensor]] = []

    def measure(self) -> Measured:
        """Return the first way of running the model that passes.

        Padded batches come before equal lengths, and no mask before a mask.
        """
        forward = self._forward

        # Fresh copies read every row, until it is known that reading changes none.
        forward.renews = True
        forward.stack = None
        self._alone = self._states_alone()
        forward.renews = forward.has_changed
        self._check_repeatable()

        num_layers = next(iter(self._alone[0].values())).shape[1]
        stack = self._find_stack(num_layers)
        acts_causal = forward.is_causal(self._short)

        # Hooks need less memory than all hidden states at once: they are tried first.
        stacks = dict.fromkeys((stack, None))
        masks = self._possible_masks(acts_causal)
        smallest = math.inf
        for stack_name, batching, mask in product(stacks, BATCHINGS, masks):
            forward.stack = stack_name
            forward.mask = mask
            worst, shifts = self._try(batching)
            may_be_rounding = worst <= proof_limit(self._dtype)
            if not shifts or (may_be_rounding and self._is_rounding(shifts)):
                return self._result(batching, acts_causal)
            smallest = min(smallest, worst)
        raise Unusable(
            f"with a mask or without, its states are off by {smallest:.1e} of their "
            "norm"
        )

    def _result(self, batching: Batching, acts_causal: bool | None) -> Measured:
        forward = self._forward
        num_layers, hidden_size = next(iter(self._alone[0].values())).shape[1:]
        return Measured(
            batching=batching,
            num_layers=num_layers,
            hidden_size=hidden_size,
            mask=forward.mask,
            stack=forward.stack,
            last_from_output=forward.last_from_output,
            renews=forward.renews,
            longest=len(self._rows[-1]) if forward.tries_lengths else None,
            longest_shared=self._longest_shared,
            acts_causal=acts_causal,
        )

    def _possible_masks(self, acts_causal: bool | None) -> list[Mask]:
        """The uses of a mask to try, the fastest first."""
        if not self._forward.takes_mask:
            return ["never"]
        if acts_causal:
            return ["never", "where padded", "always"]
        return ["where padded", "always"]

    def _states_alone(self) -> list[dict[str, Tensor]]:
        """States of every row alone, computed from the last row to the first."""
        alone = [self._forward.reference(row) for row in reversed(self._rows)]
        alone.reverse()
        for states_by_pooling in alone:
            for states in states_by_pooling.values():
                self._check_finite(states)
        return alone

    def _check_finite(self, states_1LD: Tensor) -> None:
        not_finite_1LD = ~torch.isfinite(states_1LD)
        if bool(not_finite_1LD.any()):
            # The first such layer tells where the arithmetic overflowed.
            index = int(not_finite_1LD.any(-1)[0].nonzero()[0])
            layer = index + self._forward.first_layer
            raise Unusable(
                f"layer {layer} yields numbers that are not finite: another --dtype?"
            )

    def _check_repeatable(self) -> None:
        """Refuse a model that gives a row other states when the order of rows changes.

        A fresh copy reads every row if copies were seen to change.
        """
        last = len(self._short) - 1
        # Three rows show it, and are cheap: the shortest, a middle and a longer one.
        for index in sorted({0, last // 2, last}):
            for name, states in self._forward.reference(self._rows[index]).items():
                deviation = _deviation(self._alone[index][name], states)
                if not deviation <= ROUNDING[self._dtype]:
                    raise Unusable(
                        f"the same row gives other states twice ({deviation:.1e}): it "
                        "keeps something of what it read before, or draws random "
                        "numbers"
                    )

    def _find_stack(self, num_layers: int) -> str | None:
        """Name of the module list whose outputs are the hidden states, if there is one.

        It also sets ``last_from_output``.
        """
        forward = self._forward
        # Two different rows of equal length: their batch needs no padding.
        row = self._short[-1]
        batch = forward.batch([row, row[::-1]])
        for name, stack in self._stacks_of(num_layers).items():
            outputs: dict[int, Any] = {}
            try:
                with hooks(stack, outputs.__setitem__, first_layer=forward.first_layer):
                    output, expected = forward.hidden_states(batch)
            except Unusable:
                return None

            is_state = [
                _is_hidden_state(outputs.get(layer), x_BTD)
                for layer, x_BTD in enumerate(expected, start=forward.first_layer)
            ]
            # With a final norm behind the stack, the last state is the model's output.
            last_output = getattr(output, "last_hidden_state", None)
            has_last = is_state[-1] or _is_hidden_state(last_output, expected[-1])
            if all(is_state[:-1]) and has_last:
                forward.last_from_output = not is_state[-1]
                return name
        return None

    def _stacks_of(self, num_layers: int) -> dict[str, nn.ModuleList]:
        """Module lists, by name, with as many modules as there are layers."""
        length = num_layers + self._forward.first_layer - 1
        module_lists = {
            name: module
            for name, module in self._forward.model.named_modules()
            if isinstance(module, nn.ModuleList)
        }
        return {
            name: stack for name, stack in module_lists.items() if len(stack) == length
        }

    def _try(self, batching: Batching) -> tuple[float, list[_Shift]]:
        """Compare states in batches with those of the rows alone.

        It stops at a deviation that rounding can never explain.

        Returns:
            The largest deviation, and the batches with deviations beyond ``ROUNDING``.
        """
        worst = 0.0
        shifts: list[_Shift] = []
        for batch in self._batches(batching):
            # A model that fails on a batch is as bad as one that shifts its states.
            try:
                states = self._forward([member.item for member in batch])
            except Unusable:
                return math.inf, [_Shift(batch, {})]

            deviations = self._deviations(batch, states)
            worst = max([worst, *deviations.values()])
            large = {
                slot: deviation
                for slot, deviation in deviations.items()
                if not deviation <= ROUNDING[self._dtype]
            }
            if large:
                shifts.append(_Shift(batch, large))
            if worst > proof_limit(self._dtype):
                break
        return worst, shifts

    def _deviations(self, batch: _Batch, states: dict[str, Tensor]) -> dict[int, float]:
        """Slot of the batch -> largest deviation of the row from its states alone."""
        deviations = {}
        for slot, member in enumerate(batch):
            if member.row is not None:
                alone = self._alone[member.row]
                deviations[slot] = max(
                    _deviation(states[name][slot], alone[name][0]) for name in alone
                )
        return deviations

    def _batches(self, batching: Batching) -> Iterator[_Batch]:
        """Batches as an extraction would make them, the most demanding ones first."""
        members = [_Member(item, row) for row, item in enumerate(self._rows)]
        if batching == "alone":
            for member in members:
                yield [member]
            return

        tried: set[tuple[int | None, ...]] = set()
        if batching == "padded":
            for indices in self._padded_batches():
                tried.add(tuple(indices))
                yield [members[index] for index in indices]

        # Rows of equal length are tried in both kinds of batching but "alone".
        for length in sorted({len(row) for row in self._rows}):
            batch = [member for member in members if len(member.item) == length]
            # A single row gets its reverse for company, unless it is always alone.
            if len(batch) == 1 and not self._is_always_alone(length):
                batch.append(_Member(batch[0].item[::-1], None))
            if tuple(member.row for member in batch) not in tried:
                yield batch

    def _padded_batches(self) -> Iterator[list[int]]:
        """Indices of rows of different lengths.

        All short rows make one batch. Each longer row has two of the others beside it.
        """
        num_short = len(self._short)
        yield list(range(num_short))
        for index in range(num_short, len(self._rows)):
            if self._is_always_alone(len(self._rows[index])):
                yield [index]
            else:
                # No single token is among them: a wrong position would not change it.
                yield sorted({num_short - 1, index - 1, index})

    def _is_always_alone(self, length: int) -> bool:
        """Whether an extraction never puts another row beside one of this length."""
        return self._longest_shared is not None and length > self._longest_shared

    def _is_rounding(self, shifts: Sequence[_Shift]) -> bool:
        """Whether rounding explains all shifts.

        It does if the same padding shifts nothing in higher precision. Where that
        cannot be computed, it does if copies of a row shift as far as the row did
        beside others: then the kernels for batches are the only possible cause.
        """
        exact = exact_or_none(self._forward)
        if exact is None:
            return all(map(self._copies_shift, shifts))
        try:
            return all(self._is_unmoved(exact, shift) for shift in shifts)
        except Exception as error:
            if not isinstance(error, Unusable) and not out_of_memory(error):
                raise
            return all(map(self._copies_shift, shifts))

    def _is_unmoved(self, exact: Exact, shift: _Shift) -> bool:
        """Whether the rows with the largest deviations stay put in higher precision."""
        batch = shift.batch
        # Higher precision takes time: only the most suspicious rows are checked.
        by_deviation = sorted(
            shift.deviations, key=lambda slot: -shift.deviations[slot]
        )
        checked = by_deviation[:MOST_AGAIN]

        # The longest row keeps the padding as it was.
        longest = max(range(len(batch)), key=lambda slot: len(batch[slot].item))
        slots = sorted({*checked, longest, 0, len(batch) - 1})
        states = exact.together([batch[slot].item for slot in slots])
        for row, slot in enumerate(slots):
            if slot not in checked:
                continue
            for name, alone in exact.alone(batch[slot].item).items():
                deviation = _deviation(states[name][row], alone[0])
                if not deviation <= UNMOVED[self._dtype]:
                    return False
        return True

    def _copies_shift(self, shift: _Shift) -> bool:
        """Whether copies of each row shift at least half as far as it did."""
        for slot, deviation in shift.deviations.items():
            member = shift.batch[slot]
            assert member.row is not None  # other members have no deviation
            alone = self._alone[member.row]
            # The size of a batch decides its kernels: two copies count, and a full
            # batch.
            largest = 0.0
            for count in {2, len(shift.batch)}:
                states = self._forward([member.item] * count)
                for name in alone:
                    for copy_states in states[name]:
                        copy_deviation = _deviation(copy_states, alone[name][0])
                        largest = max(largest, copy_deviation)
            if deviation > max(ROUNDING[self._dtype], 2 * largest):
                return False
        return bool(shift.deviations)


def _deviation(states: Tensor, alone: Tensor) -> float:
    """The largest relative deviation of a layer."""
    return float(relative_deviation(states.cpu().numpy(), alone.cpu().numpy()).max())


def _is_hidden_state(output: Any, expected_BTD: Tensor) -> bool:
    """Whether a layer's output is its hidden state, up to more padding on the right."""
    if not isinstance(output, Tensor) or output.ndim != 3:
        return False
    if len(output) != len(expected_BTD):
        return False
    cut_BTD = output[:, : expected_BTD.shape[1]]
    if cut_BTD.shape != expected_BTD.shape:
        return False
    # With a model on several devices, its output comes back to the first of them.
    return torch.equal(cut_BTD.to(expected_BTD.device), expected_BTD)
