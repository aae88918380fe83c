"""What tasks compute, against plain references; tensors and arrays give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, r2_score

from gaam_cache.common import plugins
from gaam_decoder.decoder import TargetScale
from gaam_decoder.stats.scores import Answers
from gaam_decoder.stats.scores.r2 import R2
from gaam_decoder.tasks import CLASSIFICATION, task_of

TASKS = plugins.names("gaam_decoder.tasks")


def targets_and_outputs(task: str) -> tuple[Any, Any]:
    """Targets of 50 rows, and the outputs of 4 seeds for them."""
    generator = np.random.default_rng(3)
    output_SNK = generator.normal(size=(4, 50, 3)).astype(np.float32)
    if task == "classification":
        return generator.integers(0, 3, 50), output_SNK
    if task == "regression":
        return (7 + 2 * generator.normal(size=(50, 3))).astype(np.float32), output_SNK
    return (generator.random((50, 3)) < [0.2, 0.5, 0.7]).astype(np.uint8), output_SNK


def reference_score(task: str, targets: Any, output_NK: Any) -> float:
    if task == "classification":
        return float((output_NK.argmax(1) == targets).mean())
    if task == "regression":
        return float(r2_score(targets.astype(float), output_NK.astype(float)))
    return float(f1_score(targets, output_NK > 0, average="micro"))


def test_tensors_and_arrays_give_the_same_accuracy() -> None:
    generator = np.random.default_rng(0)
    logits_SNC = generator.integers(0, 3, (4, 50, 3)).astype(np.float32)
    label_N = generator.integers(0, 3, 50)
    predicted_SN = CLASSIFICATION.predictions(logits_SNC)
    right_SN = CLASSIFICATION.hits(predicted_SN, label_N)
    accuracy_S = CLASSIFICATION.accuracy(right_SN)

    # the first of equal logits is the prediction, in both
    tensor_SN = CLASSIFICATION.predictions(torch.from_numpy(logits_SNC))
    right_tensor_SN = CLASSIFICATION.hits(tensor_SN, torch.from_numpy(label_N))
    assert tensor_SN.tolist() == predicted_SN.tolist()
    assert CLASSIFICATION.accuracy(right_tensor_SN).tolist() == accuracy_S.tolist()
    assert accuracy_S.tolist() == [row_N.sum() / 50 for row_N in right_SN]


def test_the_majority_class_is_the_first_of_the_most_frequent() -> None:
    assert CLASSIFICATION.majority_class(np.array([2, 1, 2, 1, 0])) == 1


@pytest.mark.parametrize("name", TASKS)
def test_selection_is_the_score_of_scikit_learn(name: str) -> None:
    task = task_of(name)
    targets, output_SNK = targets_and_outputs(name)
    score_S = task.selection_score(output_SNK, targets)
    expected = [reference_score(name, targets, output_NK) for output_NK in output_SNK]
    np.testing.assert_allclose(score_S, expected, rtol=1e-12)
    tensors = torch.from_numpy(output_SNK), torch.from_numpy(targets)
    np.testing.assert_allclose(task.selection_score(*tensors), expected, rtol=1e-12)


@pytest.mark.parametrize("name", TASKS)
def test_contributions_are_influences_of_rows(name: str) -> None:
    """Their mean is the score; twice a row moves the score as its contribution says."""
    task = task_of(name)
    targets, output_SNK = targets_and_outputs(name)
    output_NK = output_SNK[0]
    contribution_N = task.row_contributions(output_NK, targets)
    score = float(task.selection_score(output_NK, targets))
    np.testing.assert_allclose(contribution_N.mean(), score, rtol=1e-12)

    # 2,000 copies of all rows, and one more of the first
    many = 2000
    more_NK = np.concatenate([np.tile(output_NK, (many, 1)), output_NK[:1]])
    repeats = (many,) + (1,) * (targets.ndim - 1)
    more_targets = np.concatenate([np.tile(targets, repeats), targets[:1]])
    change = float(task.selection_score(more_NK, more_targets)) - score
    influence = (float(contribution_N[0]) - score) / len(more_NK)
    np.testing.assert_allclose(change, influence, rtol=1e-2)


@pytest.mark.parametrize("name", TASKS)
def test_sums_of_batches_give_the_training_score(name: str) -> None:
    task = task_of(name)
    targets, output_SNK = targets_and_outputs(name)
    target_N = torch.from_numpy(targets)
    output = torch.from_numpy(output_SNK)
    if task.standardises:
        target_N = TargetScale.from_targets(target_N).standardised(target_N)
    sums_S = sum(
        task.batch_sums(
            output[:, rows], target_N[rows].expand(4, *target_N[rows].shape)
        )
        for rows in (slice(0, 20), slice(20, 50))
    )
    score_S = task.training_score(torch.as_tensor(sums_S), 50)
    expected = task.selection_score(output, target_N)
    np.testing.assert_allclose(score_S, expected, rtol=1e-5)


def test_a_target_scale_is_undone_in_evaluation() -> None:
    numbers = torch.tensor([[1.0, 5.0], [3.0, 5.0], [8.0, 5.0]])
    scale = TargetScale.from_targets(numbers)
    learned = scale.standardised(numbers)
    np.testing.assert_allclose(learned[:, 0].mean(), 0, atol=1e-6)
    np.testing.assert_allclose(learned[:, 0].std(correction=0), 1, rtol=1e-6)
    # equal numbers are not divided by zero
    assert learned[:, 1].tolist() == [0, 0, 0]
    np.testing.assert_allclose(scale(learned), numbers, rtol=1e-6)


@pytest.mark.parametrize("output", [9.0, 0.5], ids=["wrong", "exact"])
def test_r2_of_equal_numbers_is_that_of_scikit_learn_and_of_the_score(
    output: float,
) -> None:
    task = task_of("regression")
    targets = np.array([[1.0, 0.5], [2.0, 0.5], [4.0, 0.5]], np.float32)
    outputs = np.array([[1.5, output], [2.0, output], [3.0, output]])
    expected = r2_score(targets.astype(float), outputs)
    np.testing.assert_allclose(task.selection_score(outputs, targets), expected)
    value = R2().value(Answers(outputs, task.scored_targets(targets)))
    assert value is not None
    np.testing.assert_allclose(value, expected)
    contributions = task.row_contributions(outputs, targets)
    np.testing.assert_allclose(contributions.mean(), expected)


def test_strata_of_numbers_and_of_label_sets() -> None:
    numbers = np.arange(100, dtype=np.float32)[::-1, None]
    stratum_N = task_of("regression").strata(numbers)
    assert np.bincount(stratum_N).tolist() == [10] * 10
    # of every stratum a row is held out: few rows have few strata
    for num_rows, sizes in ((40, [10] * 4), (25, [12, 13]), (8, [8])):
        stratum_N = task_of("regression").strata(numbers[:num_rows])
        assert np.bincount(stratum_N).tolist() == sizes
    # label 2 is the rarest, then 0; the last row has none
    sets = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 0], [0, 0, 0]], np.uint8)
    assert task_of("multi-label").strata(sets).tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize("name", TASKS)
def test_the_baseline_looks_at_no_row(name: str) -> None:
    task = task_of(name)
    targets, _ = targets_and_outputs(name)
    if name == "regression":
        assert abs(task.baseline_score(targets, targets)) < 1e-9
        assert task.baseline_score(targets[:5], targets) < 0
    elif name == "multi-label":
        has_last = np.zeros_like(targets)
        has_last[:, targets.mean(0) > 0.5] = 1
        expected = f1_score(targets, has_last, average="micro")
        assert task.baseline_score(targets, targets) == pytest.approx(expected)
    else:
        assert task.baseline_score(targets, targets) == np.bincount(targets).max() / 50
