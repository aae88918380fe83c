"""Scores of numbers and label sets: against scikit-learn and SciPy, and what rows add."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats
from scipy.special import expit
from sklearn import metrics
from torch.nn import functional

from gaam_decoder.reports.scoring import all_scores
from gaam_decoder.stats.scored import claim_by_score, interval_by_score
from gaam_decoder.stats.scores import Answers
from tests.decoder.stats.scored_experiments import (
    score_named,
    score_of_seeds,
    scores_of_task,
)

Array = np.ndarray
Arrays = tuple[Array, Array]
OF_CLASSES = {name: score_named(name) for name in scores_of_task("classification")}
SCORES = {
    task: {name: score_named(name) for name in scores_of_task(task)}
    for task in ("regression", "multi-label")
}
NAMES = [(task, name) for task, scores in SCORES.items() for name in scores]
WITH_CLAIM = [
    (task, name) for task, name in NAMES if not SCORES[task][name].no_claim_reason
]


def examples(task: str, rows: int = 60, strength: float = 1.0, seed: int = 0) -> Arrays:
    """Outputs and targets of three numbers or labels."""
    generator = np.random.default_rng([rows, seed])
    number = generator.normal(size=(rows, 3))
    noise = generator.normal(size=(rows, 3))
    if task == "regression":
        target = number + np.array([0.0, 5.0, -3.0])
        return (target + noise / strength).astype(np.float32), target
    labels = number > [0.0, 0.5, 1.0]
    return (strength * (2 * labels - 1) + noise).astype(np.float32), labels


def cases(task: str) -> dict[str, Arrays]:
    """Ties, a number or label without variance, one column, few rows."""
    outputs, targets = examples(task)
    constant = targets.copy()
    # a number whose mean is exact: scikit-learn divides by the rounding error of others
    constant[:, 1] = 0.5 if task == "regression" else False
    every = targets.copy()
    every[:, 1] = True
    none = outputs.copy()
    none[:, 1] = -9
    return {
        "usual": (outputs, targets),
        "ties": (
            np.round(outputs),
            np.round(targets.astype(float)).astype(targets.dtype),
        ),
        "a constant column": (outputs, constant),
        "a column of ones": (outputs, every),
        "a column that is never predicted": (
            none if task == "multi-label" else outputs,
            constant,
        ),
        "one column": (outputs[:, :1], targets[:, :1]),
        "two rows": (outputs[:2], targets[:2]),
        "far from 0": (outputs + np.float32(1e4), targets + 10_000)
        if task == "regression"
        else (1e4 * outputs, targets),
    }


def _varying(outputs: Array, targets: Array) -> Arrays:
    varies = np.ptp(targets, axis=0) > 0
    return outputs[:, varies].astype(np.float64), targets[:, varies]


def _r2(outputs: Array, targets: Array) -> float:
    return float(metrics.r2_score(targets, outputs.astype(np.float64)))


def _spearman(outputs: Array, targets: Array) -> float:
    columns = zip(*(side.T for side in _varying(outputs, targets)), strict=True)
    return float(np.mean([scipy_stats.spearmanr(*pair).statistic for pair in columns]))


def _macro_f1(outputs: Array, labels: Array) -> float:
    predicted = outputs > 0
    values = [
        metrics.f1_score(labels[:, k], predicted[:, k])
        for k in np.flatnonzero((predicted | labels).any(0))
    ]
    return float(np.mean(values))


def _mean_average_precision(outputs: Array, labels: Array) -> float:
    seen = labels.any(0)
    return float(metrics.average_precision_score(labels[:, seen], outputs[:, seen]))


def _log_loss(outputs: Array, labels: Array) -> float:
    logits = torch.from_numpy(outputs.astype(np.float64))
    targets = torch.from_numpy(labels.astype(np.float64))
    return float(functional.binary_cross_entropy_with_logits(logits, targets))


def _ece(outputs: Array, labels: Array) -> float:
    """Of every label of every row, bin by bin."""
    p = expit(outputs.astype(np.float64)).ravel()
    total = 0.0
    for lower in range(15):
        inside = ((p > lower / 15) | (lower == 0)) & (p <= (lower + 1) / 15)
        if inside.any():
            total += (
                abs(labels.ravel()[inside].mean() - p[inside].mean()) * inside.sum()
            )
    return total / p.size


REFERENCE: dict[str, Callable[[Array, Array], float]] = {
    "r2": _r2,
    "mae": lambda outputs, targets: metrics.mean_absolute_error(targets, outputs),
    "spearman": _spearman,
    "micro-f1": lambda outputs, labels: metrics.f1_score(
        labels.ravel(), outputs.ravel() > 0
    ),
    "macro-f1": _macro_f1,
    "mean-average-precision": _mean_average_precision,
    "exact-match": lambda outputs, labels: metrics.accuracy_score(labels, outputs > 0),
    "hamming": lambda outputs, labels: metrics.hamming_loss(labels, outputs > 0),
    "log-loss": _log_loss,
    "brier": lambda outputs, labels: metrics.mean_squared_error(
        labels.astype(float), expit(outputs.astype(float))
    ),
    "ece": _ece,
}


@pytest.mark.parametrize(("task", "name"), NAMES)
def test_a_score_is_what_others_say_and_the_mean_of_what_rows_add(
    task: str, name: str
) -> None:
    score = SCORES[task][name]
    for case, (outputs, targets) in cases(task).items():
        found = score.seed_score(Answers(outputs, targets))
        expected = REFERENCE[name](outputs, targets)
        assert found is not None, case
        assert found.value == pytest.approx(expected, rel=1e-9, abs=1e-12), case
        if found.by_row is not None:
            mean = np.mean(found.by_row, dtype=np.float64)
            assert mean == pytest.approx(found.value, rel=1e-9, abs=1e-9), case
        assert (found.by_row is None) == bool(score.no_claim_reason)


@pytest.mark.parametrize(("task", "name"), WITH_CLAIM)
def test_what_a_row_adds_is_how_the_score_changes_with_its_weight(
    task: str, name: str
) -> None:
    """A row that is there once more, among many copies of all rows."""
    outputs, targets = examples(task)
    score = SCORES[task][name]
    found = score.seed_score(Answers(outputs, targets))
    assert found is not None
    assert found.by_row is not None
    copies = 400
    many_outputs = np.tile(outputs, (copies, 1))
    many_targets = np.tile(targets, (copies, 1))
    for row in range(0, 60, 7):
        more = Answers(
            np.vstack([many_outputs, outputs[row : row + 1]]),
            np.vstack([many_targets, targets[row : row + 1]]),
        )
        value = score.value(more)
        assert value is not None
        change = (value - found.value) * (60 * copies + 1)
        assert change == pytest.approx(found.by_row[row] - found.value, abs=5e-3)


CLASSES_WITH_CLAIM = ["accuracy", "macro-f1", "mcc", "quadratic-kappa", "ordinal-mae"]


@pytest.mark.parametrize(
    ("task", "name"),
    [*WITH_CLAIM, *(("classification", name) for name in CLASSES_WITH_CLAIM)],
)
def test_the_variance_over_rows_is_that_of_the_leave_one_out_jackknife(
    task: str, name: str
) -> None:
    rows = 400
    if task == "classification":
        generator = np.random.default_rng(1)
        targets = generator.integers(0, 4, rows)
        outputs = generator.normal(size=(rows, 4)) + 1.5 * np.eye(4)[targets]
        score = OF_CLASSES[name]
    else:
        outputs, targets = examples(task, rows)
        score = SCORES[task][name]
    found = score.seed_score(Answers(outputs, targets))
    assert found is not None
    assert found.by_row is not None
    left_out = []
    for row in range(rows):
        others = np.arange(rows) != row
        left_out.append(score.value(Answers(outputs[others], targets[others])))
    jackknife = (rows - 1) * np.var(np.array(left_out, np.float64))
    infinitesimal = np.var(found.by_row.astype(np.float64)) / rows
    assert infinitesimal == pytest.approx(jackknife, rel=0.03)


@pytest.mark.parametrize(("task", "name"), NAMES)
def test_what_is_better_is_called_better_whichever_way_the_score_points(
    task: str, name: str
) -> None:
    score = SCORES[task][name]
    weak, strong = (
        score_of_seeds(score, [Answers(*examples(task, 300, strength, 0))] * 6)
        for strength in (1.0, 3.0)
    )
    assert weak is not None
    assert strong is not None
    made = claim_by_score(score, strong, weak, margin=score.margin)
    assert (made.difference > 0) == score.larger_is_better
    if score.no_claim_reason:
        assert made.verdict == "no claim"
        assert interval_by_score(score, weak) is None
        return
    assert made.verdict == "better"
    held = interval_by_score(score, weak)
    assert held is not None
    assert held[0] <= weak.values.mean() <= held[1]
    same = claim_by_score(score, weak, weak, margin=score.margin)
    assert same.verdict == "undecided", "few rows that agree do not show that all would"


@pytest.mark.parametrize(("name", "factor"), [("micro-f1", 2), ("macro-f1", 1)])
def test_an_unseen_row_of_labels_is_one_of_which_all_are_right_or_none(
    name: str, factor: int
) -> None:
    """The root mean square of such changes over rows; answers are nearly all right.

    Where F1 is 1, as many wrong predictions beside the misses double the change.
    """
    outputs, labels = examples("multi-label", rows=200, strength=9.0)
    score = SCORES["multi-label"][name]
    one_seed = score.seed_score(Answers(outputs, labels))
    assert one_seed is not None
    squares = []
    for label_K in labels:
        right_K = np.where(label_K, 99, -99).astype(np.float32)
        more_labels = np.append(labels, label_K[None], 0)
        values = [
            score.value(Answers(np.append(outputs, answer_K[None], 0), more_labels))
            for answer_K in (right_K, np.full_like(right_K, -99))
        ]
        squares.append(np.ptp(np.array(values, float)) ** 2)
    expected = factor * np.mean(squares) ** 0.5
    assert one_seed.unseen_change == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("num_labels", [3, 30])
def test_a_log_loss_of_many_labels_has_an_interval_of_their_mean(
    num_labels: int,
) -> None:
    """The loss that a row may lack is that of one label, not of all."""
    generator = np.random.default_rng(num_labels)
    labels = generator.random((300, num_labels)) < 0.3
    outputs = np.where(labels, 2, -2) + generator.normal(size=labels.shape)
    score = SCORES["multi-label"]["log-loss"]
    one_seed = score.seed_score(Answers(outputs, labels))
    assert one_seed is not None
    largest = np.log(300) / num_labels
    assert isinstance(one_seed.by_row, np.ndarray)
    largest = max(largest, one_seed.by_row.max())
    assert one_seed.unseen_change == pytest.approx(largest / 300)


def test_a_score_below_0_has_an_interval_below_0() -> None:
    generator = np.random.default_rng(0)
    target = generator.normal(size=(300, 1))
    worse = (target + 5).astype(np.float32)
    one = score_of_seeds(SCORES["regression"]["r2"], [Answers(worse, target)] * 6)
    assert one is not None
    held = interval_by_score(SCORES["regression"]["r2"], one)
    assert held is not None
    assert held[0] < one.values.mean() < held[1] < 0


def test_scores_of_ranks_compare_the_rows_of_a_fold_alone() -> None:
    for task, name in (
        ("regression", "spearman"),
        ("multi-label", "mean-average-precision"),
    ):
        outputs, targets = examples(task)
        score = SCORES[task][name]
        folds = [
            score.value(Answers(outputs[part], targets[part]))
            for part in (slice(20), slice(20, 60))
        ]
        expected = np.average(np.array(folds, np.float64), weights=[20, 40])
        shifted = outputs + np.repeat([0, 100], [20, 40])[:, None]
        value = score.value(Answers(shifted, targets, (20, 40)))
        assert value == pytest.approx(expected)


def test_there_is_no_claim_where_one_row_more_makes_the_score_jump() -> None:
    outputs, targets = examples("multi-label")
    targets[:, 1] = False
    why = SCORES["multi-label"]["macro-f1"].why_no_claim(Answers(outputs, targets))
    assert "no test row" in why
    outputs, numbers = examples("regression")
    numbers[:, 1] = 5.0
    why = SCORES["regression"]["r2"].why_no_claim(Answers(outputs, numbers))
    assert "same" in why
    one_class = np.tile([1.0, 0.0], (10, 1))
    why = OF_CLASSES["mcc"].why_no_claim(Answers(one_class, np.arange(10) % 2))
    assert "single class" in why


def test_targets_that_never_vary_have_no_value() -> None:
    same = np.full((9, 2), 0.1)
    outputs = np.random.default_rng(0).normal(size=(9, 2))
    for task, names, value in (
        ("regression", ("spearman",), same),
        ("multi-label", ("macro-f1", "mean-average-precision"), same > 1),
    ):
        for name in names:
            assert SCORES[task][name].value(Answers(-abs(outputs), value)) is None, name
    nothing = Answers(-abs(outputs), same > 1)
    micro_f1 = SCORES["multi-label"]["micro-f1"]
    assert micro_f1.value(nothing) == 0
    assert "no row" in micro_f1.why_no_claim(nothing)
    r2 = SCORES["regression"]["r2"]
    assert r2.value(Answers(outputs, same)) == 0
    assert r2.value(Answers(same, same)) == 1
    varying = np.arange(18.0).reshape(9, 2)
    assert SCORES["regression"]["spearman"].value(Answers(same, varying)) is None


FACTORS_OF_OUTPUTS = {
    "means of neighbours": np.ones(1),
    "large": np.array([1e6]),
    "small": np.array([1e-6]),
    "one huge": np.array([1e9, *[1.0] * 199])[:, None],
}


@pytest.mark.parametrize("name", FACTORS_OF_OUTPUTS)
@pytest.mark.parametrize("offset", [0.0, 0.5, 2.0])
def test_roundings_of_float32_break_no_ties_of_outputs(
    name: str, offset: float
) -> None:
    generator = np.random.default_rng(5)
    tied = generator.integers(-3, 4, (200, 1)) / 3
    targets = tied + generator.normal(size=(200, 1))
    factor = FACTORS_OF_OUTPUTS[name]
    exact = (tied + offset) * factor
    noise = generator.integers(-2, 3, (200, 1)) * 2.0**-24
    noisy = (exact + noise * (1 + offset) * factor).astype(np.float32)
    spearman = SCORES["regression"]["spearman"]
    assert len(np.unique(noisy)) > 15
    expected = scipy_stats.spearmanr(exact[:, 0], targets[:, 0]).statistic
    assert spearman.value(Answers(noisy, targets)) == pytest.approx(expected, abs=1e-12)


def test_a_report_shows_the_scores_of_its_task_and_no_order_of_classes() -> None:
    for task, name in itertools.product(SCORES, REFERENCE):
        assert (name in all_scores(task)) == (name in SCORES[task])
    of_order = {"quadratic-kappa", "ordinal-mae"}
    assert set(all_scores()) == set(OF_CLASSES) - of_order
