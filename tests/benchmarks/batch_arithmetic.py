"""What one batch of a Llama takes on paper, and what torch counts of it.

B rows of a batch, T positions of its longest row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.benchmarks._machine import matrix_product_flops, synchronise


class Work(NamedTuple):
    """The least that a part of a batch takes."""

    operations: int  # of matrix products alone
    num_bytes: int  # every input is read once and every output written once


class Ceilings(NamedTuple):
    """What the machine reaches at best, a second."""

    operations: float
    device_bytes: float  # read and written in the device's memory
    host_bytes: float  # copied from the device to the host

    def seconds(self, part: str, work: Work) -> float:
        """The least time of a part: its operations or its bytes decide."""
        bandwidth = self.host_bytes if part == "copies" else self.device_bytes
        return max(work.operations / self.operations, work.num_bytes / bandwidth)


def work_of_batch(
    config: Any, num_rows: int, longest: int, element_bytes: int
) -> dict[str, Work]:
    """The work of every part of a batch: operations and bytes.

    Attention counts every pair of positions, as torch's counter does: a causal kernel
    may leave out half of them.

    Args:
        config: of a Llama.
        num_rows: B.
        longest: T.
        element_bytes: of a number in the encoder's arithmetic.
    """
    layers = config.num_hidden_layers
    hidden, inner = config.hidden_size, config.intermediate_size
    query = config.num_attention_heads * config.head_dim
    key = config.num_key_value_heads * config.head_dim
    positions = num_rows * longest

    # input and output size of every product of a layer
    products = [
        *((hidden, query), (hidden, key), (hidden, key), (query, hidden)),
        *((hidden, inner), (hidden, inner), (inner, hidden)),
    ]
    weights = sum(size_in * size_out for size_in, size_out in products)
    states = positions * sum(size_in + size_out for size_in, size_out in products)
    # rotation reads and writes queries and keys, the activation reads two inner states
    # and writes one, and two sums read two states and write one
    elementwise = 2 * (query + key) + 3 * inner + 6 * hidden
    stored = num_rows * layers * hidden
    # spreads: four sums of every feature, in float32
    sums = 4 * layers * hidden

    def numbers(count: int, operations: int = 0) -> Work:
        return Work(operations, count * element_bytes)

    return {
        "products": numbers(
            layers * (weights + states), 2 * positions * layers * weights
        ),
        "attention": numbers(
            layers * positions * 2 * (query + key),
            4 * positions * longest * layers * query,
        ),
        "norms": numbers((2 * layers + 1) * 2 * positions * hidden),
        # states are pooled in float32
        "pooling": Work(0, layers * positions * hidden * element_bytes + 4 * stored),
        # states are stored in float16
        "copies": Work(0, 2 * stored + 4 * sums),
        "other": numbers(layers * positions * elementwise + 2 * positions * hidden),
    }


def counted_operations(run: Callable[[], object]) -> dict[str, int]:
    """Operations that torch counts while a batch runs, of products and of attention.

    Attention runs as plain products, which the counter knows on every device.
    """
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:
        run()
    aten = torch.ops.aten
    by_operator = counter.get_flop_counts()["Global"]
    products = by_operator.get(aten.mm, 0) + by_operator.get(aten.addmm, 0)
    return {"products": products, "attention": by_operator.get(aten.bmm, 0)}


def measure_ceilings(device: torch.device, dtype: torch.dtype) -> Ceilings:
    """Measure products of large matrices, and copies of much memory.

    A CPU only rehearses it, with little of both.
    """
    is_on_gpu = device.type == "cuda"
    num_bytes = 2**30 if is_on_gpu else 2**20
    size = 8192 if is_on_gpu else 256
    source = torch.ones(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    host = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=is_on_gpu)
    return Ceilings(
        operations=matrix_product_flops(device, dtype, size),
        device_bytes=2
        * num_bytes
        / _best_seconds(lambda: target.copy_(source), device),
        host_bytes=num_bytes / _best_seconds(lambda: host.copy_(source), device),
    )


def _best_seconds(run: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of some runs."""
    seconds = []
    for _ in range(5):
        synchronise(device)
        start = time.perf_counter()
        run()
        synchronise(device)
        seconds.append(time.perf_counter() - start)
    return min(seconds)
