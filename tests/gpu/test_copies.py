"""Bytes on their way to a GPU and back, with many on the way at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import gaam_cache
from gaam_cache import devices
from gaam_cache.config import ExtractConfig
from gaam_cache.devices import CopyBack, bits
from tests.conftest import shard_bytes
from tests.gpu.conftest import on

IN_FLIGHT = 64
SHAPES = [(1, 1, 1), (3, 5, 7), (33, 6, 384), (257, 2, 129)]


def keep_busy(device: torch.device) -> torch.Tensor:
    """Work that takes a GPU longer than it takes Python to ask for what comes after it."""
    size = 4096 if device.type == "cuda" else 16
    x = torch.ones(size, size, device=device)
    for _ in range(8):
        x = x @ x / size
    return x


@on([torch.float32, torch.float16, torch.bfloat16])
def test_what_comes_back_is_what_was_there_though_it_is_freed_and_written_over_early(
    device: torch.device, value: torch.dtype
) -> None:
    """The memory of a tensor that is on its way is not given to the next one before it is there."""
    copies = CopyBack(device)
    generator = torch.Generator().manual_seed(0)
    expected, started = [], []
    for number in range(IN_FLIGHT):
        wide = torch.randn(SHAPES[number % len(SHAPES)], generator=generator)
        expected.append(wide.to(value))
        x = devices.send(wide, device).to(value)
        busy = keep_busy(device)
        x = x + (busy.sum() * 0).to(value)  # not there before that is done
        started.append(copies.start(x))
        shape = x.shape
        del x
        for _ in range(2):  # would take its place
            torch.full(shape, torch.nan, dtype=value, device=device)
    copies.wait()
    for ours, theirs in zip(started, expected, strict=True):
        assert ours.device.type == "cpu"
        np.testing.assert_array_equal(bits(ours), bits(theirs))


@on()
def test_what_is_sent_arrives_though_nobody_waits_for_it(device: torch.device, value: Any) -> None:
    busy = [keep_busy(device) for _ in range(4)]
    sent, expected = [], []
    for number in range(4 * IN_FLIGHT):
        source = torch.full((97,), number)
        sent.append(devices.send(source, device))
        expected.append(number)
        del source
        torch.full((97,), -1)
    assert [int(x.min()) for x in sent] == [int(x.max()) for x in sent] == expected
    assert all(bool(torch.isfinite(x).all()) for x in busy)


@on()
def test_a_cache_has_the_same_bytes_with_and_without_copies_of_their_own(
    device: torch.device, value: Any, tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (
        replace(tiny_config, device=str(device), out=tiny_config.out.with_name(name))
        for name in ("first", "second")
    )
    gaam_cache.extract(first)
    monkeypatch.setattr(CopyBack, "start", lambda self, x: x.cpu())
    gaam_cache.extract(second)
    assert shard_bytes(first.out) == shard_bytes(second.out)
