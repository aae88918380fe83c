"""Shape and cost of a model without its weights: built and run where tensors have no memory.

L layers, D hidden size, T tokens of a row.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from gaam_cache.encoders._base import Outline
from gaam_cache.encoders._model.weights import PartOf, skeleton
from gaam_cache.errors import ConfigError


def outline(
    model_config: transformers.PretrainedConfig,
    name: str,
    *,
    part_of: PartOf,
    inputs_of: Callable[[int], dict[str, Tensor]],
    lengths: Sequence[int],
) -> tuple[int, int, Outline]:
    """L, D and what a row costs, without any weight.

    The model runs on torch's meta device, where only shapes are computed, on rows of two lengths,
    and torch's ``FlopCounterMode`` counts. Where a model cannot run so (its course depends on
    numbers), the cost is ``2 P T + 4 L D T^2`` with P the parameters without embeddings: two
    operations for each parameter and token, and attention's two products.

    Args:
        model_config: of the encoder.
        name: what the user calls it.
        part_of: the part of the model that is run.
        inputs_of: what it is called with for one row of that length, on the meta device.
        lengths: two in tokens, the longer one last; or one, where all rows have it.

    Raises:
        ConfigError: neither the model nor its configuration tells L and D.
    """
    model = skeleton(model_config).to(torch.bfloat16).eval()  # some kernels know no other on meta
    with suppress(ValueError, NotImplementedError, AttributeError):
        model.set_attn_implementation("eager")  # fused kernels are not all counted
    part = part_of(model)
    tables = {
        id(tensor)
        for module in part.modules()
        if isinstance(module, nn.Embedding)
        for tensor in module.parameters()
    }
    parameters = sum(p.numel() for p in part.parameters())
    dense = sum(p.numel() for p in part.parameters() if id(p) not in tables)
    short, long = lengths[0], lengths[-1]
    inputs = [inputs_of(length) for length in (short, long)]
    ran = _run(part, inputs, masked=True) or _run(part, inputs, masked=False)
    if ran is None:
        text_config = getattr(part, "config", model_config).get_text_config()
        layers = getattr(text_config, "num_hidden_layers", None)
        size = getattr(text_config, "hidden_size", None)
        if type(layers) is not int or type(size) is not int:
            raise ConfigError(
                f"the shape of '{name}' cannot be told without its weights",
                expected="a model that runs without them, or num_hidden_layers and hidden_size",
                hint="leave out --card and --assume-tokens-per-second where the encoder can run",
            )
        found = Outline(
            parameters=parameters, linear=2.0 * dense, quadratic=4.0 * layers * size, counted=False
        )
        return layers, size, found
    layers, size, (cost_short, cost_long) = ran
    quadratic = 0.0
    if long > short:
        quadratic = max(0.0, (cost_long / long - cost_short / short) / (long - short))
    linear = cost_long / long - quadratic * long
    found = Outline(parameters=parameters, linear=linear, quadratic=quadratic, counted=True)
    return layers, size, found


def _run(
    part: Any, rows: Sequence[dict[str, Tensor]], *, masked: bool
) -> tuple[int, int, list[int]] | None:
    """L, D and the operations of each row; None where it does not run.

    Some models look at numbers to make the mask that they are not given, others at those of one
    that they are given.
    """
    takes = inspect.signature(part.forward).parameters
    options: dict[str, Any] = {"use_cache": False} if "use_cache" in takes else {}
    costs, layers, size = [], 0, 0
    for inputs in rows:
        if masked and "attention_mask" in takes:
            shape = next(iter(inputs.values())).shape
            options["attention_mask"] = torch.ones(shape, dtype=torch.long, device="meta")
        try:
            with quiet(), torch.no_grad(), FlopCounterMode(display=False) as counter:
                output = part(**inputs, output_hidden_states=True, **options)
            states = output.hidden_states[1:]
            layers, size = len(states), int(states[-1].shape[-1])
        except Exception:  # noqa: BLE001 a foreign model may fail in any way
            return None
        costs.append(counter.get_total_flops())
    return layers, size, costs


@contextmanager
def quiet() -> Iterator[None]:
    """While open nothing is logged: that kernels are not there is not about the extraction."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
