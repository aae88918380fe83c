"""What came of retraining on some of the layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gaam_cache.errors import NumericsError
from gaam_decoder import stats
from gaam_decoder.analysis.importance import Importance
from gaam_decoder.number_lists import spell_numbers

PAIRS = (("high", "low"), ("high", "random"), ("low", "random"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The same experiment on some of the layers. Accuracies are fractions."""

    name: str
    """all, high, low or random."""
    layers: tuple[int, ...]
    """Numbers in the encoder, from 1."""
    accuracy: dict[int, float]
    """Per seed that finished."""
    failed: dict[int, str]
    runs: tuple[str, ...]
    """Folders of the runs that hold these seeds."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "name": self.name,
            "layers": list(self.layers),
            "accuracy": _spread(np.array(list(self.accuracy.values())), least=0),
            "per_seed": [{"seed": s, "accuracy": a} for s, a in sorted(self.accuracy.items())],
            "failed_seeds": [{"seed": s, "reason": why} for s, why in sorted(self.failed.items())],
            "runs": list(self.runs),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Ablation:
    """What became of a mechanism on few layers."""

    run: str
    ranked_by: str
    """Mechanism whose attention map ranked the layers."""
    attention: str
    """Mechanism that was trained on them."""
    seed: int
    importance: Importance
    groups: tuple[Group, ...]

    def differences(self) -> list[dict[str, Any]]:
        """Mean differences of accuracy over seeds that finished in both groups, as JSON values."""
        by_name = {group.name: group.accuracy for group in self.groups}
        found = []
        for first, second in PAIRS:
            both = sorted(by_name[first].keys() & by_name[second].keys())
            values = np.array([by_name[first][s] - by_name[second][s] for s in both])
            found.append(
                {"first": first, "second": second, "seeds": both, **_spread(values, least=-1)}
            )
        return found

    def check(self) -> None:
        """Refuse what no seed finished of.

        Raises:
            NumericsError: naming the layers and why.
        """
        for group in self.groups:
            if not group.accuracy:
                raise NumericsError(
                    f"every seed failed on the layers {spell_numbers(group.layers)}",
                    expected="a training loss that stays finite",
                    found=next(iter(group.failed.values()), None),
                    where=", ".join(group.runs),
                    hint="train the run again with a lower --lr and ablate that",
                )

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "run": self.run,
            "ranked_by": self.ranked_by,
            "attention": self.attention,
            "seed": self.seed,
            "importance": self.importance.to_dict(),
            "groups": [group.to_dict() for group in self.groups],
            "differences": self.differences(),
        }

    def in_words(self) -> str:
        """Lines for people; accuracies in percent, differences in percentage points."""
        other = "" if self.attention == self.ranked_by else f", retrained with {self.attention}"
        lines = [f"layers ranked by the importance factor of {self.ranked_by}{other}"]
        width = max(len(spell_numbers(group.layers)) for group in self.groups)
        for group in self.groups:
            line = f"  {group.name:<7} layers {spell_numbers(group.layers):<{width}}  "
            line += _in_words(_spread(np.array(list(group.accuracy.values())), least=0), "%")
            line += f", {len(group.accuracy)} seed{'s' * (len(group.accuracy) != 1)}"
            lines.append(line + (f", {len(group.failed)} FAILED" if group.failed else ""))
        by_name = {group.name: set(group.layers) for group in self.groups}
        if by_name["random"] & (by_name["high"] | by_name["low"]):
            lines.append("random shares layers with the others: there are too few for three groups")
        lines.append("differences, paired by seed, in points")
        for pair in self.differences():
            name = f"{pair['first']} - {pair['second']}"
            lines.append(f"  {name:<14}  {_in_words(pair, '', sign='+')}")
        lines.append(
            "intervals (Student's t, 95%) are over seeds, the test rows taken as given, and"
        )
        lines.append("not corrected for there being three of them")
        if any(len(pair["seeds"]) < stats.LEAST_SEEDS for pair in self.differences()):
            lines.append(
                f"fewer than {stats.LEAST_SEEDS} seeds: nothing can be claimed to be significant"
            )
        return "\n".join(lines)


def _spread(values: np.ndarray, least: float) -> dict[str, Any]:
    """Mean, deviation and interval of accuracies (least 0) or differences of two (least -1)."""
    interval = stats.within(stats.t_interval(values), least, 1)
    return {
        "mean": float(values.mean()) if len(values) else None,
        "std": stats.standard_deviation(values),
        "ci95": list(interval) if interval else None,
    }


def _in_words(spread: dict[str, Any], unit: str, sign: str = "") -> str:
    if spread["mean"] is None:
        return "no seed finished"
    # + 0.0: what rounds to zero is written without a minus
    text = f"{round(100 * spread['mean'], 2) + 0.0:{sign}.2f}{unit}"
    if spread["ci95"] is not None:
        low, high = (round(100 * bound, 2) + 0.0 for bound in spread["ci95"])
        text += f" (sd {100 * spread['std']:.2f}; {low:{sign}.2f} to {high:{sign}.2f})"
    return text
