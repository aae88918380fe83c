"""Rows on the device, in memory and on disk make the same batches, and the same seeds."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gaam_decoder
from gaam_cache.cache import ShardedArray, open_cache
from gaam_decoder import TrainConfig
from gaam_decoder.training import data, features
from gaam_decoder.training.features import Features
from tests.gpu.conftest import on
from tests.gpu.test_copies import keep_busy

PLACES = ("resident", "memory", "disk")


def placed(
    array: ShardedArray, device: torch.device, place: str, patch: pytest.MonkeyPatch
) -> Features:
    """Rows that are where a test wants them, whatever is free."""
    own = "memory" if device.type == "cpu" else device.type
    if "place" in inspect.signature(Features).parameters:
        found = Features(array, device, own if place == "resident" else place)  # type: ignore[arg-type,call-arg]
    else:
        free = {"resident": 2**60, "memory": 2**60, "disk": 0}[place]
        patch.setattr(features, "free_memory", lambda: free)
        patch.setattr(features, "free_on", lambda device: free if place == "resident" else 0)
        found = Features(array, device)
    assert found.place == (own if place == "resident" else place)
    return found


def orders(count: int) -> list[np.ndarray]:
    """Of one seed and of several, with rows that are asked for more than once."""
    rng = np.random.default_rng(0)
    several = np.stack([rng.permutation(count) for _ in range(3)])
    return [np.arange(count), rng.integers(count, size=2 * count + 1), several]


@on(PLACES)
def test_batches_are_the_rows_that_were_asked_for(
    device: torch.device, value: str, tiny_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many are on the way at once while the device is busy: none is written over by another."""
    array = open_cache(tiny_cache)["train"].pooled("mean")
    stored = array[:]
    found = placed(array, device, value, monkeypatch)
    for rows in orders(len(stored)):
        for size in (1, 7, len(stored)):
            batches, busy = [], []
            for x in found.batches(rows, size):
                assert x.device == device
                busy.append(keep_busy(device) if len(busy) < 6 else busy[-1])
                batches.append(x + (busy[-1].sum() * 0).to(x.dtype))  # read when that is done
                del x
            ours = torch.cat(batches, dim=rows.ndim - 1).cpu().float().numpy()
            np.testing.assert_array_equal(ours, stored[rows].astype(np.float32))


@on(PLACES)
def test_batches_that_nobody_wants_any_more_leave_nothing_behind(
    device: torch.device, value: str, tiny_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = open_cache(tiny_cache)["train"].pooled("mean")
    found = placed(array, device, value, monkeypatch)
    some = found.batches(np.arange(len(array)), 4)
    next(some)
    some.close()  # type: ignore[attr-defined]
    ours = torch.cat(list(found.batches(np.arange(len(array)), 4))).cpu().float().numpy()
    np.testing.assert_array_equal(ours, array[:].astype(np.float32))


@on(["linear", "conv", "mlp"], rehearsed=1)
def test_seeds_have_the_same_bits_wherever_their_rows_are(
    device: torch.device,
    value: str,
    tiny_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = TrainConfig(
        lr=3e-4,
        cache=tiny_cache,
        head=value,
        seeds=(0, 1),
        epochs=2,
        device=str(device),
        compile="off",
    )
    written = {}
    for place in PLACES:
        with monkeypatch.context() as patch:

            def there(array: ShardedArray, where: torch.device, *_: Any, **__: Any) -> Features:
                return placed(array, where, place, patch)  # noqa: B023 called before the next

            patch.setattr(data, "Features", there)
            (run,) = gaam_decoder.train(replace(config, runs=tmp_path / place))
        names = ("weights.safetensors", "test.safetensors")
        written[place] = [(run.path / name).read_bytes() for name in names]
    assert written["resident"] == written["memory"] == written["disk"]
