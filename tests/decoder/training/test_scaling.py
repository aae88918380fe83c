"""Losses that are scaled, clipped before or after: against torch's GradScaler, step by step."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from torch.amp import GradScaler
from torch.nn.utils import clip_grad_norm_

from gaam_decoder.decoder import build_decoder, stream_seed
from gaam_decoder.losses.cross_entropy import CrossEntropy
from gaam_decoder.training.arithmetic import state as scaling
from gaam_decoder.training.arithmetic.engine import LOWER, Engine
from gaam_decoder.training.data import Subset, TrainData
from gaam_decoder.training.seed_batch import SeedBatch
from tests.decoder.training.test_seed_batch import EAGER, LR, B, data, recipe, spec

STEPS = 9
INTERVAL = 3
"""Instead of 2,000: the scale grows in a test."""
WIDE = torch.float64
"""Of parameters without autocast: gradients that are zero but for rounding decide no step."""


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
def _grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "INTERVAL", INTERVAL)


def a_batch() -> TrainData:
    """Rows of one batch: an epoch is a step."""
    whole = data(torch.float32).train
    few = Subset(
        features=whole.features, rows=whole.rows[:B], label_N=whole.label_N[:B]
    )
    return TrainData(train=few, selection=None, test=few)


def group(
    seeds: list[int],
    factor: float = 1.0,
    attention: str = "gaam",
    rows: TrainData | None = None,
    engine: Engine = EAGER,
    **options: object,
) -> SeedBatch:
    options = {"loss_scale": "dynamic", "select": "last", "epochs": STEPS, **options}
    dtype = str(options.get("dtype", "float32"))
    return SeedBatch(
        spec(attention),
        rows or a_batch(),
        recipe(attention, "linear", **options),
        seeds,
        loss_function=Faulty(factor),
        engine=replace(engine, dtype=dtype),
        dtype=WIDE if dtype == "float32" else torch.float32,
    )


class Torchs:
    """One seed by ``nn.Module``, autograd, autocast, AdamW and GradScaler."""

    def __init__(self, seed: int, attention: str, factor: float, dtype: str) -> None:
        self.seed, self.dtype, self.loss_of = seed, dtype, Faulty(factor)
        self.wide = torch.float32 if dtype in LOWER else WIDE
        self.decoder = build_decoder(spec(attention), seed).to(self.wide)
        self.start = {k: v.detach().clone() for k, v in self.decoder.named_parameters()}
        self.faulty = 0
        self.optimizer = torch.optim.AdamW(
            self.decoder.parameters(), lr=LR, weight_decay=0.1
        )
        self.scaler = GradScaler("cpu", growth_interval=INTERVAL)
        self.steps = 0
        self.skipped = 0
        self.optimizer.register_step_post_hook(self._took)

    def _took(self, *_: object) -> None:
        self.steps, self.skipped = self.steps + 1, 0

    def step(self, epoch: int, clip: float | None, order: str) -> None:
        rows, generator = a_batch().train, stream_seed(self.seed, "order", epoch)
        batch = torch.from_numpy(np.random.default_rng(generator).permutation(B))
        with torch.autocast("cpu", LOWER.get(self.dtype), enabled=self.dtype in LOWER):
            logits = self.decoder(rows.features.resident[batch].to(self.wide), None)
        self.faulty += int(rows.label_N[batch][0] == 2)
        loss = self.loss_of(logits.to(self.wide), rows.label_N[batch])
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        if order == "unscale-first":
            self.scaler.unscale_(self.optimizer)
        if clip is not None:
            clip_grad_norm_(self.decoder.parameters(), clip)
        self.skipped = 1
        self.scaler.step(self.optimizer)
        self.scaler.update()


ROUNDED = 0.02
"""Share of a parameter's whole way that rounded products may make: Adam follows the signs."""
CLIPS = [(None, "unscale-first"), (0.5, "unscale-first"), (2000.0, "clip-first")]


def compare(ours: SeedBatch, seeds: list[int], attention: str, fault: str, clip: float | None,
            order: str, dtype: str) -> None:  # fmt: skip
    torchs = [Torchs(seed, attention, FAULTS[fault], dtype) for seed in seeds]
    state = ours.state
    assert state.scaling is not None
    for epoch in range(1, STEPS + 1):
        ours._pass(epoch)
        for place, one in enumerate(torchs):
            one.step(epoch, clip, order)
            assert state.scaling.scale_S[place].item() == one.scaler.get_scale()
            assert state.scaling.steps_S[place].item() == one.steps
            assert state.scaling.skipped_S[place].item() == one.skipped
            for name, value in one.decoder.named_parameters():
                off = (state.parameters[name][place] - value).abs()
                way = (value - one.start[name]).abs().mean()
                most = off.max() if dtype == "float32" else off.mean()
                assert most <= (1e-7 if dtype == "float32" else ROUNDED * way), (
                    name,
                    epoch,
                )
        if fault == "infinite":
            assert all(one.steps <= epoch - one.faulty for one in torchs)
    assert all(one.faulty for one in torchs), "the fault was never met"


@pytest.mark.parametrize("fault", FAULTS)
def test_every_step_is_that_of_gradscaler(fault: str) -> None:
    """mha-bn: some of its gradients are zero but for rounding, so that it is not compared lower."""
    kinds = [
        ("mha-bn", "float32", [5]),
        ("gaam:heads=3", "float16", [5]),
        ("gaam:heads=3", "bfloat16", [5, 2, 9]),
    ]
    for (clip, order), (attention, dtype, seeds) in product(CLIPS, kinds):
        options = {"clip_grad_norm": clip, "clip_order": order, "dtype": dtype}
        ours = group(seeds, FAULTS[fault], attention, **options)
        compare(ours, seeds, attention, fault, clip, order, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("attention", ["gaam", "mha-bn"])
def test_a_seed_whose_gradients_overflow_disturbs_no_other(
    attention: str, dtype: str
) -> None:
    """And stays as it was: parameters, moments and the number of its steps."""
    undisturbed, poisoned = (
        group([0, 1, 2], attention=attention, dtype=dtype, clip_grad_norm=1.0)
        for _ in range(2)
    )
    poisoned.state.parameters["head.fc.weight"][1] = torch.inf
    before = {name: value.clone() for name, value in poisoned.state.tensors().items()}
    for one in (undisturbed, poisoned):
        for epoch in range(1, 5):
            one._pass(epoch)
    after = poisoned.state.tensors()
    for name, value in undisturbed.state.tensors().items():
        assert torch.equal(value[[0, 2]], after[name][[0, 2]]), name
        part = name.partition(".")[0]
        if part in ("parameters", "exp_avg", "exp_avg_sq") or name == "scaling.steps_S":
            assert torch.equal(after[name][1], before[name][1]), name
    assert poisoned.state.scaling is not None
    assert poisoned.state.scaling.scale_S[1] == scaling.START / 2**4
    assert poisoned.state.scaling.steps_S[1] == 0


def test_what_is_a_failure_still() -> None:
    """No finite loss in an epoch; a scale below 1; nothing learned to the end."""
    lost = group([0, 1], attention="none")
    lost.state.parameters["head.fc.weight"][1] = torch.nan
    lost.train_epoch()
    assert [m.failed and "nan" in m.failed for m in lost.members] == [None, True]

    class Overflowing(CrossEntropy):  # a finite loss, whose gradient is not
        def __call__(
            self, logits_BC: torch.Tensor, label_B: torch.Tensor
        ) -> torch.Tensor:
            return super().__call__(logits_BC + (logits_BC * 0).sqrt(), label_B)

    for epochs, steps, fact in ((30, 17, " 0.5"), (5, 5, "5 epochs")):
        stuck = group([0, 1], epochs=epochs)
        stuck.step.loss_function = Overflowing()
        while not stuck.finished():
            stuck.train_epoch()
        assert [m.failed and fact in m.failed for m in stuck.members] == [True, True]
        assert [len(m.log) for m in stuck.members] == [steps, steps]
