"""Heads against torch's own modules, and what has to hold of any head."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from gaam_cache.common import plugins
from gaam_decoder.heads.conv import ConvHead, image_shape
from gaam_decoder.heads.mlp import MLPHead
from tests.decoder.heads.stepped import STEPPED


@pytest.mark.parametrize(
    ("hidden_size", "expected"),
    [
        (5120, (64, 80)),
        (1024, (32, 32)),
        (384, (16, 24)),
        (512, (64, 8)),
        (24, (4, 6)),
        (7, (1, 7)),
    ],
)
def test_the_image_is_the_most_nearly_square(
    hidden_size: int, expected: tuple[int, int]
) -> None:
    assert image_shape(hidden_size) == expected


@pytest.mark.parametrize("name", STEPPED)
@pytest.mark.parametrize("num_layers", [1, 6])
def test_heads_give_finite_logits_and_gradients(name: str, num_layers: int) -> None:
    with torch.random.fork_rng():
        # seeded: the last ReLU of a conv head with one channel is dead for about one
        # seed in ten
        torch.manual_seed(1)
        head = plugins.load("gaam_decoder.heads", name, kind="head")(num_layers, 12, 3)
        x = torch.randn(4, num_layers, 12)
    noise = torch.rand(4, head.num_noise) if head.num_noise else None
    logits = head(x, noise)
    assert logits.shape == (4, 3)
    logits.square().sum().backward()
    for key, parameter in head.named_parameters():
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.abs().sum() > 0, key


def mlp_and_torch_modules() -> tuple[MLPHead, torch.nn.Module, torch.nn.Linear]:
    """A head, and torch's modules with its weights: the hidden layer and the last."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = MLPHead(2, 6, 3, width=10, dropout=0.3)
    first = torch.nn.Linear(12, 10)
    last = torch.nn.Linear(10, 3)
    first.load_state_dict(head.fc1.state_dict())
    last.load_state_dict(head.fc2.state_dict())
    hidden = torch.nn.Sequential(torch.nn.Flatten(), first, torch.nn.GELU())
    return head, hidden, last


def test_mlp_equals_torch_modules() -> None:
    head, hidden, last = mlp_and_torch_modules()
    x = torch.randn(4, 2, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(head(x), last(hidden(x)))


def test_the_dropout_of_mlp_is_the_noise_it_gets() -> None:
    head, hidden, last = mlp_and_torch_modules()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 2, 6, generator=generator)
    noise = torch.rand(4, 10, generator=generator)
    kept = hidden(x) * (noise >= 0.3) / 0.7
    torch.testing.assert_close(head(x, noise), last(kept))
    assert head.num_noise == 10
    assert MLPHead(2, 6, 3, dropout=0.0).num_noise == 0


def conv_head(hidden_size: int, dtype: torch.dtype, channels: int = 4) -> ConvHead:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return ConvHead(channels, hidden_size, 3).to(dtype)


def states(hidden_size: int, dtype: torch.dtype, channels: int = 4) -> torch.Tensor:
    """Five rows, which want a gradient."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(5, channels, hidden_size, dtype=dtype, generator=generator)
    return x.requires_grad_()


def convolve_by_windows(image: torch.Tensor, conv: torch.nn.Conv2d) -> torch.Tensor:
    """A convolution of 3 x 3 and its ReLU, window by window."""
    assert conv.bias is not None
    windows = functional.unfold(image, 3, padding=1)
    out = conv.weight.flatten(1) @ windows + conv.bias[:, None]
    return out.unflatten(-1, image.shape[-2:]).relu()


def logits_and_gradients(
    head: ConvHead, logits: torch.Tensor, x: torch.Tensor
) -> list[torch.Tensor]:
    """Logits and the gradients of the states and of every parameter."""
    weight = torch.linspace(-1, 2, logits.numel(), dtype=x.dtype).view_as(logits)
    loss = (logits * weight).sum()
    return [logits, *torch.autograd.grad(loss, [x, *head.parameters()])]


@pytest.mark.parametrize("hidden_size", [384, 35, 7])
@pytest.mark.parametrize("channels", [1, 4])
def test_conv_is_two_convolutions_of_the_features_as_an_image(
    channels: int, hidden_size: int
) -> None:
    """As near as a float64 is exact."""
    head = conv_head(hidden_size, torch.float64, channels)
    x = states(hidden_size, torch.float64, channels)
    image = x.view(*x.shape[:2], *head.image_shape)
    first = convolve_by_windows(image, head.conv1)
    second = convolve_by_windows(first, head.conv2)
    expected_logits = head.fc(second.flatten(1))
    for tensor, expected in zip(
        logits_and_gradients(head, head(x), x),
        logits_and_gradients(head, expected_logits, x),
        strict=True,
    ):
        assert (tensor - expected).norm() <= 1e-11 * expected.norm()


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("where", ["input", "weight", "bias"])
def test_no_relu_hides_what_is_not_a_number(sign: float, where: str) -> None:
    """The sign bit of a NaN is set as often as not; a seed with one must fail."""
    head = conv_head(384, torch.float32)
    x = states(384, torch.float32)
    assert head.conv1.bias is not None
    targets = {"input": x, "weight": head.conv1.weight, "bias": head.conv1.bias}
    nan = torch.tensor(torch.nan).copysign(torch.tensor(sign))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        targets[where].view(-1)[0] = nan
        assert head(x)[0].isnan().all()
