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
    """The score of that name; a ConfigError where there is none."""
    found: Score = plugins.load(PACKAGE, name, kind="score")()
    return found


def all_scores() -> dict[str, Score]:
    """Every score by its name."""
    return {name: score_of(name) for name in [DEFAULT, *plugins.names(PACKAGE)]}


def percent(value: float | None) -> str:
    """A fraction in percent."""
    return "-" if value is None else f"{100 * value:.1f}"


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
        return self.score.title + " %" * self.score.percent

    @property
    def of_differences(self) -> str:
        """What differences are counted in."""
        return self.score.title + " points" * self.score.percent

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
        return f"{self.factor * value:+z.{2 if self.score.percent else 4}f}"

    def size(self, value: float, digits: str = ".4g") -> str:
        """How large a difference is, in words."""
        return f"{100 * value:{digits}} points" if self.score.percent else f"{value:.4g}"

    def span(self, interval: Interval, *, signed: bool = False) -> str:
        """An interval; in percent or points to two digits of its half width."""
        if interval is None:
            return "-"
        digits = 4
        if self.score.percent:
            half = 50 * (interval[1] - interval[0])
            digits = 0 if half >= 10 else 1 if half >= 1 or not signed else 2
        form = f"{'+' if signed else ''}z.{digits}f"
        return " to ".join(f"{self.factor * bound:{form}}" for bound in interval)


def margin_of(margin: float | None, score: Score) -> float:
    """A margin as claims have it: a fraction, or in the unit of the score; or a ConfigError."""
    if margin is None:
        return score.margin
    unit, factor = Unit(score), Unit(score).factor
    if isinstance(margin, (int, float)) and 0 < margin / factor < score.highest:
        return margin / factor
    most = f" and below {factor * score.highest:g}" if score.highest < 1e9 else ""
    expected = f"{unit.of_differences} above 0{most}"
    raise ConfigError("--margin is out of range", expected=expected, found=str(margin))


def numbered(names: list[str]) -> list[str]:
    """The names, those that are there several times with their place behind them."""
    return [n + f" #{place}" * (names.count(n) > 1) for place, n in enumerate(names, 1)]
