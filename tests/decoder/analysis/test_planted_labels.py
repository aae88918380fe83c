"""The teacher is what it says, and labels are draws of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from gaam_decoder.analysis.planting import (
    GaussianStates,
    draw_labels,
    linear_accuracy,
    make_teacher,
    planted_mechanism,
)
from gaam_decoder.decoder import Decoder
from gaam_decoder.heads.linear import LinearHead
from gaam_decoder.plant_config import GATES

L, D, C = 6, 4, 3


def states(rows: int, first: int = 0) -> GaussianStates:
    return GaussianStates((rows, L, D), 1, first, "float32")


@pytest.mark.parametrize("strength", [0.5, 4.0])
@pytest.mark.parametrize("gate", GATES)
def test_a_decoder_of_the_planted_mechanism_with_a_linear_head_expresses_the_teacher(
    gate: str, strength: float
) -> None:
    train = states(1000)
    teacher = make_teacher(gate, train, classes=C, strength=strength, seed=3)
    decoder = Decoder(planted_mechanism(gate, L, D), LinearHead(L, D, C)).double()
    x_NLD = states(200, first=1000)[:].astype(np.float64)
    with torch.no_grad():
        decoder.head.fc.weight.copy_(torch.from_numpy(teacher.weight_CF))
        decoder.head.fc.bias.copy_(torch.from_numpy(teacher.bias_C))
        logits_NC = decoder(torch.from_numpy(x_NLD)).numpy()
    np.testing.assert_allclose(teacher.logits(x_NLD), logits_NC, rtol=1e-9, atol=1e-9)
    of_train_NC = teacher.logits(train[:].astype(np.float64))
    np.testing.assert_allclose(of_train_NC.mean(0), 0, atol=1e-9)
    assert np.sqrt(np.square(of_train_NC).mean()) == pytest.approx(strength)
    exp_NC = np.exp(of_train_NC)
    p_NC = exp_NC / exp_NC.sum(1, keepdims=True)
    np.testing.assert_allclose(teacher.probabilities(train), p_NC, rtol=1e-9)


def test_where_no_gate_is_planted_the_mean_over_the_layers_decides() -> None:
    teacher = make_teacher("none", states(300), classes=C, strength=2.0, seed=0)
    x_NLD = states(50)[:].astype(np.float64)
    same_NLD = np.repeat(x_NLD.mean(1, keepdims=True), L, axis=1)
    np.testing.assert_allclose(teacher.logits(x_NLD), teacher.logits(same_NLD), atol=1e-9)
    assert not np.allclose(
        make_teacher("laplace", states(300), classes=C, strength=2.0, seed=0).logits(x_NLD),
        make_teacher("laplace", states(300), classes=C, strength=2.0, seed=0).logits(same_NLD),
    )


def chi_square(p_NC: np.ndarray, label_N: np.ndarray) -> float:
    """p of the hypothesis that in every decile of a class's probability it is as frequent."""
    p_values = []
    for number in range(p_NC.shape[1]):
        deciles = np.array_split(np.argsort(p_NC[:, number]), 10)
        seen = np.array([(label_N[rows] == number).sum() for rows in deciles])
        due = np.array([p_NC[rows, number].sum() for rows in deciles])
        spread = np.array([(p_NC[rows, number] * (1 - p_NC[rows, number])).sum()
                           for rows in deciles])  # fmt: skip
        p_values.append(stats.chi2.sf(((seen - due) ** 2 / spread).sum(), 10))
    return float(stats.false_discovery_control(p_values).min())


@pytest.mark.parametrize("gate", GATES)
def test_labels_are_draws_of_the_teacher(gate: str) -> None:
    train = states(6000)
    teacher = make_teacher(gate, train, classes=C, strength=2.0, seed=5)
    p_NC = teacher.probabilities(train)
    label_N = draw_labels(p_NC, 5, 0)
    assert chi_square(p_NC, label_N) > 0.01
    colder_NC = p_NC**1.3 / (p_NC**1.3).sum(1, keepdims=True)
    assert chi_square(colder_NC, label_N) < 1e-6  # of another temperature they are none
    assert (draw_labels(p_NC, 5, 1) != label_N).any()


def test_the_best_linear_decoder_is_the_teacher_only_where_no_gate_is_planted() -> None:
    train, test = states(2000), states(1000, first=2000)
    for gate in GATES:
        teacher = make_teacher(gate, train, classes=C, strength=4.0, seed=2)
        p, of_test = teacher.probabilities(train), teacher.probabilities(test)
        found = linear_accuracy(train, p, test, of_test)
        best = of_test.max(1).mean()
        assert found is not None
        if gate == "none":
            assert found == pytest.approx(best, abs=1e-3)
        else:
            assert 1 / C - 0.1 < found < best - 0.2, gate
    assert linear_accuracy(states(2 * L * D - 1), p, test, of_test) is None


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_states_are_the_same_however_they_are_read(dtype: str) -> None:
    whole = GaussianStates((1500, L, D), 7, 0, dtype)[:]
    later = GaussianStates((500, L, D), 7, 1000, dtype)
    assert (later[:] == whole[1000:]).all()
    assert all((later[i : i + 3] == whole[1000 + i : 1003 + i]).all() for i in range(0, 497, 31))
    assert np.unique(whole[:, 0, 0]).size > 700  # no block is another
    assert (whole == GaussianStates((1500, L, D), 7, 0, "float32")[:].astype(dtype)).all()
    assert (whole != GaussianStates((1500, L, D), 8, 0, dtype)[:]).any()
