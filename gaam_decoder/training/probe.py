"""What a fitted head needs, what its fit costs, and the linear probe beside a sweep."""

import warnings

import torch

from gaam_cache.common.devices import free_memory, with_float64
from gaam_cache.common.errors import (
    ConfigError,
    GaamWarning,
    ShortOfMemoryError,
)
from gaam_cache.store.reader import EmbeddingCache
from gaam_decoder.decoder import DecoderSpec, build_decoder, shapes_only
from gaam_decoder.heads.base import FittedHead
from gaam_decoder.recipe import Recipe
from gaam_decoder.specs import Spec, head_class
from gaam_decoder.training.arithmetic.engine import free_bytes
from gaam_decoder.training.splits import num_rows

PROBE_ATTENTION = Spec("none")  # the mechanism of a linear probe
MOST_SECONDS = 60.0  # estimated, of a probe that nobody asked for
MEMORY_SHARE = 0.5  # of the free memory, for such a probe
OPERATIONS_PER_SECOND = {"cpu": 8e9, "cuda": 4e11}
"""Of a fit in float64: measured for one thread of a CPU, assumed for a GPU."""


def check_decoder(spec: DecoderSpec, select: str) -> None:
    """Check that a decoder can be built, and that a fitted head suits its mechanism."""
    with shapes_only():
        decoder = build_decoder(spec, seed=0)
    if head_class(spec.head).trained_by != "fit":
        return
    # a fit sees fixed features of each row
    num_parameters = sum(p.numel() for p in decoder.attention.parameters())
    if num_parameters or decoder.attention.depends_on_batch:
        problem = "whose output for a row depends on the other rows of a batch"
        if num_parameters:
            problem = f"which has {num_parameters:,} parameters"
        raise ConfigError(
            f"--head {spec.head.name} is fitted at once, to the fixed output of a "
            "mechanism without parameters",
            expected="a mechanism that learns nothing, such as --attn none",
            found=f"--attn {spec.attention}, {problem}",
        )
    if select == "last":
        raise ConfigError(
            f"--head {spec.head.name} is fitted at once, and needs validation rows",
            expected="--select val",
            found=f"--select {select}",
        )


def fit_cost(spec: DecoderSpec, rows: int, device: torch.device) -> tuple[float, float]:
    """Estimate the seconds and the bytes of memory that a fit of a head may take.

    Args:
        spec: of the decoder, whose head is fitted without steps.
        rows: number of rows to fit.
        device: that was chosen; a fit runs on the CPU if it lacks float64.
    """
    head = head_class(spec.head)
    assert issubclass(head, FittedHead)
    with shapes_only():
        positions, size = build_decoder(spec, seed=0).attention.output_shape
    operations, memory = head.cost(rows, positions * size, spec.num_classes)
    device_type = with_float64(device).type
    threads = torch.get_num_threads() if device_type == "cpu" else 1
    return operations / (OPERATIONS_PER_SECOND[device_type] * threads), memory


def check_fit_memory(
    spec: DecoderSpec, recipe: Recipe, rows: int, device: torch.device
) -> None:
    """Refuse a fit that needs more memory than is free, before it begins.

    The system would otherwise end the whole process in the middle of it.

    Args:
        spec: of the decoder.
        recipe: of the fit, for the message.
        rows: number of rows to fit.
        device: that was chosen.

    Raises:
        ShortOfMemoryError: the fit needs more.
    """
    _seconds, needed_bytes = fit_cost(spec, rows, device)
    free = free_fit_memory(device)
    if needed_bytes > free:
        raise ShortOfMemoryError(
            f"{recipe} needs more memory than is free",
            expected=f"{needed_bytes / 1e9:,.1f} GB for {rows:,} rows",
            found=f"{free / 1e9:,.1f} GB",
            hint="fewer --layers, or fewer rows (gaam extract --limit)",
        )


def free_fit_memory(device: torch.device) -> int:
    """Free bytes of the device that fits; the CPU where ``device`` lacks float64."""
    fit_device = with_float64(device)
    return free_memory() if fit_device.type == "cpu" else free_bytes(fit_device)


def probe_fits(
    spec: DecoderSpec, recipe: Recipe, cache: EmbeddingCache, device: torch.device
) -> bool:
    """Whether a linear probe is cheap enough to be fitted unasked; warn if not.

    A linear probe is logistic regression on the states (ridge regression of numbers),
    which shows what a mechanism adds.
    """
    seconds, memory = fit_cost(spec, num_rows(recipe, cache), device)
    free = free_fit_memory(device)
    if seconds <= MOST_SECONDS and memory <= MEMORY_SHARE * free:
        return True
    warnings.warn(
        f"left out: the linear probe {recipe}: about {seconds / 60:,.0f} minutes and "
        f"{memory / 1e9:,.1f} GB of memory; "
        f"--attn {PROBE_ATTENTION} --head {spec.head} asks for it",
        GaamWarning,
        stacklevel=3,
    )
    return False
