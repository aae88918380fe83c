"""Seeds that train on the device: against the plain loop on the CPU, interrupted, from end to end.

A float64 gap is rounding alone: what is wrong in kind is far above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

import gaam_decoder
from gaam_cache.common.compiling import missing_compiler
from gaam_cache.encoders import ROUNDING
from gaam_decoder.decoder import build_decoder
from gaam_decoder.training import data as features
from gaam_decoder.training.arithmetic.engine import AUTOCAST_TYPES, choose_engine
from gaam_decoder.training.checkpoint import Checkpoint
from gaam_decoder.training.seed_batch import SeedBatch
from tests.decoder.configs import loose_config
from tests.decoder.heads.stepped import STEPPED
from tests.decoder.training.seed_batches import (
    EAGER,
    VARIANTS,
    decoder_recipe,
    decoder_spec,
    plain_loop,
    seed_batch,
)
from tests.gpu.conftest import needs_gpu, on

HEADS = STEPPED
PAIRS = [(attention, "linear") for attention in VARIANTS] + [
    ("gaam", head) for head in HEADS
]
COMPILED = [
    *(("gaam", "linear", None), ("gct", "linear", 0.5), ("gaam", "conv", None)),
    *(
        ("mha-bn", "conv", 0.5),
        ("skew-gaussian", "mlp", None),
        ("chi2", "linear", None),
    ),
    *(("mha", "linear", 0.5), ("perceiver", "linear", None), ("laplace", "mlp", 0.5)),
    ("nadaraya-watson:kernel=boxcar", "linear", None),
]
GAP = 1e-8
"""Of float64 after 12 steps: Adam divides small gradients by their size."""


def logits_of_test(batch: SeedBatch) -> torch.Tensor:
    """Logits of every seed for the test rows."""
    assert batch.data.test is not None
    return batch.logits(batch.data.test, batch.state.weights)


def seeds_of(attention: str, head: str) -> list[int]:
    """Together where they can be stacked."""
    decoder = build_decoder(decoder_spec(attention, head), 0)
    return [3, 0, 8] if decoder.attention.stackable and decoder.head.stackable else [3]


def compiles(device: torch.device) -> None:
    if (missing := missing_compiler(device.type)) is not None:
        pytest.skip(missing)


def is_the_plain_loop(
    ours: SeedBatch, attention: str, head: str, clip: float | None
) -> None:
    found = {**ours.state.parameters, **ours.state.buffers}
    for place, seed in enumerate(ours.seeds):
        for name, expected in plain_loop(attention, seed, 3, head, clip).items():
            value = found[name][place].cpu()
            torch.testing.assert_close(
                value, expected, atol=GAP, rtol=0, msg=f"{name} of {seed}"
            )


@on(PAIRS, rehearsed=3)
def test_seeds_equal_a_plain_loop_on_the_cpu(
    device: torch.device, value: tuple[str, str]
) -> None:
    """Stacked where that can be; three epochs, clipped so that the norm matters."""
    attention, head = value
    ours = seed_batch(
        attention, seeds_of(*value), head, device=device, clip_grad_norm=0.5
    )
    for _ in range(3):
        ours.train_epoch()
    assert {t.device for t in ours._tensors().values()} == {device}
    is_the_plain_loop(ours, attention, head, 0.5)


@pytest.mark.filterwarnings(
    "error::gaam_cache.common.errors.GaamWarning"
)  # which says why it is not
@on(COMPILED, rehearsed=0)
def test_compiled_seeds_equal_a_plain_loop_on_the_cpu(
    device: torch.device, value: tuple[str, str, float | None]
) -> None:
    attention, head, clip = value
    compiles(device)
    engine = replace(EAGER, compiled=True)
    ours = seed_batch(
        attention, seeds_of(attention, head), head, engine=engine, device=device,
        clip_grad_norm=clip,
    )  # fmt: skip
    for epoch in range(1, 4):
        ours._train_on_all_rows(epoch)
    assert ours.compiler.works
    is_the_plain_loop(ours, attention, head, clip)
    logits = logits_of_test(ours)
    ours.compiler.works = False
    expected = logits_of_test(ours)
    torch.testing.assert_close(logits, expected, atol=GAP, rtol=0)


@on([(dtype, *pair) for dtype in AUTOCAST_TYPES for pair in PAIRS], rehearsed=2)
def test_rounded_products_are_near_those_of_the_cpu_and_train(
    device: torch.device, value: tuple[str, str, str]
) -> None:
    """Logits before training within what that type rounds; float16 with losses that are scaled."""
    dtype, attention, head = value
    scale = "dynamic" if dtype == "float16" else "none"
    engine = replace(EAGER, dtype=cast(Any, dtype))
    ours = seed_batch(
        attention, seeds_of(attention, head), head, torch.float32, engine, device=device,
        loss_scale=scale,
    )  # fmt: skip
    exact = seed_batch(attention, ours.seeds, head)
    found, expected = (logits_of_test(one).cpu().double() for one in (ours, exact))
    assert (found - expected).norm() <= 5 * ROUNDING[dtype] * expected.norm()
    ours.train_epoch()
    assert [member.failed for member in ours.seed_states] == [None] * len(ours.seeds)
    assert logits_of_test(ours).dtype == torch.float32
    if ours.state.scaling is not None:
        assert ours.state.scaling.steps_S.min() > 0


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
    engine = replace(EAGER, dtype=cast(Any, dtype), compiled=compiled)
    scale = "dynamic" if dtype == "float16" else "none"
    options: dict[str, Any] = {
        "schedule": "plateau",
        "loss_scale": scale,
        "device": device,
    }
    whole, first, second = (
        seed_batch(attention, [1, 4], head, torch.float32, engine, **options)
        for _ in range(3)
    )
    for one, epochs in ((whole, 5), (first, 3)):
        for _ in range(epochs):
            one.train_epoch()
    first.save(Checkpoint(tmp_path / "c.safetensors", {}))
    second.resume(Checkpoint(tmp_path / "c.safetensors", {}))
    assert second.epochs_done == 3
    for _ in range(2):
        second.train_epoch()
    for name, expected in whole._tensors().items():
        assert torch.equal(expected, second._tensors()[name]), name


@pytest.mark.parametrize(
    "device", [pytest.param("cuda", marks=needs_gpu)], indirect=True
)
def test_as_many_seeds_as_are_chosen_together_fit(device: torch.device) -> None:
    """With little memory left: half a GiB."""
    with little(device, 2**29):
        chosen = choose_engine(
            decoder_spec("gaam"),
            decoder_recipe("gaam", "linear"),
            device,
            num_seeds=256,
            num_rows=29,
        )
        ours = seed_batch(
            "gaam", list(range(chosen.seed_batch)), dtype=torch.float32, device=device
        )
        ours.train_epoch()
        logits_of_test(ours)


PLACES = {"device": (2**60, 2**60), "memory": (0, 2**60), "disk": (0, 0)}
"""Bytes that seem to be free on the device and in memory."""


@on(["linear", "conv", "mlp"], rehearsed=1)
def test_seeds_have_the_same_bits_wherever_their_rows_are(
    device: torch.device, value: str, tiny_cache: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    written = []
    for place, (there, here) in PLACES.items():
        free = {"cpu": here, "cuda": there}
        monkeypatch.setattr(
            features, "free_bytes", lambda where, free=free: free[where.type]
        )
        config = loose_config(
            lr=3e-4, cache=tiny_cache, head=value, seeds=(0, 1), epochs=2, device=str(device),
            compile="off", runs=tmp_path / place, probe=False,
        )  # fmt: skip
        (run,) = gaam_decoder.train(config)
        names = ("weights.safetensors", "test.safetensors")
        written.append([(run.path / name).read_bytes() for name in names])
    assert written[0] == written[1] == written[2]


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
