"""Ways to encode texts faster, one change at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from gaam_cache.config import GPU_BATCH_TOKENS
from gaam_cache.encoders.poolings.base import Pooling
from gaam_cache.store.rounding import relative_deviation
from tests.benchmarks._machine import synchronise
from tests.benchmarks.encoder_passes import (
    Copies,
    EncoderPasses,
    HashedCopies,
    NoCopies,
    WaitingCopies,
)

BATCH_TOKENS = (2 * GPU_BATCH_TOKENS, 4 * GPU_BATCH_TOKENS, GPU_BATCH_TOKENS // 2)
"""Limits of a batch beside the usual one."""
GRAPH_LENGTHS = (40, 52, 64)
GRAPH_TOKENS = (2048, GPU_BATCH_TOKENS)
"""Tokens of a batch: launching kernels costs a small one more."""


class Variant(NamedTuple):
    """A way to encode the texts."""

    name: str
    measure: Callable[[], dict[str, Any]]
    needs_gpu: bool = False


def variants_of(passes: EncoderPasses, backend: str) -> list[Variant]:
    """All variants, those first that promise most.

    Args:
        passes: the encoder and its texts.
        backend: of ``torch.compile``.
    """
    return [
        Variant("as an extraction", passes.measure),
        *_of_packing(passes),
        *_of_compilation(passes, backend),
        *(
            Variant(f"{tokens:,} tokens a batch", partial(passes.measure, tokens))
            for tokens in BATCH_TOKENS
        ),
        *_of_lone_rows(passes),
        *_of_attention(passes),
        Variant("graphs", partial(measure_graphs, passes), needs_gpu=True),
        *_of_copies(passes),
    ]


def _of_packing(passes: EncoderPasses) -> list[Variant]:
    """Without padding."""
    packed = partial(_measure_packed, passes)
    variants = [
        Variant("packed rows, varlen", partial(packed, "varlen"), needs_gpu=True),
        Variant("packed rows, nested", partial(packed, "nested"), needs_gpu=True),
    ]
    # the kernels of a GPU are rehearsed by rows that attend one after the other
    if passes.device.type == "cpu":
        row_by_row = partial(packed, "row-by-row")
        variants.append(Variant("packed rows, row by row", row_by_row))
    return variants


def _of_compilation(passes: EncoderPasses, backend: str) -> list[Variant]:
    """With fewer kernels between the products."""
    compiled = partial(_measure_compiled, passes, backend)
    pooling = partial(_measure_pooling, passes)
    product = partial(pooling, _mean_by_product)
    own = partial(_measure_compiled_by_gaam, passes)
    return [
        Variant("compiled layer", compiled),
        Variant("layers that gaam compiles", own, needs_gpu=True),
        Variant(
            f"compiled layer, packed rows, {BATCH_TOKENS[0]:,} tokens a batch",
            partial(compiled, packed_batch_tokens=BATCH_TOKENS[0]),
            needs_gpu=True,
        ),
        Variant(
            "compiled pooling", partial(_measure_compiled_pooling, passes, backend)
        ),
        Variant("pooling as a product", product, needs_gpu=True),
    ]


def _of_lone_rows(passes: EncoderPasses) -> list[Variant]:
    """With the checked rows alone too, as the proof of a shard encodes some rows."""
    measure = partial(_measure_with_lone_rows, passes)
    return [
        Variant("rows of the proof behind the batches", measure),
        Variant(
            "rows of the proof beside the batches, on a stream of their own",
            partial(measure, beside=True),
            needs_gpu=True,
        ),
    ]


def _measure_with_lone_rows(
    passes: EncoderPasses, *, beside: bool = False
) -> dict[str, Any]:
    """Tokens a second of batches, of a pass that also encodes the checked rows alone.

    Args:
        passes: the encoder and its texts.
        beside: whether a row begins while the GPU computes a batch, or behind the last.
    """
    forward = passes.forward_of_lone_rows()
    batches = [[passes.rows[row] for row in batch] for batch in passes.batches()]
    # torch declares no type for this class
    new_stream: Any = torch.cuda.Stream
    stream = new_stream(passes.device) if beside else None

    @torch.inference_mode()
    def encode_row(number: int) -> None:
        if number < len(passes.checked):
            with torch.cuda.stream(stream) if stream is not None else nullcontext():
                states.append(forward.reference_states(passes.checked[number])["mean"])

    def encode_all() -> None:
        states.clear()
        if beside:
            passes.encode_and_copy(batches, after_batch=encode_row)
        else:
            passes.encode_and_copy(batches)
        for number in range(len(states), len(passes.checked)):
            encode_row(number)
        synchronise(passes.device)

    states: list[Tensor] = []
    encode_all()
    start = time.perf_counter()
    encode_all()
    rate = int(passes.lengths.sum()) / (time.perf_counter() - start)
    deviation = max(
        float(relative_deviation(x_1LD[0].cpu().numpy(), lone_LD).max())
        for x_1LD, lone_LD in zip(states, passes.lone_states, strict=True)
    )
    return {"tokens_per_second": rate, "states_are_right": deviation == 0}


def _of_attention(passes: EncoderPasses) -> list[Variant]:
    """With every kernel of attention that torch has."""
    unmasked = partial(_measure_attention, passes)
    variants = [Variant("no mask is looked for", unmasked)]
    for name in ("FLASH", "EFFICIENT", "CUDNN"):
        choice = getattr(SDPBackend, f"{name}_ATTENTION")
        variants.append(
            Variant(
                f"attention: {name.lower()}",
                partial(unmasked, choice),
                needs_gpu=name != "FLASH",
            )
        )
    plain = partial(unmasked, SDPBackend.MATH)
    return [*variants, Variant("attention: math", plain)]


def _of_copies(passes: EncoderPasses) -> list[Variant]:
    """With other ways to bring states to the host."""
    kinds: dict[str, Callable[[torch.device], Copies]] = {
        "no copies": NoCopies,
        "copies that wait": WaitingCopies,
        "hashes": partial(HashedCopies, in_thread=False),
        "hashes in a thread": partial(HashedCopies, in_thread=True),
    }
    return [
        Variant(name, partial(_measure_copies, passes, kind))
        for name, kind in kinds.items()
    ]


def attend_by(passes: EncoderPasses, name: str) -> None:
    """From now on, the model attends by a function that transformers knows."""
    model = cast(Any, passes.forward.running_model)
    model.config._attn_implementation = name


def _measure_attention(
    passes: EncoderPasses, choice: SDPBackend | None = None
) -> dict[str, Any]:
    """With no look for a mask, and with the kernel that torch must choose, if any."""
    passes = passes.unpacked()
    attend_by(passes, "unmasked")
    if choice is None:
        return passes.measure()
    with sdpa_kernel(choice):
        return passes.measure()


def _measure_packed(passes: EncoderPasses, name: str) -> dict[str, Any]:
    """With rows one behind the other, whose attention is of this name."""
    passes = passes.with_packed_rows()
    attend_by(passes, name)
    # tensors of inference mode cannot become nested ones
    passes.without_gradients = torch.no_grad
    return passes.measure()


def _measure_compiled(
    passes: EncoderPasses, backend: str, packed_batch_tokens: int | None = None
) -> dict[str, Any]:
    """With one compiled layer that serves for all layers.

    Args:
        passes: the encoder and its texts.
        backend: of ``torch.compile``.
        packed_batch_tokens: size of a batch of packed rows; None for padded ones.
    """
    torch._dynamo.reset()
    if packed_batch_tokens is None:
        passes = passes.unpacked()
        attend_by(passes, "unmasked")
    else:
        passes = passes.with_packed_rows()
        attend_by(passes, "varlen")
    stack = passes.forward.running_model.get_submodule("layers")
    # hooks stay outside of what is compiled: only the forward of a layer is
    with _compiled_forwards(stack, backend) as count_graphs:
        figures = passes.measure(packed_batch_tokens or GPU_BATCH_TOKENS)
        return figures | {"compiled_graphs": count_graphs()}


def _measure_compiled_by_gaam(passes: EncoderPasses) -> dict[str, Any]:
    """As ``gaam extract --set compile=on``: with the rounding of plain layers."""
    passes = passes.unpacked()
    passes.forward.compile_layers()
    return passes.measure()


@contextmanager
def _compiled_forwards(stack: Any, backend: str) -> Iterator[Callable[[], int]]:
    """While open, layers are compiled; yields a function that counts the graphs."""
    counters: Any = torch._dynamo.utils.counters
    before = counters["stats"]["unique_graphs"]
    for layer in stack:
        layer.forward = torch.compile(layer.forward, dynamic=True, backend=backend)
    try:
        yield lambda: counters["stats"]["unique_graphs"] - before
    finally:
        for layer in stack:
            # the class's own method shows again
            del layer.forward


def _mean_by_product(x_BTD: Tensor, length_B: Tensor) -> Tensor:
    """The mean as a product with ones and zeros, summed up in float32.

    A padded position must be finite here: it is multiplied by zero.
    """
    position_T = torch.arange(x_BTD.shape[1], device=x_BTD.device)
    is_real_B1T = (position_T < length_B[:, None]).to(x_BTD.dtype)[:, None]
    sum_B1D: Tensor = torch.bmm(is_real_B1T, x_BTD, out_dtype=torch.float32)
    return sum_B1D[:, 0] / length_B[:, None]


def _measure_pooling(
    passes: EncoderPasses, mean: Callable[[Tensor, Tensor], Tensor]
) -> dict[str, Any]:
    """With another function in place of the mean."""
    passes = passes.unpacked()
    passes.forward.poolings = {"mean": cast(Pooling, mean)}
    return passes.measure()


def _measure_compiled_pooling(passes: EncoderPasses, backend: str) -> dict[str, Any]:
    """With the mean compiled into one reduction."""
    torch._dynamo.reset()
    mean: Any = passes.forward.poolings["mean"]
    compiled = torch.compile(mean.__call__, dynamic=True, backend=backend)
    return _measure_pooling(passes, compiled)


def _measure_copies(
    passes: EncoderPasses, kind: Callable[[torch.device], Copies]
) -> dict[str, Any]:
    """With another way to bring states to the host."""
    return passes.measure(copies=kind(passes.device))


@torch.inference_mode()
def measure_graphs(passes: EncoderPasses) -> dict[str, Any]:
    """Recorded batches of a few shapes against the same batches launched by Python."""
    passes = passes.unpacked()
    # a mask cannot be looked for while a graph is recorded
    attend_by(passes, "unmasked")
    generator = np.random.default_rng(0)
    figures: dict[str, Any] = {}
    for tokens in GRAPH_TOKENS:
        for length in GRAPH_LENGTHS:
            shape = (tokens // length, length)
            ids = generator.integers(3, passes.model.config.vocab_size, shape)
            figures[f"{shape[0]} x {length}"] = _measure_graph(passes, list(ids))
    return figures


def _measure_graph(passes: EncoderPasses, items: list[Any]) -> dict[str, float]:
    """Tokens a second of a batch, and how far the recorded one's states are off."""
    forward = passes.forward
    batch = forward.batch(items)._replace(mask=None)

    def run() -> Tensor:
        layers = forward._pool_by_hooks("layers", batch)
        return forward._stack_layers(layers)["mean"]

    # libraries must be set up before a recording begins, on a stream beside the usual
    stream: Any = torch.cuda.Stream(passes.device)
    stream.wait_stream(torch.cuda.current_stream(passes.device))
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream(passes.device).wait_stream(stream)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded_BLD = run()
    graph.replay()
    deviation = relative_deviation(recorded_BLD.cpu().numpy(), run().cpu().numpy())

    tokens = sum(map(len, items))
    rates = {}
    for name, start_batch in (("recorded", graph.replay), ("launched", run)):
        synchronise(passes.device)
        start = time.perf_counter()
        for _ in range(3):
            start_batch()
        synchronise(passes.device)
        seconds = (time.perf_counter() - start) / 3
        rates[f"{name}_tokens_per_second"] = tokens / seconds
    return rates | {"deviation": float(deviation.max())}
