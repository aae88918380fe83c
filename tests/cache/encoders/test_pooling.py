from __future__ import annotations

import numpy as np
import pytest
import torch

from gaam_cache.common import plugins
from gaam_cache.encoders.poolings import load_poolings

LENGTHS = torch.tensor([1, 4, 7])


def brute_force(name: str, x: np.ndarray, length: int) -> np.ndarray:
    real = x[:length].astype(np.float64)
    return {
        "mean": real.mean(0),
        "last": real[-1],
        "first": real[0],
        "max": real.max(0),
    }[name]


@pytest.mark.parametrize("name", plugins.names("gaam_cache.encoders.poolings"))
@pytest.mark.parametrize("padding", [0.0, 1e30, float("inf"), float("nan")])
def test_padding_never_reaches_the_result(name: str, padding: float) -> None:
    x = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(0))
    for row, length in enumerate(LENGTHS):
        x[row, length:] = padding
    pooled = load_poolings([name])[name](x, LENGTHS)
    assert pooled.dtype == torch.float32
    for row, length in enumerate(LENGTHS.tolist()):
        expected = brute_force(name, x[row].numpy(), length)
        np.testing.assert_allclose(pooled[row].numpy(), expected, rtol=1e-6, atol=1e-6)


def test_mean_of_half_precision_accumulates_in_float32() -> None:
    x = torch.full(
        (1, 4000, 2), 60000.0, dtype=torch.float16
    )  # the float16 sum overflows
    assert load_poolings(["mean"])["mean"](x, torch.tensor([4000])).tolist() == [
        [60000.0, 60000.0]
    ]
