"""The same tests on a GPU and, where that says something, on the CPU in its place.

Of what is compared here one side is always computed on the CPU. A test that says ``on(...)`` runs
on a GPU with all its values, where there is one (``-m gpu`` runs these alone), and on the CPU with
some of them, so that its own lines are known to be right where there is no GPU: with all of them
where the variable REHEARSE_ALL is set.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from gaam_cache import devices

NO_GPU = "no GPU that this build of torch can use"
needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason=NO_GPU),
]
"""Marks of what only a GPU can show."""
needs_two = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs"),
]


def on(values: Sequence[Any] = ((),), rehearsed: int | None = None) -> pytest.MarkDecorator:
    """Run a test with a ``device`` and, where there are values, each ``value``.

    Args:
        values: all of them are for the GPU.
        rehearsed: how many of them, from the first on, are for the CPU too; None: all.
    """
    some = values if "REHEARSE_ALL" in os.environ else values[:rehearsed]
    named = [("cpu", value, []) for value in some] + [
        ("cuda", value, needs_gpu) for value in values
    ]
    params = [
        pytest.param(
            name, value, marks=marks, id="-".join(filter(None, (name, str(value) if value else "")))
        )
        for name, value, marks in named
    ]
    return pytest.mark.parametrize(("device", "value"), params, indirect=["device"])


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    """A GPU, or the CPU in its place."""
    return devices.resolve_device(request.param)


@pytest.fixture
def value() -> None:
    """Nothing, where a test names none."""


@pytest.fixture
def gpu() -> torch.device:
    """A GPU; for tests with the marks ``needs_gpu``."""
    return devices.resolve_device("cuda")
