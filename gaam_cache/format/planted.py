"""What a plan says of labels that were drawn from a teacher, whom somebody knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gaam_cache.format.plan import Plan

KEY = "planted"
GAUSSIAN = "gaussian"
"""What ``states`` says of those that were drawn; else it is the fingerprint of a cache."""
NEEDED = {"gate", "mechanism", "parameters", "strength", "seed", "states"}
"""Keys of the parameters; FORMAT.md says what they mean."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Planted:
    """JSON values without fractions: those are text."""

    parameters: Mapping[str, Any]
    """All that decides the labels; the fingerprint covers them."""
    figures: Mapping[str, Any]
    """What the teacher knows of them, such as its own accuracy; information only."""


def planted_in(plan: Plan) -> dict[str, Any] | None:
    """Parameters and figures of the teacher of a cache; None where there was none."""
    parameters = plan.fingerprint_fields["encoder"].get("imported", {}).get(KEY)
    figures = plan.dataset.get(KEY, {})
    whole = isinstance(parameters, dict) and isinstance(figures, dict)
    if not whole or not parameters.keys() >= NEEDED:
        return None
    return {**figures, **parameters}


def in_one_line(planted: Mapping[str, Any]) -> str:
    """What ``planted_in`` found, for people."""
    return (
        f"drawn from a teacher: gate {planted['gate']}, strength {planted['strength']}, "
        f"seed {planted['seed']}; its accuracy is {planted.get('teacher_accuracy', 'not said')}"
    )
