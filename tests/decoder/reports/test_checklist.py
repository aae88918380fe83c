"""The checklist: every answer is that of the runs, and what no run knows is left to a person."""

from __future__ import annotations

import pytest

from gaam_decoder import RunResult
from gaam_decoder.reports.sections.checklist import TO_FILL, Checklist
from gaam_decoder.reports.table.build import build_tables
from tests.decoder.reports.conftest import answers, build_run

ITEMS = {
    "claims", "limitations", "reproducibility", "data and code", "experimental setting",
    "statistical significance", "compute", "licences",
}  # fmt: skip


def answered(runs: list[RunResult]) -> dict[str, list[str]]:
    section = Checklist().of(build_tables(runs)[0])
    assert section is not None
    found: dict[str, list[str]] = {}
    for line in section.values:
        found.setdefault(line["item"], []).append(line["answer"])
    assert [[x["item"], x["answer"]] for x in section.values] == section.sheets[0].lines
    assert set(found) == ITEMS
    return found


@pytest.mark.parametrize("seeds", [1, 2, 6, 20])
@pytest.mark.parametrize("select", ["val", "last", "test"])
def test_seeds_selection_and_time_are_those_of_the_runs(seeds: int, select: str) -> None:
    runs = [
        build_run(name, answers(seeds, 0.8, place), select=select)
        for place, name in enumerate(("none", "gaam", "mha"))
    ]
    found = answered(runs)
    assert any(text.startswith(f"{seeds} seeds") for text in found["statistical significance"])
    claimed = any("Holm for 2" in text for text in found["statistical significance"])
    assert claimed == (seeds >= 6)
    assert any("optimistic" in text for text in found["experimental setting"]) == (select == "test")
    assert any("Optimistic" in text for text in found["limitations"]) == (select == "test")
    taken = sum(sum(run.seconds.values()) for run in runs)
    assert found["compute"][1].startswith(f"{round(taken)} s ")


def test_what_was_tuned_is_counted() -> None:
    runs = [
        build_run(
            name, answers(3, 0.8, 1), lr=lr, path=f"{name}{lr}", validation=0.9 - abs(lr - 1e-3),
            tuning_seeds=(0, 1, 2),
        )
        for name in ("none", "gaam")
        for lr in (1e-4, 1e-3, 1e-2)
    ]  # fmt: skip
    found = answered(runs)
    assert any("3 values" in text and "0-2" in text for text in found["experimental setting"])
    assert any("12 trainings of candidates" in text for text in found["compute"])


def test_licences_are_never_made_up() -> None:
    found = answered([build_run("none", answers(2, 0.8, 1))])
    assert all(text.startswith(TO_FILL) for text in found["licences"])
    assert any("no claim" in text for text in found["statistical significance"])
    assert "no number of the recipe was tuned" in found["experimental setting"]
