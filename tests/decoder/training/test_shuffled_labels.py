"""Shuffled labels: every seed learns from a permutation of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gaam_cache.store.reader import open_cache
from gaam_decoder.training.data import Subset, TrainData, labels_by_seed, prepare_data
from gaam_decoder.training.experiments import plan_experiments
from tests.decoder.configs import train_config

CPU = torch.device("cpu")


def load_data(cache_folder: Path, **settings: Any) -> TrainData:
    """The data of the first experiment with these settings."""
    config = train_config(
        cache_folder,
        cache_folder,
        lr=3e-4,
        attn=("none",),
        seeds=(0, 1),
        epochs=2,
        shuffle_labels=True,
        **settings,
    )
    cache = open_cache(cache_folder)
    experiment = plan_experiments(config, cache, CPU)[0]
    return prepare_data(cache, experiment.recipe, CPU)


def assert_permuted(label_SN: torch.Tensor, true_N: torch.Tensor) -> None:
    """As many labels of each class, and in another order."""
    for label_N in label_SN:
        assert torch.equal(label_N.sort().values, true_N.sort().values)
        assert not torch.equal(label_N, true_N)


def existing(rows: Subset | None) -> Subset:
    """The rows, of which there are some."""
    assert rows is not None
    return rows


@pytest.mark.parametrize("select", ["val", "last", "test"])
def test_labels_are_permuted_among_training_and_validation_rows(
    select: str, tiny_cache: Path
) -> None:
    data = load_data(tiny_cache, select=select, folds=3)
    test_labels = existing(data.test).label_N
    before = test_labels.clone()
    train_SN, selection_SN = labels_by_seed(data, [4, 9], shuffle=True)
    assert torch.equal(test_labels, before)
    assert not torch.equal(train_SN[0], train_SN[1]), "every seed has its own"
    if select == "last":
        assert selection_SN is None
        assert_permuted(train_SN, data.train.label_N)
        return
    assert selection_SN is not None
    if select == "test":
        assert torch.equal(selection_SN, test_labels.expand(2, -1))
        assert_permuted(train_SN, data.train.label_N)
        return
    true_N = torch.cat([data.train.label_N, existing(data.selection).label_N])
    assert_permuted(torch.cat([train_SN, selection_SN], 1), true_N)


def shuffled_label_by_row(
    data: TrainData, seeds: list[int], seed: int
) -> dict[int, int]:
    """The label of every training and validation row, for one of these seeds."""
    place = seeds.index(seed)
    train_SN, selection_SN = labels_by_seed(data, seeds, shuffle=True)
    rows = data.train.rows
    labels = train_SN[place]
    if selection_SN is not None:
        rows = np.concatenate([rows, existing(data.selection).rows])
        labels = torch.cat([labels, selection_SN[place]])
    return dict(zip(rows.tolist(), labels.tolist(), strict=True))


def test_a_seed_has_the_same_labels_alone_and_with_others(tiny_cache: Path) -> None:
    data = load_data(tiny_cache)
    alone = shuffled_label_by_row(data, [7], 7)
    assert shuffled_label_by_row(data, [3, 7], 7) == alone


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"select": "last"}, id="without validation rows"),
        pytest.param({"split_seed": 5}, id="other validation rows"),
    ],
)
def test_a_seed_has_the_same_labels_whichever_rows_are_for_validation(
    settings: dict[str, Any], tiny_cache: Path
) -> None:
    labels = shuffled_label_by_row(load_data(tiny_cache), [7], 7)
    others = shuffled_label_by_row(load_data(tiny_cache, **settings), [7], 7)
    assert others == labels
