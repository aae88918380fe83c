"""Compare encoders that read the same rows: each decoder on the states of every one.

A table of a report has the states of one encoder. Where several tables have the same
training and test rows, ``--pairs encoder`` compares the entries of one decoder with the
same settings, by seed and test row, as it compares those of one table. Holm corrects
for all pairs on these rows, head by head. Over several data sets the differences are
combined: see ``encoders_over_sets``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import join_first
from gaam_decoder.reports.columns import P_HOLM, Sheet
from gaam_decoder.reports.compare import ENCODER, differing_settings
from gaam_decoder.reports.encoder_notes import (
    not_among_same_rows,
    notes_on,
    warnings_of,
)
from gaam_decoder.reports.encoder_pairs import (
    ComparedEncoders,
    compare_encoders,
    tables_by_rows,
)
from gaam_decoder.reports.encoders_over_sets import (
    PairClaim,
    encoders_over_sets,
    notes_over_sets,
    sentence_over_sets,
    sheet_over_sets,
    values_over_sets,
)
from gaam_decoder.reports.over_sets import MOST_NAMED
from gaam_decoder.reports.sections.base import (
    ENCODERS,
    ENCODERS_BY_SET,
    Parts,
    Section,
)
from gaam_decoder.reports.sections.pairs import (
    MOST_ANSWERS,
    PAIR_HEADERS,
    answer,
    group_values,
    lead,
    more_groups,
    pair_cells,
)
from gaam_decoder.reports.set_tables import ChosenTables, NamedTable, choose_tables
from gaam_decoder.reports.sets import Cell, remarks_on
from gaam_decoder.reports.table import SEPARATE, Table


def advice_on_tables(
    tables: Sequence[Table], sections_over_sets: Sequence[Section]
) -> str:
    """What to compare in several tables, and what not.

    Args:
        tables: of the report.
        sections_over_sets: the sections over all tables.
    """
    if any(section.name == ENCODERS for section in sections_over_sets):
        return f"{SEPARATE}, but for the pairs of encoders"
    if tables_by_rows(tables):
        return f"{SEPARATE}; --pairs encoder compares encoders that read the same rows"
    return SEPARATE


def encoder_sections(
    tables: Sequence[Table], all_tables: Sequence[Table]
) -> list[Section]:
    """The sections that compare encoders, over all tables of a report.

    With an answer over data sets, a section of its own has the pairs of each data set.

    Args:
        tables: of the report.
        all_tables: those of a report without filters; empty if filters left nothing
            out. Their pairs count in the correction for many comparisons alone.

    Raises:
        ConfigError: no two tables are of the same rows, or none of their decoders has
            the same settings in both.
    """
    groups = tables_by_rows(tables)
    if not groups:
        raise _no_common_rows(tables)
    all_groups = tables_by_rows(all_tables)
    compared = []
    for group in groups:
        encoders = compare_encoders(group, _of_the_same_rows(group, all_groups))
        if encoders.pairs.groups:
            compared.append(encoders)
    if not compared:
        raise _no_common_decoder(groups[0])
    comparisons = [
        comparison for encoders in compared for comparison in encoders.comparisons
    ]
    warnings = warnings_of(compared)
    section = Section(
        name=ENCODERS,
        heading="Encoders on the same rows",
        lead=lead(comparisons, ENCODER),
        answers=list(_answers(compared)),
        lines=[*warnings, *notes_on(compared), *not_among_same_rows(tables, groups)],
        values={"same_rows": [_values(encoders) for encoders in compared]},
        make=lambda: Parts(sheets=_sheets(compared)),
    )
    section_over_sets = _section_over_sets(section, compared, warnings)
    if section_over_sets is None:
        return [section]
    section_by_set = replace(
        section,
        name=ENCODERS_BY_SET,
        heading="Encoders on the rows of every data set",
        lead="",
        answers=(),
    )
    return [section_over_sets, section_by_set]


def _of_the_same_rows(
    tables: Sequence[NamedTable], all_groups: Sequence[Sequence[NamedTable]]
) -> Sequence[NamedTable]:
    """Find the group, among all, that has the tables of a report; else empty.

    Args:
        tables: of the same rows, in the report.
        all_groups: the tables of a report without filters, by their rows.
    """
    states = {named.table.cache.name_of_states for named in tables}
    tested_on = tables[0].table.tested_on
    for group in all_groups:
        states_of_group = {named.table.cache.name_of_states for named in group}
        if states <= states_of_group and group[0].table.tested_on == tested_on:
            return group
    return ()


def _section_over_sets(
    section: Section, compared: Sequence[ComparedEncoders], warnings: Sequence[str]
) -> Section | None:
    """The section with the answer over data sets; None if no two have a pair in common.

    Args:
        section: with the pairs of every data set.
        compared: these pairs.
        warnings: on the tables.
    """
    table = compared[0].tables[0].table
    score, margin = table.score, table.margin
    counted = _data_sets_that_count(compared)
    over_sets = encoders_over_sets(
        _pair_claims(compared, counted), score, margin, _most_tests(compared)
    )
    differences = over_sets.answers
    if not differences:
        return None
    return replace(
        section,
        heading="Encoders over all data sets",
        answers=[sentence_over_sets(differences, score, margin)],
        lines=[
            *warnings,
            *notes_over_sets(differences),
            *over_sets.without_answer,
            *_remarks(compared, counted),
        ],
        values=section.values
        | {"over_data_sets": values_over_sets(differences, score)},
        make=lambda: Parts(sheets=[sheet_over_sets(differences, score)]),
    )


def _sheets(compared: Sequence[ComparedEncoders]) -> list[Sheet]:
    """The scores and the pairs on the rows of every data set."""
    return [
        sheet
        for encoders in compared
        for sheet in (_scores_sheet(encoders), _pairs_sheet(encoders))
    ]


def _data_sets_that_count(compared: Sequence[ComparedEncoders]) -> ChosenTables:
    """The tables that count over data sets, and what is to be said of the others.

    Two data sets of the same rows count as one, whatever their labels.
    """
    return choose_tables(
        [named.table for encoders in compared for named in encoders.tables]
    )


def _pair_claims(
    compared: Sequence[ComparedEncoders], counted: ChosenTables
) -> Iterator[PairClaim]:
    """The claims of all pairs of encoders whose tables count over data sets."""
    # tables are compared by identity: two may have the same content
    counted_tables = {id(named.table) for named in counted.tables}
    for encoders in compared:
        names = {
            named.encoder
            for named in encoders.tables
            if id(named.table) in counted_tables
        }
        for group in encoders.pairs.groups:
            for (first, second), comparison in group.pairs.items():
                pair = PairClaim(
                    data_set=encoders.data_set,
                    decoder=group.name,
                    first=group.entries[first],
                    second=group.entries[second],
                    claim=comparison.claim,
                )
                if len(pair.encoders) == 2 and pair.encoders <= names:
                    yield pair


def _most_tests(compared: Sequence[ComparedEncoders]) -> dict[str, int]:
    """Head -> the most pairs of a data set that Holm corrects for."""
    num_tests_by_head: dict[str, int] = {}
    for encoders in compared:
        for head, num_tests in encoders.pairs.num_tests.items():
            num_tests_by_head[head] = max(num_tests, num_tests_by_head.get(head, 0))
    return num_tests_by_head


def _remarks(
    compared: Sequence[ComparedEncoders], counted: ChosenTables
) -> Iterator[str]:
    """What does not count over data sets, and how those that count differ."""
    yield from [*counted.same_names, *counted.common_rows, *counted.remarks]
    counted_tables = {id(named.table) for named in counted.tables}
    cells = []
    for encoders in compared:
        for named in encoders.tables:
            entries = {
                group.name: entry
                for group in encoders.pairs.groups
                for entry in group.entries
                if entry.encoder == named.encoder
            }
            if entries and id(named.table) in counted_tables:
                cells.append(
                    Cell(
                        data_set=named.data_set,
                        encoder=named.encoder,
                        table=named.table,
                        entries=entries,
                    )
                )
    yield from remarks_on(cells)


def _no_common_rows(tables: Sequence[Table]) -> ConfigError:
    """The error for a report without two tables of the same rows."""
    titles = [table.title() for table in tables if table.entries]
    return ConfigError(
        "--pairs encoder compares encoders that read the same rows",
        expected="runs on the caches of two encoders, with the same training and test "
        "rows in the same order",
        found=join_first(titles, MOST_NAMED, "; ") or "no run that was tested",
        hint="gaam extract --encoder ENCODER with the other options as before, and "
        "gaam train on both caches with the same options; --pairs pool compares the "
        "poolings of one cache",
    )


def _no_common_decoder(tables: Sequence[NamedTable]) -> ConfigError:
    """The error for tables of the same rows without a decoder in common."""
    decoders = [
        f"{named.encoder}: "
        + join_first([entry.label for entry in named.table.entries], MOST_NAMED)
        for named in tables
    ]
    decoders_in_words = join_first(decoders, MOST_NAMED, "; ")
    differences = differing_settings(
        [entry for named in tables for entry in named.table.entries]
    )
    if differences:
        decoders_in_words += f"; they differ in {join_first(differences, MOST_NAMED)}"
    return ConfigError(
        "no decoder has the same settings, and a seed in common, on the states of two "
        "encoders",
        expected="gaam train with the same options on the cache of each encoder",
        found=decoders_in_words,
    )


def _answers(compared: Sequence[ComparedEncoders]) -> Iterator[str]:
    """Name the best encoder for the best decoders, in sentences without full stops.

    Of several data sets without a decoder in common, each has one sentence, on the
    decoder with the best mean.
    """
    num_sentences = MOST_ANSWERS if len(compared) == 1 else 1
    for encoders in compared:
        table = encoders.tables[0].table
        prefix = "" if len(compared) == 1 else f"{_rows_in_words(encoders)}, "
        for group in encoders.pairs.groups[:num_sentences]:
            text = answer(group, ENCODER, table.score, table.margin)
            yield f"{prefix}{text}"
        if len(compared) == 1:
            yield from more_groups(len(encoders.pairs.groups), ENCODER, ENCODERS)


def _rows_in_words(encoders: ComparedEncoders) -> str:
    """The data set and its test rows."""
    return f"{encoders.data_set}, {encoders.tables[0].table.tested_on}"


def _values(encoders: ComparedEncoders) -> dict[str, object]:
    """The pairs of encoders on the same rows as JSON values."""
    return {
        "dataset": encoders.data_set,
        "tested_on": encoders.tables[0].table.tested_on,
        "encoders": encoders.encoders,
        "corrected_for": encoders.pairs.num_tests,
        "groups": [group_values(group) for group in encoders.pairs.groups],
    }


def _scores_sheet(encoders: ComparedEncoders) -> Sheet:
    """The mean score of every decoder on the states of every encoder."""
    table = encoders.tables[0].table
    score = table.score
    lines = []
    for group in encoders.pairs.groups:
        means = {
            entry.encoder: score.text(entry.compared_score.mean)
            for entry in group.entries
        }
        cells = [means.get(encoder, "") for encoder in encoders.encoders]
        lines.append([group.name, *cells])
    unit = " %" if score.percent else ""
    return Sheet(
        f"mean {score.title}{unit} by encoder: {_rows_in_words(encoders)}, "
        f"{table.num_test_rows:,} rows",
        ["decoder", *encoders.encoders],
        lines,
        encoders.encoders,
    )


def _pairs_sheet(encoders: ComparedEncoders) -> Sheet:
    """A line for every pair of encoders under every decoder."""
    score = encoders.tables[0].table.score
    lines = [
        _with_decoder(pair_cells(group, ENCODER, pair, score), group.name)
        for group in encoders.pairs.groups
        for pair in sorted(group.pairs)
    ]
    return Sheet(
        f"first minus second encoder, {score.difference_unit}: "
        f"{_rows_in_words(encoders)}",
        ["pair", "decoder", *PAIR_HEADERS],
        lines,
        # without p, which the interval implies, a narrow screen has room
        ["decoder", *(name for name in PAIR_HEADERS if name != P_HOLM.header)],
    )


def _with_decoder(cells: Sequence[str], decoder: str) -> list[str]:
    """A line of pairs with the name of the decoder behind the pair."""
    [pair, *others] = cells
    return [pair, decoder, *others]
