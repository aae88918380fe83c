"""Whether several mechanisms differ at all: over seeds and test rows, and on these rows alone."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gaam_decoder import stats
from gaam_decoder.reports.comparisons.pairs import Group
from gaam_decoder.reports.pictures.picture import Picture, slug
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.writing.numbers import p_value
from gaam_decoder.reports.writing.section import Section, Writer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gaam_decoder.stats import Friedman

MOST_PICTURES = 2
"""Those of most rows are drawn."""
MOST_SAID = 2
"""Groups that the lead speaks of one by one; of more it counts, and the lines speak of each."""
ERRORS = "1 to 99"
"""Of 100 experiments in which none differ, those in which Friedman's test says otherwise: three
and six mechanisms, 6 and 20 seeds, 300 and 2,000 rows, by
``python -m tests.benchmarks.bench_error_rates --of pairs``."""


class Omnibus(Writer):
    """The smallest corrected p of all pairs, and the diagram of mean ranks."""

    place = 31

    def of(self, table: Table) -> Section | None:
        """None where fewer than three rows are compared with each other."""
        if table.pairs is None or not table.pairs.there:
            return None
        axis = table.pairs.family.axis.replace("_", "-")
        groups = [group for group in table.pairs.groups if len(group.rows) > 2]
        if not groups:
            return None
        tests = [_friedman(group) for group in groups]
        counts = len(groups) > MOST_SAID
        each = [_said(group, axis, len(groups) > 1) for group in groups]
        return Section(
            name="omnibus",
            heading="Does the choice matter at all",
            lead=_counted(groups, axis) if counts else "; ".join(each),
            lines=(*(each if counts else ()), *_lines(groups, tests)),
            pictures=tuple(
                _picture(group, test, axis)
                for group, (test, _) in zip(groups[:MOST_PICTURES], tests, strict=False)
                if test is not None
            ),
            values={
                "axis": axis,
                "groups": [
                    _values(group, test, seeds)
                    for group, (test, seeds) in zip(groups, tests, strict=True)
                ],
            },
        )


def _friedman(group: Group) -> tuple[Friedman | None, tuple[int, ...]]:
    """The test over the seeds that all rows finished; None for fewer than 6."""
    everywhere = set.intersection(*(set(row.scores.seeds) for row in group.rows))
    seeds = tuple(sorted(everywhere))
    if len(seeds) < stats.LEAST_SEEDS:
        return None, seeds
    value_KS = [
        row.scores.chosen.scored.values[np.searchsorted(row.scores.seeds, seeds)]
        for row in group.rows
    ]
    better = 1 if group.rows[0].score.larger_is_better else -1
    return stats.friedman(better * np.stack(value_KS, 1)), seeds


def _counted(groups: list[Group], axis: str) -> str:
    """In how many groups there is a difference."""
    found = [group.smallest for group in groups if group.smallest is not None]
    rows = f"groups of rows that differ in {'mechanism' if axis == 'attn' else axis} alone"
    if not found:
        return f"of {len(groups)} {rows} no claim is made"
    apart = sum(smallest < stats.ALPHA for smallest in found)
    lead = (
        f"in {apart} of {len(groups)} {rows} not all are alike (smallest p {p_value(min(found))})"
    )
    lacking = len(groups) - len(found)
    return lead + (f"; of {lacking} no claim is made" if lacking else "")


def _said(group: Group, axis: str, several: bool) -> str:
    what = "mechanisms" if axis == "attn" else f"values of {axis}"
    where = f"{group.name}: " if several and group.name else ""
    smallest, count = group.smallest, len(group.rows)
    if smallest is None:
        why = next((p.claim.no_claim for p in group.pairs if p.claim.no_claim), None)
        why = why or f"it needs {stats.LEAST_SEEDS} seeds"
        return f"{where}no claim of {count} {what}: {why}"
    if smallest < stats.ALPHA:
        return f"{where}the {count} {what} are not all alike (p {p_value(smallest)})"
    return f"{where}no difference among {count} {what} is shown (p {p_value(smallest)})"


def _lines(groups: list[Group], tests: list[tuple[Friedman | None, tuple[int, ...]]]) -> list[str]:
    found = [
        "p is the smallest of all pairs over seeds and test rows, after Holm's correction: where "
        "none differ, it is below 0.05 in 5 of 100 cases or fewer"
    ]
    for group, (test, seeds) in zip(groups, tests, strict=True):
        where = f"{group.name}: " if len(groups) > 1 and group.name else ""
        out = sorted({seed for row in group.rows for seed in row.seeds} - set(seeds))
        rest = f"; without {len(out)} seeds that some lack or failed" if out else ""
        if test is None:
            found.append(f"{where}no test of ranks: {len(seeds)} seeds are of all rows{rest}")
            continue
        found.append(
            f"{where}on these test rows alone, Friedman's test over {test.num_seeds} seeds (Iman "
            f"and Davenport) has p {p_value(test.p)}{rest}"
        )
    if any(test for test, _ in tests):
        found.append(
            f"a test of ranks over seeds says nothing of other test rows: in {ERRORS} of 100 "
            "simulated experiments in which no mechanism is more accurate than another it has p < "
            "0.05, mostly the more seeds there are; the diagram of mean ranks is as bold"
        )
    return found


def _picture(group: Group, test: Friedman, axis: str) -> Picture:
    more = f" ({group.name})" if group.name else ""
    spoken = "; ".join(
        f"{label} {rank:.2f}" for label, rank in zip(group.labels, test.mean_ranks, strict=True)
    )
    return Picture(
        kind="omnibus",
        name=f"ranks-{slug(axis)}" + (f"-{slug(group.name)}" if group.name else ""),
        title=f"Mean ranks over seeds{more}, on these test rows alone",
        caption=f"1 is the best; {test.num_seeds} seeds; bars join what Nemenyi's test "
        "does not tell apart at 5%. Other test rows may show something else.",
        alt=f"Critical difference {test.critical_difference:.2f}; mean ranks: {spoken}.",
        draw=partial(_draw, group, test),
    )


def _draw(group: Group, test: Friedman) -> Figure:
    from gaam_decoder.reports.figures.pairs import critical_difference

    return critical_difference(
        test.mean_ranks, group.labels, test.critical_difference, test.alike()
    )


def _values(group: Group, test: Friedman | None, seeds: tuple[int, ...]) -> dict[str, object]:
    return {
        "shared": group.name,
        "labels": list(group.labels),
        "p_seeds_and_rows": group.smallest,
        "complete_seeds": list(seeds),
        "on_these_test_rows": {
            "mean_ranks": list(test.mean_ranks),
            "friedman_chi_squared": test.chi_squared,
            "p_chi_squared": test.p_chi_squared,
            "iman_davenport_f": test.f if np.isfinite(test.f) else None,
            "p": test.p,
            "critical_difference": test.critical_difference,
            "alike": [[group.labels[place] for place in alike] for alike in test.alike()],
        }
        if test
        else None,
    }
