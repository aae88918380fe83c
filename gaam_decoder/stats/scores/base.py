"""The base class of all scores, their input and their result.

N test rows, C classes, K numbers or labels of a row.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from gaam_decoder.tasks import CLASSIFICATION, task_of

Floats = NDArray[np.float64]
Interval = tuple[float, float] | None
GRAIN = 2.0**-46
"""Relative precision of log-odds, some 60 roundings of float64."""


@dataclass(frozen=True)
class Answers:
    """The outputs of one seed for the test rows, and their targets."""

    logits: NDArray[np.floating[Any]]
    """(N, C), or (N, K)."""
    labels: NDArray[Any]
    """Classes (N,) int64, numbers (N, K) float64, or labels (N, K) bool."""
    sizes: tuple[int, ...] = ()
    """Number of rows of every fold, whose decoder made its logits; (): one decoder."""
    repeats: int = 1  # how often every test row occurs

    @cached_property
    def predicted_N(self) -> NDArray[np.int64]:
        """Class of the largest logit, the first of equal ones."""
        return CLASSIFICATION.predictions(self.logits)

    @cached_property
    def right_N(self) -> NDArray[np.bool_]:
        """Whether the predicted class of each row is its label."""
        return CLASSIFICATION.hits(self.predicted_N, self.labels)

    @cached_property
    def predicted_NK(self) -> NDArray[np.bool_]:
        """Whether a row has a label, by the sign of its logit."""
        has_label_NK: NDArray[np.bool_] = task_of("multi-label").predictions(
            self.logits
        )
        return has_label_NK

    @cached_property
    def p_NK(self) -> Floats:
        """Probabilities of labels, by the sigmoid of their logits."""
        p_NK: Floats = expit(self.logits.astype(np.float64))
        return p_NK

    @cached_property
    def log_p_NC(self) -> Floats:
        """Logarithms of the probabilities, by a log-softmax: always finite."""
        logits_NC = self.logits.astype(np.float64)
        logits_NC -= logits_NC.max(-1, keepdims=True)
        logits_NC -= np.log(np.exp(logits_NC).sum(-1, keepdims=True))
        return logits_NC

    @cached_property
    def log_odds_NC(self) -> Floats:
        """``log p - log(1 - p)``, exact also for p next to 1; zeros for one class."""
        log_p_NC = self.log_p_NC
        if self.num_classes < 2:
            return log_p_NC

        # log(1 - p) of the largest p cancels: sum the other probabilities instead
        first_N1 = log_p_NC.argmax(-1)[:, None]
        power_NC = np.exp(log_p_NC)
        rest_NC = np.log(np.maximum(power_NC.sum(-1, keepdims=True) - power_NC, 1e-300))
        others_NC = log_p_NC.copy()
        np.put_along_axis(others_NC, first_N1, -np.inf, -1)
        most_N1 = others_NC.max(-1, keepdims=True)
        of_first_N1 = most_N1 + np.log(
            np.exp(others_NC - most_N1).sum(-1, keepdims=True)
        )
        np.put_along_axis(rest_NC, first_N1, of_first_N1, -1)

        # round, so that odds are equal if only the order of their sums differs
        size_NC = np.maximum(np.maximum(-log_p_NC, -rest_NC), 1.0)
        grain_NC = np.ldexp(GRAIN, np.frexp(size_NC)[1])
        odds_NC: Floats = np.round((log_p_NC - rest_NC) / grain_NC) * grain_NC
        return odds_NC

    @cached_property
    def count_C(self) -> NDArray[np.int64]:
        """Rows of every class."""
        return np.bincount(self.labels, minlength=self.num_classes)

    @property
    def num_rows(self) -> int:
        """Number of rows, with repetitions."""
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """Number of classes, also of those without rows."""
        return int(self.logits.shape[1])


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedScore:
    """A score of one seed."""

    value: float
    by_row: NDArray[np.bool_] | Floats | None
    """The contribution of every row: their mean is the value. For a score that is no
    mean of rows, the value plus the influence of each row, by the infinitesimal
    jackknife. None if that is not valid."""
    unseen: float = 0.0
    """Sum over the kinds of rows of the squared largest change by a single row."""


def by_influence(
    answers: Answers, value: float, change_N: Floats, largest: Floats
) -> SeedScore:
    """A score that is a smooth function of means over rows.

    Args:
        answers: of one seed.
        value: the score.
        change_N: derivative of the score in the share of every row, its mean over the
            rows subtracted.
        largest: the largest such derivative of every kind of rows.
    """
    share = answers.repeats / answers.num_rows
    unseen = float(np.sum((share * largest) ** 2))
    return SeedScore(value=value, by_row=value + change_N, unseen=unseen)


def by_cell(answers: Answers, value: float, change_CC: Floats) -> SeedScore:
    """A score that is a smooth function of the confusion matrix.

    Args:
        answers: of one seed.
        value: the score.
        change_CC: ``change_N`` of ``by_influence`` for a row of a class (first axis)
            with a predicted class (second).
    """
    change_N = change_CC[answers.labels, answers.predicted_N]
    # the rows of a class are a kind, whatever is predicted
    largest_C = np.abs(change_CC).max(1)[answers.count_C > 0]
    return by_influence(answers, value, change_N, largest_C)


def over_folds(
    answers: Answers, value_of: Callable[[slice], float | None]
) -> float | None:
    """Mean of a score of ranks over the folds, weighted by their rows.

    Rows of different folds are never ranked against one another, for different decoders
    gave their outputs.

    Returns:
        None if a fold does not define the score.
    """
    total = 0.0
    start = 0
    for size in answers.sizes or (answers.num_rows,):
        value = value_of(slice(start, start + size))
        if value is None:
            return None
        total += value * size
        start += size
    return total / answers.num_rows


def percent(value: float | None) -> str:
    """A fraction in percent."""
    return "-" if value is None else f"{100 * value:.1f}"


class Score(ABC):
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
    hits: ClassVar[bool] = False  # whether every row is right or wrong
    of_sizes: ClassVar[bool] = False
    """Whether it measures calibration, and so uses the logits divided by a fitted
    temperature; a score of ranks (AUROC) uses the logits themselves."""
    fewest_classes: ClassVar[int] = 1  # with fewer classes it has no meaning
    of_order: ClassVar[bool] = False
    """Whether it has a meaning only if the classes are ordered: a report shows it only
    where it is asked for."""
    places: Sequence[int] = ()
    """Of a score of ordered classes, the place of each class; empty: 0, 1, ..."""
    no_claim: ClassVar[str] = ""  # why it allows no claim; empty: it does

    @abstractmethod
    def of(self, answers: Answers) -> SeedScore | None:
        """The score of one seed; None if these rows and classes do not define it."""

    def value(self, answers: Answers) -> float | None:
        """The score alone."""
        found = self.of(answers)
        return None if found is None else found.value

    def why_no_claim(self, answers: Answers) -> str:  # noqa: ARG002
        """Why these logits allow no claim; empty if they do."""
        return self.no_claim

    def place_C(self, num_classes: int) -> NDArray[np.int64]:
        """The place of every class in the order of the classes."""
        return np.array(self.places or range(num_classes), np.int64)

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
    def of_differences(self) -> str:
        """Unit of its differences."""
        if self.percent:
            return f"{self.title} points"
        return self.title

    def text(self, value: float | None) -> str:
        """A mean, for people."""
        if self.percent or value is None:
            return percent(value)
        if abs(value) < 1e4:
            return f"{value:.4f}"
        return f"{value:.3g}"

    def std(self, value: float | None) -> str:
        """A standard deviation."""
        if value is None:
            return "-"
        if self.percent:
            return f"{100 * value:.2f}"
        return f"{value:.4g}"

    def difference(self, value: float) -> str:
        """A difference, with its sign."""
        digits = 2 if self.percent else 4
        return f"{self.factor * value:+z.{digits}f}"

    def size(self, value: float, digits: str = ".4g") -> str:
        """The size of a difference, with its unit."""
        if self.percent:
            return f"{100 * value:{digits}} points"
        return f"{value:.4g}"

    def span(self, interval: Interval, *, signed: bool = False) -> str:
        """An interval; in percent or points to two digits of its half width."""
        if interval is None:
            return "-"
        digits = self._digits(interval, signed)
        sign = "+" if signed else ""
        return " to ".join(
            f"{self.factor * bound:{sign}z.{digits}f}" for bound in interval
        )

    def _digits(self, interval: tuple[float, float], signed: bool) -> int:
        """Decimals of the limits of an interval."""
        if not self.percent:
            return 4
        half_width = 50 * (interval[1] - interval[0])
        if half_width >= 10:
            return 0
        if half_width >= 1 or not signed:
            return 1
        return 2
