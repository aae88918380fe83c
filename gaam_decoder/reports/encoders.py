"""Compare encoders that read the same rows: each decoder on the states of every one.

A table of a report has the states of one encoder. Where several tables have the same
training and test rows, ``--pairs encoder`` compares the entries of one decoder with the
same settings, by seed and test row, as it compares those of one table. Holm corrects
for all pairs on these rows, head by head. Over several data sets the differences are
combined: see ``encoders_over_sets``.

N test rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import brief, join_first
from gaam_decoder.reports.columns import P_HOLM, Sheet
from gaam_decoder.reports.compare import (
    ENCODER,
    Pairs,
    TableEntries,
    compare_pairs_of_table,
    num_tests_in_words,
)
from gaam_decoder.reports.encoders_over_sets import (
    PairClaim,
    encoders_over_sets,
    notes_over_sets,
    sentence_over_sets,
    sheet_over_sets,
    values_over_sets,
)
from gaam_decoder.reports.entries import (
    Comparison,
    Entry,
    MeasuredScore,
    forms_of_mechanisms,
)
from gaam_decoder.reports.gathering import rank
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
    pair_cells,
)
from gaam_decoder.reports.set_tables import (
    ChosenTables,
    NamedTable,
    choose_tables,
    group_by_rows,
    is_imported,
    name_tables,
    tell_encoders_apart,
)
from gaam_decoder.reports.sets import Cell, remarks_on
from gaam_decoder.reports.table import SEPARATE, Table
from gaam_decoder.stats.groups import RowGroups, join_relations, row_groups


@dataclass(frozen=True, kw_only=True)
class ComparedEncoders:
    """Tables of several encoders on the same rows, and the pairs of their entries."""

    data_set: str
    tables: Sequence[NamedTable]
    pairs: Pairs
    has_joined_groups: bool
    """Whether the tables had other groups of rows, which were joined."""

    @property
    def encoders(self) -> list[str]:
        """Their names, in the order of the report."""
        return list(dict.fromkeys(named.encoder for named in self.tables))


def tables_by_rows(tables: Sequence[Table]) -> list[list[NamedTable]]:
    """The tables in groups of the same rows; groups of one table are left out."""
    named = name_tables([table for table in tables if table.entries])
    groups = group_by_rows(tell_encoders_apart(named))
    return [group for group in groups if len(group) > 1]


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


def encoder_sections(tables: Sequence[Table]) -> list[Section]:
    """The sections that compare encoders, over all tables of a report.

    With an answer over data sets, a section of its own has the pairs of each data set.

    Raises:
        ConfigError: no two tables are of the same rows, or none of their decoders has
            the same settings in both.
    """
    groups = tables_by_rows(tables)
    if not groups:
        raise _no_common_rows(tables)
    compared = [
        encoders for group in groups if (encoders := _compare(group)).pairs.groups
    ]
    if not compared:
        raise _no_common_decoder(groups[0])
    comparisons = [
        comparison for encoders in compared for comparison in _comparisons(encoders)
    ]
    section = Section(
        name=ENCODERS,
        heading="Encoders on the same rows",
        lead=lead(comparisons, ENCODER),
        answers=list(_answers(compared)),
        lines=list(_lines(compared)),
        values={"same_rows": [_values(encoders) for encoders in compared]},
        make=lambda: Parts(sheets=_sheets(compared)),
    )
    section_over_sets = _section_over_sets(section, compared)
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


def _section_over_sets(
    section: Section, compared: Sequence[ComparedEncoders]
) -> Section | None:
    """The section with the answer over data sets; None if no two have a pair in common.

    ``section`` has the pairs of every data set.
    """
    table = compared[0].tables[0].table
    score, margin = table.score, table.margin
    counted = _data_sets_that_count(compared)
    differences = encoders_over_sets(
        _pair_claims(compared, counted), score, margin, _most_tests(compared)
    )
    if not differences:
        return None
    return replace(
        section,
        heading="Encoders over all data sets",
        answers=[sentence_over_sets(differences, score, margin)],
        lines=[*notes_over_sets(differences), *_remarks(compared, counted)],
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
    most: dict[str, int] = {}
    for encoders in compared:
        for head, num_tests in encoders.pairs.num_tests.items():
            most[head] = max(num_tests, most.get(head, 0))
    return most


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
        "gaam train on both caches with the same options",
    )


def _no_common_decoder(tables: Sequence[NamedTable]) -> ConfigError:
    """The error for tables of the same rows without a decoder in common."""
    decoders = [
        f"{named.encoder}: "
        + join_first([entry.label for entry in named.table.entries], MOST_NAMED)
        for named in tables
    ]
    return ConfigError(
        "no decoder has the same settings on the states of two encoders",
        expected="gaam train with the same options on the cache of each encoder",
        found="; ".join(decoders),
    )


def _compare(tables: Sequence[NamedTable]) -> ComparedEncoders:
    """Compare the entries of tables of the same rows, along their encoders."""
    groups = _joined_groups([named.table for named in tables])
    first = tables[0].table
    entries = TableEntries(
        _entries_of_encoders({named: named.table.entries for named in tables}, groups),
        _entries_of_encoders(
            {named: named.table.all_entries for named in tables}, groups
        ),
    )
    pairs = compare_pairs_of_table(entries, ENCODER, first.margin, is_requested=True)
    # the decoder with the best mean stands first
    best_first = sorted(pairs.groups, key=lambda group: rank(group.entries[0]))
    return ComparedEncoders(
        data_set=tables[0].data_set,
        tables=tables,
        pairs=pairs._replace(groups=best_first),
        has_joined_groups=any(
            not _are_equal(_row_groups_of(named.table), groups) for named in tables
        ),
    )


def _row_groups_of(table: Table) -> RowGroups | None:
    """The groups of the test rows of a table; None where rows are the unit."""
    return table.groups.row_groups if table.groups else None


def _are_equal(first: RowGroups | None, second: RowGroups | None) -> bool:
    """Whether two groupings of the same rows put the same rows together."""
    if first is None or second is None:
        return first is second
    return np.array_equal(first.group_N, second.group_N)


def _joined_groups(tables: Sequence[Table]) -> RowGroups | None:
    """The groups of the test rows: rows that any table puts together belong together.

    Imported states are an example: rows are known to be copies where their states are
    equal, which is so for some encoders only.
    """
    grouped = [groups for groups in map(_row_groups_of, tables) if groups is not None]
    if not grouped:
        return None
    return row_groups(join_relations([groups.group_N for groups in grouped]))


def _entries_of_encoders(
    entries_of_tables: Mapping[NamedTable, Sequence[Entry]], groups: RowGroups | None
) -> list[Entry]:
    """The entries of several tables, the best first, as those of one table.

    Each knows its encoder, the common groups of test rows, and the name of its
    mechanism. Options are part of this name only where a table has several forms of the
    mechanism: ``gaam`` has other options by default on the states of more layers.

    Args:
        entries_of_tables: the entries of every table.
        groups: the groups of the test rows of all tables.
    """
    several_forms = {
        mechanism
        for entries in entries_of_tables.values()
        for mechanism, forms in forms_of_mechanisms(entries).items()
        if len(forms) > 1
    }
    joined = []
    for named, entries in entries_of_tables.items():
        for entry in entries:
            keeps_options = entry.mechanism in several_forms
            joined.append(
                replace(
                    entry,
                    encoder=named.encoder,
                    shared_name=entry.attention if keeps_options else entry.mechanism,
                    default_score=_with_groups(entry.default_score, groups),
                    compared_score=_with_groups(entry.compared_score, groups),
                )
            )
    return sorted(joined, key=rank)


def _with_groups(measured: MeasuredScore, groups: RowGroups | None) -> MeasuredScore:
    """The same score, where these groups of test rows are the unit."""
    return replace(measured, scored=replace(measured.scored, groups=groups))


def _comparisons(encoders: ComparedEncoders) -> list[Comparison]:
    """All comparisons of pairs on the same rows."""
    return [
        comparison
        for group in encoders.pairs.groups
        for comparison in group.pairs.values()
    ]


def _answers(compared: Sequence[ComparedEncoders]) -> Iterator[str]:
    """Name the best encoder for the best decoders, in sentences without full stops.

    Of several data sets without a decoder in common, each has one sentence, on the
    decoder with the best mean.
    """
    most = MOST_ANSWERS if len(compared) == 1 else 1
    for encoders in compared:
        table = encoders.tables[0].table
        prefix = "" if len(compared) == 1 else f"{encoders.data_set}, "
        for group in encoders.pairs.groups[:most]:
            text = answer(group, ENCODER, table.score, table.margin)
            yield f"{prefix}{text}"


def _lines(compared: Sequence[ComparedEncoders]) -> Iterator[str]:
    """The notes below the tables."""
    first = compared[0].tables[0].table
    num_tests = [num_tests_in_words(encoders.pairs.num_tests) for encoders in compared]
    yield (
        f"differences are in {first.score.difference_unit}, by seed and test row; Holm "
        "corrects for all pairs of encoders on the same rows: "
        f"{join_first(num_tests, MOST_NAMED, '; ')}"
    )
    for encoders in compared:
        of_data_set = "" if len(compared) == 1 else f"{encoders.data_set}: "
        for line in [*_options_by_encoder(encoders), *_not_compared(encoders)]:
            yield f"{of_data_set}{line}"
    tables = [named.table for encoders in compared for named in encoders.tables]
    if any(is_imported(table.cache) for table in tables):
        yield (
            "imported states are paired with other states by their order: the labels "
            "of the test rows are the same"
        )
    if any(encoders.has_joined_groups for encoders in compared):
        yield "rows that belong together for one encoder count as one group for all"


def _options_by_encoder(encoders: ComparedEncoders) -> Iterator[str]:
    """A line for each decoder whose mechanism has other options for other encoders."""
    for group in encoders.pairs.groups:
        attentions = [entry.attention for entry in group.entries]
        if len(set(attentions)) > 1:
            forms = [
                f"{brief(attention)} for {label}"
                for attention, label in zip(attentions, group.labels, strict=True)
            ]
            yield f"{group.name} is {join_first(forms, MOST_NAMED)}"


def _not_compared(encoders: ComparedEncoders) -> Iterator[str]:
    """A line on the decoders that no other encoder has with the same settings."""
    compared_runs = {
        entry.runs for group in encoders.pairs.groups for entry in group.entries
    }
    left_out = [
        f"{entry.label} on {named.encoder}"
        for named in encoders.tables
        for entry in named.table.entries
        if entry.runs not in compared_runs and not entry.labels_shuffled
    ]
    if left_out:
        yield (
            "not compared, for lack of the same decoder and settings on another "
            f"encoder: {join_first(left_out, MOST_NAMED)}"
        )


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
        f"mean {score.title}{unit} by encoder: {encoders.data_set}, "
        f"{table.tested_on}, {table.num_test_rows:,} rows",
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
        f"first minus second encoder, {score.difference_unit}: {encoders.data_set}",
        ["pair", "decoder", *PAIR_HEADERS],
        lines,
        # without p, which the interval implies, a narrow screen has room
        ["decoder", *(name for name in PAIR_HEADERS if name != P_HOLM.header)],
    )


def _with_decoder(cells: Sequence[str], decoder: str) -> list[str]:
    """A line of pairs with the name of the decoder behind the pair."""
    [pair, *others] = cells
    return [pair, decoder, *others]
