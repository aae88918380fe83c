"""Every score that is listed: against scikit-learn, brute force, and what has to hold of any."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from scipy.special import softmax
from sklearn import metrics

from gaam_decoder import stats
from gaam_decoder.stats.scored import Scored, claim_by_score, interval_by_score
from gaam_decoder.stats.scores import Answers
from gaam_decoder.stats.scores.ece import BINS
from tests.decoder.stats.scored_experiments import SCORES, scored

Arrays = tuple[np.ndarray, np.ndarray]


def drawn() -> Iterator[tuple[str, Arrays]]:
    """Logits and labels: classes without rows, ties, one class, one row, and extremes."""
    for classes, rows in ((2, 40), (3, 200), (12, 300), (30, 90)):
        generator = np.random.default_rng([classes, rows])
        labels = generator.integers(0, classes, rows)
        logits = generator.normal(size=(rows, classes)).astype(np.float32)
        logits[np.arange(rows), labels] += 1
        yield f"{classes} classes", (logits, labels)
        yield f"{classes} classes, ties", (np.round(logits), labels)
        yield (
            f"{classes} classes, one absent",
            (logits, np.where(labels == 1, 0, labels)),
        )
        yield f"{classes} classes, one there", (logits, np.zeros_like(labels))
        yield f"{classes} classes, sure", (logits * 1e4, labels)
        yield f"{classes} classes, huge", (logits * np.float32(1e37), labels)
        yield f"{classes} classes, equal", (np.zeros_like(logits), labels)
        yield f"{classes} classes, one row", (logits[:1], labels[:1])


CASES = dict(drawn())


def _auroc(logits: np.ndarray, labels: np.ndarray) -> float | None:
    """Over all pairs of a row of a class and one of the rest."""
    areas = []
    for of_class in np.unique(labels):
        others = np.delete(logits.astype(np.float64), of_class, axis=1)
        most = others.max(1)
        odds = (
            logits[:, of_class] - most - np.log(np.exp(others - most[:, None]).sum(1))
        )
        odds = np.round(odds, 9)
        own, rest = odds[labels == of_class], odds[labels != of_class]
        if len(rest):
            above = (own[:, None] > rest) + 0.5 * (own[:, None] == rest)
            areas.append(above.mean())
    return float(np.mean(areas)) if areas else None


def _log_loss(logits: np.ndarray, labels: np.ndarray) -> float:
    exact = logits.astype(np.longdouble)
    exact -= exact.max(1, keepdims=True)
    total = np.log(np.exp(exact).sum(1))
    return float(np.mean(total - exact[np.arange(len(labels)), labels]))


def _ece(logits: np.ndarray, labels: np.ndarray) -> float:
    sure, right = (
        softmax(logits.astype(np.float64), -1).max(1),
        logits.argmax(1) == labels,
    )
    total = 0.0
    for place in range(BINS):
        inside = (sure > place / BINS) & (sure <= (place + 1) / BINS)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - sure[inside].mean())
    return total


def _brier(logits: np.ndarray, labels: np.ndarray) -> float:
    probabilities = softmax(logits.astype(np.float64), -1)
    return float(
        np.mean(((probabilities - np.eye(logits.shape[1])[labels]) ** 2).sum(1))
    )


def _top_5(logits: np.ndarray, labels: np.ndarray) -> float | None:
    if logits.shape[1] < 11:
        return None
    first = np.argsort(-logits, axis=1, kind="stable")[:, :5]
    return float(np.mean((first == labels[:, None]).any(1)))


def _mcc(logits: np.ndarray, labels: np.ndarray) -> float | None:
    if len(np.unique(labels)) == 1:
        return None
    return float(metrics.matthews_corrcoef(labels, logits.argmax(1)))


def _quadratic_kappa(logits: np.ndarray, labels: np.ndarray) -> float | None:
    predicted = logits.argmax(1)
    both = np.unique([labels, predicted])
    if len(both) == 1:
        return None
    every = np.arange(logits.shape[1])
    return float(
        metrics.cohen_kappa_score(labels, predicted, weights="quadratic", labels=every)
    )


def _average_precision(logits: np.ndarray, labels: np.ndarray) -> float:
    precisions = []
    for of_class in np.unique(labels):
        others = np.delete(logits.astype(np.float64), of_class, axis=1)
        most = others.max(1)
        total = np.log(np.exp(others - most[:, None]).sum(1))
        odds = np.round(logits[:, of_class] - most - total, 9)
        precisions.append(metrics.average_precision_score(labels == of_class, odds))
    return float(np.mean(precisions))


REFERENCE: dict[str, Callable[[np.ndarray, np.ndarray], float | None]] = {
    "accuracy": lambda logits, labels: metrics.accuracy_score(labels, logits.argmax(1)),
    "macro-f1": lambda logits, labels: metrics.f1_score(
        labels, logits.argmax(1), average="macro"
    ),
    "balanced-accuracy": lambda logits, labels: metrics.recall_score(
        labels, logits.argmax(1), labels=np.unique(labels), average="macro"
    ),
    "auroc": _auroc,
    "log-loss": _log_loss,
    "brier": _brier,
    "ece": _ece,
    "top-5": _top_5,
    "mcc": _mcc,
    "quadratic-kappa": _quadratic_kappa,
    "ordinal-mae": lambda logits, labels: metrics.mean_absolute_error(
        labels, logits.argmax(1)
    ),
    "average-precision": _average_precision,
}


def test_a_score_is_what_others_say_and_the_mean_of_what_rows_add() -> None:
    assert set(SCORES) == set(REFERENCE)
    for (case, (logits, labels)), name in itertools.product(CASES.items(), SCORES):
        score, value = SCORES[name], REFERENCE[name](logits, labels)
        found, alone = (
            score.of(Answers(logits, labels)),
            score.value(Answers(logits, labels)),
        )
        if value is None:
            assert found is alone is None
            continue
        assert found is not None
        assert found.value == pytest.approx(value, rel=1e-9, abs=1e-12), (name, case)
        assert alone == pytest.approx(found.value, rel=1e-12), (name, case)
        if found.by_row is not None:
            mean = np.mean(found.by_row, dtype=np.float64)
            assert mean == pytest.approx(found.value, rel=1e-9, abs=1e-9), (name, case)


@pytest.mark.parametrize(
    "name", [name for name, score in SCORES.items() if not score.no_claim]
)
def test_what_a_row_adds_is_how_the_score_changes_with_its_weight(name: str) -> None:
    """A row that is there once more, among many copies of all rows."""
    logits, labels = (one[:60] for one in CASES["3 classes"])
    if name == "top-5":
        logits, labels = (one[:60] for one in CASES["12 classes"])
    found, copies = SCORES[name].of(Answers(logits, labels)), 400
    assert found is not None
    assert found.by_row is not None
    every = np.tile(logits, (copies, 1)), np.tile(labels, copies)
    for row in range(0, 60, 7):
        more = (
            np.vstack([every[0], logits[row : row + 1]]),
            np.append(every[1], labels[row]),
        )
        value = SCORES[name].value(Answers(*more))
        assert value is not None
        change = (value - found.value) * (len(labels) * copies + 1)
        assert change == pytest.approx(found.by_row[row] - found.value, abs=2e-2)


def test_rows_of_several_folds_are_ranked_within_each() -> None:
    logits, labels = CASES["3 classes"]
    expected = np.mean(
        [_auroc(logits[:100], labels[:100]), _auroc(logits[100:], labels[100:])]
    )
    folds = Answers(logits, labels, (100, 100))
    found = SCORES["auroc"].of(folds)
    assert found is not None
    assert found.value == pytest.approx(expected)
    assert SCORES["auroc"].value(folds) == pytest.approx(expected)


def test_the_order_of_nearly_constant_answers_is_their_order() -> None:
    for size, offset in itertools.product((1.0, 1e-4, 1e-10), (0.0, 1.0)):
        rng = np.random.default_rng(3)
        labels, logits = rng.integers(0, 2, 60), rng.normal(size=(60, 2))
        logits[np.arange(60), labels] += 0.5
        logits = (logits * size + offset).astype(np.float32)
        exact = metrics.roc_auc_score(
            labels, logits[:, 1].astype(np.float64) - logits[:, 0]
        )
        assert SCORES["auroc"].value(Answers(logits, labels)) == pytest.approx(
            exact, abs=1e-9
        )


def both(name: str, *, seeds: int = 6, rows: int = 300) -> tuple[Scored, Scored]:
    generator = np.random.default_rng(5)
    labels = generator.integers(0, 12, rows)
    found = []
    for strength in (1.5, 3.0):
        logits = generator.normal(size=(seeds, rows, 12)).astype(np.float32)
        logits[:, np.arange(rows), labels] += strength
        one = scored(SCORES[name], [Answers(each, labels) for each in logits])
        assert one is not None
        found.append(one)
    return found[0], found[1]


@pytest.mark.parametrize("name", SCORES)
def test_what_is_better_is_called_better_whichever_way_the_score_points(
    name: str,
) -> None:
    score, (weak, strong) = SCORES[name], both(name)
    made = claim_by_score(score, strong, weak, margin=score.margin)
    other = claim_by_score(score, weak, strong, margin=score.margin)
    if score.no_claim:
        assert made.p is None
        assert made.verdict == made.on_these_rows.verdict == "no claim"
        assert made.no_claim == score.no_claim
        return
    assert (made.verdict, other.verdict) == ("better", "worse")
    assert (made.on_these_rows.verdict, other.on_these_rows.verdict) == (
        "better",
        "worse",
    )
    assert (made.difference > 0) == score.larger_is_better
    assert (made.difference, made.p) == pytest.approx((-other.difference, other.p))
    held = interval_by_score(score, weak)
    assert held is not None
    assert held[0] <= weak.values.mean() <= held[1]
    for rows in (30, 100, 300):
        weak, strong = both(name, rows=rows)
        made = claim_by_score(score, strong, weak, margin=score.margin)
        if made.p is not None and made.interval is not None:
            outside = made.interval[0] > 0 or made.interval[1] < 0
            assert outside == (made.p < stats.ALPHA), rows


@pytest.mark.parametrize("name", SCORES)
def test_the_same_answers_one_seed_and_few_rows_make_no_claim(name: str) -> None:
    score = SCORES[name]
    for rows in (2, 50, 20_000):
        weak, _ = both(name, rows=rows)
        made = claim_by_score(score, weak, weak, margin=score.margin)
        assert (made.difference, made.p) in ((0, 1), (0, None))
        # few rows that agree do not show that all would
        open_ = "no claim" if made.no_claim else "undecided"
        assert made.verdict in (open_, "equivalent" if rows > 100 else open_), rows
    weak, strong = both(name, seeds=1)
    made = claim_by_score(score, strong, weak, margin=score.margin)
    assert made.verdict == ("no claim" if score.no_claim else "undecided")
    for margin in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="margin"):
            claim_by_score(score, strong, weak, margin=margin)


def test_no_claim_of_f1_where_a_class_without_rows_is_predicted() -> None:
    logits, labels = CASES["3 classes, one absent"]
    one = scored(SCORES["macro-f1"], [Answers(logits, labels)] * 6)
    assert one is not None
    made = claim_by_score(SCORES["macro-f1"], one, one, margin=0.005)
    assert (made.p, made.verdict) == (None, "no claim")
    assert made.no_claim


def test_a_loss_that_few_rows_make_is_not_claimed_and_counts_as_a_test() -> None:
    low = np.random.default_rng(3).normal(1, 0.1, (6, 300))
    high = low.copy()
    high[:, 0] += 1000
    few, none = (Scored(values=rows.mean(1), by_row=rows) for rows in (high, low))
    made = claim_by_score(SCORES["log-loss"], few, none, margin=0.01)
    assert made.p is None
    assert "skewed" in made.no_claim
    weak, strong = both("log-loss")
    other = claim_by_score(SCORES["log-loss"], strong, weak, margin=0.01)
    alone, _ = stats.holm_corrected([other, made])
    assert other.p is not None
    assert alone.p_holm == pytest.approx(min(1, 2 * other.p))
    assert alone.num_tests == 2
