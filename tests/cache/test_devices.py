"""Names of devices, what they may compute in, and what is free, as far as a CPU can tell."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gaam_cache.common import devices
from gaam_cache.common.errors import ConfigError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.extraction.states import StateExtractor
from gaam_decoder.training.arithmetic.compiled import missing_compiler
from gaam_decoder.training.arithmetic.engine import resolve_dtype

MPS, GPU = torch.device("mps"), torch.device("cuda:0")


def test_a_device_is_taken_where_it_is_there_and_auto_is_a_gpu_of_cuda(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("", "gpu", "cuda:", "cuda:-1", "CPU", "mps:0", "cuda:99999"):
        with pytest.raises(ConfigError, match=devices.NAMES):
            devices.resolve_device(name)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    for mps, count in ((False, 0), (True, 1), (True, 3)):
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda mps=mps: mps)
        monkeypatch.setattr(torch.cuda, "is_available", lambda count=count: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        there = {"cpu": "cpu", "auto": "cuda:0" if count else "cpu"}
        there |= {"cuda": "cuda:0"} if count else {}
        there |= {f"cuda:{number}": f"cuda:{number}" for number in range(count)}
        there |= {"mps": "mps"} if mps else {}
        for name in ("auto", "cpu", "mps", "cuda", "cuda:0", "cuda:2", "cuda:7"):
            if name in there:
                assert devices.resolve_device(name) == torch.device(there[name])
            else:
                with pytest.raises(ConfigError, match="--device cpu"):
                    devices.resolve_device(name)


def test_half_precision_is_taken_where_a_device_has_it_and_never_on_mps(
    monkeypatch: pytest.MonkeyPatch, encoders: dict[str, Path]
) -> None:
    def choose_dtype(dtype: Any, device: torch.device) -> str:
        config = ExtractConfig(
            encoder=str(encoders["bert"]), dtype=dtype, device=str(device)
        )
        return TextEncoder.open(config).dtype

    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for choose, else_ in ((choose_dtype, "float16"), (resolve_dtype, "float32")):
        assert choose("auto", MPS) == choose("float32", MPS) == "float32"
        with pytest.raises(ConfigError, match="--dtype float16"):
            choose("float16", MPS)
        for capability in ((7, 5), (8, 0), (9, 0)):  # torch emulates it on older ones
            monkeypatch.setattr(
                torch.cuda, "get_device_capability", lambda _, c=capability: c
            )
            assert choose("auto", GPU) == (
                "bfloat16" if capability >= (8, 0) else else_
            )
    assert missing_compiler("mps")


@pytest.mark.parametrize("newer", [False, True])
def test_float32_means_float32_whatever_a_program_set(
    newer: bool, request: pytest.FixtureRequest
) -> None:
    """Convolutions too, for which torch's default is less."""
    cudnn = torch.backends.cudnn

    @request.addfinalizer
    def _restore() -> None:
        torch.set_float32_matmul_precision("highest")
        if newer:
            torch.backends.fp32_precision = "none"
        cudnn.deterministic, cudnn.allow_tf32 = False, True

    if newer:
        if not hasattr(cudnn, "conv"):
            pytest.skip("an older torch")
        torch.backends.fp32_precision = "tf32"
    else:
        torch.set_float32_matmul_precision("medium")
        torch.backends.cuda.matmul.allow_tf32 = cudnn.allow_tf32 = True
    devices.resolve_device("cpu")
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "highest"
    assert (cudnn.deterministic, cudnn.benchmark) == (True, False)
    if hasattr(cudnn, "conv"):
        parts = (cudnn.conv, torch.backends.mkldnn.conv, torch.backends.cuda.matmul)
        assert {part.fp32_precision for part in parts} == {"ieee"}


def test_after_memory_ran_out_nothing_holds_the_tensors_of_the_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[weakref.ref[torch.Tensor]] = []
    alive: list[bool] = []
    monkeypatch.setattr(
        devices,
        "give_back",
        lambda device: alive.extend(one() is not None for one in held),
    )

    def inner() -> None:
        tensor = torch.ones(4)
        held.append(weakref.ref(tensor))
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a"
        )

    maker: Any = SimpleNamespace(_encoder=SimpleNamespace(device=torch.device("cpu")))
    gc.disable()
    try:
        assert StateExtractor._attempt(maker, inner, maker, [0, 1]) is None
    finally:
        gc.enable()
    assert alive == [False]
    assert StateExtractor._attempt(maker, lambda: 3, maker, [0]) == 3
    with pytest.raises(KeyError):
        StateExtractor._attempt(maker, lambda: {}[1], maker, [0])


def test_seeds_of_gpus_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """``torch.manual_seed`` sets them, and a fork of the CPU's state does not bring them back."""
    from tests.decoder.training.test_seed_batch import build_decoder, spec

    touched: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", touched.append)
    build_decoder(spec("mha", "conv"), 3)
    assert not touched
