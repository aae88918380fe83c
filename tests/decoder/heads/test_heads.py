from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from gaam_cache.common import plugins
from gaam_decoder.heads.conv import ConvHead, grid
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
def test_the_grid_is_the_most_nearly_square(
    hidden_size: int, expected: tuple[int, int]
) -> None:
    assert grid(hidden_size) == expected


@pytest.mark.parametrize("name", STEPPED)
@pytest.mark.parametrize("num_layers", [1, 6])
def test_heads_give_finite_logits_and_gradients(name: str, num_layers: int) -> None:
    with torch.random.fork_rng():
        # seeded: the last ReLU of a conv head with one channel is dead for about one seed in ten
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


def test_mlp_equals_torch_modules_and_its_dropout_is_the_noise_it_gets() -> None:
    torch.manual_seed(0)
    head = MLPHead(2, 6, 3, width=10, dropout=0.3)
    theirs = torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(12, 10),
        torch.nn.GELU(),
        torch.nn.Linear(10, 3),
    )
    theirs[1].load_state_dict(head.fc1.state_dict())
    theirs[3].load_state_dict(head.fc2.state_dict())
    x, noise = torch.randn(4, 2, 6), torch.rand(4, 10)
    torch.testing.assert_close(head(x), theirs(x))
    hidden = theirs[:3](x) * (noise >= 0.3) / 0.7
    torch.testing.assert_close(head(x, noise), theirs[3](hidden))
    assert head.num_noise == 10
    assert MLPHead(2, 6, 3, dropout=0.0).num_noise == 0


@pytest.mark.parametrize("hidden_size", [384, 35, 7])
@pytest.mark.parametrize("channels", [1, 4])
def test_conv_is_two_convolutions_of_the_features_as_an_image(
    channels: int, hidden_size: int
) -> None:
    """Against windows written out; as wide as a float64 is exact."""
    head, x = conv_head(hidden_size, torch.float64, channels)

    def convolve(image: torch.Tensor, conv: torch.nn.Conv2d) -> torch.Tensor:
        windows = functional.unfold(image, 3, padding=1)
        out = conv.weight.flatten(1) @ windows + conv.bias[:, None]
        return out.unflatten(-1, image.shape[-2:]).relu()

    def written_out(x: torch.Tensor) -> torch.Tensor:
        image = x.view(*x.shape[:2], *head.grid)
        return head.fc(convolve(convolve(image, head.conv1), head.conv2).flatten(1))

    for ours, theirs in zip(
        gradients(head, head, x), gradients(head, written_out, x), strict=True
    ):
        assert (ours - theirs).norm() <= 1e-11 * theirs.norm()


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("where", ["input", "weight", "bias"])
def test_no_relu_hides_what_is_not_a_number(sign: float, where: str) -> None:
    """The sign bit of a NaN is set as often as not; a seed that has one must be seen to fail."""
    head, x = conv_head(384, torch.float32)
    nan = torch.tensor(torch.nan).copysign(torch.tensor(sign))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        target = {"input": x, "weight": head.conv1.weight, "bias": head.conv1.bias}[
            where
        ]
        target.view(-1)[0] = nan
        assert head(x)[0].isnan().all()


def conv_head(
    hidden_size: int, dtype: torch.dtype, channels: int = 4
) -> tuple[ConvHead, torch.Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        head = ConvHead(channels, hidden_size, 3)
        return head.to(dtype), torch.randn(
            5, channels, hidden_size, dtype=dtype
        ).requires_grad_()


def gradients(
    head: ConvHead, function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> list[torch.Tensor]:
    """Logits and the gradients of every input and parameter."""
    logits = function(x)
    weight = torch.linspace(-1, 2, logits.numel(), dtype=x.dtype).view_as(logits)
    return [
        logits,
        *torch.autograd.grad((logits * weight).sum(), [x, *head.parameters()]),
    ]
