"""Every score: against scikit-learn, brute force, and what has to hold of any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn import metrics

from gaam_decoder import stats
from gaam_decoder.stats.calibration import BINS
from gaam_decoder.stats.scored import Scored, claim_by_score, interval_by_score
from gaam_decoder.stats.scores import Answers
from tests.decoder.stats.scored_experiments import (
    SCORES,
    score_named,
    score_of_seeds,
)

Logits = NDArray[np.float32]
Labels = NDArray[np.int64]
SIZES = ((2, 40), (3, 200), (12, 300), (30, 90))
"""Classes and rows."""
KINDS = ("", "ties", "one absent", "one there", "sure", "huge", "equal", "one row")


class Rows(NamedTuple):
    """Logits and labels."""

    logits: Logits
    labels: Labels


@cache
def rows_of(num_classes: int, num_rows: int, kind: str = "") -> Rows:
    """Rows of which most are right: usual ones, or those of an extreme kind."""
    generator = np.random.default_rng([num_classes, num_rows])
    labels = generator.integers(0, num_classes, num_rows)
    logits = generator.normal(size=(num_rows, num_classes)).astype(np.float32)
    logits[np.arange(num_rows), labels] += 1
    kinds = {
        "": Rows(logits, labels),
        "ties": Rows(np.round(logits), labels),
        "one absent": Rows(logits, np.where(labels == 1, 0, labels)),
        "one there": Rows(logits, np.zeros_like(labels)),
        "sure": Rows(logits * 1e4, labels),
        "huge": Rows(logits * np.float32(1e37), labels),
        "equal": Rows(np.zeros_like(logits), labels),
        "one row": Rows(logits[:1], labels[:1]),
    }
    return kinds[kind]


def accuracy(logits: Logits, labels: Labels) -> float:
    return float(metrics.accuracy_score(labels, logits.argmax(1)))


def macro_f1(logits: Logits, labels: Labels) -> float:
    return float(metrics.f1_score(labels, logits.argmax(1), average="macro"))


def balanced_accuracy(logits: Logits, labels: Labels) -> float:
    recall = metrics.recall_score(
        labels, logits.argmax(1), labels=np.unique(labels), average="macro"
    )
    return float(recall)


def log_odds(logits: Logits, label: int) -> NDArray[np.float64]:
    """Of a class against all others, without differences of rounding."""
    others = np.delete(logits.astype(np.float64), label, axis=1)
    most = others.max(1)
    odds = logits[:, label] - most - np.log(np.exp(others - most[:, None]).sum(1))
    return np.round(odds, 9)


def auroc(logits: Logits, labels: Labels) -> float | None:
    """Over all pairs of a row of a class and one of the rest."""
    areas = []
    for label in np.unique(labels):
        odds = log_odds(logits, label)
        own = odds[labels == label][:, None]
        rest = odds[labels != label]
        if len(rest):
            above = (own > rest) + 0.5 * (own == rest)
            areas.append(above.mean())
    return float(np.mean(areas)) if areas else None


def log_loss(logits: Logits, labels: Labels) -> float:
    exact = logits.astype(np.longdouble)
    exact -= exact.max(1, keepdims=True)
    total = np.log(np.exp(exact).sum(1))
    return float(np.mean(total - exact[np.arange(len(labels)), labels]))


def calibration_error(logits: Logits, labels: Labels) -> float:
    confidence = softmax(logits.astype(np.float64), -1).max(1)
    is_right = logits.argmax(1) == labels
    total = 0.0
    for place in range(BINS):
        inside = (confidence > place / BINS) & (confidence <= (place + 1) / BINS)
        if inside.any():
            gap = abs(is_right[inside].mean() - confidence[inside].mean())
            total += inside.mean() * gap
    return total


def brier(logits: Logits, labels: Labels) -> float:
    probabilities = softmax(logits.astype(np.float64), -1)
    expected = np.eye(logits.shape[1])[labels]
    return float(np.mean(((probabilities - expected) ** 2).sum(1)))


def top_5(logits: Logits, labels: Labels) -> float | None:
    if logits.shape[1] < 11:
        return None
    first = np.argsort(-logits, axis=1, kind="stable")[:, :5]
    return float(np.mean((first == labels[:, None]).any(1)))


def mcc(logits: Logits, labels: Labels) -> float | None:
    if len(np.unique(labels)) == 1:
        return None
    return float(metrics.matthews_corrcoef(labels, logits.argmax(1)))


def quadratic_kappa(logits: Logits, labels: Labels) -> float | None:
    predicted = logits.argmax(1)
    if len(np.unique([labels, predicted])) == 1:
        return None
    all_classes = np.arange(logits.shape[1])
    kappa = metrics.cohen_kappa_score(
        labels, predicted, weights="quadratic", labels=all_classes
    )
    return float(kappa)


def ordinal_mae(logits: Logits, labels: Labels) -> float:
    return float(metrics.mean_absolute_error(labels, logits.argmax(1)))


def average_precision(logits: Logits, labels: Labels) -> float:
    precisions = [
        metrics.average_precision_score(labels == label, log_odds(logits, label))
        for label in np.unique(labels)
    ]
    return float(np.mean(precisions))


REFERENCES: dict[str, Callable[[Logits, Labels], float | None]] = {
    "accuracy": accuracy,
    "macro-f1": macro_f1,
    "balanced-accuracy": balanced_accuracy,
    "auroc": auroc,
    "log-loss": log_loss,
    "brier": brier,
    "ece": calibration_error,
    "top-5": top_5,
    "mcc": mcc,
    "quadratic-kappa": quadratic_kappa,
    "ordinal-mae": ordinal_mae,
    "average-precision": average_precision,
}


CLAIMING = [name for name in SCORES if name not in ("average-precision", "ece")]
"""Scores that allow claims."""


def test_every_score_has_a_reference() -> None:
    assert set(SCORES) == set(REFERENCES)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind or "usual")
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]} classes")
def test_a_score_is_its_reference_and_the_mean_of_what_rows_add(
    size: tuple[int, int], kind: str, name: str
) -> None:
    rows = rows_of(*size, kind)
    score = score_named(name)
    expected = REFERENCES[name](*rows)
    seed_score = score.seed_score(Answers(*rows))
    value = score.value(Answers(*rows))
    if expected is None:
        assert seed_score is None
        assert value is None
        return
    assert seed_score is not None
    assert seed_score.value == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert value == pytest.approx(seed_score.value, rel=1e-12)
    if seed_score.by_row is not None:
        mean = np.mean(seed_score.by_row, dtype=np.float64)
        assert mean == pytest.approx(seed_score.value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", CLAIMING)
def test_what_a_row_adds_is_how_the_score_changes_with_its_weight(name: str) -> None:
    """A row that is there once more, among many copies of all rows."""
    copies = 400
    # fewer than 11 classes have no top-5
    usual = rows_of(12 if name == "top-5" else 3, 200)
    logits = usual.logits[:60]
    labels = usual.labels[:60]
    seed_score = score_named(name).seed_score(Answers(logits, labels))
    assert seed_score is not None
    assert seed_score.by_row is not None
    many_logits = np.tile(logits, (copies, 1))
    many_labels = np.tile(labels, copies)
    for row in range(0, 60, 7):
        answers = Answers(
            np.vstack([many_logits, logits[row : row + 1]]),
            np.append(many_labels, labels[row]),
        )
        value = score_named(name).value(answers)
        assert value is not None
        change = (value - seed_score.value) * (len(labels) * copies + 1)
        expected = seed_score.by_row[row] - seed_score.value
        assert change == pytest.approx(expected, abs=2e-2), row


def test_rows_of_several_folds_are_ranked_within_each() -> None:
    logits, labels = rows_of(3, 200)
    areas = [auroc(logits[:100], labels[:100]), auroc(logits[100:], labels[100:])]
    assert None not in areas
    expected = np.mean(np.array(areas, float))
    folds = Answers(logits, labels, (100, 100))
    seed_score = score_named("auroc").seed_score(folds)
    assert seed_score is not None
    assert seed_score.value == pytest.approx(expected)
    assert score_named("auroc").value(folds) == pytest.approx(expected)


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-10])
def test_the_order_of_nearly_constant_answers_is_their_order(
    scale: float, offset: float
) -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 60)
    logits = rng.normal(size=(60, 2))
    logits[np.arange(60), labels] += 0.5
    logits = (logits * scale + offset).astype(np.float32)
    difference = logits[:, 1].astype(np.float64) - logits[:, 0]
    exact = metrics.roc_auc_score(labels, difference)
    area = score_named("auroc").value(Answers(logits, labels))
    assert area == pytest.approx(exact, abs=1e-9)


def weak_and_strong(
    name: str, *, num_seeds: int = 6, num_rows: int = 300
) -> tuple[Scored, Scored]:
    """Scores of a mechanism, and of one with larger logits of the right class."""
    generator = np.random.default_rng(5)
    labels = generator.integers(0, 12, num_rows)

    def score_of_strength(strength: float) -> Scored:
        shape = (num_seeds, num_rows, 12)
        logits_SNC = generator.normal(size=shape).astype(np.float32)
        logits_SNC[:, np.arange(num_rows), labels] += strength
        answers = [Answers(logits_NC, labels) for logits_NC in logits_SNC]
        scored = score_of_seeds(score_named(name), answers)
        assert scored is not None
        return scored

    weak = score_of_strength(1.5)
    strong = score_of_strength(3.0)
    return weak, strong


def test_all_scores_but_the_calibration_error_allow_claims() -> None:
    claiming = [name for name in SCORES if not score_named(name).no_claim_reason]
    assert claiming == CLAIMING


def test_a_score_that_allows_no_claim_says_why() -> None:
    score = score_named("ece")
    weak, strong = weak_and_strong("ece")
    claim = claim_by_score(score, strong, weak, margin=score.margin)
    assert claim.p is None
    assert claim.verdict == claim.on_these_rows.verdict == "no claim"
    assert claim.no_claim_reason == score.no_claim_reason


@pytest.mark.parametrize("name", CLAIMING)
def test_what_is_better_is_called_better_whichever_way_the_score_points(
    name: str,
) -> None:
    score = score_named(name)
    weak, strong = weak_and_strong(name)
    better = claim_by_score(score, strong, weak, margin=score.margin)
    worse = claim_by_score(score, weak, strong, margin=score.margin)
    assert better.verdict == better.on_these_rows.verdict == "better"
    assert worse.verdict == worse.on_these_rows.verdict == "worse"
    assert (better.difference > 0) == score.larger_is_better
    assert better.difference == pytest.approx(-worse.difference)
    assert better.p == pytest.approx(worse.p)
    interval = interval_by_score(score, weak)
    assert interval is not None
    low, high = interval
    assert low <= weak.values.mean() <= high


@pytest.mark.parametrize("num_rows", [30, 100, 300])
@pytest.mark.parametrize("name", CLAIMING)
def test_0_is_outside_the_interval_exactly_where_p_is_small(
    name: str, num_rows: int
) -> None:
    score = score_named(name)
    weak, strong = weak_and_strong(name, num_rows=num_rows)
    claim = claim_by_score(score, strong, weak, margin=score.margin)
    assert claim.p is not None
    assert claim.interval is not None
    low, high = claim.interval
    assert (not low <= 0 <= high) == (claim.p < stats.ALPHA)


BOUNDED = [name for name in CLAIMING if name not in ("accuracy", "top-5", "log-loss")]
"""Scores, but shares of hits, of which one more row can change so much and no more."""


@pytest.mark.parametrize("sizes", [(2, 40), (3, 200), (12, 300)], ids=str)
@pytest.mark.parametrize("name", BOUNDED)
def test_a_row_changes_a_score_by_no_more_than_an_unseen_one_may(
    name: str, sizes: tuple[int, int]
) -> None:
    """Of every class, a row that is right in place of one taken for each other."""
    num_classes, num_rows = sizes
    rows = rows_of(num_classes, num_rows)
    score = score_named(name)
    one_seed = score.seed_score(Answers(rows.logits, rows.labels))
    assert one_seed is not None
    sure = 1e4 * np.eye(num_classes, dtype=np.float32)
    changes = []
    for label in range(num_classes):
        labels = np.append(rows.labels, label)
        values = [
            score.value(Answers(np.append(rows.logits, answer[None], 0), labels))
            for answer in sure
        ]
        changes.append(np.ptp([value for value in values if value is not None]))
    # a first order, in the weight of the row
    assert 0 < max(changes) < 1.05 * one_seed.unseen_change


@pytest.mark.parametrize("name", CLAIMING)
def test_an_interval_includes_tuning_and_few_training_rows(name: str) -> None:
    score = score_named(name)
    weak, _ = weak_and_strong(name, num_rows=300)
    wide = [
        weak,
        replace(weak, tuning_variance=1e-4),
        replace(weak, train_rows=100),
        replace(weak, tuning_variance=1e-4, train_rows=100),
    ]
    intervals = [interval_by_score(score, scored) for scored in wide]
    widths = [np.ptp(interval) for interval in intervals if interval is not None]
    assert len(widths) == 4
    assert widths[0] < widths[1]
    assert widths[2] < widths[3]
    # of these two the rows vary no more than seeds do
    is_flat = name in ("auroc", "top-5")
    assert widths[0] == widths[2] if is_flat else widths[0] < widths[2]


@pytest.mark.parametrize("num_rows", [2, 50, 20_000])
@pytest.mark.parametrize("name", SCORES)
def test_the_same_answers_make_no_claim_of_a_difference(
    name: str, num_rows: int
) -> None:
    """Few rows that agree do not show that all would."""
    score = score_named(name)
    weak, _ = weak_and_strong(name, num_rows=num_rows)
    claim = claim_by_score(score, weak, weak, margin=score.margin)
    assert claim.difference == 0
    assert claim.p in (1, None)
    verdicts = {"no claim" if claim.no_claim_reason else "undecided"}
    if num_rows > 100:
        verdicts.add("equivalent")
    assert claim.verdict in verdicts


@pytest.mark.parametrize("name", SCORES)
def test_one_seed_makes_no_claim(name: str) -> None:
    score = score_named(name)
    weak, strong = weak_and_strong(name, num_seeds=1)
    claim = claim_by_score(score, strong, weak, margin=score.margin)
    assert claim.verdict == ("no claim" if score.no_claim_reason else "undecided")


@pytest.mark.parametrize("margin", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", SCORES)
def test_an_impossible_margin_is_refused(name: str, margin: float) -> None:
    weak, strong = weak_and_strong(name, num_seeds=1, num_rows=2)
    with pytest.raises(ValueError, match="margin"):
        claim_by_score(score_named(name), strong, weak, margin=margin)


def test_no_claim_of_f1_where_a_class_without_rows_is_predicted() -> None:
    score = score_named("macro-f1")
    answers = Answers(*rows_of(3, 200, "one absent"))
    scored = score_of_seeds(score, [answers] * 6)
    assert scored is not None
    claim = claim_by_score(score, scored, scored, margin=0.005)
    assert claim.p is None
    assert claim.verdict == "no claim"
    assert claim.no_claim_reason


def test_a_loss_that_few_rows_make_is_not_claimed_and_counts_as_a_test() -> None:
    score = score_named("log-loss")
    usual_SN = np.random.default_rng(3).normal(1, 0.1, (6, 300))
    skewed_SN = usual_SN.copy()
    skewed_SN[:, 0] += 1000
    skewed = Scored(values=skewed_SN.mean(1), by_row=skewed_SN)
    usual = Scored(values=usual_SN.mean(1), by_row=usual_SN)
    silent = claim_by_score(score, skewed, usual, margin=0.01)
    assert silent.p is None
    assert "skewed" in silent.no_claim_reason
    weak, strong = weak_and_strong("log-loss")
    claim = claim_by_score(score, strong, weak, margin=0.01)
    assert claim.p is not None
    corrected, _ = stats.holm_corrected([claim, silent])
    assert corrected.p_holm == pytest.approx(min(1, 2 * claim.p))
    assert corrected.num_tests == 2


@pytest.mark.parametrize(
    ("interval", "shown"),
    [
        ((-0.2065, 0.0), "-21 to +0"),
        ((-0.2065, -0.0019), "-20.6 to -0.2"),
        ((-0.2065, 0.0003), "-20.65 to +0.03"),
        ((-0.2065, 0.1), "-21 to +10"),
        ((-0.009, -0.00003), "-0.900 to -0.003"),
    ],
    ids=str,
)
def test_a_limit_beside_0_shows_its_side(
    interval: tuple[float, float], shown: str
) -> None:
    """A difference is shown where the interval leaves out 0: a reader must see it."""
    assert score_named("accuracy").span(interval, signed=True) == shown


def test_small_numbers_have_digits() -> None:
    mae = score_named("mae")
    assert mae.text(8.8e-10) == "8.8e-10"
    assert mae.difference(-4e-10) == "-4e-10"
    assert mae.span((1e-9, 2e-9)) == "1e-09 to 2e-09"
    assert mae.span((-4e-10, 2e-10), signed=True) == "-4e-10 to +2e-10"
    assert mae.text(0.0) == "0.0000"
    assert mae.text(0.25) == "0.2500"


@pytest.mark.parametrize("name", ["auroc", "average-precision"])
def test_rows_with_the_same_votes_of_neighbours_are_ties(name: str) -> None:
    """The logits are logarithms of shares in float32, whose sum varies by rounding."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 6, 300)
    votes = np.stack(
        [generator.multinomial(20, 0.1 + 0.4 * np.eye(6)[label]) for label in labels]
    )
    logits = np.log(votes.astype(np.float32) / 20 + np.float32(0.001))
    score_of_class = {
        "auroc": metrics.roc_auc_score,
        "average-precision": metrics.average_precision_score,
    }[name]
    exact = np.mean([score_of_class(labels == k, votes[:, k]) for k in range(6)])
    assert score_named(name).value(Answers(logits, labels)) == pytest.approx(exact)


def test_a_huge_logit_makes_no_ties_of_other_rows() -> None:
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 2, 200)
    logits = generator.normal(size=(200, 2)) + 0.5 * np.eye(2)[labels]
    logits[0] = [0, 1e7]
    logits = logits.astype(np.float32)
    difference = logits[:, 1].astype(np.float64) - logits[:, 0]
    area = score_named("auroc").value(Answers(logits, labels))
    assert area == pytest.approx(metrics.roc_auc_score(labels, difference), abs=1e-5)


@pytest.mark.parametrize(
    "name", ["logits", "labels", "predicted_N", "right_N", "log_p_NC", "log_odds_NC"]
)
def test_a_score_that_edits_its_answers_fails_and_changes_nothing(name: str) -> None:
    logits = np.random.default_rng(0).normal(size=(6, 2))
    labels = np.arange(6) % 2
    answers = Answers(logits, labels)
    with pytest.raises(ValueError, match="read-only"):
        getattr(answers, name)[0] = 0
    # the caller may still write its own array
    logits[0] = 1
