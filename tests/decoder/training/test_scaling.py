"""Losses that are scaled, clipped before or after: against torch's GradScaler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.amp import GradScaler
from torch.nn.utils import clip_grad_norm_

from gaam_decoder.decoder import build_decoder, stream_seed
from gaam_decoder.losses.cross_entropy import CrossEntropy
from gaam_decoder.recipe import Dtype
from gaam_decoder.training.arithmetic import state as scaling
from gaam_decoder.training.arithmetic.engine import AUTOCAST_TYPES
from gaam_decoder.training.data import Subset, TrainData
from gaam_decoder.training.seed_batch import SeedBatch
from tests.decoder.training.seed_batches import (
    EAGER,
    LR,
    B,
    decoder_recipe,
    decoder_spec,
    states_of,
    train_data,
)

STEPS = 9
INTERVAL = 3
"""Instead of 2,000: the scale grows in a test."""
WIDE = torch.float64
"""Of parameters without autocast: a gradient that is zero but for rounding decides no
step."""


class Faulty(CrossEntropy):
    """Multiplied by a number where the first row of a batch is of class 2."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def __call__(self, logits_BC: torch.Tensor, label_B: torch.Tensor) -> torch.Tensor:
        loss = super().__call__(logits_BC, label_B)
        return loss * torch.where(label_B[0] == 2, self.factor, 1.0)


FAULTS = {"none": 1.0, "too large for float16": 1e4, "infinite": torch.inf}


@pytest.fixture(autouse=True)
def _growing_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "INTERVAL", INTERVAL)


def data_of_one_batch() -> TrainData:
    """Rows of one batch: an epoch is a step."""
    whole = train_data(torch.float32).train
    rows = Subset(
        features=whole.features, rows=whole.rows[:B], label_N=whole.label_N[:B]
    )
    return TrainData(train=rows, selection=None, test=rows)


def scaled_seed_batch(
    seeds: list[int],
    factor: float = 1.0,
    attention: str = "gaam",
    dtype: Dtype = "float32",
    **settings: Any,
) -> SeedBatch:
    """Seeds whose loss is scaled, and faulty by this factor."""
    common = {"loss_scale": "dynamic", "select": "last", "epochs": STEPS}
    settings = common | {"dtype": dtype} | settings
    return SeedBatch(
        decoder_spec(attention),
        data_of_one_batch(),
        decoder_recipe(attention, "linear", **settings),
        seeds,
        loss_function=Faulty(factor),
        engine=replace(EAGER, dtype=dtype),
        dtype=WIDE if dtype == "float32" else torch.float32,
    )


class TorchTraining:
    """One seed by ``nn.Module``, autograd, autocast, AdamW and GradScaler."""

    def __init__(self, seed: int, attention: str, factor: float, dtype: Dtype) -> None:
        self.seed = seed
        self.dtype = dtype
        self.loss_function = Faulty(factor)
        self.wide = torch.float32 if dtype in AUTOCAST_TYPES else WIDE
        self.decoder = build_decoder(decoder_spec(attention), seed).to(self.wide)
        self.start = {
            name: value.detach().clone()
            for name, value in self.decoder.named_parameters()
        }
        self.num_faults = 0
        self.optimizer = torch.optim.AdamW(
            self.decoder.parameters(), lr=LR, weight_decay=0.1
        )
        self.scaler = GradScaler("cpu", growth_interval=INTERVAL)
        self.steps = 0
        self.skipped = 0
        self.optimizer.register_step_post_hook(self._count_step)

    def _count_step(self, *_: object) -> None:
        self.steps += 1
        self.skipped = 0

    def step(self, epoch: int, clip: float | None, clip_order: str) -> None:
        rows = data_of_one_batch().train
        generator = np.random.default_rng(stream_seed(self.seed, "order", epoch))
        batch = torch.from_numpy(generator.permutation(B))
        label_B = rows.label_N[batch]
        with torch.autocast(
            "cpu", AUTOCAST_TYPES.get(self.dtype), enabled=self.dtype in AUTOCAST_TYPES
        ):
            logits_BC = self.decoder(states_of(rows)[batch].to(self.wide), None)
        self.num_faults += int(label_B[0] == 2)
        loss = self.loss_function(logits_BC.to(self.wide), label_B)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        if clip_order == "unscale-first":
            self.scaler.unscale_(self.optimizer)
        if clip is not None:
            clip_grad_norm_(self.decoder.parameters(), clip)
        # the hook of the optimizer sets it to 0 where the step is taken
        self.skipped = 1
        self.scaler.step(self.optimizer)
        self.scaler.update()


MOST_ROUNDED = 0.02
"""Share of a parameter's whole way that rounded products may make: Adam follows the
signs."""


def assert_same_scaling(batch: SeedBatch, place: int, expected: TorchTraining) -> None:
    """The scale of a seed is that of GradScaler, and so are its steps."""
    state = batch.state.scaling
    assert state is not None
    assert state.scale_S[place].item() == expected.scaler.get_scale()
    assert state.steps_S[place].item() == expected.steps
    assert state.skipped_steps_S[place].item() == expected.skipped


def assert_same_parameters(
    batch: SeedBatch, place: int, expected: TorchTraining
) -> None:
    """Parameters are equal; with rounded products they are so on average."""
    for name, value in expected.decoder.named_parameters():
        gap = (batch.state.parameters[name][place] - value).abs()
        if expected.dtype == "float32":
            assert gap.max() <= 1e-7, name
        else:
            way = (value - expected.start[name]).abs().mean()
            assert gap.mean() <= MOST_ROUNDED * way, name


# mha-bn is not compared lower: some of its gradients are zero but for rounding
KINDS = {
    "float32": ("mha-bn", [5]),
    "float16": ("gaam:heads=3", [5]),
    "bfloat16": ("gaam:heads=3", [5, 2, 9]),
}
CLIPS = [
    pytest.param(None, "unscale-first", id="not clipped"),
    pytest.param(0.5, "unscale-first", id="unscaled first"),
    pytest.param(2000.0, "clip-first", id="clipped first"),
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("clip", "clip_order"), CLIPS)
@pytest.mark.parametrize("dtype", KINDS)
def test_every_step_is_that_of_gradscaler(
    dtype: Dtype, clip: float | None, clip_order: str, fault: str
) -> None:
    attention, seeds = KINDS[dtype]
    factor = FAULTS[fault]
    batch = scaled_seed_batch(
        seeds, factor, attention, dtype, clip_grad_norm=clip, clip_order=clip_order
    )
    trainings = [TorchTraining(seed, attention, factor, dtype) for seed in seeds]
    for epoch in range(1, STEPS + 1):
        batch._train_on_all_rows(epoch)
        for place, training in enumerate(trainings):
            training.step(epoch, clip, clip_order)
            assert_same_scaling(batch, place, training)
            assert_same_parameters(batch, place, training)
            if fault == "infinite":
                assert training.steps <= epoch - training.num_faults
    for training in trainings:
        assert training.num_faults, "the fault was never met"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("attention", ["gaam", "mha-bn"])
def test_a_seed_whose_gradients_overflow_disturbs_no_other(
    attention: str, dtype: Dtype
) -> None:
    """And stays as it was: parameters, moments and the number of its steps."""
    undisturbed, poisoned = (
        scaled_seed_batch(
            [0, 1, 2], attention=attention, dtype=dtype, clip_grad_norm=1.0
        )
        for _ in range(2)
    )
    poisoned.state.parameters["head.fc.weight"][1] = torch.inf
    before = {name: value.clone() for name, value in poisoned.state.tensors().items()}
    for batch in (undisturbed, poisoned):
        for epoch in range(1, 5):
            batch._train_on_all_rows(epoch)
    after = poisoned.state.tensors()
    for name, value in undisturbed.state.tensors().items():
        assert torch.equal(value[[0, 2]], after[name][[0, 2]]), name
        kind = name.partition(".")[0]
        if kind in ("parameters", "exp_avg", "exp_avg_sq") or name == "scaling.steps_S":
            assert torch.equal(after[name][1], before[name][1]), name
    assert poisoned.state.scaling is not None
    assert poisoned.state.scaling.scale_S[1] == scaling.START / 2**4
    assert poisoned.state.scaling.steps_S[1] == 0


def test_training_scores_are_means_over_the_rows_with_a_finite_loss() -> None:
    batch = scaled_seed_batch([0, 1], attention="none")
    assert batch.state.scaling is not None
    batch.state.scaling.rows_without_loss_S[1] = B - 4
    batch.state.loss_S.fill_(8.0)
    batch.state.score_S.fill_(3.0)
    losses, scores = batch._training_scores()
    assert losses == pytest.approx([8 / B, 8 / 4])
    assert scores == pytest.approx([3 / B, 3 / 4])


def test_an_epoch_without_a_finite_loss_fails_the_seed() -> None:
    batch = scaled_seed_batch([0, 1], attention="none")
    batch.state.parameters["head.fc.weight"][1] = torch.nan
    batch.train_epoch()
    first, second = batch.seed_states
    assert first.failed is None
    assert second.failed is not None
    assert "nan" in second.failed


class Overflowing(CrossEntropy):
    """A finite loss, whose gradient is not."""

    def __call__(self, logits_BC: torch.Tensor, label_B: torch.Tensor) -> torch.Tensor:
        return super().__call__(logits_BC + (logits_BC * 0).sqrt(), label_B)


@pytest.mark.parametrize(
    ("epochs", "epochs_done", "reason"),
    [
        pytest.param(30, 17, " 0.5", id="a scale below 1"),
        pytest.param(5, 5, "5 epochs", id="nothing learned to the end"),
    ],
)
def test_a_loss_that_overflows_at_every_step_fails_the_seeds(
    epochs: int, epochs_done: int, reason: str
) -> None:
    batch = scaled_seed_batch([0, 1], epochs=epochs)
    batch.step.loss_function = Overflowing()
    while not batch.is_finished():
        batch.train_epoch()
    for member in batch.seed_states:
        assert member.failed is not None
        assert reason in member.failed
        assert len(member.log) == epochs_done
