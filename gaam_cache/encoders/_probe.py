"""The batching probe measures what a loaded model does to rows that share a batch.

The probe runs rows of mixed lengths twice. First it runs every row alone, through
transformers' own ``output_hidden_states``, then in batches, through gaam's ``Forward``.
The differences decide how the layers are read, when the model gets a mask, and which
rows may share a batch. The model's name decides nothing.

Shape suffixes: B rows of a batch, T positions, L layers, D hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple, Self, TypeGuard, get_args

import torch
from torch import Tensor, nn

from gaam_cache.common.devices import out_of_memory
from gaam_cache.encoders._forward import Forward, Mask, Unusable, layer_hooks
from gaam_cache.encoders._precision import (
    HigherPrecisionModel,
    higher_precision_or_none,
)
from gaam_cache.store.json_fields import (
    COUNT,
    COUNT_OR_NULL,
    TEXT_OR_NULL,
    TRUTH_VALUE,
    TRUTH_VALUE_OR_NULL,
    JsonFields,
    JsonType,
)
from gaam_cache.store.records import BATCHING, BATCHINGS, Batching
from gaam_cache.store.rounding import (
    PRECISE_SHIFT_LIMIT,
    ROUNDING,
    deviation_limit,
    relative_deviation,
)

Items = Sequence[Any]
"""Rows as a model's ``Forward`` takes them.

``len`` of a row is its length: rows of equal length need no padding in a batch.
``[::-1]`` of a row is another row of the same length.
"""
MAX_ROWS_CHECKED_AGAIN = 4
"""Most rows of a batch that the probe checks in higher precision.

It checks those with the largest deviations.
"""


class ProbeRows(NamedTuple):
    """Rows on which the probe tries a model."""

    sets: Sequence[Items]
    """Sets of rows, each sorted from the shortest to the longest row.

    The probe uses the first set that the model can read.
    """
    short_length: int
    """Length up to which the rows of a set are short: they share one batch."""


def _is_mask(value: object) -> TypeGuard[Mask]:
    """Whether a JSON value is one of the values of ``Mask``."""
    return value in get_args(Mask)


MASK = JsonType("a kind of mask", _is_mask)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeResult:
    """The result of a probe: how to run a model, and which rows may share a batch.

    All values are JSON values. The fields from ``mask`` to ``longest_shared_batch`` are
    those of ``Forward``.
    """

    batching: Batching  # which rows may share a batch
    num_layers: int  # number of layers that the model runs
    hidden_size: int
    mask: Mask  # with which batches the model gets a mask
    stack_name: str | None
    """Name of the module list whose layers get hooks.

    None if the model returns its hidden states instead.
    """
    last_layer_from_output: bool
    """Whether the last layer's state is the output of the model, not of its last layer.

    The model then applies a norm after its last layer.
    """
    uses_fresh_copies: bool
    """Whether a fresh copy of the model reads every batch, since reading changes it."""
    longest_batch: int | None
    """Most positions of a batch that runs as a whole; None if there is no limit.

    The rows of a longer batch run one by one.
    """
    longest_shared_batch: int | None  # the same limit for batches of two or more rows
    acts_causal: bool | None
    """Whether later tokens leave earlier states unchanged; None if not measured."""

    def apply(self, forward: Forward) -> None:
        """Set the fields of a forward, so that it runs its model as was measured."""
        forward.mask = self.mask
        forward.stack_name = self.stack_name
        forward.last_layer_from_output = self.last_layer_from_output
        forward.uses_fresh_copies = self.uses_fresh_copies
        forward.longest_batch = self.longest_batch
        forward.longest_shared_batch = self.longest_shared_batch

    def fits(self, forward: Forward) -> bool:
        """Whether the model of a forward has the stack of layers that was measured.

        A result is kept on disk, and may be that of another model of the same files.
        """
        # Without hooks, no stack is needed.
        if self.stack_name is None:
            return True
        stack = dict(forward.running_model.named_modules()).get(self.stack_name)
        expected_length = _length_of_stack(self.num_layers, forward)
        return isinstance(stack, nn.ModuleList) and len(stack) == expected_length

    def to_dict(self) -> dict[str, object]:
        """The fields as JSON values, by their names."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: object) -> Self:
        """Read the result of ``to_dict``; ValueError if a field is missing or unfit."""
        fields = JsonFields("measured", content)
        measured = cls(
            batching=fields.take("batching", BATCHING),
            num_layers=fields.take("num_layers", COUNT),
            hidden_size=fields.take("hidden_size", COUNT),
            mask=fields.take("mask", MASK),
            stack_name=fields.take("stack_name", TEXT_OR_NULL),
            last_layer_from_output=fields.take("last_layer_from_output", TRUTH_VALUE),
            uses_fresh_copies=fields.take("uses_fresh_copies", TRUTH_VALUE),
            longest_batch=fields.take("longest_batch", COUNT_OR_NULL),
            longest_shared_batch=fields.take("longest_shared_batch", COUNT_OR_NULL),
            acts_causal=fields.take("acts_causal", TRUTH_VALUE_OR_NULL),
        )
        if fields.rest():
            raise ValueError(f"unknown fields: {', '.join(fields.rest())}")
        return measured


def probe(
    forward: Forward,
    rows: ProbeRows,
    *,
    dtype: str,
    longest_shared: int | None = None,
) -> ProbeResult:
    """Measure how ``forward`` must run so that every row has the states of a row alone.

    Args:
        forward: the model.
        rows: the rows to try. If the model fails on one set of them, the probe takes
            the next. Short rows are tried in one batch; each longer row shares its
            batch with two others.
        dtype: arithmetic of the model.
        longest_shared: length above which a row is tried alone; None to try rows of
            every length in batches.

    Raises:
        Unusable: no way of running the model gives every row the states of a row alone.
    """
    # ``Forward`` runs the rows of a very long batch one by one. During the probe it
    # must run every batch as a whole: there is no limit.
    forward.longest_batch = None
    forward.longest_shared_batch = None
    for number, row_set in enumerate(rows.sets, start=1):
        try:
            return _Probe(
                forward, row_set, dtype, rows.short_length, longest_shared
            ).measure()
        except Unusable:
            if number == len(rows.sets):
                raise
    raise Unusable("there is no row to try it on")


class _BatchRow(NamedTuple):
    """A row in a batch of the probe."""

    item: Any  # the row as ``Forward`` takes it
    index_in_probe: int | None
    """Its index among the rows of the probe; None for a reversed row.

    A reversed row fills a batch up. The probe does not know its states alone.
    """


_Batch = list[_BatchRow]


class _ShiftedBatch(NamedTuple):
    """A batch in which the states of some rows differ from those of the rows alone."""

    rows: _Batch
    deviations: dict[int, float]
    """Index of a row in the batch -> relative deviation from its states alone.

    Only deviations beyond ``ROUNDING`` are listed. It is empty if the model failed on
    the batch.
    """


class _Probe:
    """Measures on one set of rows how a model must run to give rows their right states.

    The right states of a row are those that it has alone. ``measure`` tries ways of
    running the model (its ``Forward``), beginning with the cheapest: which rows share a
    batch, when there is a mask, and whether hooks pool the layers.
    """

    def __init__(
        self,
        forward: Forward,
        rows: Items,
        dtype: str,
        short_length: int,
        longest_shared: int | None,
    ) -> None:
        """Prepare to measure; see ``probe`` for the arguments.

        ``rows`` are sorted from the shortest to the longest. Those of up to
        ``short_length`` make one batch. A row that is longer than ``longest_shared`` is
        tried alone, because an extraction never puts another row beside it; with None,
        no row is so long.
        """
        self._forward = forward
        self._rows = rows
        self._dtype = dtype
        self._short_rows = [row for row in rows if len(row) <= short_length]
        # Every probe needs a short row: the shortest counts as one.
        if not self._short_rows:
            self._short_rows = [rows[0]]
        self._longest_shared = longest_shared
        self._states_alone: list[dict[str, Tensor]] = []
        """States of every row run alone, (1, L, D) by pooling; ``measure`` fills it."""

    def measure(self) -> ProbeResult:
        """Return the first way of running the model that gives rows their states alone.

        It first computes the states of every row alone. Then it tries the ways in turn.
        Padded batches come before batches of equal lengths, and these before single
        rows. Within each kind, running without a mask comes before running with one.
        """
        forward = self._forward

        # Fresh copies of the model read every row, until it is known whether reading
        # changes a copy.
        forward.uses_fresh_copies = True
        forward.stack_name = None
        self._states_alone = self._compute_states_alone()
        forward.uses_fresh_copies = forward.reading_changes_model
        self._check_states_repeat()

        num_layers = next(iter(self._states_alone[0].values())).shape[1]
        found_stack = self._find_stack(num_layers)
        acts_causal = forward.is_causal(self._short_rows)

        # Hooks need less memory than all hidden states at once: they are tried first.
        # None stands for all hidden states, and is the only way if no stack was found.
        # A dictionary holds None once, even if it comes twice.
        stack_names = dict.fromkeys((found_stack, None))
        masks = self._possible_masks(acts_causal)
        smallest_deviation = math.inf
        for stack_name, batching, mask in product(stack_names, BATCHINGS, masks):
            forward.stack_name = stack_name
            forward.mask = mask
            largest_deviation, shifted = self._try_batching(batching)
            # This way is right if no row shifts, or if only rounding shifts rows.
            may_be_rounding = largest_deviation <= deviation_limit(self._dtype)
            if not shifted or (may_be_rounding and self._rounding_explains(shifted)):
                return self._result(batching, acts_causal)
            smallest_deviation = min(smallest_deviation, largest_deviation)
        raise Unusable(
            "with a mask or without, its states are off by "
            f"{smallest_deviation:.1e} of their norm"
        )

    def _result(self, batching: Batching, acts_causal: bool | None) -> ProbeResult:
        """Describe the way of running the model to which the forward is set now.

        Args:
            batching: which rows may share a batch in this way.
            acts_causal: whether later tokens leave earlier states unchanged; None if
                that is not known.
        """
        forward = self._forward
        # all rows and poolings have states of one shape, (1, L, D)
        num_layers, hidden_size = next(iter(self._states_alone[0].values())).shape[1:]
        # The probe vouches for no row that is longer than its own. But the length
        # changes nothing for most models, which then have no limit.
        longest_batch = None
        if forward.reads_long_rows_alone:
            longest_batch = len(self._rows[-1])
        return ProbeResult(
            batching=batching,
            num_layers=num_layers,
            hidden_size=hidden_size,
            mask=forward.mask,
            stack_name=forward.stack_name,
            last_layer_from_output=forward.last_layer_from_output,
            uses_fresh_copies=forward.uses_fresh_copies,
            longest_batch=longest_batch,
            longest_shared_batch=self._longest_shared,
            acts_causal=acts_causal,
        )

    def _possible_masks(self, acts_causal: bool | None) -> list[Mask]:
        """When to pass an attention mask: the values of ``Mask`` to try, fastest first.

        Args:
            acts_causal: whether later tokens leave earlier states unchanged; None if
                that is not known.
        """
        if not self._forward.takes_mask:
            return ["never"]
        # padding stands behind the tokens of a row, so a causal model needs no mask
        if acts_causal:
            return ["never", "where padded", "always"]
        return ["where padded", "always"]

    def _compute_states_alone(self) -> list[dict[str, Tensor]]:
        """States of every row alone: (1, L, D) for every pooling, in the order of rows.

        The longest row is read first. If the memory is too small for it, the probe
        fails at once.
        """
        states_of_rows = [
            self._forward.reference_states(row) for row in reversed(self._rows)
        ]
        states_of_rows.reverse()
        for states_by_pooling in states_of_rows:
            for states_1LD in states_by_pooling.values():
                self._check_finite(states_1LD)
        return states_of_rows

    def _check_finite(self, states_1LD: Tensor) -> None:
        """Refuse the states of a row if one of its numbers is infinite or NaN."""
        is_wrong_L = (~torch.isfinite(states_1LD[0])).any(dim=-1)
        if bool(is_wrong_L.any()):
            # The arithmetic overflowed in the first layer with such a number.
            first_wrong = int(is_wrong_L.nonzero()[0])
            layer = first_wrong + self._forward.first_layer
            raise Unusable(
                f"layer {layer} yields numbers that are not finite: another --dtype?"
            )

    def _check_states_repeat(self) -> None:
        """Refuse a model that gives a row other states when it reads the row again.

        Other rows were read in between. If reading changes the model, a fresh copy
        reads the row: then the check finds random numbers only.
        """
        # Three short rows are cheap and enough: the shortest, a middle and the longest
        # of them. The short rows are the first ones of all rows.
        last = len(self._short_rows) - 1
        for index in sorted({0, last // 2, last}):
            states_again = self._forward.reference_states(self._rows[index])
            for pooling, again_1LD in states_again.items():
                before_1LD = self._states_alone[index][pooling]
                deviation = _deviation(before_1LD, again_1LD)
                if deviation > ROUNDING[self._dtype]:
                    raise Unusable(
                        f"the same row gives other states twice ({deviation:.1e}): it "
                        "keeps something of what it read before, or draws random "
                        "numbers"
                    )

    def _find_stack(self, num_layers: int) -> str | None:
        """Find the module list of the model whose outputs are its hidden states.

        Hooks on its modules can then pool the layers. This also sets
        ``last_layer_from_output`` of the forward, which runs the model.

        Args:
            num_layers: number of the hidden states, counted from the first layer that
                is kept.

        Returns:
            The name of the module list; None if the model has no such list.
        """
        forward = self._forward
        # Two different rows of equal length make a batch without padding.
        row = self._short_rows[-1]
        batch = forward.batch([row, row[::-1]])
        for name, stack in self._module_lists_of_length(num_layers).items():
            outputs: dict[int, object] = {}
            try:
                with layer_hooks(
                    stack, outputs.__setitem__, first_layer=forward.first_layer
                ):
                    output, expected = forward.hidden_states(batch)
            # The model is then run without hooks, and reports what is wrong.
            except Unusable:
                return None

            # Compare what each layer puts out with the hidden state of its number.
            is_state = [
                _is_hidden_state(outputs.get(layer), x_BTD)
                for layer, x_BTD in enumerate(expected, start=forward.first_layer)
            ]
            # If a final norm follows the stack, the last state is the model's output.
            last_output = getattr(output, "last_hidden_state", None)
            has_last_state = is_state[-1] or _is_hidden_state(last_output, expected[-1])
            if all(is_state[:-1]) and has_last_state:
                forward.last_layer_from_output = not is_state[-1]
                return name
        return None

    def _module_lists_of_length(self, num_layers: int) -> dict[str, nn.ModuleList]:
        """Name -> module list, for the lists that have a module for every layer.

        ``num_layers`` is the number of pooled layers, with the input of the first layer
        if that is pooled too.
        """
        length = _length_of_stack(num_layers, self._forward)
        module_lists = {
            name: module
            for name, module in self._forward.running_model.named_modules()
            if isinstance(module, nn.ModuleList)
        }
        return {
            name: stack for name, stack in module_lists.items() if len(stack) == length
        }

    def _try_batching(self, batching: Batching) -> tuple[float, list[_ShiftedBatch]]:
        """Compare the states of rows in batches with their states alone.

        The forward pools and masks the batches as its fields say. The comparison stops
        at the first deviation that is too large for rounding.

        Args:
            batching: the kind of batches.

        Returns:
            The largest deviation, infinite if the model fails on a batch; and the
            batches with deviations beyond ``ROUNDING``.
        """
        largest_deviation = 0.0
        shifted: list[_ShiftedBatch] = []
        for batch in self._batches(batching):
            # A model that fails on a batch is as bad as one that shifts its states.
            try:
                states = self._forward([batch_row.item for batch_row in batch])
            except Unusable:
                return math.inf, [_ShiftedBatch(batch, deviations={})]

            # Any two batches give a row deviations of up to ROUNDING. Larger ones are
            # kept, and must be explained. Nothing explains those beyond the limit.
            deviations = self._deviations(batch, states)
            largest_deviation = max([largest_deviation, *deviations.values()])
            large_deviations = {
                index: deviation
                for index, deviation in deviations.items()
                if deviation > ROUNDING[self._dtype]
            }
            if large_deviations:
                shifted.append(_ShiftedBatch(batch, large_deviations))
            if largest_deviation > deviation_limit(self._dtype):
                break
        return largest_deviation, shifted

    def _deviations(self, batch: _Batch, states: dict[str, Tensor]) -> dict[int, float]:
        """How far the states of the rows of a batch deviate from their states alone.

        Args:
            batch: the rows.
            states: their states in the batch: (B, L, D) for every pooling.

        Returns:
            Index of a row in the batch -> its largest deviation over layers and
            poolings. A reversed row is left out, because its states alone are unknown.
        """
        deviations = {}
        for index, batch_row in enumerate(batch):
            if batch_row.index_in_probe is not None:
                states_alone = self._states_alone[batch_row.index_in_probe]
                deviations[index] = max(
                    _deviation(states[pooling][index], alone_1LD[0])
                    for pooling, alone_1LD in states_alone.items()
                )
        return deviations

    def _batches(self, batching: Batching) -> Iterator[_Batch]:
        """Make batches of the probe's rows, as an extraction would make them.

        Args:
            batching: "alone" makes batches of one row, and "equal lengths" batches of
                rows of equal length. "padded" makes batches of mixed lengths, and then
                those of equal lengths too.
        """
        batch_rows = [_BatchRow(item, index) for index, item in enumerate(self._rows)]
        if batching == "alone":
            for batch_row in batch_rows:
                yield [batch_row]
            return

        tried_batches: set[tuple[int | None, ...]] = set()
        if batching == "padded":
            for indices in self._padded_batches():
                tried_batches.add(tuple(indices))
                yield [batch_rows[index] for index in indices]

        # "padded" and "equal lengths" both allow batches of rows of equal length.
        for length in sorted({len(row) for row in self._rows}):
            batch = [
                batch_row for batch_row in batch_rows if len(batch_row.item) == length
            ]
            # If only one row has this length, a second one is made for its batch: the
            # same row in reverse order.
            if len(batch) == 1 and not self._is_always_alone(length):
                reversed_item = batch[0].item[::-1]
                batch.append(_BatchRow(reversed_item, index_in_probe=None))
            # A padded batch may have had the same rows.
            indices_in_probe = tuple(batch_row.index_in_probe for batch_row in batch)
            if indices_in_probe not in tried_batches:
                yield batch

    def _padded_batches(self) -> Iterator[list[int]]:
        """Yield the rows of every padded batch, as indices.

        All short rows make one batch. Every longer row makes a batch with shorter
        ones, which get padding: the longest of the short rows, and the row before it.
        """
        num_short = len(self._short_rows)
        yield list(range(num_short))
        for index in range(num_short, len(self._rows)):
            if self._is_always_alone(len(self._rows[index])):
                yield [index]
            else:
                # The longest short row is taken, and not the shortest, which may have
                # a single token: if padding makes a model count positions wrongly, one
                # token would not show it.
                longest_short = num_short - 1
                yield sorted({longest_short, index - 1, index})

    def _is_always_alone(self, length: int) -> bool:
        """Whether an extraction never puts another row beside one of this length."""
        return self._longest_shared is not None and length > self._longest_shared

    def _rounding_explains(self, shifted: Sequence[_ShiftedBatch]) -> bool:
        """Whether rounding explains why rows have other states in batches than alone.

        It does if no row has other states in the same batches in higher precision. If
        this machine cannot compute that, a row is compared with itself in a batch of
        its own copies. This batch has no padding. If the states of the row differ there
        as much, padding is not the cause: other kernels compute a batch than a single
        row, and they round in another way.

        Args:
            shifted: the batches in which rows have other states than alone.
        """
        precise_model = higher_precision_or_none(self._forward)
        if precise_model is None:
            return all(map(self._copies_shift_alike, shifted))
        try:
            return all(
                self._stays_in_higher_precision(precise_model, batch)
                for batch in shifted
            )
        # The copy of the model exists, but cannot run: use the second way here too.
        except Exception as error:
            if not isinstance(error, Unusable) and not out_of_memory(error):
                raise
            return all(map(self._copies_shift_alike, shifted))

    def _stays_in_higher_precision(
        self, precise_model: HigherPrecisionModel, shifted: _ShiftedBatch
    ) -> bool:
        """Whether, in higher precision, rows have the same states in a batch as alone.

        Args:
            precise_model: a copy of the model in higher precision.
            shifted: the batch, and for the indices of some of its rows how far their
                states in usual precision deviate from their states alone.
        """
        rows = shifted.rows
        # Higher precision takes time: only the rows with the largest deviations are
        # checked.
        by_deviation = sorted(
            shifted.deviations, key=lambda index: -shifted.deviations[index]
        )
        checked = by_deviation[:MAX_ROWS_CHECKED_AGAIN]

        # A smaller batch with the checked rows is enough. It also keeps the longest
        # row, which gives every other row as much padding as before, and begins and
        # ends with the same rows as the whole batch.
        longest = max(range(len(rows)), key=lambda index: len(rows[index].item))
        first, last = 0, len(rows) - 1
        positions = sorted({*checked, longest, first, last})
        states_in_batch = precise_model.states_in_batch(
            [rows[index].item for index in positions]
        )
        for index_in_smaller_batch, index in enumerate(positions):
            if index not in checked:
                continue
            states_alone = precise_model.states_alone(rows[index].item)
            for pooling, alone_1LD in states_alone.items():
                in_batch_LD = states_in_batch[pooling][index_in_smaller_batch]
                deviation = _deviation(in_batch_LD, alone_1LD[0])
                if deviation > PRECISE_SHIFT_LIMIT[self._dtype]:
                    return False
        return True

    def _copies_shift_alike(self, shifted: _ShiftedBatch) -> bool:
        """Whether the rows deviate as much in batches of their own copies.

        A batch of copies of one row has no padding. A deviation in the first batch may
        be twice as large as the one among the copies, which is rounding.

        Returns:
            False also if the model failed on the first batch: no deviation is known.
        """
        for index, deviation in shifted.deviations.items():
            batch_row = shifted.rows[index]
            assert batch_row.index_in_probe is not None  # others have no deviation
            states_alone = self._states_alone[batch_row.index_in_probe]
            # The size of a batch decides its kernels: try two copies, and as many as
            # the batch has rows.
            largest_of_copies = 0.0
            for num_copies in {2, len(shifted.rows)}:
                states = self._forward([batch_row.item] * num_copies)
                for pooling, alone_1LD in states_alone.items():
                    for copy_LD in states[pooling]:
                        copy_deviation = _deviation(copy_LD, alone_1LD[0])
                        largest_of_copies = max(largest_of_copies, copy_deviation)
            if deviation > max(ROUNDING[self._dtype], 2 * largest_of_copies):
                return False
        return bool(shifted.deviations)


def _length_of_stack(num_layers: int, forward: Forward) -> int:
    """Number of modules that put out the pooled layers of a model.

    ``num_layers`` is the number of pooled layers, counted from ``first_layer`` of the
    forward. If that is 0, the first of them is the input of the stack, which no module
    puts out.
    """
    return num_layers - 1 if forward.first_layer == 0 else num_layers


def _deviation(states: Tensor, alone: Tensor) -> float:
    """The largest relative deviation of states from those of a row alone.

    Every layer has a deviation of its own: the norm of the difference, as a part of the
    norm of the state alone. It is infinite if a state is NaN. ``states`` and ``alone``
    have the shape (..., L, D).
    """
    return float(relative_deviation(states.cpu().numpy(), alone.cpu().numpy()).max())


def _is_hidden_state(output: object, expected_BTD: Tensor) -> bool:
    """Whether a layer's output equals its hidden state, apart from extra positions.

    Some models pad rows on the right for their layers, and cut the states afterwards.

    Args:
        output: what a layer put out; anything, or None if nothing was caught.
        expected_BTD: the hidden state that transformers returns.
    """
    if not isinstance(output, Tensor) or output.ndim != 3:
        return False
    if len(output) != len(expected_BTD):
        return False
    cut_BTD = output[:, : expected_BTD.shape[1]]
    if cut_BTD.shape != expected_BTD.shape:
        return False
    # A model on several devices returns its output on the first of them.
    return torch.equal(cut_BTD.to(expected_BTD.device), expected_BTD)
