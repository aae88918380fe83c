"""Every score that is listed: against scikit-learn, brute force, and what has to hold of any."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from scipy.special import softmax
from sklearn import metrics

from gaam_decoder import stats
from gaam_decoder.stats.scored import Scored, claim_by_score, interval_by_score
from gaam_decoder.stats.scores._base import Answers
from gaam_decoder.stats.scores.ece import BINS, reliability
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
        yield f"{classes} classes, one absent", (logits, np.where(labels == 1, 0, labels))
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
        odds = logits[:, of_class] - most - np.log(np.exp(others - most[:, None]).sum(1))
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
    sure, right = softmax(logits.astype(np.float64), -1).max(1), logits.argmax(1) == labels
    total = 0.0
    for place in range(BINS):
        inside = (sure > place / BINS) & (sure <= (place + 1) / BINS)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - sure[inside].mean())
    return total


def _brier(logits: np.ndarray, labels: np.ndarray) -> float:
    probabilities = softmax(logits.astype(np.float64), -1)
    return float(np.mean(((probabilities - np.eye(logits.shape[1])[labels]) ** 2).sum(1)))


def _top_5(logits: np.ndarray, labels: np.ndarray) -> float | None:
    if logits.shape[1] < 11:
        return None
    first = np.argsort(-logits, axis=1, kind="stable")[:, :5]
    return float(np.mean((first == labels[:, None]).any(1)))


REFERENCE: dict[str, Callable[[np.ndarray, np.ndarray], float | None]] = {
    "accuracy": lambda logits, labels: metrics.accuracy_score(labels, logits.argmax(1)),
    "macro-f1": lambda logits, labels: metrics.f1_score(labels, logits.argmax(1), average="macro"),
    "balanced-accuracy": lambda logits, labels: metrics.recall_score(
        labels, logits.argmax(1), labels=np.unique(labels), average="macro"
    ),
    "auroc": _auroc,
    "log-loss": _log_loss,
    "brier": _brier,
    "ece": _ece,
    "top-5": _top_5,
}


def test_every_score_has_a_reference() -> None:
    assert set(SCORES) == set(REFERENCE)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_what_others_say(name: str, case: str) -> None:
    logits, labels = CASES[case]
    found, value = SCORES[name].of(Answers(logits, labels)), REFERENCE[name](logits, labels)
    alone = SCORES[name].value(Answers(logits, labels))
    if value is None:
        assert found is None
        assert alone is None
        return
    assert found is not None
    assert found.value == pytest.approx(value, rel=1e-9, abs=1e-12)
    assert alone == pytest.approx(found.value, rel=1e-12)
    assert 0 <= found.value <= SCORES[name].highest


def test_probabilities_are_scored_as_scikit_learn_scores_them() -> None:
    logits, labels = CASES["12 classes"]
    told = softmax(logits.astype(np.float64), -1)
    answers = Answers(logits, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = {
            "auroc": metrics.roc_auc_score(labels, told, multi_class="ovr"),
            "log-loss": metrics.log_loss(labels, told),
            "balanced-accuracy": metrics.balanced_accuracy_score(labels, logits.argmax(1)),
            "top-5": metrics.top_k_accuracy_score(labels, told, k=5),
        }
    for name, value in expected.items():
        assert SCORES[name].value(answers) == pytest.approx(value, abs=1e-9), name


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", SCORES)
def test_what_rows_add_has_the_score_as_its_mean(name: str, case: str) -> None:
    found = SCORES[name].of(Answers(*CASES[case]))
    if found is None or found.by_row is None:
        return
    assert np.mean(found.by_row, dtype=np.float64) == pytest.approx(found.value, rel=1e-9, abs=1e-9)
    assert found.unseen >= 0


@pytest.mark.parametrize("name", ["macro-f1", "balanced-accuracy", "auroc", "log-loss", "brier"])
def test_what_a_row_adds_is_how_the_score_changes_with_its_weight(name: str) -> None:
    """A row that is there once more, among many copies of all rows."""
    logits, labels = CASES["3 classes"]
    logits, labels = logits[:60], labels[:60]
    copies = 400
    found = SCORES[name].of(Answers(logits, labels))
    assert found is not None
    assert found.by_row is not None
    every = np.tile(logits, (copies, 1)), np.tile(labels, copies)
    for row in range(0, 60, 7):
        more = np.vstack([every[0], logits[row : row + 1]]), np.append(every[1], labels[row])
        value = SCORES[name].value(Answers(*more))
        assert value is not None
        change = (value - found.value) * (len(labels) * copies + 1)
        assert change == pytest.approx(found.by_row[row] - found.value, abs=2e-2)


def test_rows_of_several_folds_are_ranked_within_each() -> None:
    logits, labels = CASES["3 classes"]
    whole = Answers(logits[:100], labels[:100]), Answers(logits[100:], labels[100:])
    expected = np.mean([SCORES["auroc"].value(one) for one in whole])
    folds = Answers(logits, labels, (100, 100))
    found = SCORES["auroc"].of(folds)
    assert found is not None
    assert found.value == pytest.approx(expected)
    assert SCORES["auroc"].value(folds) == pytest.approx(expected)
    assert SCORES["auroc"].value(Answers(logits, labels)) != pytest.approx(expected, abs=1e-6)


def test_bins_hold_every_row_once() -> None:
    for case, (logits, labels) in CASES.items():
        count_B, right_B, sure_B = reliability(Answers(logits, labels))
        assert count_B.sum() == len(labels), case
        assert (right_B <= count_B).all()
        assert (sure_B <= count_B * (1 + 1e-12)).all()


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
def test_what_is_better_is_called_better_whichever_way_the_score_points(name: str) -> None:
    weak, strong = both(name)
    score = SCORES[name]
    made = claim_by_score(score, strong, weak, margin=score.margin)
    other = claim_by_score(score, weak, strong, margin=score.margin)
    if score.no_claim:
        assert made.p is None
        assert made.verdict == other.verdict == "no claim"
        assert made.on_these_rows.verdict == "no claim"
        assert made.no_claim == score.no_claim
        return
    assert (made.verdict, other.verdict) == ("better", "worse")
    assert (made.difference > 0) == score.larger_is_better
    assert made.difference == pytest.approx(-other.difference)
    assert made.p == pytest.approx(other.p)
    assert made.on_these_rows.verdict == "better"
    assert other.on_these_rows.verdict == "worse"
    assert made.interval is not None
    assert made.interval[0] <= made.difference <= made.interval[1]
    held = interval_by_score(score, weak)
    assert held is not None
    assert held[0] <= weak.values.mean() <= held[1]


@pytest.mark.parametrize("name", SCORES)
def test_the_same_answers_are_never_called_different(name: str) -> None:
    for rows in (2, 50, 20_000):
        weak, _ = both(name, rows=rows)
        made = claim_by_score(SCORES[name], weak, weak, margin=SCORES[name].margin)
        assert made.difference == 0
        open_ = "no claim" if made.no_claim else "undecided"
        assert made.verdict in (open_, "no claim" if made.no_claim else "equivalent")
        if rows < 100:  # few rows that agree do not show that all would
            assert made.verdict == open_, rows
        if made.p is not None:
            assert made.p == 1


@pytest.mark.parametrize("name", SCORES)
def test_one_seed_or_one_row_makes_no_claim(name: str) -> None:
    for seeds, rows in ((1, 300), (6, 1)):
        if name == "auroc" and rows == 1:
            continue  # it has none of one row
        weak, strong = both(name, seeds=seeds, rows=rows)
        made = claim_by_score(SCORES[name], strong, weak, margin=SCORES[name].margin)
        assert made.verdict == ("no claim" if made.no_claim else "undecided")


def test_the_interval_and_p_of_a_score_agree() -> None:
    for name, score in SCORES.items():
        for rows in (30, 100, 300):
            weak, strong = both(name, rows=rows)
            made = claim_by_score(score, strong, weak, margin=score.margin)
            if made.p is None or made.interval is None:
                continue
            outside = made.interval[0] > 0 or made.interval[1] < 0
            assert outside == (made.p < stats.ALPHA), (name, rows)


def test_f1_makes_no_claim_where_a_class_without_rows_is_predicted() -> None:
    logits, labels = CASES["3 classes, one absent"]
    one = scored(SCORES["macro-f1"], [Answers(logits, labels)] * 6)
    assert one is not None
    assert "no test row" in one.no_claim
    made = claim_by_score(SCORES["macro-f1"], one, one, margin=0.005)
    assert made.p is None
    assert made.verdict == "no claim"


def test_a_loss_that_few_rows_make_is_not_claimed() -> None:
    generator = np.random.default_rng(3)
    low = generator.normal(1, 0.1, (6, 300))
    high = low.copy()
    high[:, 0] += 1000
    few, none = (Scored(values=rows.mean(1), by_row=rows) for rows in (high, low))
    made = claim_by_score(SCORES["log-loss"], few, none, margin=0.01)
    assert made.p is None
    assert "skewed" in made.no_claim
    assert made.silent
    weak, strong = both("log-loss")
    other = claim_by_score(SCORES["log-loss"], strong, weak, margin=0.01)
    alone, _ = stats.holm_corrected([other, made])
    assert other.p is not None
    assert alone.p_holm == pytest.approx(min(1, 2 * other.p))
    assert alone.num_tests == 2


@pytest.mark.parametrize("margin", [0.0, -1.0, float("nan"), float("inf"), 5.0])
def test_a_margin_that_is_none_is_refused(margin: float) -> None:
    weak, strong = both("macro-f1")
    with pytest.raises(ValueError, match="margin"):
        claim_by_score(SCORES["macro-f1"], strong, weak, margin=margin)


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("size", [10.0**-power for power in range(0, 11, 2)])
def test_the_order_of_nearly_constant_answers_is_their_order(size: float, offset: float) -> None:
    rng = np.random.default_rng(3)
    label_N = rng.integers(0, 2, 60)
    logit_NC = rng.normal(size=(60, 2))
    logit_NC[np.arange(60), label_N] += 0.5
    logit_NC = (logit_NC * size + offset).astype(np.float32)
    exact_N = logit_NC[:, 1].astype(np.float64) - logit_NC[:, 0]
    found = SCORES["auroc"].value(Answers(logit_NC, label_N))
    assert found == pytest.approx(metrics.roc_auc_score(label_N, exact_N), abs=1e-9)
