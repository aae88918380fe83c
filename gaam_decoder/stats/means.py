"""Which differences of scores are not rejected, where rows are neither right nor wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scipy.special import ndtr

from gaam_decoder.stats.crossed import Crossed
from gaam_decoder.stats.limits import ALPHA


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanLimits:
    """Which mean differences are too far from the one that was seen; see ``Limits``."""

    found: Crossed
    unseen: float
    """Variance of the mean from rows that may be rare and not among those that were seen."""
    highest: float
    """Largest difference that can be."""

    @property
    def p(self) -> float:
        """Two-sided p of no difference."""
        return min(1.0, 2 * self.found.tail(abs(self.found.mean), self.unseen))

    def p_equivalent(self, margin: float) -> float:
        """Larger of the one-sided p of the margin and of its negative."""
        return self.found.tail(margin - abs(self.found.mean), self.unseen)

    def interval(self) -> tuple[float, float]:
        """All differences that a two-sided test does not reject."""
        half = self.found.distance(ALPHA / 2, self.unseen)
        low, high = self.found.mean - half, self.found.mean + half
        return max(low, -self.highest), min(high, self.highest)

    def decide(self, margin: float, level: float = ALPHA) -> bool:
        """Whether experiments that are expected to show this give a verdict as often as not."""
        size = abs(self.found.mean)
        if size > self.found.distance(level / 2, self.unseen):
            return True
        inside = margin - self.found.distance(level, self.unseen)
        if (spread := self.found.variance**0.5) == 0:
            return inside > size
        return bool(ndtr((inside - size) / spread) - ndtr((-inside - size) / spread) > 0.5)

    def resized(self, num_seeds: int, num_rows: int) -> MeanLimits:
        """What so many seeds and rows of the same kinds would be expected to show."""
        fewer = self.found.num_rows / num_rows
        found = self.found.resized(num_seeds, num_rows)
        return replace(self, found=found, unseen=self.unseen * fewer**2)
