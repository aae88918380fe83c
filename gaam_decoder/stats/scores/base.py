"""The base class of all scores, their input and their result.

N test rows, C classes, K numbers or labels of a row.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from gaam_cache.common.own_code import RemembersCode
from gaam_decoder.tasks import CLASSIFICATION, task_of

Floats = NDArray[np.float64]
Interval = tuple[float, float] | None
GRAIN = 2.0**-46
"""Relative precision of log-odds, some 60 roundings of float64."""
GRAIN_OF_LOGITS = 2.0**-20
"""Precision of log-odds in their standard deviations. Logits are stored in float32:
its roundings must not break ties, such as those of votes of neighbours."""


def _next_power_of_two(values: Floats) -> Floats:
    """The power of two above each value; 1 for 0."""
    _mantissas, exponents = np.frexp(values)
    powers: Floats = np.ldexp(1.0, exponents)
    return powers


Array = TypeVar("Array", bound=NDArray[Any])


def _read_only(array: Array) -> Array:
    """A view that cannot be written: several scores read the same array."""
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True)
class Answers:
    """The outputs of one seed for the test rows, and their targets.

    All arrays are read-only.
    """

    logits: NDArray[np.floating[Any]]
    """(N, C), or (N, K)."""
    labels: NDArray[Any]
    """Classes (N,) int64, numbers (N, K) float64, or labels (N, K) bool."""
    fold_sizes: tuple[int, ...] = ()
    """Number of rows of every fold, whose decoder made its logits; (): one decoder.
    The rows of a fold stand together, in the order of the folds."""
    tests_per_row: int = 1
    """How often every test row occurs among the N rows: the number of repeats of a
    cross-validation."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "logits", _read_only(self.logits))
        object.__setattr__(self, "labels", _read_only(self.labels))

    @cached_property
    def predicted_N(self) -> NDArray[np.int64]:
        """Class of the largest logit, the first of equal ones."""
        return _read_only(CLASSIFICATION.predictions(self.logits))

    @cached_property
    def right_N(self) -> NDArray[np.bool_]:
        """Whether the predicted class of each row is its label."""
        return _read_only(CLASSIFICATION.hits(self.predicted_N, self.labels))

    @cached_property
    def predicted_NK(self) -> NDArray[np.bool_]:
        """Whether a row has a label, by the sign of its logit."""
        has_label_NK: NDArray[np.bool_] = task_of("multi-label").predictions(
            self.logits
        )
        return _read_only(has_label_NK)

    @cached_property
    def p_NK(self) -> Floats:
        """Probabilities of labels, by the sigmoid of their logits."""
        p_NK: Floats = expit(self.logits.astype(np.float64))
        return _read_only(p_NK)

    @cached_property
    def log_p_NC(self) -> Floats:
        """Logarithms of the probabilities, by a log-softmax: always finite."""
        logits_NC = self.logits.astype(np.float64)
        logits_NC -= logits_NC.max(-1, keepdims=True)
        logits_NC -= np.log(np.exp(logits_NC).sum(-1, keepdims=True))
        return _read_only(logits_NC)

    @cached_property
    def log_odds_NC(self) -> Floats:
        """``log p - log(1 - p)``, also for p next to 1; zeros for one class.

        It is rounded so that rounding errors of the logits break no ties.
        """
        log_p_NC = self.log_p_NC
        if self.num_classes < 2:
            return log_p_NC

        # log(1 - p) of every class; 1e-300 avoids log(0)
        p_NC = np.exp(log_p_NC)
        log_rest_NC = np.log(np.maximum(p_NC.sum(-1, keepdims=True) - p_NC, 1e-300))

        # 1 - p of the largest p cancels: sum the probabilities of the others instead
        top_class_N1 = log_p_NC.argmax(-1)[:, None]
        log_others_NC = log_p_NC.copy()
        np.put_along_axis(log_others_NC, top_class_N1, -np.inf, -1)
        largest_other_N1 = log_others_NC.max(-1, keepdims=True)
        log_rest_of_top_N1 = largest_other_N1 + np.log(
            np.exp(log_others_NC - largest_other_N1).sum(-1, keepdims=True)
        )
        np.put_along_axis(log_rest_NC, top_class_N1, log_rest_of_top_N1, -1)

        # Equal odds may differ by rounding errors, if sums had another order. They are
        # rounded to multiples of a step: GRAIN times the power of two above the larger
        # logarithm, or GRAIN_OF_LOGITS times that above the standard deviation, but not
        # above the larger logarithm: a few huge logits say nothing of other rows.
        odds_NC = log_p_NC - log_rest_NC
        larger_log_NC = np.maximum(np.maximum(-log_p_NC, -log_rest_NC), 1.0)
        step_NC = GRAIN * _next_power_of_two(larger_log_NC)
        spread_NC = np.minimum(odds_NC.std(0), larger_log_NC)
        step_NC = np.maximum(step_NC, GRAIN_OF_LOGITS * _next_power_of_two(spread_NC))
        rounded_NC: Floats = np.round(odds_NC / step_NC) * step_NC
        return _read_only(rounded_NC)

    @cached_property
    def count_C(self) -> NDArray[np.int64]:
        """Rows of every class."""
        return _read_only(np.bincount(self.labels, minlength=self.num_classes))

    @property
    def num_rows(self) -> int:
        """Number of rows, with repetitions."""
        return len(self.labels)

    @property
    def rows_of_folds(self) -> list[slice]:
        """The rows of every fold; one slice of all rows if there are no folds."""
        slices = []
        start = 0
        for num_fold_rows in self.fold_sizes or (self.num_rows,):
            slices.append(slice(start, start + num_fold_rows))
            start += num_fold_rows
        return slices

    @property
    def num_classes(self) -> int:
        """Number of classes, also of those without rows."""
        return int(self.logits.shape[1])


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedScore:
    """A score of one seed."""

    value: float
    by_row: NDArray[np.bool_] | Floats | None
    """The contribution of every row, (N,): their mean is the value. For a score that is
    no mean of rows, value + influence of the row (see ``score_with_influences``). None
    if no test over rows is known to hold for such contributions."""
    unseen_change: float = 0.0
    """For rare rows that the test rows may lack: the largest change of the value if one
    more row is right or wrong. ``UNSEEN_FACTOR`` times its square is a variance."""


def score_with_influences(
    answers: Answers, value: float, influence_N: Floats, largest_influence: float
) -> SeedScore:
    """The result for a score that is a smooth function of means over rows, such as F1.

    The influence of a row is the derivative of the score in the weight of this row
    (infinitesimal jackknife, Efron 1982). ``value + influence`` serves as the row's
    contribution, as if the score were a mean over rows. The result also has how much
    one more row could change the score, for rare rows that the test rows may lack.

    Args:
        answers: of one seed.
        value: the score.
        influence_N: influence of every row; the mean over the rows is 0.
        largest_influence: how far the influences of one row can lie apart, as its
            prediction is right or wrong.
    """
    # with repeated folds the answers have every test row several times
    weight_of_test_row = answers.tests_per_row / answers.num_rows
    return SeedScore(
        value=value,
        by_row=value + influence_N,
        unseen_change=weight_of_test_row * largest_influence,
    )


def score_of_label_sets(
    answers: Answers, value: float, influence_N: Floats, change_N: Floats
) -> SeedScore:
    """The result for a score that is a smooth function of means over sets of labels.

    The test rows may lack a row whose labels are all right, or all wrong. It has as
    many labels as others; the influence of a row that is there may be larger.

    Args:
        answers: of one seed.
        value: the score.
        influence_N: influence (see ``score_with_influences``) of every row.
        change_N: by how much the influence of every row would rise if its labels were
            all right in place of all wrong.
    """
    root_mean_square = float(np.sqrt(np.mean(change_N**2)))
    largest_influence = max(root_mean_square, float(np.abs(influence_N).max()))
    return score_with_influences(answers, value, influence_N, largest_influence)


def score_of_confusion_matrix(
    answers: Answers, value: float, influence_CC: Floats
) -> SeedScore:
    """The result for a score that is a smooth function of the confusion matrix.

    Args:
        answers: of one seed.
        value: the score.
        influence_CC: influence (see ``score_with_influences``) of a row, by its class
            (first axis) and its predicted class (second).
    """
    influence_N = influence_CC[answers.labels, answers.predicted_N]
    # how far the predictions for a row of each class lie apart
    range_C = influence_CC.max(1) - influence_CC.min(1)
    return score_with_influences(
        answers, value, influence_N, float(range_C[answers.count_C > 0].max())
    )


def mean_over_folds(
    answers: Answers, value_of: Callable[[slice], float | None]
) -> float | None:
    """Mean of a score of ranks over the folds, weighted by their rows.

    Rows of different folds are never ranked against one another, for different decoders
    gave their outputs.

    Args:
        answers: of one seed.
        value_of: gives the score of the rows in a slice; None if it is undefined there.

    Returns:
        None if the score of any fold is undefined.
    """
    weighted_sum = 0.0
    for rows in answers.rows_of_folds:
        value = value_of(rows)
        if value is None:
            return None
        num_fold_rows = rows.stop - rows.start
        weighted_sum += value * num_fold_rows
    return weighted_sum / answers.num_rows


def percent(value: float | None) -> str:
    """A fraction in percent."""
    return "-" if value is None else f"{100 * value:.1f}"


class Score(RemembersCode, ABC):
    """A measure of how good the predictions of a decoder are."""

    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    """Names of the tasks whose predictions it measures."""
    title: ClassVar[str]  # its name in reports
    larger_is_better: ClassVar[bool] = True
    percent: ClassVar[bool] = True  # shown in percent, and differences in points
    margin: ClassVar[float] = 0.005
    """Default of the largest difference that does not matter: half a point."""
    highest: ClassVar[float] = 1.0  # largest possible value
    lowest: ClassVar[float] = 0.0  # smallest possible value
    is_share_of_hits: ClassVar[bool] = False
    """Whether it is the share of right rows: every row is right or wrong."""
    has_unit_of_numbers: ClassVar[bool] = False
    """Whether it has the unit of the numbers that are predicted."""
    uses_temperature: ClassVar[bool] = False
    """Whether it measures calibration, and so uses the logits divided by a fitted
    temperature; a score of ranks (AUROC) uses the logits themselves."""
    fewest_classes: ClassVar[int] = 1  # with fewer classes it has no meaning
    needs_class_order: ClassVar[bool] = False
    """Whether it has a meaning only if the classes are ordered: a report shows it only
    where it is asked for."""
    class_places: Sequence[int] = ()
    """Of a score of ordered classes, the place of each class in their order, which the
    user gave; empty: 0, 1, ..."""
    no_claim_reason: ClassVar[str] = ""
    """Why no test over rows is known to hold for it; empty if one is."""

    @abstractmethod
    def seed_score(self, answers: Answers) -> SeedScore | None:
        """The score of one seed; None if these rows and classes do not define it."""

    def value(self, answers: Answers) -> float | None:
        """The value of ``seed_score`` alone."""
        score = self.seed_score(answers)
        return None if score is None else score.value

    def why_no_claim(self, answers: Answers) -> str:  # noqa: ARG002
        """Why these outputs allow no claim; "" if they allow one.

        A subclass returns a reason where its score jumps when one output changes: there
        the influences of rows say nothing.
        """
        return self.no_claim_reason

    def places_of_classes(self, num_classes: int) -> NDArray[np.int64]:
        """The place of every class in the order of the classes."""
        return np.array(self.class_places or range(num_classes), np.int64)

    @property
    def largest_difference(self) -> float:
        """Largest possible difference of two values."""
        return self.highest - self.lowest

    @property
    def factor(self) -> int:
        """Factor of values in tables and drawings."""
        return 100 if self.percent else 1

    @property
    def column(self) -> str:
        """Header of its column."""
        if self.percent:
            return f"{self.title} %"
        return self.title

    @property
    def difference_unit(self) -> str:
        """Unit of its differences."""
        if self.percent:
            return f"{self.title} points"
        return self.title

    def text(self, value: float | None) -> str:
        """A mean, for people."""
        if self.percent or value is None:
            return percent(value)
        if abs(value) >= 1e4 or self._is_small(value):
            return f"{value:.3g}"
        return f"{value:.4f}"

    def std(self, value: float | None) -> str:
        """A standard deviation, for people."""
        if value is None:
            return "-"
        if self.percent:
            return f"{100 * value:.2f}"
        return f"{value:.4g}"

    def difference(self, value: float) -> str:
        """A difference, with its sign."""
        if self.percent:
            return f"{100 * value:+z.2f}"
        if self._is_small(value):
            return f"{value:+.3g}"
        return f"{value:+z.4f}"

    def size(self, value: float, digits: str = ".4g") -> str:
        """The size of a difference, with its unit."""
        if self.percent:
            return f"{100 * value:{digits}} points"
        return f"{value:.4g}"

    def span(self, interval: Interval, *, signed: bool = False) -> str:
        """An interval for people; ``signed`` gives limits of differences their signs.

        The limits have about two digits of the half width, if they are in percent.
        """
        if interval is None:
            return "-"
        sign = "+" if signed else ""
        if self._is_small(max(map(abs, interval))):
            return " to ".join(f"{bound:{sign}.3g}" for bound in interval)
        digits = self._digits(interval, signed)
        return " to ".join(
            f"{self.factor * bound:{sign}z.{digits}f}" for bound in interval
        )

    def _is_small(self, value: float) -> bool:
        """Whether four decimals would show little of a value in the numbers' unit."""
        return self.has_unit_of_numbers and 0 < abs(value) < 1e-3

    def _digits(self, interval: tuple[float, float], signed: bool) -> int:
        """Number of decimals of the limits of an interval, fewer for a wide one.

        In percent, a score has one at most. A difference (``signed``) has two at most,
        or up to four for a limit beside 0.
        """
        if not self.percent:
            return 4
        low, high = interval
        half_width = 100 * (high - low) / 2  # in percent
        digits = 1
        if half_width >= 10:
            digits = 0
        elif half_width < 1 and signed:
            digits = 2
        # a limit beside 0 shows on which side of 0 it is
        while signed and digits < 4 and _rounds_to_zero(interval, digits):
            digits += 1
        return digits


def _rounds_to_zero(interval: tuple[float, float], digits: int) -> bool:
    """Whether a limit other than 0 would be shown as 0 percent."""
    return any(bound and not round(100 * bound, digits) for bound in interval)
