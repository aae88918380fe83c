"""Names of devices and what they compute in, as far as a CPU can tell."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gaam_cache.common import devices
from gaam_cache.common.compiling import missing_compiler
from gaam_cache.common.errors import ConfigError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.extraction.states import StateExtractor
from gaam_decoder.training.arithmetic.engine import resolve_dtype

MPS = torch.device("mps")
GPU = torch.device("cuda:0")


def have_devices(
    monkeypatch: pytest.MonkeyPatch, *, num_gpus: int, has_mps: bool
) -> None:
    """Let torch report these devices."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: has_mps)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)


@pytest.mark.parametrize(
    "name", ["", "gpu", "cuda:", "cuda:-1", "CPU", "mps:0", "cuda:99999"]
)
def test_a_name_of_no_device_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=devices.NAMES):
        devices.resolve_device(name)


MACHINES: dict[str, tuple[int, bool, dict[str, str]]] = {
    "no GPU": (0, False, {"auto": "cpu"}),
    "a GPU": (1, True, {"auto": "cuda:0", "cuda": "cuda:0", "cuda:0": "cuda:0"}),
    "three GPUs": (
        3,
        True,
        {
            "auto": "cuda:0",
            "cuda": "cuda:0",
            "cuda:0": "cuda:0",
            "cuda:2": "cuda:2",
        },
    ),
}
"""GPUs of CUDA, whether MPS is there, and the device of each name that is there."""


@pytest.mark.parametrize(
    "name", ["auto", "cpu", "mps", "cuda", "cuda:0", "cuda:2", "cuda:7"]
)
@pytest.mark.parametrize("machine", MACHINES)
def test_a_device_is_taken_where_it_is_there_and_auto_is_a_gpu_of_cuda(
    machine: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_gpus, has_mps, devices_by_name = MACHINES[machine]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    have_devices(monkeypatch, num_gpus=num_gpus, has_mps=has_mps)
    devices_by_name = {"cpu": "cpu"} | devices_by_name
    if has_mps:
        devices_by_name |= {"mps": "mps"}
    if name in devices_by_name:
        assert devices.resolve_device(name) == torch.device(devices_by_name[name])
        return
    with pytest.raises(ConfigError, match="--device cpu"):
        devices.resolve_device(name)


@pytest.fixture
def choose_encoder_dtype(
    encoders: dict[str, Path],
) -> Callable[[Any, torch.device], str]:
    """The arithmetic of an encoder on a device."""

    def choose(dtype: Any, device: torch.device) -> str:
        encoder = str(encoders["bert"])
        config = ExtractConfig(encoder=encoder, dtype=dtype, device=str(device))
        return TextEncoder.open(config).dtype

    return choose


def test_half_precision_is_never_taken_on_mps(
    monkeypatch: pytest.MonkeyPatch,
    choose_encoder_dtype: Callable[[Any, torch.device], str],
) -> None:
    have_devices(monkeypatch, num_gpus=1, has_mps=True)
    for choose in (choose_encoder_dtype, resolve_dtype):
        assert choose("auto", MPS) == "float32"
        assert choose("float32", MPS) == "float32"
        with pytest.raises(ConfigError, match="--dtype float16"):
            choose("float16", MPS)
    assert missing_compiler("mps")


# torch emulates bfloat16 on older GPUs
@pytest.mark.parametrize(
    ("capability", "encoder_dtype", "decoder_dtype"),
    [
        ((7, 5), "float16", "float32"),
        ((8, 0), "bfloat16", "bfloat16"),
        ((9, 0), "bfloat16", "bfloat16"),
    ],
)
def test_half_precision_is_taken_where_a_gpu_has_it(
    capability: tuple[int, int],
    encoder_dtype: str,
    decoder_dtype: str,
    monkeypatch: pytest.MonkeyPatch,
    choose_encoder_dtype: Callable[[Any, torch.device], str],
) -> None:
    have_devices(monkeypatch, num_gpus=1, has_mps=True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_encoder_dtype("auto", GPU) == encoder_dtype
    assert resolve_dtype("auto", GPU) == decoder_dtype


@pytest.mark.parametrize("newer", [False, True])
def test_float32_means_float32_whatever_a_program_set(
    newer: bool, request: pytest.FixtureRequest
) -> None:
    """Convolutions too, for which torch's default is less."""
    backends: Any = torch.backends
    cudnn = backends.cudnn

    @request.addfinalizer
    def _restore() -> None:
        torch.set_float32_matmul_precision("highest")
        if newer:
            backends.fp32_precision = "none"
        cudnn.deterministic = False
        cudnn.allow_tf32 = True

    if newer:
        if not hasattr(cudnn, "conv"):
            pytest.skip("an older torch")
        backends.fp32_precision = "tf32"
    else:
        torch.set_float32_matmul_precision("medium")
        cudnn.allow_tf32 = True
        backends.cuda.matmul.allow_tf32 = True
    devices.resolve_device("cpu")
    assert not backends.cuda.matmul.allow_tf32
    assert not cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "highest"
    assert (cudnn.deterministic, cudnn.benchmark) == (True, False)
    if hasattr(cudnn, "conv"):
        parts = (cudnn.conv, backends.mkldnn.conv, backends.cuda.matmul)
        assert {part.fp32_precision for part in parts} == {"ieee"}


def test_after_memory_ran_out_nothing_holds_the_tensors_of_the_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tensors: list[weakref.ref[torch.Tensor]] = []
    alive: list[bool] = []

    def note_what_is_alive(device: torch.device) -> None:
        alive.extend(tensor() is not None for tensor in tensors)

    def run_out_of_memory() -> None:
        tensor = torch.ones(4)
        tensors.append(weakref.ref(tensor))
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a"
        )

    def succeed() -> int:
        return 3

    def fail() -> None:
        raise KeyError(1)

    monkeypatch.setattr(devices, "free_cached_memory", note_what_is_alive)
    encoder = SimpleNamespace(device=torch.device("cpu"))
    extractor: Any = SimpleNamespace(_encoder=encoder)
    gc.disable()
    try:
        result = StateExtractor._attempt(
            extractor, run_out_of_memory, extractor, [0, 1]
        )
    finally:
        gc.enable()
    assert result is None
    assert alive == [False]
    assert StateExtractor._attempt(extractor, succeed, extractor, [0]) == 3
    with pytest.raises(KeyError):
        StateExtractor._attempt(extractor, fail, extractor, [0])


def test_seeds_of_gpus_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """``torch.manual_seed`` sets them; a fork of the CPU's state restores them not."""
    from gaam_decoder.decoder import build_decoder
    from tests.decoder.training.seed_batches import decoder_spec

    touched: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", touched.append)
    build_decoder(decoder_spec("mha", "conv"), 3)
    assert not touched
