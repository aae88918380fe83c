"""Seeds that train on the device: against the plain loop on the CPU, interrupted, from end to end.

A float64 gap is rounding alone: what is wrong in kind is far above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import gaam_decoder
from gaam_cache import plugins
from gaam_cache.encoders._deviation import ROUNDING
from gaam_cache.errors import ConfigError, ShortOfMemoryError
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.attention.gaam import GAAM
from gaam_decoder.decoder import build_decoder
from gaam_decoder.training.arithmetic.compiled import missing_compiler
from gaam_decoder.training.arithmetic.engine import LOWER, choose_engine
from gaam_decoder.training.checkpoint import Checkpoint
from gaam_decoder.training.group import Group
from gaam_decoder.training.memory import enough_memory
from tests.decoder.training.test_group import (
    EAGER,
    VARIANTS,
    group,
    plain_loop,
    recipe,
    spec,
)
from tests.gpu.conftest import needs_gpu, on

HEADS = plugins.names("gaam_decoder.heads")
PAIRS = [(attention, "linear") for attention in VARIANTS] + [("gaam", head) for head in HEADS]
COMPILED = [
    *(("gaam", "linear", None), ("gct", "linear", 0.5), ("gaam", "conv", None)),
    *(("mha-bn", "conv", 0.5), ("skew-gaussian", "mlp", None), ("chi2", "linear", None)),
    *(("mha", "linear", 0.5), ("perceiver", "linear", None), ("laplace", "mlp", 0.5)),
    ("nadaraya-watson:kernel=boxcar", "linear", None),
]
GAP = 1e-8
"""Of float64 after 12 steps: Adam divides small gradients by their size."""


def seeds_of(attention: str, head: str) -> list[int]:
    """Together where they can be stacked."""
    decoder = build_decoder(spec(attention, head), 0)
    return [3, 0, 8] if decoder.attention.stackable and decoder.head.stackable else [3]


def compiles(device: torch.device) -> None:
    if (missing := missing_compiler(device.type)) is not None:
        pytest.skip(missing)


def is_the_plain_loop(ours: Group, attention: str, head: str, clip: float | None) -> None:
    found = {**ours.state.parameters, **ours.state.buffers}
    for place, seed in enumerate(ours.seeds):
        for name, expected in plain_loop(attention, seed, 3, head, clip).items():
            value = found[name][place].cpu()
            torch.testing.assert_close(value, expected, atol=GAP, rtol=0, msg=f"{name} of {seed}")


@on(PAIRS, rehearsed=3)
def test_seeds_equal_a_plain_loop_on_the_cpu(device: torch.device, value: tuple[str, str]) -> None:
    """Stacked where that can be; three epochs, clipped so that the norm matters."""
    attention, head = value
    ours = group(attention, seeds_of(*value), head, device=device, clip_grad_norm=0.5)
    for _ in range(3):
        ours.train_epoch()
    assert {t.device for t in ours._tensors().values()} == {device}
    is_the_plain_loop(ours, attention, head, 0.5)


@pytest.mark.filterwarnings("error::gaam_cache.errors.GaamWarning")  # which says why it is not
@on(COMPILED, rehearsed=1)
def test_compiled_seeds_equal_a_plain_loop_on_the_cpu(
    device: torch.device, value: tuple[str, str, float | None]
) -> None:
    attention, head, clip = value
    compiles(device)
    engine = replace(EAGER, compiled=True)
    ours = group(
        attention, seeds_of(attention, head), head, engine=engine, device=device,
        clip_grad_norm=clip,
    )  # fmt: skip
    for epoch in range(1, 4):
        ours._pass(epoch)
    assert ours.compiler.works
    is_the_plain_loop(ours, attention, head, clip)
    logits = ours.logits(ours.data.test, ours.state.weights)
    ours.compiler.works = False
    expected = ours.logits(ours.data.test, ours.state.weights)
    torch.testing.assert_close(logits, expected, atol=GAP, rtol=0)


@on([(dtype, *pair) for dtype in LOWER for pair in PAIRS], rehearsed=2)
def test_rounded_products_are_near_those_of_the_cpu_and_train(
    device: torch.device, value: tuple[str, str, str]
) -> None:
    """Logits before training within what that type rounds; float16 with losses that are scaled."""
    dtype, attention, head = value
    scale = "dynamic" if dtype == "float16" else "none"
    engine = replace(EAGER, dtype=dtype)
    ours = group(
        attention, seeds_of(attention, head), head, torch.float32, engine, device=device,
        loss_scale=scale,
    )  # fmt: skip
    exact = group(attention, ours.seeds, head)
    found, expected = (
        one.logits(one.data.test, one.state.weights).cpu().double() for one in (ours, exact)
    )
    assert (found - expected).norm() <= 5 * ROUNDING[dtype] * expected.norm()
    ours.train_epoch()
    assert [member.failed for member in ours.members] == [None] * len(ours.seeds)
    assert ours.logits(ours.data.test, ours.state.weights).dtype == torch.float32
    if ours.state.scaling is not None:
        assert ours.state.scaling.steps_S.min() > 0


@on(PAIRS, rehearsed=2)
def test_a_seed_alone_agrees_with_the_seed_in_a_group(
    device: torch.device, value: tuple[str, str]
) -> None:
    """The README's tolerance: 1e-4 of the size of the logits, after an epoch in float32."""
    attention, head = value
    if ":published" in attention:
        pytest.skip("normalises rows that are almost constant, which magnifies rounding")
    among, alone = (
        group(attention, seeds, head, torch.float32, device=device) for seeds in ([4, 7, 1], [7])
    )
    for one in (among, alone):
        one.train_epoch()
    ours = among.logits(among.data.test, among.state.weights)[1]
    theirs = alone.logits(alone.data.test, alone.state.weights)[0]
    assert (ours - theirs).abs().max() <= 1e-4 * theirs.abs().max()


RESUMED = [
    ("mha-bn", "mlp", "float32", False),
    ("gaam", "linear", "float32", True),
    ("gaam", "conv", "float32", False),
    ("gaam", "conv", "bfloat16", True),
    ("skew-gaussian", "linear", "float16", False),
    ("perceiver", "linear", "bfloat16", True),
]


@on(RESUMED, rehearsed=1)
def test_an_epoch_taken_up_from_a_checkpoint_ends_with_the_same_bits(
    device: torch.device, value: tuple[str, str, str, bool], tmp_path: Path
) -> None:
    attention, head, dtype, compiled = value
    if compiled:
        compiles(device)
    engine = replace(EAGER, dtype=dtype, compiled=compiled)
    scale = "dynamic" if dtype == "float16" else "none"
    options: dict[str, Any] = {"schedule": "plateau", "loss_scale": scale, "device": device}
    whole, first, second = (
        group(attention, [1, 4], head, torch.float32, engine, **options) for _ in range(3)
    )
    for one, epochs in ((whole, 5), (first, 3)):
        for _ in range(epochs):
            one.train_epoch()
    first.save(Checkpoint(tmp_path / "c.safetensors"))
    second.resume(Checkpoint(tmp_path / "c.safetensors"))
    assert second.epochs_done == 3
    for _ in range(2):
        second.train_epoch()
    for name, expected in whole._tensors().items():
        assert torch.equal(expected, second._tensors()[name]), name


def trained(config: TrainConfig) -> RunResult:
    (run,) = gaam_decoder.train(config)
    return run


@on([("gaam", "linear"), ("laplace", "mlp"), ("mha", "conv"), ("none", "lbfgs")], rehearsed=1)
def test_a_training_from_end_to_end_is_that_of_the_cpu(
    device: torch.device, value: tuple[str, str], tiny_cache: Path, tmp_path: Path
) -> None:
    """Losses of every epoch within 1e-3 of themselves, accuracies within a row of the test."""
    attention, head = value
    config = TrainConfig(
        attn=(attention,), head=head, cache=tiny_cache, seeds=(0, 1, 2), epochs=3, lr=1e-3
    )
    ours, theirs = (
        trained(replace(config, device=name, runs=tmp_path / str(index), compile="off"))
        for index, name in enumerate((str(device), "cpu"))
    )
    assert ours.key == theirs.key, "a device decides a key"
    rows = len(theirs.labels)
    for seed in theirs.seeds:
        assert abs(ours.accuracy[seed] - theirs.accuracy[seed]) <= 1 / rows + 1e-9


@on([("gaam", "linear")])
def test_what_was_trained_is_not_trained_again_on_another_device(
    device: torch.device, value: tuple[str, str], tiny_cache: Path, tmp_path: Path
) -> None:
    config = TrainConfig(lr=3e-4, cache=tiny_cache, seeds=(0, 1), epochs=1, runs=tmp_path / "runs")
    first = trained(replace(config, device="cpu"))
    assert trained(replace(config, device=str(device))).path == first.path


class TestGpuAlone:
    pytestmark = needs_gpu

    def test_a_decoder_that_draws_random_numbers_on_a_gpu_is_refused(
        self, gpu: torch.device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        forward = GAAM.forward
        monkeypatch.setattr(
            GAAM, "forward", lambda self, x: forward(self, x) * torch.rand((), device=x.device)
        )
        with pytest.raises(ConfigError, match="random numbers"):
            group("gaam", [1], device=gpu).train_epoch()

    def test_memory_that_ran_out_is_free_again_and_said(self, gpu: torch.device) -> None:
        free = torch.cuda.mem_get_info(gpu)[0]
        with (
            pytest.raises(ShortOfMemoryError, match="--set seed-batch=2"),
            enough_memory(recipe("gaam", "linear"), [0, 1, 2, 3], str(gpu)),
        ):
            torch.empty(2 * free, dtype=torch.uint8, device=gpu)
        assert torch.cuda.mem_get_info(gpu)[0] >= free // 2

    def test_as_many_seeds_as_are_chosen_together_fit(self, gpu: torch.device) -> None:
        """With little memory left: half a GiB."""
        with little(gpu, 2**29):
            wide = spec("gaam")
            chosen = choose_engine(wide, recipe("gaam", "linear"), gpu, num_seeds=256, num_rows=29)
            ours = group("gaam", list(range(chosen.seed_batch)), dtype=torch.float32, device=gpu)
            ours.train_epoch()
            ours.logits(ours.data.test, ours.state.weights)


@contextmanager
def little(device: torch.device, size: int) -> Iterator[None]:
    """While open, a GPU has little memory left for this process."""
    total = torch.cuda.get_device_properties(device).total_memory
    most = torch.cuda.memory_reserved(device) + size
    torch.cuda.set_per_process_memory_fraction(most / total, device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
