"""What is said where a training finds too little memory, or a device that cannot do it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gaam_cache.devices import out_of_memory, said_of_memory
from gaam_cache.errors import ConfigError, ShortOfMemoryError
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.recipe import Recipe


@contextmanager
def room_for(recipe: Recipe, seeds: Sequence[int], device: str) -> Iterator[None]:
    """While open, what a device refuses is said with what to try.

    Nothing is tried again here: a group of seeds is trained as it was begun, or not at all.

    Args:
        recipe: of the training.
        seeds: trained together; none where a head is fitted at once.
        device: what computes.

    Raises:
        ShortOfMemoryError: memory ran out.
        ConfigError: there is no code for the device.
    """
    try:
        yield
    except NotImplementedError as error:
        if device == "cpu":
            raise
        raise ConfigError(
            f"{device} cannot compute {recipe}",
            found=str(error).splitlines()[0],
            hint="--device cpu",
        ) from error
    except Exception as error:
        if not out_of_memory(error) or isinstance(error, ShortOfMemoryError):
            raise
        alone = len(seeds) < 2
        raise ShortOfMemoryError(
            f"the memory of {device} is too small",
            expected=f"memory for {recipe}"
            + (f", seed{'s' * (not alone)} {spell_numbers(seeds)} together" if seeds else "")
            + f", rows of a batch: {recipe.batch_size}",
            found=said_of_memory(error),
            hint=_what_to_try(recipe, len(seeds)),
        ) from error


def _what_to_try(recipe: Recipe, together: int) -> str:
    """Options that take less; those that change no number first."""
    if not together:
        return "fewer --layers, or --device cpu where the machine has more memory"
    if together > 1:
        return f"--set seed-batch={together // 2}, which changes results by rounding alone"
    smaller = "--dtype bfloat16, or another --device"
    if recipe.batch_size > 1:
        smaller = f"--batch-size {recipe.batch_size // 2} (another recipe), {smaller}"
    return smaller
