"""What a training that was stopped left behind, and which seeds it had together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gaam_decoder.runs.seed_result import SeedResult

Groups = list[list[int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What a training that was stopped left behind."""

    results: dict[int, SeedResult] = field(default_factory=dict)
    at_work: Groups = field(default_factory=list)
    """Seeds of every group that left a checkpoint."""
    engines: list[dict[str, Any]] = field(default_factory=list)
    """How it was begun, as ``SeedStore.begin`` was told; several where that has changed since."""
    planned: Groups = field(default_factory=list)
    """Seeds that were to be trained together."""


def work_groups(
    seeds: Sequence[int], work: Work, most: int | None = None
) -> tuple[Groups, list[int]]:
    """Seeds in groups as they were when the work was begun, and those that were in none.

    First those at work, then those that were planned together and of which nothing is there.

    Args:
        seeds: that are to be trained.
        work: what is there.
        most: seeds of a group, where that is asked for: larger ones are not taken up.
    """
    left = set(seeds)
    groups: Groups = []
    for group in work.at_work:
        if left & set(group) and len(group) <= (most or len(group)):
            groups.append(group)
            left -= set(group)
    for group in work.planned:
        if left >= set(group) and group and len(group) <= (most or len(group)):
            groups.append(group)
            left -= set(group)
    return groups, sorted(left)
