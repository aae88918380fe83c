"""What a decoder from other packages must do before a training believes it.

B batch, L layers, D hidden size, C classes, K noise per sample.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from gaam_cache import plugins
from gaam_cache.errors import ConfigError
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder
from gaam_decoder.losses._base import Loss
from gaam_decoder.specs import KINDS, Spec

ROWS = 3


def check_contract(spec: DecoderSpec, loss: Spec) -> None:
    """Try a decoder of which a part lives in another package on a few random rows.

    Raises:
        ConfigError: a part raises, or what it returns is not what it must be; names the package.
    """
    parts = {"mechanism": spec.attention, "head": spec.head, "loss": loss}
    theirs = {
        kind: part.name
        for kind, part in parts.items()
        if plugins.origin(KINDS[kind][0], part.name) is not None
    }
    if not theirs:
        return
    with ExitStack() as stack:
        for kind, name in theirs.items():
            stack.enter_context(plugins.blamed(KINDS[kind][0], name, kind=kind))
        _try(spec, build_decoder(spec, seed=0), build_loss(loss))


def build_loss(spec: Spec) -> Loss:
    """The loss that a spec names."""
    found: Loss = plugins.load(KINDS["loss"][0], spec.name, kind="loss")(**dict(spec.options))
    return found


def _try(spec: DecoderSpec, decoder: Decoder, loss_of: Loss) -> None:
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS, spec.num_layers, spec.hidden_size)
    x_BLD = torch.randn(shape, generator=generator)
    label_B = torch.arange(ROWS) % spec.num_classes
    noise_BK = torch.rand(ROWS, decoder.num_noise, generator=generator)
    drawn = torch.random.get_rng_state()
    decoder.train()
    y_BLD = decoder.attention(x_BLD)
    _expect("the mechanism", y_BLD, (ROWS, *decoder.attention.output_shape))
    logits_BC = decoder.head(y_BLD, noise_BK if decoder.num_noise else None)
    _expect("the head", logits_BC, (ROWS, spec.num_classes))
    loss = loss_of(logits_BC, label_B)
    _expect("the loss", loss, ())
    loss.backward()
    decoder.eval()
    weights = decoder.attention.attention_map(x_BLD)
    if weights is not None:
        layers = spec.num_layers
        fits = weights.shape[1:2] if weights.ndim == 3 else weights.shape[3:]
        expected = (ROWS, layers, *weights.shape[2:]) if weights.ndim == 3 else (ROWS, 1, 1, layers)
        _expect("attention_map", weights, weights.shape if fits == (layers,) else expected)
    for name, value in decoder.attention.learned().items():
        _expect(f"learned '{name}'", value, value.shape if isinstance(value, Tensor) else ())
    if not torch.equal(drawn, torch.random.get_rng_state()):
        raise ConfigError(
            "the decoder draws random numbers of its own while it trains",
            expected="none: a seed would depend on the seeds beside it (heads are handed noise)",
        )


def _expect(what: str, found: Any, shape: tuple[int, ...]) -> None:
    """A finite tensor of real numbers.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(found, Tensor) or not found.is_floating_point():
        kind = found.dtype if isinstance(found, Tensor) else type(found).__name__
        raise TypeError(f"{what} gives {kind}, not a tensor of real numbers")
    if tuple(found.shape) != tuple(shape):
        raise TypeError(f"{what} gives the shape {tuple(found.shape)}, not {tuple(shape)}")
    if not bool(torch.isfinite(found).all()):
        raise TypeError(f"{what} gives numbers that are not finite")
