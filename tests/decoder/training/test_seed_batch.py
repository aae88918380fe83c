"""A seed batch is so many single trainings: against a loop of torch's own parts."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from gaam_cache.common import plugins
from gaam_cache.common.compiling import missing_compiler
from gaam_decoder.decoder import build_decoder
from gaam_decoder.optimizers import Optimizer
from gaam_decoder.optimizers.adamw import AdamW
from gaam_decoder.optimizers.base import Stacked, per_seed
from gaam_decoder.recipe import Dtype
from gaam_decoder.specs import parse_spec
from gaam_decoder.training.arithmetic import step as arithmetic_step
from gaam_decoder.training.arithmetic.engine import AUTOCAST_TYPES
from gaam_decoder.training.arithmetic.step import StepCache
from gaam_decoder.training.checkpoint import Checkpoint
from gaam_decoder.training.seed_batch import SeedBatch
from gaam_decoder.training.seed_state import Plateau
from tests.decoder.heads.stepped import STEPPED
from tests.decoder.training.seed_batches import (
    EAGER,
    VARIANTS,
    C,
    assert_equals_plain_loop,
    decoder_spec,
    rows_to_test,
    seed_batch,
    states_of,
    train_data,
)


def train_epochs(batch: SeedBatch, epochs: int) -> SeedBatch:
    """Train so many epochs more."""
    for _ in range(epochs):
        batch.train_epoch()
    return batch


@pytest.mark.parametrize("attention", VARIANTS)
def test_stacked_seeds_equal_a_plain_loop_after_many_steps(attention: str) -> None:
    """Epochs of 4 steps, the last of them smaller; clipped so that the norm matters."""
    if not build_decoder(decoder_spec(attention), 0).attention.stackable:
        pytest.skip("seeds of this mechanism are trained one by one")
    epochs = 13 if attention == "gaam" else 2
    batch = seed_batch(attention, [3, 0], clip_grad_norm=0.5)
    train_epochs(batch, epochs)
    assert_equals_plain_loop(batch, attention, epochs, clip=0.5)


def warm_up_and_cosine(optimizer: torch.optim.Optimizer) -> Any:
    """Over 13 epochs of 4 steps, of which a twentieth is 2."""
    up = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / 3, total_iters=2)
    down = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [up, down], milestones=[2])


OPTIMIZERS = {
    "adamw": torch.optim.AdamW,
    "sgd": partial(torch.optim.SGD, momentum=0.9),
    "sgd:momentum=0.0": torch.optim.SGD,
    "sgd:nesterov=true": partial(torch.optim.SGD, momentum=0.9, nesterov=True),
}
SCHEDULES = {"constant": None, "cosine": warm_up_and_cosine}


def test_every_optimizer_has_one_of_torch() -> None:
    names = {text.partition(":")[0] for text in OPTIMIZERS}
    assert names == set(plugins.names("gaam_decoder.optimizers"))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_optimizer_equals_that_of_torch(name: str, schedule: str) -> None:
    epochs = 13 if name == "sgd" else 3
    batch = seed_batch(
        "gaam",
        [5, 2],
        optimizer=parse_spec(name, "optimizer"),
        schedule=schedule,
        clip_grad_norm=0.5,
    )
    train_epochs(batch, epochs)
    assert_equals_plain_loop(
        batch,
        "gaam",
        epochs,
        clip=0.5,
        make_optimizer=OPTIMIZERS[name],
        make_schedule=SCHEDULES[schedule],
    )


@pytest.mark.parametrize("layout", ["parameter", "gradient"])
def test_a_step_of_one_seed_pairs_numbers_by_place_however_they_lie(
    layout: str,
) -> None:
    """One kernel takes the step, which knows no strides."""
    numbers = np.random.default_rng(0).normal(size=(4, 1, 5, 3, 4, 4))
    parameter, *gradients = torch.from_numpy(numbers)
    if layout == "parameter":
        # as torch stacks the parameter of a user's own mechanism
        parameter = torch.stack([parameter[0].to(memory_format=torch.channels_last)])
    else:
        gradients = [
            gradient.transpose(-1, -2).contiguous().transpose(-1, -2)
            for gradient in gradients
        ]
    expected = torch.nn.Parameter(parameter.clone())
    torch_adamw = torch.optim.AdamW([expected], lr=0.1, weight_decay=0.1, fused=False)
    adamw = AdamW()
    state = adamw.initial_state("w", parameter)
    for step, gradient in enumerate(gradients, 1):
        expected.grad = gradient.clone()
        torch_adamw.step()
        lr_S = torch.tensor([0.1], dtype=torch.float64)
        corrections = torch.tensor(adamw.numbers(step), dtype=torch.float64)
        adamw.update(parameter, gradient, state, lr_S, corrections, 0.1)
    torch.testing.assert_close(parameter, expected.detach(), atol=1e-12, rtol=0)


class SignedMomentum(Optimizer):
    """Of matrices a momentum; of other parameters one number for each seed."""

    rates = (1e-3,)

    def initial_state(self, name: str, parameter: torch.Tensor) -> Stacked:
        if parameter.ndim == 3:
            return {"momentum": torch.zeros_like(parameter)}
        return {"size": parameter.new_zeros(len(parameter))}

    def update(
        self,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        state: Stacked,
        lr: torch.Tensor,
        step_constants: torch.Tensor,
        weight_decay: float,
    ) -> None:
        if "momentum" in state:
            step = state["momentum"].lerp_(gradient, 0.1).sign()
        else:
            size_S = gradient.flatten(1).abs().mean(1)
            state["size"].lerp_(size_S, 0.1)
            step = gradient / per_seed(state["size"] + 1e-8, gradient)
        parameter.mul_(1 - lr * weight_decay)
        parameter.sub_(lr * step)


@pytest.mark.parametrize("loss_scale", ["none", "dynamic"])
def test_an_optimizer_may_keep_a_state_of_any_shape(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, loss_scale: str
) -> None:
    """Its seeds stay apart, and a checkpoint holds its state."""

    def build_own(spec: object, kind: object) -> Optimizer:
        return SignedMomentum()

    monkeypatch.setattr(arithmetic_step, "build", build_own)
    whole = seed_batch("mha", [5, 2], loss_scale=loss_scale)
    stopped = seed_batch("mha", [5, 2], loss_scale=loss_scale)
    alone = [seed_batch("mha", [seed], loss_scale=loss_scale) for seed in (5, 2)]
    for batch in (whole, stopped, *alone):
        batch.train_epoch()
    file = Checkpoint(tmp_path / "group-a.safetensors", {})
    stopped.save(file)
    resumed = seed_batch("mha", [5, 2], loss_scale=loss_scale)
    resumed.resume(file)
    for batch in (whole, resumed, *alone):
        batch.train_epoch()
    resumed_tensors = resumed.state.tensors()
    for name, tensor in whole.state.tensors().items():
        assert torch.equal(resumed_tensors[name], tensor), name
        single = torch.cat([batch.state.tensors()[name] for batch in alone])
        torch.testing.assert_close(tensor, single, atol=1e-9, rtol=0)


IMPOSSIBLE_STATES = {
    "a taken name": {"kept": torch.zeros(2)},
    "a name with a dot": {"a.b": torch.zeros(2)},
    "another number of seeds": {"a": torch.zeros(3)},
}


@pytest.mark.parametrize(
    "state", IMPOSSIBLE_STATES.values(), ids=IMPOSSIBLE_STATES.keys()
)
def test_a_state_that_no_checkpoint_can_hold_is_refused(state: Stacked) -> None:
    class WithState(AdamW):
        def initial_state(self, name: str, parameter: torch.Tensor) -> Stacked:
            return state

    with pytest.raises(ValueError, match="state"):
        WithState().initial_states({"weight": torch.zeros(2, 4)})


@pytest.mark.parametrize("head", STEPPED)
@pytest.mark.parametrize("seeds", [[5], [5, 2]], ids=["one seed", "two seeds"])
def test_every_head_equals_a_plain_loop(head: str, seeds: list[int]) -> None:
    batch = seed_batch("gaam", seeds, head)
    train_epochs(batch, 3)
    assert_equals_plain_loop(batch, "gaam", 3, head)


@pytest.mark.parametrize("name", ["cross-entropy", "focal"])
def test_every_loss_with_weights_of_classes_equals_a_plain_loop(name: str) -> None:
    """Of the rows that learn, one class has two and one has none: it has no weight."""
    loss = plugins.load("gaam_decoder.losses", name, kind="loss")()
    data = train_data()
    label_N = torch.full_like(data.train.label_N, C - 1)
    label_N[[3, 20]] = 0
    data = replace(data, train=replace(data.train, label_N=label_N))
    batch = seed_batch(
        "gaam", [5, 2, 9], loss=loss, data=data, class_weights="balanced"
    )
    train_epochs(batch, 3)
    assert_equals_plain_loop(batch, "gaam", 3, weighted_loss=loss, rows=data.train)


def test_the_log_has_the_accuracy_of_rows_when_they_were_learned() -> None:
    """At a rate of nothing, that is the accuracy of the decoder as it was built."""
    batch = seed_batch("gaam", [5, 2], lr=1e-30, weight_decay=0.0)
    batch.train_epoch()
    rows = batch.data.train
    for seed, member in zip(batch.seeds, batch.seed_states, strict=True):
        decoder = build_decoder(decoder_spec("gaam"), seed).double()
        logits_NC = decoder(states_of(rows)[rows.rows])
        accuracy = (logits_NC.argmax(-1) == rows.label_N).double().mean()
        loss = torch.nn.functional.cross_entropy(logits_NC, rows.label_N)
        entry = member.log[0]
        assert entry["train_accuracy"] == pytest.approx(accuracy.item(), abs=1e-6)
        assert entry["loss"] == pytest.approx(loss.item(), abs=1e-6)


def test_a_seed_that_fails_leaves_the_others_as_they_are() -> None:
    undisturbed = seed_batch("gaam", [0, 1, 2])
    poisoned = seed_batch("gaam", [0, 1, 2])
    poisoned.state.parameters["head.fc.weight"][1] = torch.nan
    train_epochs(undisturbed, 4)
    train_epochs(poisoned, 4)
    first, second, third = poisoned.seed_states
    assert first.failed is None
    assert second.failed is not None
    assert "nan" in second.failed
    assert third.failed is None
    assert [len(member.log) for member in poisoned.seed_states] == [4, 1, 4]
    for name, value in undisturbed.kept_weights.parameters.items():
        assert torch.equal(
            value[[0, 2]], poisoned.kept_weights.parameters[name][[0, 2]]
        )


@pytest.mark.parametrize("loss_scale", ["none", "dynamic"])
def test_an_epoch_taken_up_from_a_checkpoint_ends_with_the_same_bits(
    loss_scale: str, tmp_path: Path
) -> None:
    def new_batch() -> SeedBatch:
        return seed_batch(
            "mha-bn",
            [1, 4],
            "mlp",
            torch.float32,
            schedule="plateau",
            loss_scale=loss_scale,
        )

    whole = train_epochs(new_batch(), 5)
    stopped = train_epochs(new_batch(), 3)
    resumed = new_batch()
    stopped.save(Checkpoint(tmp_path / "c.safetensors", {}))
    resumed.resume(Checkpoint(tmp_path / "c.safetensors", {}))
    assert resumed.epochs_done == 3
    train_epochs(resumed, 2)
    resumed_tensors = resumed._tensors()
    for name, value in whole._tensors().items():
        assert torch.equal(value, resumed_tensors[name]), name
    for member, expected in zip(
        copy.deepcopy(resumed.seed_states),
        copy.deepcopy(whole.seed_states),
        strict=True,
    ):
        for entry in member.log + expected.log:
            entry.pop("seconds")
        assert member == expected


def test_the_plateau_is_torchs() -> None:
    values = np.random.default_rng(0).normal(size=200).cumsum() / 50
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.3)
    torch_plateau = ReduceLROnPlateau(optimizer, mode="max", factor=0.1, patience=10)
    plateau = Plateau(rate=0.3)
    for value in values:
        plateau.end_epoch(value)
        torch_plateau.step(value)
        assert plateau.rate == optimizer.param_groups[0]["lr"]
    assert plateau.rate < 0.3


@pytest.fixture(scope="module")
def _compiler() -> None:
    """Skip where there is none: to know takes seconds, and few runs ask."""
    if missing_compiler("cpu") is not None:
        pytest.skip("no C++ compiler here")


# fmt: off
COMPILED = [
    ("gaam", [3, 0], "linear", None, 13),
    # torch 2.13 cannot compile norms beside its gradients
    ("gct", [3, 0], "linear", 0.5, 13),
    ("mha-bn", [3, 0], "conv", 0.5, 3),
    ("none", [5], "conv", 0.5, 3),
]
# fmt: on


@pytest.mark.usefixtures("_compiler")
@pytest.mark.slow
@pytest.mark.parametrize(("attention", "seeds", "head", "clip", "epochs"), COMPILED)
def test_compiled_seeds_equal_the_plain_loop(
    attention: str, seeds: list[int], head: str, clip: float | None, epochs: int
) -> None:
    engine = replace(EAGER, compiled=True)
    compiled = seed_batch(attention, seeds, head, engine=engine, clip_grad_norm=clip)
    for epoch in range(1, epochs + 1):
        compiled._train_on_all_rows(epoch)
    assert compiled.compiler.works
    assert_equals_plain_loop(compiled, attention, epochs, head, clip)
    if head == "conv":
        tested = rows_to_test(compiled.data)
        logits = compiled.logits(tested, compiled.state.weights)
        compiled.compiler.works = False
        expected = compiled.logits(tested, compiled.state.weights)
        torch.testing.assert_close(logits, expected, atol=1e-9, rtol=0)


# float16 has less room, and a loss that is scaled: what trains in it does in bfloat16
ROUNDED: list[tuple[Dtype, str]] = [
    *(("float16", attention) for attention in VARIANTS),
    *(("bfloat16", attention) for attention in ("gaam", "mha-bn", "perceiver")),
]


def test_every_lower_type_is_trained_here() -> None:
    assert {dtype for dtype, _ in ROUNDED} == set(AUTOCAST_TYPES)


@pytest.mark.parametrize(("dtype", "attention"), ROUNDED)
def test_every_variant_trains_with_rounded_products(
    dtype: Dtype, attention: str
) -> None:
    batch = seed_batch(
        attention,
        [1, 2],
        dtype=torch.float32,
        engine=replace(EAGER, dtype=dtype),
        loss_scale="dynamic" if dtype == "float16" else "none",
    )
    batch.train_epoch()
    assert [member.failed for member in batch.seed_states] == [None, None]
    logits = batch.logits(rows_to_test(batch.data), batch.state.weights)
    assert logits.dtype == torch.float32


@pytest.mark.usefixtures("_compiler")
@pytest.mark.slow
def test_fewer_rows_than_a_batch_are_compiled() -> None:
    data = train_data()
    train = replace(
        data.train, rows=data.train.rows[:3], label_N=data.train.label_N[:3]
    )
    compiled = seed_batch(
        "gaam",
        [3, 0],
        engine=replace(EAGER, compiled=True),
        data=replace(data, train=train),
    )
    compiled._train_on_all_rows(1)
    assert [name for name, _shape in compiled.compiler._compiled] == ["_step"]


@pytest.mark.usefixtures("_compiler")
@pytest.mark.slow
def test_seed_batches_of_other_numbers_of_rows_share_a_compiled_step() -> None:
    """As the folds of a cross-validation: what was compiled for one reads no other."""
    steps = StepCache()
    data = train_data()
    for last in (24, 28, 27):
        train = data.train
        few = replace(train, rows=train.rows[:last], label_N=train.label_N[:last])
        fold = replace(data, train=few)
        compiled = seed_batch(
            "gaam",
            [3, 0, 5],
            engine=replace(EAGER, compiled=True),
            steps=steps,
            data=fold,
        )
        eager = seed_batch("gaam", [3, 0, 5], data=fold)
        compiled._train_on_all_rows(1)
        eager._train_on_all_rows(1)
        assert compiled.compiler.works
        assert not eager.compiler.works
        # the batch of 4 or 3 rows at the end of an epoch is not compiled
        assert [name for name, _shape in compiled.compiler._compiled] == ["_step"]
        torch.testing.assert_close(
            compiled.state.parameters["head.fc.weight"],
            eager.state.parameters["head.fc.weight"],
            atol=1e-9,
            rtol=0,
        )
