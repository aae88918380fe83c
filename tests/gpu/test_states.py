"""Pooled states of a GPU against those of the CPU, and what reaches it and comes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import gaam_cache
from gaam_cache.common import devices
from gaam_cache.common.devices import CopyBack, to_numpy
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders import ROUNDING, recompute_limit, relative_deviation
from gaam_cache.extraction.verify import verify
from tests.benchmarks import architectures
from tests.cache.encoders.test_architectures import REPRESENTATIVE
from tests.cache.encoders.test_states import TEXTS, config_for
from tests.conftest import ARCHITECTURES
from tests.gpu.conftest import needs_gpu, on
from tests.tiny import WORDS, build_encoder, write_csv

ALL = [
    (name, dtype)
    for dtype in ("float32", "bfloat16", "float16")
    for name in (*ARCHITECTURES, *REPRESENTATIVE)
    # transformers runs xlnet in no other type; deepseek_v32 chooses which tokens to look at, and
    # what is rounded otherwise chooses others (0.38 of a state's norm on an H200)
    if dtype == "float32" or name not in ("xlnet", "deepseek_v32")
]
POOLS = ("mean", "last", "first", "max")


def encoder_of(name: str, folder: Path) -> Path:
    if name in ARCHITECTURES:
        return build_encoder(folder, name)
    architectures.build(name, folder)
    return folder


def config_of(
    value: tuple[str, str], device: torch.device, tmp_path: Path
) -> ExtractConfig:
    """An extraction with an encoder of this name, in this type, on a device."""
    name, dtype = value
    return replace(
        config_for(encoder_of(name, tmp_path / "encoder"), tmp_path),
        device=str(device),
        dtype=cast(Any, dtype),
        pool=POOLS,
    )


def states(config: ExtractConfig) -> dict[str, np.ndarray]:
    split = gaam_cache.open_cache(config.out)["train"]
    return {pool: split.pooled(pool)[:] for pool in config.pool}


@on(ALL, rehearsed=4)
def test_states_of_every_architecture_are_those_of_the_cpu(
    device: torch.device, value: tuple[str, str], tmp_path: Path
) -> None:
    """Within what another device may add; float32 with no less than its 24 bits."""
    _name, dtype = value
    config = config_of(value, device, tmp_path)
    of_cpu = replace(config, device="cpu", out=tmp_path / "cpu")
    summaries = [gaam_cache.extract(one) for one in (of_cpu, config)]
    assert summaries[0].fingerprint == summaries[1].fingerprint, (
        "a device decides a fingerprint"
    )
    ours, theirs = states(config), states(of_cpu)
    for pool in POOLS:
        away = relative_deviation(ours[pool], theirs[pool])
        assert away.max() <= recompute_limit(dtype, "float32"), pool
        assert np.median(away) <= ROUNDING[dtype], pool


COMPILED = [
    (name, dtype)
    for dtype in ("float32", "bfloat16")
    for name in (*ARCHITECTURES, "bart", "mpt", "longformer")
]


@on(COMPILED, rehearsed=0)
def test_compiled_layers_have_the_states_of_plain_ones_and_the_same_bytes_again(
    device: torch.device, value: tuple[str, str], tmp_path: Path
) -> None:
    _name, dtype = value
    config = config_of(value, device, tmp_path)
    compiled = [
        replace(config, compile="on", out=tmp_path / again)
        for again in ("first", "second")
    ]
    for one in (config, *compiled):
        gaam_cache.extract(one)
    plain, first, second = (states(one) for one in (config, *compiled))
    for pool in POOLS:
        away = relative_deviation(first[pool], plain[pool])
        assert away.max() <= recompute_limit(dtype, "float32"), pool
        assert np.median(away) <= ROUNDING[dtype], pool
        np.testing.assert_array_equal(first[pool], second[pool])


@on(ARCHITECTURES, rehearsed=1)
def test_what_the_cpu_began_the_device_completes_and_verifies(
    device: torch.device, value: str, tmp_path: Path
) -> None:
    config = config_for(build_encoder(tmp_path / "encoder", value), tmp_path)
    config = replace(config, shard_rows=2)
    gaam_cache.extract(replace(config, device="cpu"))
    receipts = sorted((config.out / "shards").glob("*.json"))
    for receipt in receipts[::2]:
        receipt.unlink()
    summary = gaam_cache.extract(replace(config, device=str(device)))
    assert summary.shards_made == len(receipts[::2])
    found = verify(config.out, recompute_rows=len(TEXTS), device=str(device))
    assert found.recomputed is not None
    assert found.good


@on(ARCHITECTURES, rehearsed=1)
def test_a_model_that_accelerate_places_has_the_same_states(
    device: torch.device, value: str, tmp_path: Path
) -> None:
    pytest.importorskip(
        "accelerate", reason="accelerate (the extra 'gpu') is not installed"
    )
    config = config_for(build_encoder(tmp_path / "encoder", value), tmp_path)
    of_cpu = replace(config, device="cpu", out=tmp_path / "cpu")
    placed = replace(config, device=str(device), device_map="auto")
    for one in (of_cpu, placed):
        gaam_cache.extract(one)
    away = relative_deviation(states(placed)["mean"], states(of_cpu)["mean"])
    assert away.max() <= recompute_limit("float32", "float32")


@pytest.mark.parametrize(
    "device", [pytest.param("cuda", marks=needs_gpu)], indirect=True
)
def test_batches_that_a_gpu_has_no_memory_for_become_smaller(
    device: torch.device, tmp_path: Path
) -> None:
    """Rows of one length, so that all of them would be one batch of 240,000 tokens."""
    rows = [("ab"[i % 2], " ".join((WORDS * 4)[i % 4 :][:58])) for i in range(4000)]
    write_csv(tmp_path / "data" / "train.csv", rows)
    config = ExtractConfig(
        encoder=str(build_encoder(tmp_path / "encoder", "bert")), dataset=str(tmp_path / "data"),
        splits=("train",), out=tmp_path / "cache", shard_rows=4000, batch_tokens=10**6,
        device=str(device),
    )  # fmt: skip
    roomy = replace(config, out=tmp_path / "roomy", batch_tokens=4096)
    gaam_cache.extract(roomy)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(device).total_memory
    most = torch.cuda.memory_reserved(device) + 64 * 2**20
    torch.cuda.set_per_process_memory_fraction(most / total, device)
    try:
        summary = gaam_cache.extract(config)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
    assert summary.smaller_batches is not None
    ours, theirs = states(config)["mean"], states(roomy)["mean"]
    assert relative_deviation(ours, theirs, "float16").max() <= recompute_limit(
        "float32", "float16"
    )


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
    expected, started = [], []
    for number in range(64):
        wide = torch.randn(
            33, 6, 97 + number, generator=torch.Generator().manual_seed(number)
        )
        expected.append(wide.to(value))
        x = devices.copy_to_device(wide, device).to(value)
        x = x + (keep_busy(device).sum() * 0).to(value)  # not there before that is done
        started.append(copies.start(x))
        shape = x.shape
        del x
        for _ in range(2):  # would take its place
            torch.full(shape, torch.nan, dtype=value, device=device)
    copies.wait()
    for ours, theirs in zip(started, expected, strict=True):
        assert ours.device.type == "cpu"
        np.testing.assert_array_equal(to_numpy(ours), to_numpy(theirs))


@on()
def test_what_is_sent_arrives_though_nobody_waits_for_it(
    device: torch.device, value: Any
) -> None:
    keep_busy(device)
    sent = []
    for number in range(256):
        source = torch.full((97,), number)
        sent.append(devices.copy_to_device(source, device))
        del source
        torch.full((97,), -1)
    assert (
        [int(x.min()) for x in sent] == [int(x.max()) for x in sent] == list(range(256))
    )
