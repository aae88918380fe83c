"""A group of seeds is so many single trainings: against a plain loop of torch's own parts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import ReduceLROnPlateau

from gaam_cache.common import plugins
from gaam_decoder import TrainConfig
from gaam_decoder.decoder import DecoderSpec, build_decoder, stream_seed
from gaam_decoder.losses import Loss
from gaam_decoder.losses.cross_entropy import CrossEntropy
from gaam_decoder.optimizers import Optimizer
from gaam_decoder.optimizers.adamw import AdamW
from gaam_decoder.optimizers.base import Stacked, per_seed
from gaam_decoder.recipe import Recipe
from gaam_decoder.specs import parse_attention, parse_head, parse_spec
from gaam_decoder.training.arithmetic import step as arithmetic_step
from gaam_decoder.training.arithmetic.compiled import missing_compiler
from gaam_decoder.training.arithmetic.engine import LOWER, Engine
from gaam_decoder.training.arithmetic.step import Steps
from gaam_decoder.training.checkpoint import Checkpoint
from gaam_decoder.training.data import Features, Subset, TrainData
from gaam_decoder.training.experiments import recipes
from gaam_decoder.training.seed_batch import SeedBatch
from gaam_decoder.training.seed_state import Plateau
from tests.decoder.heads.stepped import STEPPED

L, D, C, N, B = 6, 16, 3, 37, 8
LR = 1e-3
"""Not more: once the rows are learned by heart, gradients vanish and Adam follows rounding."""
MECHANISMS = plugins.names("gaam_decoder.attention")
VARIANTS = (
    *MECHANISMS,
    *("laplace:location=median", "mha:published=true", "mha-bn:published=true"),
    *("gqa:published=true", "nadaraya-watson:kernel=boxcar", "gct:learn_scale=true"),
)
EAGER = Engine(device="cpu", dtype="float32", seed_batch=8, compiled=False, why="test")


CPU = torch.device("cpu")


class Rows(Features):
    """Features of an array in memory, of any type."""

    def __init__(self, x_NLD: torch.Tensor) -> None:
        self.device = x_NLD.device
        self.shape = tuple(x_NLD.shape)
        self.place = "memory"
        self.dtype = x_NLD.dtype
        self.resident = x_NLD
        self._loaded_N = None


def spec(attention: str, head: str = "linear") -> DecoderSpec:
    return DecoderSpec(
        attention=parse_attention(attention),
        head=parse_head(head),
        num_layers=L,
        hidden_size=D,
        num_classes=C,
    )


def data(dtype: torch.dtype = torch.float64, device: torch.device = CPU) -> TrainData:
    generator = torch.Generator().manual_seed(3)
    x_NLD = torch.randn(N, L, D, generator=generator, dtype=torch.float64)
    features = Rows(x_NLD.to(device, dtype))
    label_N = torch.randint(C, (N,), generator=generator).to(device)

    def subset(first: int, last: int) -> Subset:
        rows = np.arange(first, last)
        return Subset(features=features, rows=rows, label_N=label_N[first:last])

    return TrainData(train=subset(0, 29), selection=subset(29, 37), test=subset(29, 37))


def recipe(attention: str, head: str, **options: Any) -> Recipe:
    config = TrainConfig(pool="mean", epochs=13, batch_size=B, lr=LR, weight_decay=0.1)
    [found] = recipes(config, "float32")
    settings = {"attention": parse_attention(attention), "head": parse_head(head)}
    return replace(found, **(settings | options))


def group(
    attention: str,
    seeds: list[int],
    head: str = "linear",
    dtype: torch.dtype = torch.float64,
    engine: Engine = EAGER,
    steps: Steps | None = None,
    device: torch.device = CPU,
    loss: Loss | None = None,
    rows: TrainData | None = None,
    **options: object,
) -> SeedBatch:
    return SeedBatch(
        spec(attention, head),
        rows or data(device=device),
        recipe(attention, head, **options),
        seeds,
        loss_function=loss or CrossEntropy(),
        engine=replace(engine, device=str(device)),
        dtype=dtype,
        steps=steps,
    )


def plain_loop(
    attention: str,
    seed: int,
    epochs: int,
    head: str,
    clip: float | None,
    loss_of: Loss | None = None,
    rows: Subset | None = None,
    optim: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    schedule: Callable[..., Any] | None = None,
) -> dict:
    """One seed, written with ``nn.Module``, autograd and ``torch.optim``.

    Of a loss that is given, row by row, with weights of the classes that are counted by hand.
    """
    rows = rows or data().train
    labels = rows.label_N.tolist()
    weight = {
        c: len(labels) / (len(set(labels)) * labels.count(c)) for c in set(labels)
    }
    decoder = build_decoder(spec(attention, head), seed).double()
    optimizer = optim(decoder.parameters(), lr=LR, weight_decay=0.1)
    scheduler = schedule and schedule(optimizer)
    for epoch in range(1, epochs + 1):
        order = np.random.default_rng(stream_seed(seed, "order", epoch)).permutation(
            len(rows)
        )
        noise = torch.Generator().manual_seed(stream_seed(seed, "noise", epoch))
        for start in range(0, len(order), B):
            batch = torch.from_numpy(order[start : start + B])
            drawn = None
            if decoder.head.num_noise:
                drawn = torch.rand(len(batch), decoder.head.num_noise, generator=noise)
            logits, label_B = (
                decoder(rows.features.resident[batch], drawn),
                rows.label_N[batch],
            )
            if loss_of is None:
                loss = torch.nn.functional.cross_entropy(logits, label_B)
            else:
                each = [
                    weight[int(label_B[n])]
                    * loss_of(logits[n : n + 1], label_B[n : n + 1])
                    for n in range(len(batch))
                ]
                loss = torch.stack(each).sum() / len(batch)
            optimizer.zero_grad()
            loss.backward()
            if clip is not None:
                clip_grad_norm_(decoder.parameters(), clip)
            optimizer.step()
            if scheduler:
                scheduler.step()
    return decoder.state_dict()


def assert_equal(
    ours: SeedBatch, attention: str, epochs: int, *about: Any, **options: Any
) -> None:
    tensors = {**ours.state.parameters, **ours.state.buffers}
    for place, seed in enumerate(ours.seeds):
        for name, value in plain_loop(
            attention, seed, epochs, *about, **options
        ).items():
            found, said = tensors[name][place], f"{name} of {attention}, seed {seed}"
            torch.testing.assert_close(found, value, atol=1e-9, rtol=0, msg=said)


def test_stacked_seeds_equal_a_plain_loop_after_many_steps() -> None:
    """Epochs of 4 steps, the last of them smaller; clipped so that the norm matters."""
    for attention in VARIANTS:
        if not build_decoder(spec(attention), 0).attention.stackable:
            continue
        epochs = 13 if attention == "gaam" else 2
        together = group(attention, [3, 0], clip_grad_norm=0.5)
        for _ in range(epochs):
            together.train_epoch()
        assert_equal(together, attention, epochs, "linear", 0.5)


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


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_every_optimizer_equals_that_of_torch(name: str, schedule: str) -> None:
    known = {text.partition(":")[0] for text in OPTIMIZERS}
    assert known == set(plugins.names("gaam_decoder.optimizers"))
    how = {
        "optimizer": parse_spec(name, "optimizer"),
        "schedule": schedule,
        "clip_grad_norm": 0.5,
    }
    ours, epochs = group("gaam", [5, 2], **how), 13 if name == "sgd" else 3
    for _ in range(epochs):
        ours.train_epoch()
    theirs = {"optim": OPTIMIZERS[name]}
    theirs |= {"schedule": warm_up_and_cosine} if schedule == "cosine" else {}
    assert_equal(ours, "gaam", epochs, "linear", 0.5, **theirs)


@pytest.mark.parametrize("layout", ["parameter", "gradient"])
def test_a_step_of_one_seed_pairs_numbers_by_place_however_they_lie(
    layout: str,
) -> None:
    """One kernel takes the step, which knows no strides."""
    drawn = np.random.default_rng(0).normal(size=(4, 1, 5, 3, 4, 4))
    parameter, *gradients = torch.from_numpy(drawn)
    if layout == "parameter":  # as torch stacks that of a mechanism of one's own
        parameter = torch.stack([parameter[0].to(memory_format=torch.channels_last)])
    else:
        gradients = [
            g.transpose(-1, -2).contiguous().transpose(-1, -2) for g in gradients
        ]
    own, ours = torch.nn.Parameter(parameter.clone()), AdamW()
    theirs = torch.optim.AdamW([own], lr=0.1, weight_decay=0.1, fused=False)
    state = ours.initial_state(parameter)
    for step, gradient in enumerate(gradients, 1):
        own.grad = gradient.clone()
        theirs.step()
        lr, *numbers = torch.tensor([0.1, *ours.numbers(step)], dtype=torch.float64)
        ours.update(parameter, gradient, state, lr[None], torch.stack(numbers), 0.1)
    torch.testing.assert_close(parameter, own.detach(), atol=1e-12, rtol=0)


class SignedMomentum(Optimizer):
    """Of matrices a momentum; of other parameters one number for each seed."""

    rates = (1e-3,)

    def initial_state(self, parameter: torch.Tensor) -> Stacked:
        if parameter.ndim == 3:
            return {"momentum": torch.zeros_like(parameter)}
        return {"size": parameter.new_zeros(len(parameter))}

    def update(
        self,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        state: Stacked,
        lr: torch.Tensor,
        numbers: torch.Tensor,
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
    monkeypatch.setattr(arithmetic_step, "build", lambda spec, kind: SignedMomentum())
    together = group("mha", [5, 2], loss_scale=loss_scale)
    stopped = group("mha", [5, 2], loss_scale=loss_scale)
    alone = [group("mha", [seed], loss_scale=loss_scale) for seed in (5, 2)]
    for training in (together, stopped, *alone):
        training.train_epoch()
    file = Checkpoint(tmp_path / "group-a.safetensors", {})
    stopped.save(file)
    resumed = group("mha", [5, 2], loss_scale=loss_scale)
    resumed.resume(file)
    for training in (together, resumed, *alone):
        training.train_epoch()
    for name, value in together.state.tensors().items():
        assert torch.equal(resumed.state.tensors()[name], value), name
        own = torch.cat([training.state.tensors()[name] for training in alone])
        torch.testing.assert_close(value, own, atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    "state", [{"kept": torch.zeros(2)}, {"a.b": torch.zeros(2)}, {"a": torch.zeros(3)}]
)
def test_a_state_that_no_checkpoint_can_hold_is_refused(state: Stacked) -> None:
    optimizer = AdamW()
    optimizer.initial_state = lambda parameter: state  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="state"):
        optimizer.initial_states({"weight": torch.zeros(2, 4)})


@pytest.mark.parametrize("head", STEPPED)
@pytest.mark.parametrize("seeds", [[5], [5, 2]])
def test_every_head_equals_a_plain_loop(head: str, seeds: list[int]) -> None:
    ours = group("gaam", seeds, head)
    for _ in range(3):
        ours.train_epoch()
    assert_equal(ours, "gaam", 3, head, None)


@pytest.mark.parametrize("name", ["cross-entropy", "focal"])
def test_every_loss_with_weights_of_classes_equals_a_plain_loop(name: str) -> None:
    """One class has two rows and one has none, among those that learn; none is weighted else."""
    rows, loss = data(), plugins.load("gaam_decoder.losses", name, kind="loss")()
    label_N = torch.full_like(rows.train.label_N, C - 1)
    label_N[[3, 20]] = 0
    rows = replace(rows, train=replace(rows.train, label_N=label_N))
    ours = group("gaam", [5, 2, 9], loss=loss, rows=rows, class_weights="balanced")
    for _ in range(3):
        ours.train_epoch()
    assert_equal(ours, "gaam", 3, "linear", None, loss_of=loss, rows=rows.train)


def test_what_is_logged_of_an_epoch_is_that_of_the_rows_when_they_were_learned() -> (
    None
):
    ours = group("gaam", [5, 2], lr=1e-30, weight_decay=0.0)
    ours.train_epoch()
    rows = ours.data.train
    for seed, member in zip(ours.seeds, ours.members, strict=True):
        logits = build_decoder(spec("gaam"), seed).double()(
            rows.features.resident[rows.rows]
        )
        hits = (logits.argmax(-1) == rows.label_N).double().mean()
        loss = torch.nn.functional.cross_entropy(logits, rows.label_N)
        said = [member.log[0]["train_accuracy"], member.log[0]["loss"]]
        assert said == pytest.approx([hits.item(), loss.item()], abs=1e-6)


def test_a_seed_that_fails_leaves_the_others_as_they_are() -> None:
    undisturbed, poisoned = (group("gaam", [0, 1, 2]) for _ in range(2))
    poisoned.state.parameters["head.fc.weight"][1] = torch.nan
    for one in (undisturbed, poisoned):
        for _ in range(4):
            one.train_epoch()
    assert [m.failed and "nan" in m.failed for m in poisoned.members] == [
        None,
        True,
        None,
    ]
    assert [len(m.log) for m in poisoned.members] == [4, 1, 4]
    for name, value in undisturbed.kept.parameters.items():
        assert torch.equal(value[[0, 2]], poisoned.kept.parameters[name][[0, 2]])


@pytest.mark.parametrize("scale", ["none", "dynamic"])
def test_an_epoch_taken_up_from_a_checkpoint_ends_with_the_same_bits(
    scale: str, tmp_path: Path
) -> None:
    options = {
        "schedule": "plateau",
        "attention": "mha-bn",
        "head": "mlp",
        "seeds": [1, 4],
    }
    options |= {"loss_scale": scale}
    whole, first, second = (group(dtype=torch.float32, **options) for _ in range(3))  # type: ignore[arg-type]
    for _ in range(5):
        whole.train_epoch()
    for _ in range(3):
        first.train_epoch()
    first.save(Checkpoint(tmp_path / "c.safetensors", {}))
    second.resume(Checkpoint(tmp_path / "c.safetensors", {}))
    assert second.epochs_done == 3
    for _ in range(2):
        second.train_epoch()
    for name, value in whole._tensors().items():
        assert torch.equal(value, second._tensors()[name]), name
    for ours, theirs in zip(second.members, whole.members, strict=True):
        ours, theirs = copy.deepcopy(ours), copy.deepcopy(theirs)
        for entry in ours.log + theirs.log:
            entry.pop("seconds")
        assert ours == theirs


def test_the_plateau_is_torchs() -> None:
    values = np.random.default_rng(0).normal(size=200).cumsum() / 50
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.3)
    theirs = ReduceLROnPlateau(optimizer, mode="max", factor=0.1, patience=10)
    ours = Plateau(rate=0.3)
    for value in values:
        ours.watch(value)
        theirs.step(value)
        assert ours.rate == optimizer.param_groups[0]["lr"]
    assert ours.rate < 0.3


needs_compiler = pytest.mark.skipif(
    missing_compiler("cpu") is not None, reason="no C++ compiler here"
)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("attention", "seeds", "head", "clip", "epochs"),
    [
        ("gaam", [3, 0], "linear", None, 13),
        (
            "gct",
            [3, 0],
            "linear",
            0.5,
            13,
        ),  # torch 2.13 cannot compile norms beside its gradients
        ("mha-bn", [3, 0], "conv", 0.5, 3),
        ("none", [5], "conv", 0.5, 3),
    ],
)
def test_compiled_seeds_equal_the_plain_loop(
    attention: str, seeds: list[int], head: str, clip: float | None, epochs: int
) -> None:
    how = replace(EAGER, compiled=True)
    compiled = group(attention, seeds, head, engine=how, clip_grad_norm=clip)
    for epoch in range(1, epochs + 1):
        compiled._pass(epoch)
    assert compiled.compiler.works
    assert_equal(compiled, attention, epochs, head, clip)
    if head == "conv":
        logits = compiled.logits(compiled.data.test, compiled.state.weights)
        compiled.compiler.works = False
        expected = compiled.logits(compiled.data.test, compiled.state.weights)
        torch.testing.assert_close(logits, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("dtype", LOWER)
def test_every_variant_trains_with_rounded_products(dtype: str) -> None:
    scale = "dynamic" if dtype == "float16" else "none"
    how = replace(EAGER, dtype=dtype)
    for attention in VARIANTS:
        ours = group(
            attention, [1, 2], dtype=torch.float32, engine=how, loss_scale=scale
        )
        ours.train_epoch()
        assert [member.failed for member in ours.members] == [None, None], attention
        assert ours.logits(ours.data.test, ours.state.weights).dtype == torch.float32


@needs_compiler
@pytest.mark.slow
def test_groups_of_other_numbers_of_rows_share_a_compiled_step() -> None:
    """As the folds of a cross-validation do: what was compiled for one must not read another."""
    steps, whole = Steps(), data()
    for last in (24, 28, 27):
        train = whole.train
        few = replace(train, rows=train.rows[:last], label_N=train.label_N[:last])
        found = []
        for how, shared in ((replace(EAGER, compiled=True), steps), (EAGER, None)):
            rows = replace(whole, train=few)
            ours = group("gaam", [3, 0, 5], engine=how, steps=shared, rows=rows)
            ours._pass(1)
            assert ours.compiler.works == how.compiled
            found.append(ours.state.parameters["head.fc.weight"])
        torch.testing.assert_close(*found, atol=1e-9, rtol=0)
