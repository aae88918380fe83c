"""That a report is of some runs only: which were left out, and what that does to its claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

UNNAMED = "name"
"""What left out a run that lies beside those that were named one by one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What was asked for, and what that left out."""

    asked: tuple[str, ...] = ()
    """As the command line has it."""
    chosen: int
    """Runs."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Runs, by what left them out first."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Mechanisms of which no run is left, and what left out the last of them."""
    dated_by_file: int = 0
    """Runs whose date is that of their file, where dates decide."""

    @property
    def total(self) -> int:
        """Runs that there are."""
        return self.chosen + sum(self.left_out.values())

    def after(self, before: Selection | None) -> Selection:
        """The same of runs of which some had been left out already."""
        if before is None:
            return self
        counts = dict.fromkeys((*before.left_out, *self.left_out), 0)
        for found in (before, self):
            for option, count in found.left_out.items():
                counts[option] += count
        return replace(
            self,
            asked=(*before.asked, *self.asked),
            left_out=counts,
            lost={**before.lost, **self.lost},
            dated_by_file=max(before.dated_by_file, self.dated_by_file),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "asked": list(self.asked),
            "runs": self.chosen,
            "of_runs": self.total,
            "left_out": dict(self.left_out),
            "mechanisms_left_out": sorted(self.lost),
        }

    def left_out_in_words(self) -> str:
        """How many runs were left out by what; empty where none were."""
        return ", ".join(_by(option, count) for option, count in self.left_out.items())

    def in_words(self) -> str:
        """A line for people."""
        asked = f" ({' '.join(self.asked)})" if self.asked else ""
        text = f"{self.chosen:,} of {self.total:,} runs{asked}"
        if self.left_out:
            text += f"; left out: {self.left_out_in_words()}"
        if self.dated_by_file:
            text += (
                f"; {self.dated_by_file:,} do not say when they were made, which is when their "
                "file was changed"
            )
        return text


def _by(option: str, count: int) -> str:
    return f"{count:,} not named" if option == UNNAMED else f"{count:,} by {option}"
