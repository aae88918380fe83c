"""What a decoder from other packages must do before a training believes it.

B batch, L layers, D hidden size, C classes, K noise per sample.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gaam_cache import plugins
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder, without_random_numbers
from gaam_decoder.specs import KINDS, Spec, blamed, build

ROWS = 3


def check_contract(spec: DecoderSpec, loss: Spec) -> None:
    """Try a decoder of which a part lives in another package on a few random rows.

    Raises:
        ConfigError: a part raises, or what it returns is not what it must be; names the package.
    """
    parts = {"mechanism": spec.attention, "head": spec.head, "loss": loss}
    if any(plugins.origin(KINDS[kind][0], part.name) for kind, part in parts.items()):
        decoder = build_decoder(spec, seed=0)
        with without_random_numbers():
            _try(spec, decoder, loss)


def _try(spec: DecoderSpec, decoder: Decoder, loss: Spec) -> None:
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS, spec.num_layers, spec.hidden_size)
    x_BLD = torch.randn(shape, generator=generator)
    label_B = torch.arange(ROWS) % spec.num_classes
    noise_BK = torch.rand(ROWS, decoder.num_noise, generator=generator)
    decoder.train()
    with blamed(spec.attention, "mechanism"):
        y_BLD = decoder.attention(x_BLD)
        _expect("the mechanism", y_BLD, (ROWS, *decoder.attention.output_shape))
    with blamed(spec.head, "head"):
        logits_BC = decoder.head(y_BLD, noise_BK if decoder.num_noise else None)
        _expect("the head", logits_BC, (ROWS, spec.num_classes))
    with blamed(loss, "loss"):
        value = build(loss, "loss")(logits_BC, label_B)
        _expect("the loss", value, ())
    with blamed(loss, "loss"), blamed(spec.head, "head"), blamed(spec.attention, "mechanism"):
        value.backward()
    decoder.eval()
    with blamed(spec.attention, "mechanism"):
        weights = decoder.attention.attention_map(x_BLD)
        if weights is not None:
            _expect("attention_map", weights)
            of_map = tuple(weights.shape)
            layers = {3: of_map[1:2], 4: of_map[3:]}.get(len(of_map))
            if layers != (spec.num_layers,):
                raise TypeError(f"attention_map gives {of_map}, not (B, L, ...) or (B, H, Q, L)")
        for name, learned in decoder.attention.learned().items():
            _expect(f"learned '{name}'", learned)


def _expect(what: str, found: Any, shape: tuple[int, ...] | None = None) -> None:
    """A finite tensor of real numbers, of a certain shape if there is one.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(found, Tensor) or not found.is_floating_point():
        kind = found.dtype if isinstance(found, Tensor) else type(found).__name__
        raise TypeError(f"{what} gives {kind}, not a tensor of real numbers")
    if shape is not None and tuple(found.shape) != shape:
        raise TypeError(f"{what} gives the shape {tuple(found.shape)}, not {shape}")
    if not bool(torch.isfinite(found).all()):
        raise TypeError(f"{what} gives numbers that are not finite")
