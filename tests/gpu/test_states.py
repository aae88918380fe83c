"""Pooled states of a GPU against those of the CPU, and extractions that share or exceed one."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders import _model as module
from gaam_cache.encoders._deviation import ROUNDING, recompute_limit, relative
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.store.shard import missing_shards
from gaam_cache.store.verify import verify
from tests.cache.encoders import architectures
from tests.cache.encoders.test_architectures import REPRESENTATIVE
from tests.cache.encoders.test_states import TEXTS, config_for
from tests.conftest import ARCHITECTURES
from tests.gpu.conftest import needs_gpu, needs_two, on
from tests.tiny import WORDS, build_encoder, write_csv

ROOT = Path(__file__).parents[2]
DTYPES = ("float32", "bfloat16", "float16")
FLOAT32_ALONE = {"xlnet"}
"""transformers itself does not run them in another type."""
ALL = [
    (name, dtype)
    for dtype in DTYPES
    for name in (*ARCHITECTURES, *REPRESENTATIVE)
    if dtype == "float32" or name not in FLOAT32_ALONE
]
POOLS = ("mean", "last", "first", "max")


def encoder_of(name: str, folder: Path) -> Path:
    if name in ARCHITECTURES:
        return build_encoder(folder, name)
    architectures.build(name, folder)
    return folder


def states(config: ExtractConfig) -> dict[str, np.ndarray]:
    split = gaam_cache.open_cache(config.out)["train"]
    return {pool: split.pooled(pool)[:] for pool in config.pool}


@on(ALL, rehearsed=4)
def test_states_of_every_architecture_are_those_of_the_cpu(
    device: torch.device, value: tuple[str, str], tmp_path: Path
) -> None:
    """Within what another device may add; float32 with no less than its 24 bits."""
    name, dtype = value
    config = replace(
        config_for(encoder_of(name, tmp_path / "encoder"), tmp_path), dtype=dtype, pool=POOLS
    )
    of_cpu = replace(config, device="cpu", out=tmp_path / "cpu")
    summaries = [gaam_cache.extract(one) for one in (of_cpu, replace(config, device=str(device)))]
    assert summaries[0].fingerprint == summaries[1].fingerprint, "a device decides a fingerprint"
    ours, theirs = states(config), states(of_cpu)
    for pool in POOLS:
        away = relative(ours[pool], theirs[pool])
        assert away.max() <= recompute_limit(dtype, "float32"), pool
        assert np.median(away) <= ROUNDING[dtype], pool


@on(ARCHITECTURES, rehearsed=1)
def test_rows_of_the_cpu_are_verified_on_the_device(
    device: torch.device, value: str, tmp_path: Path
) -> None:
    config = config_for(build_encoder(tmp_path / "encoder", value), tmp_path)
    gaam_cache.extract(replace(config, device="cpu"))
    found = verify(config.out, recompute_rows=len(TEXTS), device=str(device))
    assert found.recomputed is not None
    assert found.good
    assert found.recomputed.device == str(device)


@on()
def test_a_cache_that_the_cpu_began_is_completed_by_the_device(
    device: torch.device, value: Any, tiny_config: ExtractConfig
) -> None:
    gaam_cache.extract(replace(tiny_config, device="cpu"))
    receipts = sorted((tiny_config.out / "shards").glob("*.json"))
    for receipt in receipts[::2]:
        receipt.unlink()
    summary = gaam_cache.extract(replace(tiny_config, device=str(device)))
    assert summary.shards_made == len(receipts[::2])
    assert summary.deviation <= recompute_limit("float32", "float16")


@on()
def test_two_extractions_share_a_device(
    device: torch.device, value: Any, tiny_config: ExtractConfig
) -> None:
    """Started together, they make one complete cache, with the states of a single one."""
    alone = replace(tiny_config, device=str(device), out=tiny_config.out.with_name("alone"))
    summary = gaam_cache.extract(alone)
    command = [
        *(sys.executable, "-c", "from gaam_cache.terminal import entry; entry()", "extract"),
        *("--encoder", tiny_config.encoder, "--dataset", tiny_config.dataset),
        *("--out", str(tiny_config.out), "--device", str(device)),
        *("--set", f"shard-rows={tiny_config.shard_rows}"),
        *("--set", f"batch-tokens={tiny_config.batch_tokens}"),
    ]
    running = [
        subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    ends = [(process.communicate()[1], process.returncode) for process in running]
    assert [code for _, code in ends] == [0, 0], ends
    plan = gaam_cache.open_cache(tiny_config.out).plan
    assert not missing_shards(tiny_config.out, plan)
    assert plan.fingerprint == summary.fingerprint
    for split in ("train", "test"):
        ours, theirs = (
            gaam_cache.open_cache(one.out)[split].embeddings[:] for one in (tiny_config, alone)
        )
        assert relative(ours, theirs, "float16").max() <= recompute_limit("float32", "float16")


def loaded(config: ExtractConfig) -> TextEncoder:
    encoder = TextEncoder.open(config)
    encoder.load()
    return encoder


def same_states(ours: TextEncoder, config: ExtractConfig) -> None:
    """In batches and alone, as the plain encoder on the CPU has them."""
    plain = loaded(replace(config, device="cpu", device_map=None))
    items = plain.prepare(TEXTS).items
    for item in items:
        alone = plain.encode_alone(item)
        for found in (ours.encode([item]), ours.encode_alone(item)):
            for name, states_BLD in found.items():
                away = relative(states_BLD.cpu().numpy(), alone[name].cpu().numpy())
                assert away.max() <= recompute_limit("float32", "float32")
    assert ours.batching == plain.batching


@on(ARCHITECTURES)
def test_a_model_that_accelerate_places_has_the_same_states(
    device: torch.device, value: str, tmp_path: Path
) -> None:
    pytest.importorskip("accelerate", reason="accelerate (the extra 'gpu') is not installed")
    config = config_for(build_encoder(tmp_path / "encoder", value), tmp_path)
    config = replace(config, device=str(device), device_map="auto")
    ours = loaded(config)
    assert ours.device == device
    same_states(ours, config)


@on(ARCHITECTURES)
def test_a_model_whose_weights_wait_on_the_cpu_has_the_same_states(
    device: torch.device, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``--set device-map=auto`` has it where the GPU is too small: layers are fetched."""
    accelerate = pytest.importorskip(
        "accelerate", reason="accelerate (the extra 'gpu') is not installed"
    )
    load = module.load_trained
    monkeypatch.setattr(
        module,
        "load_trained",
        lambda *given: accelerate.cpu_offload(
            load(*given[:-2], None, given[-1]), execution_device=device
        ),
    )
    config = config_for(build_encoder(tmp_path / "encoder", value), tmp_path)
    ours = loaded(replace(config, device_map="auto"))
    assert ours.device == device
    assert {p.device.type for p in ours._forward.model.parameters()} == {"meta"}
    monkeypatch.undo()
    same_states(ours, config)


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "t5"])
@pytest.mark.parametrize("device_map", ["auto", "balanced", "sequential"])
class TestTwoGpus:
    pytestmark = needs_two

    def test_a_model_on_two_gpus_has_the_same_states(
        self, architecture: str, device_map: str, tmp_path: Path
    ) -> None:
        pytest.importorskip("accelerate", reason="accelerate (the extra 'gpu') is not installed")
        config = config_for(encoder_of(architecture, tmp_path / "encoder"), tmp_path)
        config = replace(config, device_map=device_map)
        same_states(loaded(config), config)


class TestSecondGpu:
    pytestmark = needs_two

    def test_the_second_gpu_works_though_the_first_is_current(
        self, tiny_config: ExtractConfig
    ) -> None:
        for name in ("cuda:0", "cuda:1"):
            gaam_cache.extract(
                replace(tiny_config, device=name, out=tiny_config.out.with_name(name[-1]))
            )
        first, second = (
            gaam_cache.open_cache(tiny_config.out.with_name(name))["train"].embeddings[:]
            for name in "01"
        )
        assert relative(first, second, "float16").max() <= recompute_limit("float32", "float16")


class TestMemory:
    pytestmark = needs_gpu

    def test_batches_that_a_gpu_has_no_memory_for_become_smaller(
        self, gpu: torch.device, tmp_path: Path
    ) -> None:
        """Rows of one length, so that all of them would be one batch of 240,000 tokens."""
        rows = [("ab"[i % 2], " ".join((WORDS * 4)[i % 4 :][:58])) for i in range(4000)]
        write_csv(tmp_path / "data" / "train.csv", rows)
        config = ExtractConfig(
            encoder=str(build_encoder(tmp_path / "encoder", "bert")),
            dataset=str(tmp_path / "data"),
            splits=("train",),
            out=tmp_path / "cache",
            shard_rows=4000,
            batch_tokens=10**6,
            device=str(gpu),
        )
        roomy = replace(config, out=tmp_path / "roomy", batch_tokens=4096)
        gaam_cache.extract(roomy)
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(gpu).total_memory
        most = torch.cuda.memory_reserved(gpu) + 64 * 2**20
        torch.cuda.set_per_process_memory_fraction(most / total, gpu)
        try:
            summary = gaam_cache.extract(config)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, gpu)
        assert summary.smaller_batches is not None
        ours, theirs = states(config)["mean"], states(roomy)["mean"]
        assert relative(ours, theirs, "float16").max() <= recompute_limit("float32", "float16")
