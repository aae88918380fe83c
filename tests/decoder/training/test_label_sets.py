"""Folds, validation rows and budgets of label sets hold their share of every label."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from gaam_cache.common.errors import ConfigError
from gaam_decoder.losses import balanced_labels
from gaam_decoder.training.partitions import draw_budget, holdout, stratified_folds
from tests.decoder.training.seed_batches import decoder_recipe

RECIPE = decoder_recipe("none", "linear")
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def label_sets(rows: int = 400) -> Flags:
    """Eight labels, from frequent to rare, that occur together."""
    generator = np.random.default_rng(0)
    common_N1 = generator.random((rows, 1))
    own_NK = generator.random((rows, 8))
    return (common_N1 + own_NK) / 2 < np.linspace(0.5, 0.15, 8)


@pytest.mark.parametrize("seed", [0, 7, 2**40], ids=str)
def test_folds_have_nearly_the_same_rows_of_every_label(seed: int) -> None:
    label_NK = label_sets()
    folds = stratified_folds(label_NK, 5, seed)
    assert sorted(np.concatenate(folds)) == list(range(400))
    with_none_NK = np.column_stack([label_NK, ~label_NK.any(1)])
    count_FK = np.array([with_none_NK[fold].sum(0) for fold in folds])
    spread = np.ptp(count_FK, axis=0).max()

    generator = np.random.default_rng(seed)
    random_folds = np.array_split(generator.permutation(400), 5)
    random_FK = np.array([with_none_NK[fold].sum(0) for fold in random_folds])
    assert spread <= 4 < np.ptp(random_FK, axis=0).max()


def test_validation_rows_have_their_share_of_every_label() -> None:
    label_NK = label_sets()
    training_N, validation_N = holdout(label_NK, 0.2, 0)
    assert sorted([*training_N, *validation_N]) == list(range(400))
    expected_K = 0.2 * label_NK.sum(0)
    np.testing.assert_allclose(label_NK[validation_N].sum(0), expected_K, atol=2)


def test_folds_are_the_same_on_every_machine() -> None:
    folds = stratified_folds(label_sets(), 5, split_seed=1)
    rows = np.concatenate(folds).astype("<i4").tobytes()
    assert hashlib.sha256(rows).hexdigest()[:16] == "fc3ae23929613538"


@pytest.mark.parametrize("select", ["val", "last"])
def test_a_budget_of_labels_has_its_rows_of_each_and_lies_in_larger_ones(
    select: Any,
) -> None:
    label_NK = label_sets()
    with_none_NK = np.column_stack([label_NK, ~label_NK.any(1)])
    smaller: set[int] = set()
    smaller_validation: set[int] = set()
    for shots in range(1, 13):
        recipe = replace(RECIPE, shots=shots, select=select)
        training_N, validation_N = draw_budget(label_NK, recipe)
        drawn = {*training_N.tolist(), *validation_N.tolist()}
        assert len(drawn) == len(training_N) + len(validation_N)
        assert with_none_NK[sorted(drawn)].sum(0).min() >= shots
        assert len(drawn) <= 9 * shots
        assert smaller <= drawn
        assert smaller_validation <= set(validation_N.tolist())
        assert bool(len(validation_N)) == (select == "val" and shots > 1)
        smaller = drawn
        smaller_validation = set(validation_N.tolist())


def test_a_budget_beyond_the_rarest_label_is_refused() -> None:
    label_NK = label_sets()
    rarest = int(min(label_NK.sum(0).min(), (~label_NK.any(1)).sum()))
    recipe = replace(RECIPE, shots=rarest + 1)
    with pytest.raises(ConfigError, match="out of range") as caught:
        draw_budget(label_NK, recipe)
    assert f"{rarest}/class" in caught.value.details["expected"]


def test_balanced_labels_weigh_as_in_scikit_learn() -> None:
    """One-vs-rest: the same ratio of the weights of rows with and without a label."""
    label_NK = label_sets()
    weight_K = balanced_labels(torch.from_numpy(label_NK)[None], torch.float64)[0]
    for label_N, weight in zip(label_NK.T, weight_K.tolist(), strict=True):
        without, with_label = compute_class_weight(
            "balanced", classes=np.array([False, True]), y=label_N
        )
        assert weight == pytest.approx(with_label / without)
