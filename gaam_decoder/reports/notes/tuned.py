"""How the numbers of the rows were chosen, and which rows are under-trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.notes.weaknesses import labelled
from gaam_decoder.reports.table.base import Table
from gaam_decoder.runs.tuning import TUNED, Candidate, Tuning


def notes(table: Table) -> Iterator[str]:
    """What was tried, what chose, and what that leaves open."""
    tuned = [(label, row) for label, row in labelled(table) if row.tunings]
    if tuned:
        yield (
            "tuned: of the runs that differ in learning rate or weight decay alone the one with "
            "the best mean validation accuracy is shown; no test score chooses (--all shows all)"
        )
        yield from _seeds(table)
    for label, row in tuned:
        yield f"{label}: {_by_fold(row.tunings) if row.folds > 1 else _grid(row.tunings[0])}"


def doubts(table: Table) -> Iterator[str]:
    """Which rows may do better, and where nothing could choose."""
    if table.unchosen:
        labels = table.labels()
        names = ", ".join(labels[place] for place in table.unchosen)
        yield (
            f"not chosen among: {names}: no seed with a validation accuracy is in all of them; nor "
            "may the test accuracies above choose"
        )
    if short := [label for label, row in labelled(table) if row.too_short]:
        yield f"under-trained, the best epoch is the last (more --epochs): {', '.join(short)}"
    edges: dict[str, list[str]] = {}
    for label, row in labelled(table):
        for name in row.at_edge:
            edges.setdefault(name, []).append(label)
    for name, labels in edges.items():
        option = name.replace("_", "-")
        yield f"under-trained, {option} is at the edge of its grid: {', '.join(labels)}"
    alike = (row for row in table.rows if row.select == "val" and not row.fitted | row.shuffled)
    if len({row.tunings and row.tunings[0].grid for row in alike}) > 1 and any(
        row.tunings for row in table.rows
    ):
        yield (
            "not all rows had the same grid: what was tried more often has had more chances, "
            "and what was tried once may only need another rate"
        )


def _seeds(table: Table) -> Iterator[str]:
    """Which seeds chose, and whether others report."""
    ways: dict[tuple[tuple[int, ...], bool], None] = {}
    for row in table.rows:
        for tuning in row.tunings:
            ways.setdefault((tuning.seeds, tuning.apart))
    for seeds, apart in ways:
        said = "other seeds report" if apart else "the same seeds report, or some of them"
        yield f"seeds {spell_numbers(seeds)} chose, by validation alone; {said}"


def _grid(tuning: Tuning) -> str:
    """``lr 0.001 of 0.0001 (88.2%), 0.001 (89.1%)``."""
    names = tuning.names or TUNED[:1]
    spelt = [
        f"{' and '.join(_spell(c.values[name]) for name in names)} " + _how_good(c)
        for c in tuning.candidates
    ]
    chosen = " and ".join(f"{name} {_spell(tuning.chosen[name])}" for name in names)
    return f"{chosen} of {', '.join(spelt)} on validation"


def _how_good(candidate: Candidate) -> str:
    if candidate.accuracy is not None:
        return f"({100 * candidate.accuracy:.1f}%)"
    return "(not by these seeds)" if candidate.lacks else "(a seed failed)"


def _by_fold(tunings: Sequence[Tuning]) -> str:
    """``lr 0.001 (3 folds), 0.003 (2 folds) of 0.001, 0.003``."""
    parts = []
    for name in dict.fromkeys(name for tuning in tunings for name in tuning.names):
        count = Counter(tuning.chosen[name] for tuning in tunings)
        tried = sorted({c.values[name] for tuning in tunings for c in tuning.candidates})
        chosen = ", ".join(
            f"{_spell(value)} ({counted_folds(count[value])})" for value in sorted(count)
        )
        parts.append(f"{name} {chosen} of {', '.join(map(_spell, tried))}")
    return f"{'; '.join(parts)}, each fold by its own validation rows"


def counted_folds(count: int) -> str:
    """``1 fold`` or ``2 folds``."""
    return f"{count} fold{'s' * (count != 1)}"


def _spell(value: float) -> str:
    return f"{value:.6g}"
