"""A group of seeds is so many single trainings: against a plain loop of torch's own parts."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import ReduceLROnPlateau

from gaam_cache import plugins
from gaam_decoder.decoder import DecoderSpec, build_decoder, stream_seed
from gaam_decoder.losses.cross_entropy import CrossEntropy
from gaam_decoder.recipe import Recipe
from gaam_decoder.specs import Spec, parse_attention, parse_head
from gaam_decoder.training.arithmetic.compiled import missing_compiler
from gaam_decoder.training.arithmetic.engine import LOWER, Engine, groups_of
from gaam_decoder.training.arithmetic.step import Steps
from gaam_decoder.training.checkpoint import Checkpoint
from gaam_decoder.training.data import Subset, TrainData
from gaam_decoder.training.features import Features
from gaam_decoder.training.group import Group
from gaam_decoder.training.selection import Plateau

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
        self._held_N = None


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


def recipe(attention: str, head: str, **options: object) -> Recipe:
    settings: dict = {
        "attention": parse_attention(attention),
        "head": parse_head(head),
        "loss": Spec("cross-entropy"),
        "epochs": 13,
        "batch_size": B,
        "lr": LR,
        "weight_decay": 0.1,
        "schedule": "constant",
        "clip_grad_norm": None,
        "select": "val",
        "val_fraction": 0.1,
        "split_seed": 0,
        "pool": "mean",
        "layers": None,
        "train_split": "train",
        "test_split": "test",
        "allow_train_as_test": False,
        "dtype": "float32",
        "fold": None,
        "groups": None,
    }
    return Recipe(**(settings | options))


def group(
    attention: str,
    seeds: list[int],
    head: str = "linear",
    dtype: torch.dtype = torch.float64,
    engine: Engine = EAGER,
    steps: Steps | None = None,
    device: torch.device = CPU,
    **options: object,
) -> Group:
    return Group(
        spec(attention, head),
        data(device=device),
        recipe(attention, head, **options),
        seeds,
        loss_of=CrossEntropy(),
        engine=replace(engine, device=str(device)),
        dtype=dtype,
        steps=steps,
    )


def plain_loop(attention: str, seed: int, epochs: int, head: str, clip: float | None) -> dict:
    """One seed, written with ``nn.Module``, autograd and ``torch.optim.AdamW``."""
    rows = data().train
    decoder = build_decoder(spec(attention, head), seed).double()
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=LR, weight_decay=0.1)
    for epoch in range(1, epochs + 1):
        order = np.random.default_rng(stream_seed(seed, "order", epoch)).permutation(len(rows))
        noise = torch.Generator().manual_seed(stream_seed(seed, "noise", epoch))
        for start in range(0, len(order), B):
            batch = torch.from_numpy(order[start : start + B])
            drawn = None
            if decoder.num_noise:
                drawn = torch.rand(len(batch), decoder.num_noise, generator=noise)
            logits = decoder(rows.features.resident[batch], drawn)
            loss = torch.nn.functional.cross_entropy(logits, rows.label_N[batch])
            optimizer.zero_grad()
            loss.backward()
            if clip is not None:
                clip_grad_norm_(decoder.parameters(), clip)
            optimizer.step()
    return decoder.state_dict()


def test_stacked_seeds_equal_a_plain_loop_after_many_steps() -> None:
    """Epochs of 4 steps, the last of them smaller; clipped so that the norm matters."""
    for attention in VARIANTS:
        if not build_decoder(spec(attention), 0).attention.stackable:
            continue
        epochs = 13 if attention in ("gaam", "mha-bn") else 3
        together = group(attention, [3, 0], clip_grad_norm=0.5)
        for _ in range(epochs):
            together.train_epoch()
        tensors = {**together.state.parameters, **together.state.buffers}
        for place, seed in enumerate([3, 0]):
            for name, value in plain_loop(attention, seed, epochs, "linear", 0.5).items():
                ours, said = tensors[name][place], f"{name} of {attention}, seed {seed}"
                torch.testing.assert_close(ours, value, atol=1e-9, rtol=0, msg=said)


@pytest.mark.parametrize("head", plugins.names("gaam_decoder.heads"))
@pytest.mark.parametrize("seeds", [[5], [5, 2]])
def test_every_head_equals_a_plain_loop(head: str, seeds: list[int]) -> None:
    ours = group("gaam", seeds, head)
    for _ in range(3):
        ours.train_epoch()
    for place, seed in enumerate(seeds):
        for name, value in plain_loop("gaam", seed, 3, head, None).items():
            found = ours.state.parameters[name][place]
            torch.testing.assert_close(found, value, atol=1e-9, rtol=0, msg=name)


def test_groups_and_rates_of_one_decoder_share_a_step() -> None:
    steps = Steps()
    first = group("gaam", [0, 1], steps=steps)
    second = group("gaam", [2, 3], steps=steps, lr=2 * LR)
    assert second.step is first.step
    apart = group("gaam", [2, 3], lr=2 * LR)
    for one in (first, second, apart, first):  # in turns: nothing of one is left for another
        one.train_epoch()
    for name, value in apart.state.tensors().items():
        assert torch.equal(value, second.state.tensors()[name])
    assert group("gaam", [4], steps=steps).step is not first.step
    assert group("gaam", [0, 1], steps=steps, clip_grad_norm=1.0).step._clip_grad_norm == 1.0
    assert group("laplace", [0, 1], steps=steps).decoder.attention.heads
    assert group("gaam", [0, 1], steps=steps).step is not first.step  # let go


def test_a_seed_that_fails_leaves_the_others_as_they_are() -> None:
    undisturbed, poisoned = (group("gaam", [0, 1, 2]) for _ in range(2))
    poisoned.state.parameters["head.fc.weight"][1] = torch.nan
    for one in (undisturbed, poisoned):
        for _ in range(4):
            one.train_epoch()
    assert [m.failed for m in poisoned.members] == [None, "the loss became nan in epoch 1", None]
    assert [len(m.log) for m in poisoned.members] == [4, 1, 4]
    for name, value in undisturbed.kept.parameters.items():
        assert torch.equal(value[[0, 2]], poisoned.kept.parameters[name][[0, 2]])


@pytest.mark.parametrize("scale", ["none", "dynamic"])
def test_an_epoch_taken_up_from_a_checkpoint_ends_with_the_same_bits(
    scale: str, tmp_path: Path
) -> None:
    options = {"schedule": "plateau", "attention": "mha-bn", "head": "mlp", "seeds": [1, 4]}
    options |= {"loss_scale": scale}
    whole, first, second = (group(dtype=torch.float32, **options) for _ in range(3))  # type: ignore[arg-type]
    for _ in range(5):
        whole.train_epoch()
    for _ in range(3):
        first.train_epoch()
    first.save(Checkpoint(tmp_path / "c.safetensors"))
    second.resume(Checkpoint(tmp_path / "c.safetensors"))
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


def test_what_is_left_of_groups_is_grouped_as_before() -> None:
    for count, most in product([1, 7, 16, 17, 33, 100], [1, 3, 16]):
        seeds = list(range(10, 10 + count))
        groups = groups_of(seeds, most)
        assert [seed for group in groups for seed in group] == seeds
        assert max(map(len, groups)) <= most
        assert max(map(len, groups)) - min(map(len, groups)) <= 1
        for done in range(len(groups)):
            left = [seed for group in groups[done:] for seed in group]
            assert groups_of(left, most) == groups[done:]


needs_compiler = pytest.mark.skipif(
    missing_compiler("cpu") is not None, reason="no C++ compiler here"
)


@needs_compiler
@pytest.mark.parametrize(("attention", "clip"), [("gaam", None), ("gct", 0.5)])
def test_compiled_seeds_equal_the_plain_loop(attention: str, clip: float | None) -> None:
    """gct: torch 2.13 cannot compile norms beside its gradients."""
    how = replace(EAGER, compiled=True)
    compiled = group(attention, [3, 0], engine=how, clip_grad_norm=clip)
    for epoch in range(1, 14):  # 52 steps, without the evaluation, which would be compiled too
        compiled._pass(epoch)
    assert compiled.compiler.works
    for place, seed in enumerate([3, 0]):
        for name, value in plain_loop(attention, seed, 13, "linear", clip).items():
            ours = compiled.state.parameters[name][place]
            torch.testing.assert_close(ours, value, atol=1e-9, rtol=0, msg=name)


@needs_compiler
@pytest.mark.parametrize(
    ("attention", "seeds"),
    [pytest.param("mha-bn", [3, 0], marks=pytest.mark.slow), ("none", [5])],
)
def test_the_compiled_conv_head_equals_the_plain_loop(attention: str, seeds: list[int]) -> None:
    """With statistics that the attention keeps of its batches, and with nothing to learn in it."""
    compiled = group(
        attention, seeds, "conv", engine=replace(EAGER, compiled=True), clip_grad_norm=0.5
    )
    for epoch in range(1, 4):
        compiled._pass(epoch)
    assert compiled.compiler.works
    tensors = {**compiled.state.parameters, **compiled.state.buffers}
    for place, seed in enumerate(seeds):
        for name, value in plain_loop(attention, seed, 3, "conv", 0.5).items():
            torch.testing.assert_close(tensors[name][place], value, atol=1e-9, rtol=0, msg=name)
    logits = compiled.logits(compiled.data.test, compiled.state.weights)
    compiled.compiler.works = False
    expected = compiled.logits(compiled.data.test, compiled.state.weights)
    torch.testing.assert_close(logits, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("dtype", LOWER)
def test_every_variant_trains_with_rounded_products(dtype: str) -> None:
    scale = "dynamic" if dtype == "float16" else "none"
    how = replace(EAGER, dtype=dtype)
    for attention in VARIANTS:
        ours = group(attention, [1, 2], dtype=torch.float32, engine=how, loss_scale=scale)
        ours.train_epoch()
        assert [member.failed for member in ours.members] == [None, None], attention
        assert ours.logits(ours.data.test, ours.state.weights).dtype == torch.float32


@needs_compiler
def test_groups_of_other_numbers_of_rows_share_a_compiled_step() -> None:
    """As the folds of a cross-validation do: what was compiled for one must not read another."""
    steps = Steps()
    for last in (24, 28, 27):
        found = []
        for how, shared in ((replace(EAGER, compiled=True), steps), (EAGER, None)):
            ours = group("gaam", [3, 0, 5], engine=how, steps=shared)
            train = ours.data.train
            few = replace(train, rows=train.rows[:last], label_N=train.label_N[:last])
            ours = Group(
                spec("gaam"),
                replace(ours.data, train=few),
                ours.recipe,
                ours.seeds,
                loss_of=CrossEntropy(),
                engine=how,
                dtype=torch.float64,
                steps=shared,
            )
            ours._pass(1)
            assert ours.compiler.works == how.compiled
            found.append(ours.state.parameters["head.fc.weight"])
        torch.testing.assert_close(*found, atol=1e-9, rtol=0)
