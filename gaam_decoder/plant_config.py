"""What to plant: gates that are known, and one frozen dataclass that validates itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gaam_cache.errors import ConfigError
from gaam_cache.settings import KEY, Rule, check_at_least, check_rules, settle_paths

GateName = Literal["laplace", "gaussian", "student-t", "two-peaks", "none"]


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate: the same for all features, with one head and no offset."""

    mechanism: str
    """The name of the mechanism that can express it exactly."""
    parameters: Mapping[str, float]
    """As the mechanism stores them, by name."""
    formula: str
    attn: str
    """What to train, as ``--attn`` takes it."""


GATES: dict[str, Gate] = {
    "laplace": Gate("laplace", {"b": 0.5}, "exp(-|r| / 0.5)", "laplace:heads=1"),
    "gaussian": Gate("gaam", {"xi": 0.5}, "exp(-r^2 / (2 * 0.5))", "gaam:heads=1"),
    "student-t": Gate(
        "student-t", {"nu": 1.0, "xi": 0.25}, "1 / (1 + r^2 / 0.25)", "student-t:heads=1"
    ),
    # from k = 2, where a second peak does not begin to show, training hardly gets away
    "two-peaks": Gate(
        "chi2",
        {"excess": 2.0, "xi": 0.5},
        "q / 2 * exp(-(q - 2) / 2), q = r^2 / 0.5",
        "chi2:heads=1,k=3",
    ),
    "none": Gate("none", {}, "1: the mean over layers decides", "none"),
}
"""Widths at which, on Gaussian states of 16 layers, a linear map of the states explains less than
5% of the variance of what a gate with one peak lets through, and 19% of one with two; a Gaussian
gate of the best width leaves 4% of the Laplace, 2% of the Student-t and half of the two-peaked one
unexplained (``tests/decoder/analysis/test_plant.py``). None of them is where training
starts."""

ROWS = 6000
"""Of Gaussian states where nobody says: 4,000 to learn from, on which the head of the default size
(512 numbers) is within 2 points of its teacher, and 2,000 to test on."""
LAYERS, WIDTH = 16, 8
"""Of Gaussian states where nobody says: enough layers for 1, 2, 4 and 8 heads."""
LEAST_LAYERS = 3
"""Of a gate: over two layers every standardised value is 1 or -1, and every gate the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlantConfig:
    """Everything ``gaam plant`` can be told.

    Raises:
        ConfigError: on construction, when a value is out of its range.
    """

    out: Path = Path("planted")
    """Folder of the cache."""
    gate: GateName = "laplace"
    """Through which the labels depend on the states; none: through their mean."""
    strength: float = 4.0
    """Standard deviation of the teacher's logits."""
    from_cache: Path | None = field(default=None, metadata={"option": "--from"})
    """Take the rows of this cache, with labels drawn anew (default: Gaussian states)."""
    layers: int | None = field(default=None, metadata=KEY)
    """Layers of Gaussian states (default: 16)."""
    width: int | None = field(default=None, metadata=KEY)
    """Hidden size of Gaussian states (default: 8)."""
    classes: int = field(default=4, metadata=KEY)
    """Classes that the labels name."""
    rows: int | None = None
    """Rows in all, of which a third is 'test' (default: 6,000, or all of the cache)."""
    seed: int = 0
    """Decides states, teacher and labels."""
    storage_dtype: Literal["float16", "float32"] | None = field(default=None, metadata=KEY)
    """What the cache stores (default: float32, or that of the cache)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work, before anything is read."""
        settle_paths(self)
        check_at_least(self, 2, "classes")
        check_at_least(self, 3, "rows")
        check_at_least(self, 1, "width")
        check_at_least(self, 1 if self.gate == "none" else LEAST_LAYERS, "layers")
        check_at_least(self, 0, "seed")
        of_states = self.from_cache is None
        positive = 0 < self.strength < math.inf
        rules: list[Rule] = [("strength", positive, "is out of range", "a positive number")]
        rules += [
            (name, of_states or getattr(self, name) is None, "is of Gaussian states", "no --from")
            for name in ("layers", "width")
        ]
        check_rules(self, rules)
        if of_states:
            self.check_rows(self.rows or ROWS)

    def check_rows(self, rows: int) -> None:
        """Refuse fewer rows to learn from, or to test on, than classes."""
        if rows // 3 < self.classes:
            raise ConfigError(
                "there are more classes than rows",
                expected=f"--rows of at least {3 * self.classes:,} for {self.classes:,} classes",
                found=f"{rows:,} rows, of which {rows // 3:,} are 'test'",
            )
