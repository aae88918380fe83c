"""Choose how seeds are run: how many together, compiled or not, and in which type.

S seeds, B batch, L layers, D hidden size.
"""

import contextlib
import ctypes
import functools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import Tensor

from gaam_cache.common import devices
from gaam_cache.common.compiling import missing_compiler
from gaam_cache.common.errors import ShortOfMemoryError
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder
from gaam_decoder.recipe import Dtype, Recipe

COMPILER_SECONDS = 20.0  # generous, of compiling a step and an evaluation
# what a compiler saves in a training of gates for each number of the states, measured
EAGER_SECONDS_PER_NUMBER = 2e-8
WORKING_SET = 8 * 2**20  # bytes of a step per thread that stay in the caches of a CPU
LEAST_STACKED = 6  # fewer seeds train faster one by one without a compiler, measured
# types of matrix products by torch.autocast; parameters stay in float32
AUTOCAST_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
MOST_SEEDS = {"cpu": 32, "cuda": 256, "mps": 32}
MEMORY_SHARE = 0.4  # share of the free memory that a seed batch may take
# To measure a decoder, a batch runs through it. If the batch has more numbers than
# this, the decoder is built without memory (on torch's meta device). A smaller one is
# built in memory: the meta device imports torch's compiler, which takes 1.4 seconds.
MOST_NUMBERS_IN_MEMORY = 2**20
# settings of glibc's mallopt, as its malloc.h numbers them
M_MMAP_THRESHOLD = -3
M_TRIM_THRESHOLD = -1
EVAL_BATCH_SIZE = 512
EVAL_BYTES = {"cpu": 2**24, "cuda": 2**30, "mps": 2**28}
"""Of one batch in evaluation as float32; on a GPU of all seeds together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """How the seeds of a run are trained: where, in which type, how many together."""

    device: str
    dtype: Dtype  # of matrix products; parameters, optimizer and loss are float32
    seed_batch: int  # seeds together at most
    compiled: bool
    why: str  # why it is compiled or not, and why seeds are run together or not

    to_dict = asdict

    @property
    def kind(self) -> str:
        """The kind of the device without its number: cpu, cuda or mps.

        Workers with a device each do the same work.
        """
        return self.device.partition(":")[0]


def divide_seeds(seeds: Sequence[int], largest: int) -> list[list[int]]:
    """Divide seeds in order into batches of at most ``largest``, of nearly equal sizes.

    Where the first batches are trained already, the other seeds are divided into the
    same batches as before.
    """
    # the quotient rounded up
    num_batches = -(-len(seeds) // largest)
    if num_batches == 0:
        return []
    small_size, num_larger = divmod(len(seeds), num_batches)
    batches: list[list[int]] = []
    start = 0
    for index in range(num_batches):
        # the first batches take one seed more
        end = start + small_size + (1 if index < num_larger else 0)
        batches.append(list(seeds[start:end]))
        start = end
    return batches


def resolve_dtype(requested: Dtype | Literal["auto"], device: torch.device) -> Dtype:
    """The type of matrix products; ``auto`` is bfloat16 if the device has it."""
    devices.check_arithmetic(requested, device)
    if requested == "auto":
        return "bfloat16" if devices.has_bfloat16(device) else "float32"
    return requested


def choose_engine(
    spec: DecoderSpec,
    recipe: Recipe,
    device: torch.device,
    num_seeds: int,
    num_rows: int,
    seed_batch: int | None = None,
    compile: Literal["auto", "on", "off"] = "auto",  # noqa: A002 the option's name
    *,
    most_seeds: int | None = None,
) -> Engine:
    """Choose how to run seeds, by the work, the free memory and the compiler.

    Args:
        spec: of the decoder.
        recipe: of the training.
        device: that trains.
        num_seeds: seeds to train.
        num_rows: training rows.
        seed_batch: number of seeds to train together, if the user decides it.
        compile: whether to compile the steps.
        most_seeds: a further limit of the seeds together, where each seed has
            validation rows of its own or other workers train some of the seeds; None
            without one.
    """
    numbers_per_row = spec.num_layers * spec.hidden_size
    is_small = recipe.batch_size * numbers_per_row <= MOST_NUMBERS_IN_MEMORY
    with torch.device("cpu" if is_small else "meta"):
        decoder = build_decoder(spec, seed=0)
    num_values_read = recipe.epochs * num_rows * num_seeds * numbers_per_row
    compiled, why_compiled = _choose_compiler(num_values_read, device, compile)

    # the mechanism, the user, the memory or other workers limit the seeds together
    unstackable_part = _unstackable_part(decoder, spec)
    if unstackable_part is not None:
        seed_batch_size = 1
        why_together = f"{unstackable_part} is not stacked"
    elif seed_batch is not None:
        seed_batch_size = seed_batch
        why_together = "as asked"
    else:
        seed_batch_size, why_together = _choose_seed_batch(
            decoder, spec, recipe, device, compiled=compiled
        )
    if most_seeds is not None and most_seeds < seed_batch_size:
        seed_batch_size = most_seeds
        why_together = "others have rows or workers of their own"
    return Engine(
        device=str(device),
        dtype=recipe.dtype,
        seed_batch=seed_batch_size,
        compiled=compiled,
        why=f"{why_together}; {why_compiled}",
    )


def _unstackable_part(decoder: Decoder, spec: DecoderSpec) -> str | None:
    """The mechanism or head that torch.func cannot run over stacked parameters.

    None if it can run both.
    """
    if not decoder.attention.stackable:
        return spec.attention.name
    if not decoder.head.stackable:
        return spec.head.name
    return None


def _choose_compiler(
    num_values_read: int, device: torch.device, requested: Literal["auto", "on", "off"]
) -> tuple[bool, str]:
    """Whether to compile the steps of a training, and why.

    Args:
        num_values_read: how many values of states all seeds read, over all epochs.
        device: that trains.
        requested: the user's choice.
    """
    compiled = True
    reason = "enough work for a compiler"
    saved_seconds = num_values_read * EAGER_SECONDS_PER_NUMBER
    if requested != "auto":
        compiled = requested == "on"
        reason = "as asked"
    # the saving was measured on CPUs; steps on a GPU are always compiled
    elif saved_seconds < COMPILER_SECONDS and device.type == "cpu":
        compiled = False
        reason = "too little work for a compiler"
    if compiled:
        missing = missing_compiler(device.type)
        if missing is not None:
            return False, missing
    return compiled, reason


def _choose_seed_batch(
    decoder: Decoder,
    spec: DecoderSpec,
    recipe: Recipe,
    device: torch.device,
    *,
    compiled: bool,
) -> tuple[int, str]:
    """The number of seeds to train together, and why.

    All of them fit into the free memory, and on a CPU a step of them fits into its
    caches.
    """
    bytes_of_activations = activation_bytes(decoder, spec, recipe.batch_size)
    bytes_of_parameters = sum(
        parameter.numel() * parameter.element_size()
        for parameter in decoder.parameters()
    )
    # parameters, their gradients, two tensors of the optimizer, and the parameters of
    # the best epoch; activations and their gradients
    bytes_per_seed = 5 * bytes_of_parameters + 2 * bytes_of_activations
    seeds_in_memory = int(MEMORY_SHARE * free_bytes(device) / bytes_per_seed)
    seeds_in_memory = min(seeds_in_memory, MOST_SEEDS[device.type])

    # a step reads and writes all of these but the best epoch
    bytes_of_step = 4 * bytes_of_parameters + bytes_of_activations
    seeds_in_caches = WORKING_SET * torch.get_num_threads() // bytes_of_step
    if device.type == "cpu" and seeds_in_caches < seeds_in_memory:
        stacking_pays = compiled or seeds_in_caches >= LEAST_STACKED
        seed_batch_size = max(1, seeds_in_caches) if stacking_pays else 1
        return seed_batch_size, "as caches allow"
    return max(1, seeds_in_memory), "as memory allows"


def activation_bytes(decoder: Decoder, spec: DecoderSpec, batch_size: int) -> int:
    """Bytes that autograd keeps for the gradients of one batch of one seed."""
    num_bytes = 0

    # Autograd calls this for every tensor that it keeps. It returns nothing: a tensor
    # that is kept by the result of its own step would never be freed.
    def add_bytes(tensor: Tensor) -> None:
        nonlocal num_bytes
        num_bytes += tensor.numel() * tensor.element_size()

    num_noise = decoder.head.num_noise
    device = next(decoder.parameters()).device
    noise_BK: Tensor | None = None
    if num_noise:
        noise_BK = torch.zeros(batch_size, num_noise, device=device)
    x_BLD = torch.zeros(batch_size, spec.num_layers, spec.hidden_size, device=device)
    decoder.train()
    # the second hook is for the backward pass, which is not run
    with torch.autograd.graph.saved_tensors_hooks(add_bytes, lambda nothing: nothing):
        decoder(x_BLD, noise_BK)
    # the batch itself takes memory, also where autograd keeps nothing
    return max(num_bytes, x_BLD.numel() * x_BLD.element_size())


def rows_at_once(device_type: str, numbers_per_row: int) -> int:
    """Rows of a batch in evaluation that fit into the memory in float32; at least 1."""
    return max(1, EVAL_BYTES[device_type] // (4 * numbers_per_row))


def free_bytes(device: torch.device) -> int:
    """Free bytes of a GPU, or one worker's share of the machine's free memory."""
    return devices.memory_left(device)


@functools.cache
def keep_freed_memory() -> None:
    """Tell glibc, once, to keep the memory that a step frees for the next step.

    The system would hand it back page by page, all zeroed. That made steps of the conv
    head 1.5 times as long, and compiled steps of the linear head 1.3 times.
    """
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        # bytes of one block; glibc accepts no larger value
        libc.mallopt(M_MMAP_THRESHOLD, 32 * 2**20)
        # bytes of all freed blocks
        libc.mallopt(M_TRIM_THRESHOLD, 512 * 2**20)


@contextlib.contextmanager
def without_denormals() -> Iterator[None]:
    """Compute with 0 in place of numbers whose size is below 1.2e-38, the denormals.

    A CPU takes up to 170 times as long for products with them. Where a softmax gives
    one layer nearly all the weight, the weights and gradients of the others are so
    small.

    torch sets this for the calling thread, and threads that it starts later inherit it.
    Where torch has computed before, as in a notebook, its other threads keep their way,
    and a part of the products stays slow. Threads that start here keep it for good.
    """
    # the CPU treats the numbers of Python in the same way
    was_set = sys.float_info.min / 2 == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_set)


@contextlib.contextmanager
def explained_memory_errors(
    recipe: Recipe, seeds: Sequence[int], device: str
) -> Iterator[None]:
    """Turn an error of memory into a ShortOfMemoryError that says what to try.

    Args:
        recipe: of the training, for the message.
        seeds: that train together; empty where a head is fitted without steps.
        device: that trains.
    """
    try:
        yield
    except Exception as error:
        if not devices.out_of_memory(error) or isinstance(error, ShortOfMemoryError):
            raise
        hint = "a smaller --batch-size, fewer --layers, or --device cpu"
        if len(seeds) > 1:
            hint = (
                f"--set seed-batch={len(seeds) // 2}, which changes results by "
                "rounding alone"
            )
        raise ShortOfMemoryError(
            f"the memory of {device} is too small for {recipe}, "
            f"{len(seeds) or 1} together",
            found=devices.memory_message(error),
            hint=hint,
        ) from error
