"""How a group of seeds is run: how many together, compiled or not, in which memory and arithmetic.

S seeds, B batch, L layers, D hidden size.
"""

import contextlib
import ctypes
import functools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gaam_cache.common import devices
from gaam_cache.common.errors import ShortOfMemoryError
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder
from gaam_decoder.recipe import Dtype, Recipe
from gaam_decoder.training.arithmetic.compiled import missing_compiler

COMPILER_SECONDS = 20.0  # what compiling a step and an evaluation may cost, generously
EAGER_SECONDS_PER_NUMBER = (
    2e-8  # of a batch: what a compiler saves of a step of gates, measured
)
WORKING_SET = 8 * 2**20  # bytes of a step per thread that stay in the caches of a CPU
LEAST_STACKED = 6  # seeds for which stacking pays where nothing is compiled, measured
LOWER = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}  # of products, not of parameters
MOST_SEEDS = {"cpu": 32, "cuda": 256, "mps": 32}
MEMORY_SHARE = 0.4  # share of the free memory that a group may take
ON_PAPER = (
    2**20
)  # numbers of a batch beyond which a decoder is measured without memory: for that
# torch imports its compiler, 1.4 seconds
EVAL_BATCH_SIZE = 512
EVAL_BYTES = {"cpu": 2**24, "cuda": 2**30, "mps": 2**28}
"""Of one batch in evaluation as float32; on a GPU of all seeds together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """How seeds were run; kept with every run."""

    device: str
    dtype: Dtype  # of matrix products; parameters, optimiser and loss are float32
    seed_batch: int  # seeds together at most
    compiled: bool
    why: str  # why it is compiled or not, and why seeds are run together or not

    to_dict = asdict

    @property
    def kind(self) -> str:
        """Of the device, without its number: workers with a device each do the same."""
        return self.device.partition(":")[0]


def groups_of(seeds: Sequence[int], most: int) -> list[list[int]]:
    """Seeds in groups of at most ``most``, in order, whose sizes differ by at most one.

    What is left when the first groups are done is grouped as it was before.
    """
    count = -(-len(seeds) // most)
    small, larger = divmod(len(seeds), count) if count else (0, 0)
    ends = np.cumsum([small + (i < larger) for i in range(count)])
    return [list(seeds[end - small - (i < larger) : end]) for i, end in enumerate(ends)]


def resolve_dtype(asked: Dtype | Literal["auto"], device: torch.device) -> Dtype:
    """The arithmetic of matrix products; ``auto`` is bfloat16 where the device has it."""
    devices.check_arithmetic(asked, device)
    if asked == "auto":
        return "bfloat16" if devices.has_bfloat16(device) else "float32"
    return asked


def choose_engine(
    spec: DecoderSpec,
    recipe: Recipe,
    device: torch.device,
    num_seeds: int,
    num_rows: int,
    seed_batch: int | None = None,
    compile: Literal["auto", "on", "off"] = "auto",  # noqa: A002 the option's name
    *,
    most: int | None = None,
) -> Engine:
    """How to run ``num_seeds`` seeds over ``num_rows`` rows, by free memory and compiler.

    ``most``: seeds together, of which others have rows or workers of their own.
    """
    few = recipe.batch_size * spec.num_layers * spec.hidden_size <= ON_PAPER
    with torch.device("cpu" if few else "meta"):
        decoder = build_decoder(spec, seed=0)
    numbers = recipe.epochs * num_rows * num_seeds * spec.num_layers * spec.hidden_size
    compiled, why = True, "enough work for a compiler"
    if compile != "auto":
        compiled, why = compile == "on", "as asked"
    elif numbers * EAGER_SECONDS_PER_NUMBER < COMPILER_SECONDS and device.type == "cpu":
        compiled, why = False, "too little work for a compiler"
    if compiled and (missing := missing_compiler(device.type)) is not None:
        compiled, why = False, missing
    parts = (decoder.attention, spec.attention.name), (decoder.head, spec.head.name)
    if alone := [name for part, name in parts if not part.stackable]:
        together, why_together = 1, f"{alone[0]} is not stacked"
    elif seed_batch is not None:
        together, why_together = seed_batch, "as asked"
    else:
        activations = activation_bytes(decoder, spec, recipe.batch_size)
        parameters = sum(p.numel() * p.element_size() for p in decoder.parameters())
        # parameters, gradients, two moments and the best epoch so far; gradients of activations
        per_seed = 5 * parameters + 2 * activations
        fitting = min(
            int(MEMORY_SHARE * free_on(device) / per_seed), MOST_SEEDS[device.type]
        )
        together, why_together = max(1, fitting), "as memory allows"
        # a step of an optimiser reads and writes all of the first four
        cached = WORKING_SET * torch.get_num_threads() // (4 * parameters + activations)
        if device.type == "cpu" and cached < fitting:
            pays = compiled or cached >= LEAST_STACKED
            together, why_together = max(1, cached if pays else 1), "as caches allow"
    if most is not None and most < together:
        together, why_together = most, "others have rows or workers of their own"
    return Engine(
        device=str(device),
        dtype=recipe.dtype,
        seed_batch=together,
        compiled=compiled,
        why=f"{why_together}; {why}",
    )


def activation_bytes(decoder: Decoder, spec: DecoderSpec, batch_size: int) -> int:
    """What autograd keeps of one batch of one seed, in bytes."""
    kept = 0

    def count(
        tensor: Tensor,
    ) -> None:  # a result that is kept by what made it is never freed
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()

    width = decoder.head.num_noise
    place = next(decoder.parameters()).device
    noise = torch.zeros(batch_size, width, device=place) if width else None
    x_BLD = torch.zeros(batch_size, spec.num_layers, spec.hidden_size, device=place)
    decoder.train()
    with torch.autograd.graph.saved_tensors_hooks(count, lambda nothing: nothing):
        decoder(x_BLD, noise)
    return max(kept, x_BLD.numel() * x_BLD.element_size())


def rows_at_once(device_type: str, numbers: int) -> int:
    """Rows of a batch in evaluation, at least one, of which each takes so many float32 numbers."""
    return max(1, EVAL_BYTES[device_type] // (4 * numbers))


def free_on(device: torch.device) -> int:
    """Bytes that are free on a GPU, or of the machine's memory for each of its workers."""
    return devices.memory_left(device)


@functools.cache
def keep_freed_memory() -> None:
    """Tell the C library, where it is glibc, to keep what a step frees for the next step.

    Handed back to the system, it would come back page by page, all zeroed: that made steps of the
    conv head 1.5 times as long, and compiled ones of the linear head 1.3 times.
    """
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(
            -3, 32 * 2**20
        )  # M_MMAP_THRESHOLD: of one piece; glibc takes no larger ones
        libc.mallopt(-1, 512 * 2**20)  # M_TRIM_THRESHOLD: in all


@contextlib.contextmanager
def enough_memory(recipe: Recipe, seeds: Sequence[int], device: str) -> Iterator[None]:
    """While open, a ShortOfMemoryError says what to try; without seeds a head is fitted at once."""
    try:
        yield
    except Exception as error:
        if not devices.out_of_memory(error) or isinstance(error, ShortOfMemoryError):
            raise
        hint = "a smaller --batch-size, fewer --layers, or --device cpu"
        if len(seeds) > 1:
            hint = f"--set seed-batch={len(seeds) // 2}, which changes results by rounding alone"
        message = f"the memory of {device} is too small for {recipe}, {len(seeds) or 1} together"
        said = devices.memory_message(error)
        raise ShortOfMemoryError(message, found=said, hint=hint) from error
