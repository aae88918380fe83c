"""What a score is.

N test rows, C classes.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Interval = tuple[float, float] | None
GRAIN = 2.0**-46
"""Of log-odds, by the size of what they are a difference of: some 60 roundings in float64."""


@dataclass(frozen=True)
class Answers:
    """What one seed said of the test rows."""

    logits: NDArray[np.floating[Any]]
    labels: NDArray[np.int64]
    sizes: tuple[int, ...] = ()
    """Rows of every fold, one after the other: each was scored by a decoder of its own; () of
    one."""
    repeats: int = 1  # how often every row is among them

    @cached_property
    def predicted_N(self) -> NDArray[np.int64]:
        """Class of the largest logit, the first of equals."""
        return self.logits.argmax(-1)

    @cached_property
    def log_p_NC(self) -> Floats:
        """Logarithms of the probabilities; never that of zero, however far apart logits are."""
        logits_NC = self.logits.astype(np.float64)
        logits_NC -= logits_NC.max(-1, keepdims=True)
        logits_NC -= np.log(np.exp(logits_NC).sum(-1, keepdims=True))
        return logits_NC

    @cached_property
    def log_odds_NC(self) -> Floats:
        """``log p - log(1 - p)``, exact where p is next to 1; zeros of one class."""
        log_p_NC = self.log_p_NC
        if self.num_classes < 2:
            return log_p_NC
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
        # what is equal but for the order in which it was summed is equal
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
        """Rows, repeated ones as often as they are."""
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """Classes, whether or not there are rows of them."""
        return self.logits.shape[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A score of one seed."""

    value: float
    by_row: NDArray[np.bool_] | Floats | None
    """What every row adds: their mean is the value. Of a score that is no mean of rows the value
    plus the influence of each row, by the infinitesimal jackknife. None where that is not valid."""
    unseen: float = 0.0
    """Sum over the kinds of rows of the square of what a single row can change at most."""


def percent(value: float | None) -> str:
    """A fraction in percent."""
    return "-" if value is None else f"{100 * value:.1f}"


class Score(ABC):
    """One way to say how good the answers of a decoder are."""

    title: ClassVar[str]  # as reports call it
    larger_is_better: ClassVar[bool] = True
    percent: ClassVar[bool] = True  # shown in percent, and differences in points
    margin: ClassVar[float] = 0.005
    """Largest difference that does not matter where nobody says: half a point, or as much."""
    highest: ClassVar[float] = 1.0  # largest value that can be
    hits: ClassVar[bool] = False  # whether every row is right or wrong
    of_sizes: ClassVar[bool] = False
    """Whether it says how good the sizes of probabilities are, so that it is of scaled logits where
    a temperature was fitted; what only ranks them (AUROC) is of logits as they are."""
    fewest_classes: ClassVar[int] = 1  # with which it says anything
    no_claim: ClassVar[str] = (
        ""  # why nothing is claimed of differences; '' where something may be
    )

    @abstractmethod
    def of(self, answers: Answers) -> Found | None:
        """The score of one seed; None where these rows and classes have none."""

    def value(self, answers: Answers) -> float | None:
        """The score alone."""
        found = self.of(answers)
        return None if found is None else found.value

    def why_no_claim(self, answers: Answers) -> str:  # noqa: ARG002
        """Why nothing may be claimed from such answers; '' where something may be."""
        return self.no_claim

    @property
    def factor(self) -> int:
        """What values are multiplied by where they are shown or drawn."""
        return 100 if self.percent else 1

    @property
    def column(self) -> str:
        """Header of its values."""
        return self.title + " %" * self.percent

    @property
    def of_differences(self) -> str:
        """What differences are counted in."""
        return self.title + " points" * self.percent

    def text(self, value: float | None) -> str:
        """A mean, for people."""
        if self.percent or value is None:
            return percent(value)
        return f"{value:.4f}" if abs(value) < 1e4 else f"{value:.3g}"

    def std(self, value: float | None) -> str:
        """A standard deviation."""
        if value is None:
            return "-"
        return f"{100 * value:.2f}" if self.percent else f"{value:.4g}"

    def difference(self, value: float) -> str:
        """A difference, with its sign."""
        return f"{self.factor * value:+z.{2 if self.percent else 4}f}"

    def size(self, value: float, digits: str = ".4g") -> str:
        """How large a difference is, in words."""
        return f"{100 * value:{digits}} points" if self.percent else f"{value:.4g}"

    def span(self, interval: Interval, *, signed: bool = False) -> str:
        """An interval; in percent or points to two digits of its half width."""
        if interval is None:
            return "-"
        half = 50 * (interval[1] - interval[0])
        digits = (
            (0 if half >= 10 else 1 if half >= 1 or not signed else 2)
            if self.percent
            else 4
        )
        form = f"{'+' if signed else ''}z.{digits}f"
        return " to ".join(f"{self.factor * bound:{form}}" for bound in interval)
