"""Define a section over all tables of a report.

Each module in this folder defines one class derived from ``AcrossWriter``, and is found
by its name. A section with answers stands above all tables, in every format.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import brief
from gaam_decoder.reports.compare import trained_in_steps
from gaam_decoder.reports.over_sets import AnswerOverSets, answers_over_sets
from gaam_decoder.reports.sections.base import Parts, Section
from gaam_decoder.reports.sets import Cells, gather_cells
from gaam_decoder.reports.table import Table

PACKAGE = "gaam_decoder.reports.across"


class AcrossWriter(ABC):
    """Makes sections over the data sets of a report."""

    position: ClassVar[int]  # sections stand in this order

    @abstractmethod
    def sections_of(
        self,
        cells: Cells,
        answers: Sequence[AnswerOverSets],
        against_probe: Sequence[AnswerOverSets],
    ) -> Iterator[Section]:
        """Make the sections that have any content.

        Args:
            cells: the table of every data set and encoder.
            answers: one, or one for each encoder.
            against_probe: those with the linear probe as the baseline; may be empty.
        """


def across_sections(
    tables: Sequence[Table], factors: tuple[str, ...] | None = None
) -> list[Section]:
    """The sections over all tables; none for fewer than two data sets.

    Where names or rows in common leave one of several data sets, a section says so.

    Raises:
        ConfigError: a person asked for factors, and there are fewer data sets.
    """
    cells = gather_cells(tables)
    if cells is None or not _has_several_sets(cells):
        if factors is not None:
            raise _nothing_compared(tables) if cells is None else _too_few(cells)
        if cells is not None and (cells.without_names or cells.common_rows):
            return [_section_without_answer(cells)]
        return []
    num_corrected = _num_corrected(cells)
    answers = answers_over_sets(cells.results(), factors, num_corrected)
    against_probe = [
        answer
        for answer in answers_over_sets(
            cells.results_against_probe(), factors, _num_corrected_beside_probe(cells)
        )
        if answer.decoders and not answer.is_of_one_set
    ]
    writers: list[AcrossWriter] = [
        plugins.load(PACKAGE, name, kind="section over data sets")()
        for name in plugins.names(PACKAGE)
    ]
    writers.sort(key=lambda writer: writer.position)
    return [
        section
        for writer in writers
        for section in writer.sections_of(cells, answers, against_probe)
    ]


def _has_several_sets(cells: Cells) -> bool:
    """Whether any encoder read two data sets or more."""
    read = Counter(cell.encoder for cell in cells.cells)
    return max(read.values(), default=0) > 1


def _section_without_answer(cells: Cells) -> Section:
    """The section that says why several caches have no answer over data sets."""
    reasons = "; ".join([*cells.without_names, *cells.common_rows])
    lead = f"There is no answer over data sets: {reasons}"
    lines = []
    if cells.without_names:
        lines.append("gaam import --set dataset-name=NAME gives a data set its name")
    return Section(
        name="across",
        heading="Over all data sets",
        lead=lead,
        answers=[lead],
        lines=lines,
        make=lambda: Parts(sheets=[]),
    )


def _num_corrected(cells: Cells) -> int:
    """The most decoders that Holm corrects for in a table, also those left out."""
    return max(cell.table.num_tests.get(cells.head, 0) for cell in cells.cells)


def _num_corrected_beside_probe(cells: Cells) -> int:
    """The most comparisons with the probe that Holm corrects for in a table.

    It counts decoders that filters left out, and every baseline.
    """
    comparisons = [
        entry.probe_comparison
        for cell in cells.cells
        for entry in cell.entries.values()
        if entry.probe_comparison
    ]
    counts = [comparison.claim.num_tests for comparison in comparisons]
    return max(counts, default=0)


def _nothing_compared(tables: Sequence[Table]) -> ConfigError:
    """The error for ``--across`` where no decoder is compared with a baseline.

    Decoders whose heads are fitted at once are in no answer over data sets.
    """
    mechanisms = dict.fromkeys(
        entry.attention for table in tables for entry in trained_in_steps(table.entries)
    )
    baselines = {table.baseline for table in tables if table.baseline}
    if not mechanisms.keys() - baselines:
        hint = "train other mechanisms on the same caches, such as --attn gaam"
    elif not baselines:
        hint = "train --attn none on the same caches, or name a --baseline"
    else:
        hint = "train the baseline with the head and the settings of the others"
    names = ", ".join(f"'{brief(name)}'" for name in mechanisms)
    return ConfigError(
        "--across compares decoders with a baseline, and there is nothing to compare",
        expected="on two data sets or more, a baseline and decoders of the same recipe",
        found=f"runs of {names}" if names else "no decoder that is trained in steps",
        hint=hint,
    )


def _too_few(cells: Cells) -> ConfigError:
    """The error for ``--across`` with fewer than two data sets."""
    compared = f"{len(cells.data_sets)} compared with '{cells.baseline}'"
    return ConfigError(
        "--across needs several data sets",
        expected="runs of two data sets or more by one encoder, with the baseline",
        found="; ".join([compared, *cells.common_rows]),
    )
