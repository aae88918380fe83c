"""Numbers as people read them; those of a score in percent and points, or as they are."""

from __future__ import annotations

from dataclasses import dataclass

from gaam_cache import plugins
from gaam_cache.errors import ConfigError
from gaam_decoder.stats.scores._base import Score

PACKAGE = "gaam_decoder.stats.scores"
DEFAULT = "accuracy"
Interval = tuple[float, float] | None


def score_of(name: str) -> Score:
    """The score of that name.

    Raises:
        ConfigError: there is none.
    """
    found: Score = plugins.load(PACKAGE, name, kind="score")()
    return found


def all_scores() -> dict[str, Score]:
    """Every score by its name."""
    return {name: score_of(name) for name in [DEFAULT, *plugins.names(PACKAGE)]}


def percent(value: float | None) -> str:
    """A fraction in percent."""
    return "-" if value is None else f"{100 * value:.1f}"


def points(value: float, digits: int = 2) -> str:
    """A difference in percentage points, with its sign."""
    return f"{round(100 * value, digits) + 0.0:+.{digits}f}"  # + 0.0: never '-0.00'


def span(interval: Interval, *, signed: bool = False) -> str:
    """An interval in percent, or in points with signs, to two digits of its half width."""
    if interval is None:
        return "-"
    half = 50 * (interval[1] - interval[0])
    digits = 0 if half >= 10 else 1 if half >= 1 else 2
    if signed:
        return " to ".join(points(bound, digits) for bound in interval)
    return " to ".join(f"{100 * bound:.{min(digits, 1)}f}" for bound in interval)


def p_value(p: float | None) -> str:
    """A p-value."""
    if p is None:
        return "-"
    return "<0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


@dataclass(frozen=True, slots=True)
class Unit:
    """How values of a score are written."""

    score: Score

    @property
    def factor(self) -> int:
        """What values are multiplied by where they are drawn."""
        return 100 if self.score.percent else 1

    @property
    def column(self) -> str:
        """Header of its values."""
        return self.score.title + (" %" if self.score.percent else "")

    @property
    def of_differences(self) -> str:
        """What differences are counted in."""
        return f"{self.score.title} points" if self.score.percent else self.score.title

    def value(self, value: float | None) -> str:
        """A mean."""
        if self.score.percent or value is None:
            return percent(value)
        return f"{value:.4f}" if abs(value) < 1e4 else f"{value:.3g}"

    def std(self, value: float | None) -> str:
        """A standard deviation."""
        if value is None:
            return "-"
        return f"{100 * value:.2f}" if self.score.percent else f"{value:.4g}"

    def difference(self, value: float) -> str:
        """A difference, with its sign."""
        return points(value) if self.score.percent else f"{value + 0.0:+.4f}"

    def size(self, value: float, digits: str = ".2f") -> str:
        """How large a difference is, in words."""
        return f"{100 * value:{digits}} points" if self.score.percent else f"{value:.4g}"

    def margin(self, margin: float) -> str:
        """The largest difference that does not matter, in words."""
        return self.size(margin, ".4g")

    def span(self, interval: Interval, *, signed: bool = False) -> str:
        """An interval."""
        if self.score.percent or interval is None:
            return span(interval, signed=signed)
        return " to ".join(f"{bound:{'+' if signed else ''}.4f}" for bound in interval)


def margin_of(margin: float | None, score: Score) -> float:
    """A margin as claims have it: a fraction, or in the unit of the score.

    Raises:
        ConfigError: it is none.
    """
    if margin is None:
        return score.margin
    factor, most = Unit(score).factor, score.highest
    if isinstance(margin, (int, float)) and 0 < margin / factor < most:
        return margin / factor
    points = f"{score.title} points" if score.percent else f"a difference in {score.title}"
    raise ConfigError(
        "--margin is out of range",
        expected=f"{points} above 0" + (f" and below {factor * most:g}" if most < 1e9 else ""),
        found=str(margin),
    )
