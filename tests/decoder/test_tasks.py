"""Predictions, hits and accuracies are the same of tensors and of arrays."""

from __future__ import annotations

import numpy as np
import torch

from gaam_decoder.tasks import CLASSIFICATION


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
