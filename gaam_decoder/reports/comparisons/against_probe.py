"""Every row minus the linear probe on the same states, and what may be said of it."""

from __future__ import annotations

from collections.abc import Sequence

from gaam_decoder import stats
from gaam_decoder.number_lists import DRAWN_BY
from gaam_decoder.reports.comparisons.family import further, numbers
from gaam_decoder.reports.table.rows import Row
from gaam_decoder.reports.table.scaled import same_scale
from gaam_decoder.stats.scored import claim_by_score


def against_probe(
    rows: Sequence[Row], margin: float, others: Sequence[stats.Claim | None] = ()
) -> tuple[stats.Claim | None, ...]:
    """Every row of steps minus the linear probe on the same states and splits, if there is one.

    The probe has no seeds: its answers are the same beside each. Corrected by Holm in a family of
    their own, with ``others``, of which those that are in this one count once.
    """
    made = [_minus_probe(row, rows, margin) for row in rows]
    claims = [claim for claim in made if claim is not None]
    corrected = iter(stats.holm_corrected([*claims, *further(claims, others, numbers)]))
    return tuple(None if claim is None else next(corrected) for claim in made)


def _minus_probe(row: Row, rows: Sequence[Row], margin: float) -> stats.Claim | None:
    if row.fitted or row.shuffled or len(row.scores.seeds) < stats.LEAST_SEEDS:
        return None
    for probe in rows:
        # a fit's recipe holds what plays a part: states, splits, what chooses
        playing = {**dict.fromkeys(DRAWN_BY), **probe.recipe}
        alike = all(row.recipe.get(name) == value for name, value in playing.items())
        there = row.chosen_mean is not None and probe.chosen_mean is not None
        if probe.fitted and not probe.shuffled and there and alike and same_scale(row, probe):
            theirs = probe.scores.chosen.scored.chosen([0] * len(row.scores.seeds))
            return claim_by_score(row.score, row.scores.chosen.scored, theirs, margin=margin)
    return None
