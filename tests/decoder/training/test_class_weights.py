"""Weights of classes: against a plain loop, in groups, folds and reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import gaam_decoder
from gaam_cache import plugins
from gaam_cache.cache import open_cache
from gaam_cache.errors import ConfigError
from gaam_decoder import TrainConfig
from gaam_decoder.decoder import build_decoder, stream_seed
from gaam_decoder.losses._base import Loss
from gaam_decoder.recipe import OF_STEPS
from gaam_decoder.reports.notes.notes import notes
from gaam_decoder.reports.table.build import build_tables
from gaam_decoder.training.arithmetic.engine import LOWER, Engine
from gaam_decoder.training.arithmetic.reuse import Steps
from gaam_decoder.training.group import Group
from gaam_decoder.training.items import plan_items
from gaam_decoder.training.rows.data import TrainData
from tests.conftest import Outcome
from tests.decoder.training.test_group import EAGER, LR, B, C, data, needs_compiler, recipe, spec

LOSSES = plugins.names("gaam_decoder.losses")
HOW = {"class_weights": "balanced"}


def rare() -> TrainData:
    """Rows of which one class has two and one has none, among those that learn."""
    found = data()
    label_N = torch.full_like(found.train.label_N, C - 1)
    label_N[[3, 20]] = 0
    return replace(found, train=replace(found.train, label_N=label_N))


def loss_named(name: str) -> Loss:
    loss: Loss = plugins.load("gaam_decoder.losses", name, kind="loss")()
    return loss


def group(
    seeds: list[int],
    loss: str = "cross-entropy",
    rows: TrainData | None = None,
    engine: Engine = EAGER,
    steps: Steps | None = None,
    dtype: torch.dtype = torch.float64,
    **options: object,
) -> Group:
    return Group(
        spec("gaam"),
        rows or rare(),
        recipe("gaam", "linear", **(HOW | options)),
        seeds,
        loss_of=loss_named(loss),
        engine=engine,
        dtype=dtype,
        steps=steps,
    )


def plain_loop(seed: int, epochs: int, loss: str, train: TrainData) -> dict[str, torch.Tensor]:
    """One seed, row by row, with weights counted by hand."""
    rows, loss_of = train.train, loss_named(loss)
    decoder = build_decoder(spec("gaam"), seed).double()
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=LR, weight_decay=0.1)
    labels = rows.label_N.tolist()
    weight = {c: len(labels) / (len(set(labels)) * labels.count(c)) for c in set(labels)}
    for epoch in range(1, epochs + 1):
        order = np.random.default_rng(stream_seed(seed, "order", epoch)).permutation(len(rows))
        for start in range(0, len(order), B):
            places = order[start : start + B]
            logits = decoder(rows.features.resident[torch.from_numpy(places)], None)
            losses = [
                weight[labels[place]] * loss_of(logits[n : n + 1], rows.label_N[place : place + 1])
                for n, place in enumerate(places)
            ]
            optimizer.zero_grad()
            (torch.stack(losses).sum() / len(places)).backward()
            optimizer.step()
    return decoder.state_dict()


def assert_equals_the_loop(ours: Group, epochs: int, loss: str) -> None:
    for place, seed in enumerate(ours.seeds):
        for name, value in plain_loop(seed, epochs, loss, ours.data).items():
            found = ours.state.parameters[name][place]
            torch.testing.assert_close(found, value, atol=1e-9, rtol=0, msg=name)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seeds", [[5], [5, 2, 9]])
def test_every_loss_equals_a_plain_loop_alone_and_stacked(loss: str, seeds: list[int]) -> None:
    ours = group(seeds, loss)
    for _ in range(3):
        ours.train_epoch()
    assert_equals_the_loop(ours, 3, loss)


@needs_compiler
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seeds", [[5], [5, 2]])
def test_every_loss_equals_a_plain_loop_compiled(loss: str, seeds: list[int]) -> None:
    ours = group(seeds, loss, engine=replace(EAGER, compiled=True))
    for epoch in range(1, 4):
        ours._pass(epoch)
    assert ours.compiler.works
    assert_equals_the_loop(ours, 3, loss)


@needs_compiler
def test_groups_with_other_weights_share_a_compiled_step() -> None:
    """As folds do: the weights of one are not left for the next."""
    steps, how = Steps(), replace(EAGER, compiled=True)
    for rows in (rare(), data()):
        ours = group([5, 2], rows=rows, engine=how, steps=steps)
        for epoch in range(1, 4):
            ours._pass(epoch)
        assert_equals_the_loop(ours, 3, "cross-entropy")
    assert group([5, 2], engine=how, steps=steps).step is ours.step
    assert group([5, 2], engine=how, steps=steps, class_weights="none").step is not ours.step


@pytest.mark.parametrize("dtype", LOWER)
def test_rounded_products_and_scaled_losses_take_weights(dtype: str) -> None:
    scale = "dynamic" if dtype == "float16" else "none"
    how = replace(EAGER, dtype=dtype)
    ours = group([5, 2], engine=how, dtype=torch.float32, loss_scale=scale, clip_grad_norm=1.0)
    ours.train_epoch()
    assert [member.failed for member in ours.members] == [None, None]


def test_what_chooses_the_epoch_is_not_weighted() -> None:
    ours = group([5, 2])
    ours.train_epoch()
    choosing = ours.data.selection
    assert choosing is not None
    logits = ours.logits(choosing, ours.state.weights)
    for score, logits_NC in zip(ours._scores(choosing), logits, strict=True):
        expected = torch.nn.functional.cross_entropy(logits_NC, choosing.label_N)
        assert score.loss == pytest.approx(float(expected), rel=1e-12)
        assert score.accuracy == (logits_NC.argmax(-1) == choosing.label_N).double().mean()


def test_shuffled_labels_are_weighted_as_each_seed_is_told_them() -> None:
    ours = group([5, 2, 9], shuffle_labels=True, rows=data())
    for told_N, weight_C in zip(ours._told_SN, ours._weight_SC, strict=True):
        count_C = np.bincount(told_N.numpy(), minlength=C)
        np.testing.assert_allclose(weight_C, 29 / (C * count_C), rtol=1e-12)


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        attn=("none",), cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 1), epochs=2, lr=0.01
    )


def test_weights_are_part_of_a_recipe_that_has_them_and_of_no_other(config: TrainConfig) -> None:
    cache = open_cache(config.cache)
    cpu = torch.device("cpu")
    [plain] = plan_items(config, cache, cpu)
    [weighted] = plan_items(replace(config, class_weights="balanced"), cache, cpu)
    assert "class_weights" not in plain.recipe.to_dict()
    assert weighted.recipe.to_dict() == plain.recipe.to_dict() | HOW
    assert weighted.key != plain.key
    assert OF_STEPS["class_weights"] == "none"
    both = replace(config, head=("linear", "lbfgs"), class_weights="balanced")
    fitted = plan_items(both, cache, cpu)[1].recipe
    assert fitted.fitted
    assert "class_weights" not in fitted.to_dict()


def test_weighted_runs_are_marked_and_can_be_made_again(
    config: TrainConfig, gaam: Callable[..., Outcome]
) -> None:
    weighted = replace(config, class_weights="balanced")
    runs = gaam_decoder.train(config) + gaam_decoder.train(weighted)
    assert json.loads((runs[1].path / "run.json").read_text())["recipe"]["class_weights"] == (
        "balanced"
    )
    [table] = build_tables(runs)
    assert [s for s in table.settings() if s] == ["class_weights=balanced"]
    [note] = [note for note in notes(table) if "class-weights" in note]
    assert "balanced: in the training loss of none" in note
    [alone] = build_tables(runs[1:])
    assert "class-weights balanced: in the training loss of all rows" in "".join(notes(alone))
    [unweighted] = build_tables(runs[:1])
    assert not any("class-weights" in note for note in notes(unweighted))
    again = gaam("train", "--config", runs[1].path / "config.toml", "--runs", config.runs)
    assert again.code == 0, again.err
    assert len(list(config.runs.glob("none-*"))) == 2


def test_folds_count_the_rows_that_they_learn_from(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gaam_decoder.training import group as group_module

    seen: list[torch.Tensor] = []

    def note(label_SN: torch.Tensor, *rest: object) -> torch.Tensor:
        seen.append(label_SN[0])
        return balanced(label_SN, *rest)  # type: ignore[arg-type]

    balanced = group_module.balanced
    monkeypatch.setattr(group_module, "balanced", note)
    gaam_decoder.train(replace(config, class_weights="balanced", folds=3, epochs=1))
    labels = open_cache(config.cache)["train"].labels
    assert len(seen) == 3
    for told in seen:
        assert len(told) < len(labels) * 2 / 3  # without the fold and what chooses


@pytest.mark.parametrize("heads", [("lbfgs",), "lbfgs"])
def test_weights_for_heads_that_have_a_loss_of_their_own_are_refused(
    heads: str | tuple[str, ...],
) -> None:
    with pytest.raises(ConfigError, match="plays no part"):
        TrainConfig(head=heads, class_weights="balanced")
