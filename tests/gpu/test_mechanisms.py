"""Every mechanism, head and loss: forward and gradient on the device as on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gaam_cache import plugins
from gaam_decoder.decoder import DecoderSpec, build_decoder
from gaam_decoder.specs import build, parse_attention, parse_head, parse_loss
from tests.decoder.training.test_group import VARIANTS, B, C, D, L
from tests.gpu.conftest import on

HEADS = plugins.names("gaam_decoder.heads")
LOSSES = plugins.names("gaam_decoder.losses")
WIDE = {torch.float64: 1e-10, torch.float32: 2e-4}
"""Of the largest number of a tensor. float32: a thousand times its last place, for sums that cancel
and densities that are steep."""
PAIRS = [(attention, "linear") for attention in VARIANTS] + [("gaam", head) for head in HEADS]


def differentiate(
    attention: str, head: str, loss: str, device: torch.device, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Logits, loss, attention map and gradients of parameters and rows, on the CPU."""
    generator = torch.Generator().manual_seed(0)
    spec = DecoderSpec(
        attention=parse_attention(attention),
        head=parse_head(head),
        num_layers=L,
        hidden_size=D,
        num_classes=C,
    )
    decoder = build_decoder(spec, 1).to(device, dtype)
    x_BLD = torch.randn(B, L, D, generator=generator, dtype=torch.float64)
    label_B = torch.randint(C, (B,), generator=generator).to(device)
    noise_BK = torch.rand(B, decoder.num_noise, generator=generator).to(device)
    x_BLD = x_BLD.to(device, dtype).requires_grad_()
    logits_BC = decoder(x_BLD, noise_BK if decoder.num_noise else None)
    value = build(parse_loss(loss), "loss")(logits_BC, label_B)
    names = [name for name, _ in decoder.named_parameters()]
    gradients = torch.autograd.grad(value, [x_BLD, *decoder.parameters()], allow_unused=True)
    found = {"logits": logits_BC, "loss": value}
    found |= {
        f"gradient of {name}": gradient
        for name, gradient in zip(["x", *names], gradients, strict=True)
        if gradient is not None
    }
    if (weights := decoder.eval().attention.attention_map(x_BLD)) is not None:
        found["map"] = weights
    return {name: tensor.detach().cpu() for name, tensor in found.items()}


def same(attention: str, head: str, loss: str, device: torch.device, dtype: torch.dtype) -> None:
    ours, theirs = (
        differentiate(attention, head, loss, place, dtype)
        for place in (device, torch.device("cpu"))
    )
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        assert ours[name].dtype == expected.dtype, name
        gap = (ours[name] - expected).abs().max()
        assert gap <= WIDE[dtype] * expected.abs().max().clamp_min(1e-3), (name, float(gap))


@pytest.mark.parametrize("dtype", WIDE, ids=str)
@on(PAIRS, rehearsed=3)
def test_every_decoder_is_on_the_device_what_it_is_on_the_cpu(
    device: torch.device, value: tuple[str, str], dtype: torch.dtype
) -> None:
    same(*value, "cross-entropy", device, dtype)


@pytest.mark.parametrize("dtype", WIDE, ids=str)
@on([*LOSSES, "focal:gamma=0.5,alpha=1"])
def test_every_loss_is_on_the_device_what_it_is_on_the_cpu(
    device: torch.device, value: str, dtype: torch.dtype
) -> None:
    same("gaam", "linear", value, device, dtype)


@on([7, 0])
def test_a_decoder_starts_with_the_same_bits_on_every_device(
    device: torch.device, value: int
) -> None:
    """And leaves every generator of random numbers where it was."""
    spec = DecoderSpec(
        attention=parse_attention("mha"),
        head=parse_head("conv"),
        num_layers=L,
        hidden_size=D,
        num_classes=C,
    )
    before = torch.cuda.get_rng_state_all() if device.type == "cuda" else []
    decoders = [build_decoder(spec, value).to(place) for place in (device, "cpu")]
    after = torch.cuda.get_rng_state_all() if device.type == "cuda" else []
    assert all(map(torch.equal, before, after))
    for ours, theirs in zip(*(one.parameters() for one in decoders), strict=True):
        assert torch.equal(ours.cpu(), theirs)
