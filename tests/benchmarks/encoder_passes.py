"""Texts through an encoder as an extraction runs them: batches, pooling, copies, sums.

B rows, L layers, D hidden size.
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.profiler import record_function

from gaam_cache.common.devices import CopyBack, to_numpy
from gaam_cache.config import GPU_BATCH_TOKENS
from gaam_cache.encoders.poolings.base import Pooling
from gaam_cache.encoders.text import _TextForward
from gaam_cache.extraction.batches import padded_tokens, token_budget_batches
from gaam_cache.extraction.spreads import SpreadCheck
from gaam_cache.store.rounding import deviation_limit, relative_deviation
from tests.benchmarks._machine import synchronise
from tests.benchmarks.batch_arithmetic import Ceilings
from tests.benchmarks.bench_extract import flops_per_token
from tests.benchmarks.packed_rows import PackedForward, packed_batches

CHECKED_ROWS = 8
"""Rows whose states are compared with those of the rows alone."""


class Copies:
    """Copies to the host as an extraction makes them, on a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self._copy_back = CopyBack(device)

    def take(self, tensors: Sequence[Tensor]) -> None:
        """Start to copy what a batch leaves."""
        self._start(tensors)

    def _start(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        with record_function("copies"):
            return [self._copy_back.start(x) for x in tensors]

    def finish(self) -> None:
        """Wait until all is on the host."""
        self._copy_back.wait()


class WaitingCopies(Copies):
    """Waits for the copies of every batch before the next batch begins."""

    def take(self, tensors: Sequence[Tensor]) -> None:
        for x in tensors:
            x.cpu()


class NoCopies(Copies):
    """Leaves everything on the device: what copies cost is the difference."""

    def take(self, tensors: Sequence[Tensor]) -> None:
        pass


class HashedCopies(Copies):
    """Also hashes the bytes, in this thread or in another one."""

    def __init__(self, device: torch.device, *, in_thread: bool) -> None:
        super().__init__(device)
        self._thread = ThreadPoolExecutor(1) if in_thread else None
        self._pending: list[Future[None]] = []

    def take(self, tensors: Sequence[Tensor]) -> None:
        hosts = self._start(tensors)
        if self._thread is None:
            self._hash(hosts)
        else:
            self._pending.append(self._thread.submit(self._hash, hosts))

    def _hash(self, hosts: Sequence[Tensor]) -> None:
        self._copy_back.wait()
        for host in hosts:
            hashlib.sha256(to_numpy(host).data).digest()

    def finish(self) -> None:
        for future in self._pending:
            future.result()
        if self._thread is not None:
            self._thread.shutdown()
        super().finish()


class RangedPooling:
    """A pooling that a profiler sees as a range."""

    def __init__(self, pooling: Pooling) -> None:
        self._pooling = pooling

    def __call__(self, x_BTD: Tensor, length_B: Tensor) -> Tensor:
        with record_function("pooling"):
            return self._pooling(x_BTD, length_B)


class EncoderPasses:
    """Runs all texts through a model, and compares the states of some with lone texts.

    Attributes:
        model: the model; passes run a copy with the same weights.
        rows: token ids of every text.
        ceilings: of the machine.
        forward: runs a batch; a variant may change it.
        packed: whether batches are packed, and not padded.
        without_gradients: the context in which the model runs, as in an extraction.
        lone_states: of the checked rows alone, (L, D) each.
        lone_tokens_per_second: rate of rows alone, as the proof of a shard runs them.
    """

    def __init__(
        self, model: Any, rows: Sequence[NDArray[np.int64]], ceilings: Ceilings
    ) -> None:
        self.model = model
        self.rows = rows
        self.ceilings = ceilings
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.lengths = np.array([len(ids) for ids in rows])
        square_length = float((self.lengths**2).sum() / self.lengths.sum())
        self.operations_per_token = flops_per_token(model, square_length)
        self.packed = False
        self.without_gradients: Callable[[], Any] = torch.inference_mode
        self.forward = self._make_forward(_TextForward)
        self._spreads = self._make_spreads()
        # the shortest, the longest and some between them
        order = self.lengths.argsort()
        places = np.linspace(0, len(rows) - 1, CHECKED_ROWS).astype(int)
        self.checked = [rows[row] for row in order[places]]
        self.lone_states = self._measure_lone_rows()

    def _make_forward(self, kind: type[_TextForward]) -> _TextForward:
        """A forward as the batching probe sets it for a Llama."""
        forward = kind(self.model, device=self.device, pooling=("mean",))
        forward.vocab_size = self.model.config.vocab_size
        forward.stack_name = "layers"
        forward.last_layer_from_output = True
        forward.mask = "never"
        forward.uses_fresh_copies = False
        forward.longest_batch = None
        return forward

    def _make_spreads(self) -> SpreadCheck:
        """Sums over the rows of a batch, which need neither an encoder nor a plan."""
        nothing: Any = None
        return SpreadCheck(nothing, nothing, nothing, for_prediction=False)

    def forward_of_lone_rows(self) -> _TextForward:
        """Runs rows alone.

        transformers leaves hooks in a model that it asks for hidden states, at which a
        compiled layer would break: a copy gets them.
        """
        forward = self._make_forward(_TextForward)
        forward.loaded_model = forward.running_model
        return forward

    @torch.inference_mode()
    def _measure_lone_rows(self) -> list[NDArray[np.float32]]:
        """States of the checked rows alone, (L, D) each, and the rate of such rows."""
        forward = self.forward_of_lone_rows()
        forward.reference_states(self.checked[0])
        synchronise(self.device)
        start = time.perf_counter()
        states = [forward.reference_states(ids)["mean"][0] for ids in self.checked]
        synchronise(self.device)
        seconds = time.perf_counter() - start
        self.lone_tokens_per_second = sum(map(len, self.checked)) / seconds
        return [x_LD.cpu().numpy() for x_LD in states]

    def _copy_with(self, forward: _TextForward) -> EncoderPasses:
        """The same texts and model with another forward."""
        other = copy.copy(self)
        other.forward = forward
        # the first batch of a pass sets the state from which sums are taken
        other._spreads = self._make_spreads()
        return other

    def unpacked(self) -> EncoderPasses:
        """The same with a forward of its own, for a variant to change."""
        return self._copy_with(self._make_forward(_TextForward))

    def with_packed_rows(self) -> EncoderPasses:
        """The same with packed rows."""
        other = self._copy_with(self._make_forward(PackedForward))
        other.packed = True
        return other

    def with_ranges(self) -> EncoderPasses:
        """The same, with pooling as a range for a profiler."""
        other = self.unpacked()
        mean = RangedPooling(other.forward.poolings["mean"])
        other.forward.poolings = {"mean": cast(Pooling, mean)}
        return other

    def batches(self, batch_tokens: int = GPU_BATCH_TOKENS) -> list[NDArray[np.int64]]:
        """Row numbers of every batch."""
        if self.packed:
            return packed_batches(self.lengths, batch_tokens)
        return token_budget_batches(
            self.lengths, batch_tokens, device_type=self.device.type
        )

    def encode(self, items: Sequence[NDArray[np.int64]]) -> Tensor:
        """States of a batch, (B, L, D) float32."""
        with self.without_gradients():
            return self.forward(items)["mean"]

    def encode_and_copy(
        self,
        batches: Sequence[Sequence[NDArray[np.int64]]],
        copies: Copies | None = None,
        after_batch: Callable[[int], object] = lambda number: None,
    ) -> None:
        """Encode batches, round and sum up their states, and bring them to the host.

        Args:
            batches: token ids of the rows of every batch.
            copies: how states are brought to the host.
            after_batch: called with the number of a batch, which a GPU still computes.
        """
        copies = copies or Copies(self.device)
        for number, items in enumerate(batches):
            x_BLD = self.encode(items)
            with record_function("pooling"):
                stored_BLD = x_BLD.to(torch.float16)
                distinct_B = np.ones(len(items), np.bool_)
                with self.without_gradients():
                    sums = self._spreads.sums("mean", x_BLD, stored_BLD, distinct_B)
            copies.take([stored_BLD, sums])
            after_batch(number)
        copies.finish()

    def deviation(self) -> float:
        """How far states of checked rows in a batch are from those of the rows alone.

        It is the largest relative deviation of a row in a layer.
        """
        states_BLD = self.encode(self.checked).cpu().numpy()
        return max(
            float(relative_deviation(states_LD, lone_LD).max())
            for states_LD, lone_LD in zip(states_BLD, self.lone_states, strict=True)
        )

    def measure(
        self, batch_tokens: int = GPU_BATCH_TOKENS, copies: Copies | None = None
    ) -> dict[str, Any]:
        """Figures of a pass over all texts, after a check of states and a first pass.

        A GPU loads kernels for every size of a batch when it meets the size first: on an
        H200 the first pass over 768 texts took half as long again as the next one.
        """
        start = time.perf_counter()
        deviation = self.deviation()
        row_numbers = self.batches(batch_tokens)
        batches = [[self.rows[row] for row in batch] for batch in row_numbers]
        self.encode_and_copy(batches)
        synchronise(self.device)
        warm_up = time.perf_counter() - start
        is_on_gpu = self.device.type == "cuda"
        if is_on_gpu:
            torch.cuda.reset_peak_memory_stats(self.device)

        start = time.perf_counter()
        self.encode_and_copy(batches, copies)
        synchronise(self.device)
        rate = int(self.lengths.sum()) / (time.perf_counter() - start)

        operations = rate * self.operations_per_token
        limit = deviation_limit(str(self.dtype).removeprefix("torch."))
        padded = padded_tokens(self.lengths, row_numbers)
        figures: dict[str, Any] = {
            "tokens_per_second": rate,
            "tflops": operations / 1e12,
            "share_of_ceiling": operations / self.ceilings.operations,
            "deviation_from_lone_rows": deviation,
            "states_are_right": deviation <= limit,
            "padding_share": 0.0
            if self.packed
            else 1 - int(self.lengths.sum()) / padded,
            "batches": len(batches),
            "warm_up_seconds": warm_up,
        }
        if is_on_gpu:
            peak = torch.cuda.max_memory_allocated(self.device)
            figures["peak_memory_gb"] = peak / 1e9
        return figures
