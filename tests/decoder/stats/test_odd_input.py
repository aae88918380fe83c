"""What every statistic makes of nothing, of one value, of equal values and of no numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gaam_decoder import stats

ONE_SAMPLE: dict[str, Callable[[np.ndarray], Any]] = {
    "standard_deviation": stats.standard_deviation,
    "t_interval": stats.t_interval,
    "minimum_detectable_difference": stats.minimum_detectable_difference,
    "corrected_resampled_t": lambda values: stats.corrected_resampled_t(values, 0.25),
}
NO_NUMBERS = [np.nan, np.inf, -np.inf]


def two_levels(values: np.ndarray) -> tuple[float, float] | None:
    """Of seeds that are right on such a share of every row."""
    return stats.two_level_interval(np.tile(values[:, None], 50), without_seeds=True)


def numbers(result: Any) -> list[float]:
    """All numbers of a result."""
    if result is None:
        return []
    if isinstance(result, (stats.SignFlip, stats.McNemar)):
        return [result.p]
    if isinstance(result, stats.CorrectedT):
        return [*result.interval]
    return [float(value) for value in np.ravel(result)]


@pytest.mark.parametrize("name", ONE_SAMPLE)
def test_nothing_and_one_value_have_no_spread(name: str) -> None:
    for values in (np.array([]), np.array([0.5])):
        assert ONE_SAMPLE[name](values) is None


@pytest.mark.parametrize("name", ONE_SAMPLE)
def test_equal_values_have_a_spread_of_nothing(name: str) -> None:
    for value in (0.0, 1.0, 0.1, 1 / 3, 0.7):
        for count in (2, 3, 7, 40):
            found = numbers(ONE_SAMPLE[name](np.full(count, value)))
            if len(found) == 1:
                assert found == [0.0]
            else:
                np.testing.assert_allclose(found, [value, value], atol=1e-12)


@pytest.mark.parametrize("name", ONE_SAMPLE)
def test_two_values_as_far_apart_as_can_be_give_numbers(name: str) -> None:
    for values in ([0.0, 1.0], [0.0] * 9 + [1.0], [0.0, 1e-300], [-1.0, 1.0]):
        found = numbers(ONE_SAMPLE[name](np.array(values)))
        assert found
        assert np.isfinite(found).all()


@pytest.mark.parametrize("bad", NO_NUMBERS)
def test_what_is_no_number_is_refused(bad: float) -> None:
    for function in [*ONE_SAMPLE.values(), stats.sign_flip, two_levels]:
        for values in ([bad], [bad, 0.5], [0.5, 0.4, bad], [bad] * 30):
            with pytest.raises(ValueError, match="finite values"):
                function(np.array(values))
    logits = np.zeros((2, 3, 2), np.float32)
    logits[1, 2, 0] = bad
    with pytest.raises(ValueError, match="finite values"):
        stats.majority_votes(logits, np.array([[0, 0, 0], [1, 1, 1]]))
    for p in ([bad], [0.5, bad], [-0.1], [1.1]):
        with pytest.raises(ValueError, match="between 0 and 1"):
            stats.holm(np.array(p))


def test_no_rows_are_refused() -> None:
    none, one = np.array([], np.int64), np.array([0])
    for refused in (
        lambda: stats.accuracy(none, none),
        lambda: stats.macro_f1(none, none, 2),
        lambda: stats.f1_of_confusion(np.zeros((3, 3), np.int64)),
        lambda: stats.majority_accuracy(none, one),
        lambda: stats.majority_accuracy(one, none),
        lambda: stats.majority_votes(np.zeros((0, 3, 2), np.float32), np.zeros((0, 3), np.int64)),
        lambda: stats.claim(np.zeros((2, 0), bool), np.zeros((2, 0), bool)),
        lambda: stats.claim(np.zeros((0, 9), bool), np.zeros((0, 9), bool)),
        lambda: stats.sign_flip(np.array([])),
        lambda: stats.seeds_needed(0),
    ):
        with pytest.raises(ValueError, match=r"\w{2}"):
            refused()


def test_labels_that_do_not_fit_are_refused() -> None:
    two, three = np.array([0, 1]), np.array([0, 1, 2])
    for refused in (
        lambda: stats.accuracy(two, three),
        lambda: stats.accuracy(two[:1], three),
        lambda: stats.confusion(two, three, 3),
        lambda: stats.confusion(three, three, 2),
        lambda: stats.confusion(three, -three, 3),
        lambda: stats.macro_f1(three, three, 2),
        lambda: stats.mcnemar(np.ones(2, bool), np.ones(1, bool)),
    ):
        with pytest.raises(ValueError, match=r"for every row|as many|same rows"):
            refused()


def test_extremes_have_the_p_values_that_follow() -> None:
    for count in (1, 2, 6, 20, 21, 60):
        assert stats.sign_flip(np.zeros(count)).p == 1
    for count in (1, 6, 20):
        assert stats.sign_flip(np.full(count, 0.1)).p == 2 / 2**count
    assert 0 < stats.sign_flip(np.full(60, 0.1)).p < 1e-4
    for rows in (0, 1, 5):
        assert stats.mcnemar(np.ones(rows, bool), np.ones(rows, bool)).p == 1
    assert stats.mcnemar(np.ones(1, bool), np.zeros(1, bool)).p == 1
    assert stats.holm(np.array([])).shape == (0,)
    assert stats.holm(np.array([0.0, 1.0])).tolist() == [0.0, 1.0]


def test_accuracies_at_the_ends_are_as_uncertain_as_their_rows_are_few() -> None:
    for rows in (2, 7, 400):
        always, never = (
            stats.two_level_interval(np.full((6, rows), value)) for value in (True, False)
        )
        assert always is not None
        assert never is not None
        assert (always[1], never[0]) == (1.0, 0.0)
        assert 0 < always[0] < 1
        assert always[0] == pytest.approx(1 - never[1])
        both = stats.two_level_interval(np.array([[True] * rows, [False] * rows]))
        np.testing.assert_allclose(both, [0, 1], atol=0.01, err_msg="two seeds, all or nothing")


def test_one_class_and_one_row_have_scores() -> None:
    one = np.array([0])
    assert stats.accuracy(one, one) == stats.macro_f1(one, one, 1) == 1
    assert stats.confusion(one, one, 1).tolist() == [[1]]
    assert stats.macro_f1(np.array([1]), one, 2) == 0
    assert stats.majority_accuracy(one, np.array([1])) == 0
    assert stats.majority_votes(np.zeros((1, 1, 1), np.float32), np.zeros((1, 1), int)) == [0]
