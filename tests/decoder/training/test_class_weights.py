"""Weights of classes: against a plain loop, in groups, folds and reports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gaam_cache import plugins
from gaam_decoder.decoder import build_decoder, stream_seed
from gaam_decoder.losses._base import Loss
from gaam_decoder.training.data import TrainData
from gaam_decoder.training.group import Group
from tests.decoder.training.test_group import EAGER, LR, B, C, data, recipe, spec

LOSSES = plugins.names("gaam_decoder.losses")


def rare() -> TrainData:
    """Rows of which one class has two and one has none, among those that learn."""
    found = data()
    label_N = torch.full_like(found.train.label_N, C - 1)
    label_N[[3, 20]] = 0
    return replace(found, train=replace(found.train, label_N=label_N))


def loss_named(name: str) -> Loss:
    loss: Loss = plugins.load("gaam_decoder.losses", name, kind="loss")()
    return loss


def group(seeds: list[int], loss: str = "cross-entropy") -> Group:
    return Group(
        spec("gaam"),
        rare(),
        recipe("gaam", "linear", class_weights="balanced"),
        seeds,
        loss_of=loss_named(loss),
        engine=EAGER,
        dtype=torch.float64,
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
