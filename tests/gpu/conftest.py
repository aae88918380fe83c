"""The same tests on a GPU and, with some of their values, on the CPU in its place.

Of what is compared one side is always computed on the CPU. ``-m gpu`` runs the tests of a GPU
alone; on the CPU they show that their own lines are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from gaam_cache.common import devices

needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="no GPU that torch can use"
    ),
]
"""Marks of what only a GPU can show."""


def on(
    values: Sequence[Any] = ("",), rehearsed: int | None = None
) -> pytest.MarkDecorator:
    """Run a test on a ``device`` with each ``value``, the first ``rehearsed`` on the CPU too."""
    named: list[tuple[str, Any, Sequence[pytest.MarkDecorator]]]
    named = [("cpu", value, ()) for value in values[:rehearsed]]
    named += [("cuda", value, needs_gpu) for value in values]
    params = [
        pytest.param(name, value, marks=marks, id=f"{name}-{value}")
        for name, value, marks in named
    ]
    return pytest.mark.parametrize(("device", "value"), params, indirect=["device"])


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    """A GPU, or the CPU in its place."""
    return devices.resolve_device(request.param)
