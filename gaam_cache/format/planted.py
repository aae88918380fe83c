"""What a plan says of labels that were drawn from a teacher, whom somebody knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gaam_cache.format.plan import Plan

KEY = "planted"


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
    if parameters is None:
        return None
    return {**parameters, **plan.dataset.get(KEY, {})}
