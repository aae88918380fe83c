"""What a checklist of a conference asks of experiments, answered from the runs.

The items are those of the NeurIPS paper checklist (2024) that concern experiments, in our words;
what no run knows is a place to be filled in.
"""

from __future__ import annotations

from collections.abc import Iterator

from gaam_cache.messages import brief, duration
from gaam_decoder import stats
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.notes.claims import LEAD, conclusion
from gaam_decoder.reports.notes.notes import SELECT_NOTES, versions, warnings
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.final_models import all_runs
from gaam_decoder.reports.writing.section import Section, Writer
from gaam_decoder.reports.writing.sheets import Sheet

TO_FILL = "TO BE FILLED IN: "
"""Begins an answer that a person has to give."""


class Checklist(Writer):
    """Stands at the end."""

    place = 90

    def of(self, table: Table) -> Section | None:
        """A sheet of items and answers."""
        answers = [[item, text] for item, texts in _answers(table) for text in texts]
        open_ = sum(text.startswith(TO_FILL) for _, text in answers)
        return Section(
            name="checklist",
            heading="Checklist of experiments",
            lead=f"the items of the NeurIPS checklist that concern experiments, answered from the "
            f"runs; {open_} are for a person to fill in",
            sheets=(
                Sheet(
                    caption="checklist of experiments",
                    header=["item", "answer"],
                    lines=answers,
                    words=("item", "answer"),
                ),
            ),
            finding=False,
            values=[{"item": item, "answer": answer} for item, answer in answers],
        )


def _answers(table: Table) -> Iterator[tuple[str, list[str]]]:
    said = conclusion(table).removeprefix(LEAD)
    yield "claims", [said]
    yield "limitations", [*warnings(table), f"{TO_FILL}one encoder, one data set: what of others?"]
    yield (
        "reproducibility",
        [
            "the signature below the table, and gaam rerun of it",
            f"versions: {versions(table)}",
            f"cache {brief(table.cache['fingerprint'])}",
        ],
    )
    yield (
        "data and code",
        [
            f"data set {brief(table.cache['dataset'])}, encoder {brief(table.cache['encoder'])}",
            f"{TO_FILL}where others get the data, this cache and the runs (gaam export --push)",
        ],
    )
    yield "experimental setting", list(_setting(table))
    yield "statistical significance", list(_errors(table))
    yield "compute", list(_compute(table))
    yield (
        "licences",
        [f"{TO_FILL}of {one}" for one in ("the data", "the encoder", "what is published of this")],
    )


def _setting(table: Table) -> Iterator[str]:
    rows = ", ".join(f"{n:,} {brief(name, 40)}" for name, n in table.cache["rows"].items())
    yield f"rows: {rows}; tested on {brief(table.where)} ({table.num_test_rows:,} rows)"
    for select in sorted({row.select for row in table.rows}):
        yield f"epoch: {SELECT_NOTES.get(select, brief(select, 40))}"
    tried: dict[str, None] = {}
    for row in table.rows:
        for tuning in row.tunings:
            names = " and ".join(tuning.names).replace("_", " ")
            seeds = spell_numbers(tuning.seeds)
            apart = "other seeds report" if tuning.apart else "the same seeds report"
            tried.setdefault(
                f"{names}: {len(tuning.candidates)} values, chosen by validation accuracy of "
                f"seeds {seeds}; {apart}"
            )
    yield from tried or ["no number of the recipe was tuned"]
    yield "all settings: the signature"


def _errors(table: Table) -> Iterator[str]:
    seeds = sorted({len(row.scores.seeds) for row in table.rows if not row.fitted})
    count = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1])))) if seeds else "no"
    yield (
        f"{count} seeds a row: initialisation, order of rows and dropout; sd and the first "
        "interval are over them (95%, Student's t)"
    )
    yield "the second interval is over seeds and test rows: what another test set might give"
    if table.rows[0].folds == 1:
        yield "the training rows are the same throughout: no interval covers another draw of them"
    made = [comparison for comparison in table.comparisons if comparison is not None]
    if any(c.claim.testable for c in made):
        yield (
            f"differences: t test of crossed seeds and rows, corrected by Holm for "
            f"{table.num_tests}, at {stats.ALPHA}; equivalence within "
            f"{table.unit.margin(table.margin)} by two one-sided tests"
        )
    else:
        yield "no claim of a difference is made"


def _compute(table: Table) -> Iterator[str]:
    runs = all_runs(table)
    devices = sorted({brief(str(run.environment.get("device", "unknown"))) for run in runs})
    cpus = sorted({str(run.environment["cpus"]) for run in runs if "cpus" in run.environment})
    yield f"device: {', '.join(devices)}" + (f", {' or '.join(cpus)} CPUs" if cpus else "")
    taken = sum(seconds for row in table.rows for seconds in row.seconds.values())
    yield (
        f"{duration(taken)} for the trainings of the table (of seeds that are trained together "
        "each has its share)"
    )
    candidates = sum(
        len(tuning.seeds) * (len(tuning.candidates) - (0 if tuning.apart else 1))
        for row in table.rows
        for tuning in row.tunings
    )
    if candidates:
        yield f"beside them {candidates:,} trainings of candidates, which are in no row"
    yield f"{TO_FILL}the extraction, and trainings that are in no table"
