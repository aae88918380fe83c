"""The linear probe against scikit-learn, where that is installed, and against what must hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from gaam_decoder.heads import Examples, Fit, lbfgs
from gaam_decoder.heads.lbfgs import GRID, LBFGSHead

ROWS, LAYERS, SIZE, CLASSES = 160, 2, 9, 3


def examples(count: int = ROWS, seed: int = 0, *, wild: bool = True) -> Examples:
    """Rows of which some features say something about the class, and of very different size."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(count) % CLASSES
    x = torch.randn(count, LAYERS * SIZE, generator=generator)
    x[:, :CLASSES] += 1.2 * functional.one_hot(label, CLASSES)
    if wild:
        x = x * torch.logspace(-3, 3, LAYERS * SIZE) + 5.0
        x[:, -1] = 0.1  # always the same
    return Examples(x, label)


def fitted(learn: Examples, choose: Examples) -> tuple[LBFGSHead, Fit]:
    head = LBFGSHead(LAYERS, SIZE, CLASSES)
    return head, head.fit(learn, choose, lambda done, text: None)


def standardised(x: np.ndarray) -> np.ndarray:
    varies = x.std(0) > 1e-6
    z = np.where(varies, (x - x.mean(0)) / np.where(varies, x.std(0), 1), 0)
    return z / np.sqrt(varies.sum())


@pytest.mark.parametrize("value", [1e-3, 0.1, 3.0, 100.0])
def test_the_optimum_is_that_of_scikit_learn(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    monkeypatch.setattr(lbfgs, "GRID", (value,))
    learn = examples()
    head, fit = fitted(learn, examples(60, 1))
    z, label = standardised(learn.x_NF.double().numpy()), learn.label_N.numpy()
    theirs = linear_model.LogisticRegression(C=value, tol=1e-10, max_iter=10_000).fit(
        z, label
    )

    def objective(weight: np.ndarray, bias: np.ndarray) -> float:
        logits = torch.from_numpy(z @ weight.T + bias)
        loss = functional.cross_entropy(logits, learn.label_N, reduction="sum")
        return float(loss) / len(z) + (weight**2).sum() / (2 * value * len(z))

    best = objective(theirs.coef_, theirs.intercept_)
    loss = fit.log[0]["loss"]
    norm = (theirs.coef_**2).sum() / (2 * value * len(z))
    assert loss + norm == pytest.approx(best, abs=1e-4)
    logits = head(learn.x_NF.view(-1, LAYERS, SIZE)).detach().numpy()
    np.testing.assert_array_equal(logits.argmax(1), theirs.predict(z))
    np.testing.assert_allclose(
        functional.softmax(torch.from_numpy(logits), 1),
        theirs.predict_proba(z),
        atol=2e-3,
    )


def test_c_is_chosen_on_rows_that_are_not_learned_from_and_ties_are_broken_in_order() -> (
    None
):
    learn, choose = examples(), examples(60, 1)
    head, fit = fitted(learn, choose)
    assert [entry["epoch"] for entry in fit.log] == list(range(1, len(GRID) + 1))
    assert [entry["C"] for entry in fit.log] == list(GRID)
    scores = [(entry["accuracy"], -entry["selection_loss"]) for entry in fit.log]
    assert fit.kept == 1 + scores.index(max(scores))  # the first: the smallest C
    assert fit.value == GRID[fit.kept - 1]
    assert not fit.unconverged
    right = head(choose.x_NF.view(-1, LAYERS, SIZE)).argmax(1) == choose.label_N
    assert right.double().mean().item() == pytest.approx(
        fit.log[fit.kept - 1]["accuracy"]
    )
    losses = [entry["loss"] for entry in fit.log]
    assert losses == sorted(
        losses, reverse=True
    )  # a weaker penalty fits the rows better


def test_the_scale_of_a_feature_plays_no_part_and_what_never_varies_counts_for_nothing() -> (
    None
):
    wild, plain = fitted(examples(), examples(60, 1)), examples(wild=False)
    tame = Examples(plain.x_NF.clone(), plain.label_N)
    tame.x_NF[:, -1] = 0
    other = examples(60, 1, wild=False).x_NF.clone()
    other[:, -1] = 0
    same = fitted(tame, Examples(other, examples(60, 1).label_N))
    assert wild[1].value == same[1].value
    for ours, theirs in zip(wild[1].log, same[1].log, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-4)
    assert (wild[0].fc.weight[:, -1] == 0).all()


def test_a_fit_that_does_not_converge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lbfgs, "MOST_ITERATIONS", 2)
    _, fit = fitted(examples(), examples(60, 1))
    assert fit.unconverged
    lost = [entry for entry in fit.log if not entry["converged"]]
    assert [entry["C"] for entry in lost] == list(fit.unconverged)
    assert all("limit" in entry["stopped"] for entry in lost)


@pytest.mark.parametrize(
    ("values", "edge"), [((1e-4, 1e-3), "highest"), ((1e3, 1e4), "lowest")]
)
def test_a_choice_at_an_end_of_the_grid_is_known(
    values: tuple[float, ...], edge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lbfgs, "GRID", values)
    _, fit = fitted(examples(), examples(600, 1))
    assert fit.edge == edge == fit.to_dict()["edge"]


def test_one_class_and_two_rows_are_enough() -> None:
    head = LBFGSHead(1, 2, 1)
    rows = Examples(torch.randn(2, 2), torch.zeros(2, dtype=torch.long))
    assert head.fit(rows, rows, lambda done, text: None).log[0]["accuracy"] == 1
    assert head.fc.weight.isfinite().all()
