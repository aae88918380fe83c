"""Shuffled labels: what learns from them must end at chance, and is compared with nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gaam_cache.store.reader import open_cache
from gaam_decoder import TrainConfig
from gaam_decoder.training.data import TrainData, labels_by_seed, prepare_data
from gaam_decoder.training.experiments import plan_experiments


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(lr=3e-4,
        attn=("none",), cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 1), epochs=2,
        shuffle_labels=True, probe=False,
    )  # fmt: skip


def data_of(config: TrainConfig) -> TrainData:
    cache = open_cache(config.cache)
    experiment = plan_experiments(config, cache, torch.device("cpu"))[0]
    return prepare_data(cache, experiment.recipe, torch.device("cpu"))


@pytest.mark.parametrize("select", ["val", "last", "test"])
def test_labels_are_permuted_among_the_rows_that_learn_and_choose(
    select: str, config: TrainConfig
) -> None:
    data = data_of(replace(config, select=select, folds=3))
    before = data.test.label_N.clone()
    told, held = labels_by_seed(data, [4, 9], shuffle=True)
    assert torch.equal(data.test.label_N, before)
    true = [data.train.label_N]
    if select == "val":
        true.append(data.selection.label_N)
    elif select == "test":
        assert torch.equal(
            held, data.test.label_N.expand(2, -1)
        )  # tested rows keep theirs
    else:
        assert held is None
    every = torch.cat([told, held], 1) if select == "val" else told
    for label_N in every:
        assert torch.equal(label_N.sort().values, torch.cat(true).sort().values)
        assert not torch.equal(label_N, torch.cat(true))
    assert not torch.equal(told[0], told[1])


def test_a_seed_is_told_the_same_alone_and_whatever_is_held_out(
    config: TrainConfig,
) -> None:
    def by_row(data: TrainData, seeds: list[int], place: int) -> dict[int, int]:
        told, held = labels_by_seed(data, seeds, shuffle=True)
        rows, labels = [data.train.rows], [told[place]]
        if held is not None:
            rows, labels = [*rows, data.selection.rows], [*labels, held[place]]
        return dict(
            zip(np.concatenate(rows).tolist(), torch.cat(labels).tolist(), strict=True)
        )

    val, last = data_of(config), data_of(replace(config, select="last"))
    assert by_row(val, [7], 0) == by_row(val, [3, 7], 1) == by_row(last, [7], 0)
    assert by_row(val, [7], 0) == by_row(data_of(replace(config, split_seed=5)), [7], 0)
