"""The shape of a model without its weights: built and run where tensors have no memory."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
import transformers
from torch import Tensor

from gaam_cache.encoders._model.weights import PartOf, skeleton
from gaam_cache.errors import ConfigError


def shape_of(
    model_config: transformers.PretrainedConfig,
    name: str,
    part_of: PartOf,
    inputs: dict[str, Tensor],
) -> tuple[int, int]:
    """Layers and hidden size: the model runs on torch's meta device, which computes shapes alone.

    Args:
        model_config: of the encoder.
        name: what the user calls it.
        part_of: the part of the model that is run.
        inputs: what it is called with for one row, on the meta device.

    Raises:
        ConfigError: neither the model nor its configuration tells them.
    """
    model = skeleton(model_config).to(torch.bfloat16).eval()  # some kernels know no other on meta
    with suppress(ValueError, NotImplementedError, AttributeError):
        model.set_attn_implementation("eager")
    part = part_of(model)
    if (found := _run(part, inputs, masked=True) or _run(part, inputs, masked=False)) is not None:
        return found
    # the course of some models depends on numbers
    text_config = getattr(part, "config", model_config).get_text_config()
    layers = getattr(text_config, "num_hidden_layers", None)
    size = getattr(text_config, "hidden_size", None)
    if type(layers) is not int or type(size) is not int:
        raise ConfigError(
            f"the shape of '{name}' cannot be told without its weights",
            expected="a model that runs without them, or num_hidden_layers and hidden_size",
            hint="leave out tokens-per-second where the encoder can run",
        )
    return layers, size


def _run(part: Any, inputs: dict[str, Tensor], *, masked: bool) -> tuple[int, int] | None:
    """Layers and hidden size; None where it does not run.

    Some models look at numbers to make the mask that they are not given, others at those of one
    that they are given.
    """
    takes = inspect.signature(part.forward).parameters
    options: dict[str, Any] = {"use_cache": False} if "use_cache" in takes else {}
    if masked and "attention_mask" in takes:
        shape = next(iter(inputs.values())).shape
        options["attention_mask"] = torch.ones(shape, dtype=torch.long, device="meta")
    try:
        with quiet(), torch.no_grad():
            states = part(**inputs, output_hidden_states=True, **options).hidden_states[1:]
        return len(states), int(states[-1].shape[-1])
    except Exception:  # noqa: BLE001 a foreign model may fail in any way
        return None


@contextmanager
def quiet() -> Iterator[None]:
    """While open nothing is logged: that kernels are not there is not about the extraction."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
