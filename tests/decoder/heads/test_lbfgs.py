"""The linear probe against scikit-learn, and what must hold of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from gaam_decoder.heads import Examples, Fit, lbfgs
from gaam_decoder.heads.frames import scale
from gaam_decoder.heads.lbfgs import GRID, LBFGSHead

Floats = NDArray[np.float64]
ROWS = 160
LAYERS = 2
SIZE = 9
CLASSES = 3


def examples(
    num_rows: int = ROWS, seed: int = 0, *, are_scaled: bool = True
) -> Examples:
    """Rows of which some features tell something of the class.

    Scaled ones are of very different sizes, and the last one never varies.
    """
    generator = torch.Generator().manual_seed(seed)
    label_N = torch.arange(num_rows) % CLASSES
    x_NF = torch.randn(num_rows, LAYERS * SIZE, generator=generator)
    x_NF[:, :CLASSES] += 1.2 * functional.one_hot(label_N, CLASSES)
    if are_scaled:
        x_NF = x_NF * torch.logspace(-3, 3, LAYERS * SIZE) + 5.0
        x_NF[:, -1] = 0.1
    return Examples(x_NF, label_N)


def unscaled_examples(num_rows: int = ROWS, seed: int = 0) -> Examples:
    """The same rows with features of one size; the last one never varies."""
    rows = examples(num_rows, seed, are_scaled=False)
    x_NF = rows.x_NF.clone()
    x_NF[:, -1] = 0
    return Examples(x_NF, rows.label_N)


def ignore_progress(done: int, text: str) -> None:
    pass


def fit_head(train: Examples, validation: Examples) -> tuple[LBFGSHead, Fit]:
    head = LBFGSHead(LAYERS, SIZE, CLASSES)
    # a fit writes over its training rows, and the tests go on with theirs
    own_train = Examples(train.x_NF.clone(), train.label_N, train.task)
    return head, head.fit(own_train, validation, ignore_progress)


def logits_of(head: LBFGSHead, rows: Examples) -> torch.Tensor:
    logits: torch.Tensor = head(rows.x_NF.view(-1, LAYERS, SIZE)).detach()
    return logits


def standardised(x_NF: Floats) -> Floats:
    """Features of mean 0 and deviation 1, divided by the root of how many vary."""
    std_F = x_NF.std(0)
    varies_F = std_F > 1e-6
    z_NF = np.where(varies_F, (x_NF - x_NF.mean(0)) / np.where(varies_F, std_F, 1), 0)
    return np.asarray(z_NF / np.sqrt(varies_F.sum()))


@pytest.mark.parametrize("value", [1e-3, 0.1, 3.0, 100.0])
def test_the_optimum_is_that_of_scikit_learn(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    monkeypatch.setattr(lbfgs, "GRID", (value,))
    train = examples()
    head, fit = fit_head(train, examples(60, 1))
    z_NF = standardised(train.x_NF.double().numpy())
    model = linear_model.LogisticRegression(C=value, tol=1e-10, max_iter=10_000)
    model.fit(z_NF, train.label_N.numpy())
    expected_logits = torch.from_numpy(z_NF @ model.coef_.T + model.intercept_)
    expected_loss = functional.cross_entropy(expected_logits, train.label_N).item()
    assert fit.log[0]["loss"] == pytest.approx(expected_loss, abs=1e-4)
    logits = logits_of(head, train)
    np.testing.assert_array_equal(logits.argmax(1), model.predict(z_NF))
    probabilities = functional.softmax(logits, 1)
    np.testing.assert_allclose(probabilities, model.predict_proba(z_NF), atol=2e-3)


@pytest.mark.parametrize("value", [0.1, 100.0])
def test_of_label_sets_every_label_has_the_optimum_of_scikit_learn(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One-vs-rest: a logistic regression of each label, all with the same C."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    monkeypatch.setattr(lbfgs, "GRID", (value,))
    x_NF, class_N, _ = examples()
    generator = torch.Generator().manual_seed(1)
    noise_NK = torch.randn(ROWS, CLASSES, generator=generator)
    signal_NK = functional.one_hot(class_N, CLASSES)
    label_NK = (2 * signal_NK + noise_NK > torch.tensor([0.5, 1.0, 1.5])).to(
        torch.uint8
    )
    train = Examples(x_NF, label_NK, "multi-label")
    head, fit = fit_head(train, train)
    assert not fit.unconverged
    z_NF = standardised(train.x_NF.double().numpy())
    p_NK = logits_of(head, train).sigmoid()
    for k in range(CLASSES):
        model = linear_model.LogisticRegression(C=value, tol=1e-10, max_iter=10_000)
        model.fit(z_NF, label_NK[:, k].numpy())
        np.testing.assert_allclose(
            p_NK[:, k], model.predict_proba(z_NF)[:, 1], atol=2e-3
        )


def test_the_log_has_every_penalty_and_a_weaker_one_fits_the_rows_better() -> None:
    _, fit = fit_head(examples(), examples(60, 1))
    assert [entry["epoch"] for entry in fit.log] == list(range(1, len(GRID) + 1))
    assert [entry["C"] for entry in fit.log] == list(GRID)
    assert not fit.unconverged
    losses = [entry["loss"] for entry in fit.log]
    assert losses == sorted(losses, reverse=True)


def test_c_is_chosen_on_validation_rows_and_ties_are_broken_in_order() -> None:
    """Of equal accuracies and losses the first, which is the smallest C."""
    validation = examples(60, 1)
    head, fit = fit_head(examples(), validation)
    scores = [(entry["accuracy"], -entry["selection_loss"]) for entry in fit.log]
    assert fit.kept == 1 + scores.index(max(scores))
    assert fit.value == GRID[fit.kept - 1]
    is_right = logits_of(head, validation).argmax(1) == validation.label_N
    accuracy = is_right.double().mean().item()
    assert accuracy == pytest.approx(fit.log[fit.kept - 1]["accuracy"])


def test_neither_the_scale_of_a_feature_nor_one_that_never_varies_counts() -> None:
    head, fit = fit_head(examples(), examples(60, 1))
    _, unscaled_fit = fit_head(unscaled_examples(), unscaled_examples(60, 1))
    assert fit.value == unscaled_fit.value
    losses = [entry["loss"] for entry in fit.log]
    expected = [entry["loss"] for entry in unscaled_fit.log]
    assert losses == pytest.approx(expected, abs=1e-4)
    assert (head.fc.weight[:, -1] == 0).all()


def test_a_fit_that_does_not_converge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lbfgs, "MOST_ITERATIONS", 2)
    _, fit = fit_head(examples(), examples(60, 1))
    assert fit.unconverged
    unconverged = [entry for entry in fit.log if not entry["converged"]]
    assert [entry["C"] for entry in unconverged] == list(fit.unconverged)
    assert all("limit" in entry["stopped"] for entry in unconverged)


@pytest.mark.parametrize(
    ("values", "edge"), [((1e-4, 1e-3), "highest"), ((1e3, 1e4), "lowest")]
)
def test_a_choice_at_an_end_of_the_grid_is_known(
    values: tuple[float, ...], edge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lbfgs, "GRID", values)
    _, fit = fit_head(examples(), examples(600, 1))
    assert fit.edge == edge
    assert fit.to_dict()["edge"] == edge


def test_one_class_and_two_rows_are_enough() -> None:
    head = LBFGSHead(1, 2, 1)
    x_NF = torch.randn(2, 2, generator=torch.Generator().manual_seed(0))
    rows = Examples(x_NF, torch.zeros(2, dtype=torch.long))
    fit = head.fit(rows, rows, ignore_progress)
    assert fit.log[0]["accuracy"] == 1
    assert head.fc.weight.isfinite().all()


def test_blocks_of_rows_and_columns_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The states are never held twice in float64."""
    whole_head, whole_fit = fit_head(examples(), examples(60, 1))
    monkeypatch.setattr(scale, "BLOCK_NUMBERS", 7)
    head, fit = fit_head(examples(), examples(60, 1))
    assert fit == whole_fit
    assert torch.equal(head.fc.weight, whole_head.fc.weight)
    assert torch.equal(head.fc.bias, whole_head.fc.bias)
