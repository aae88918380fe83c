"""Pairs of encoders on the same rows: the same decoder on the states of each.

Tables of the same training and test rows are found, and their entries are compared as
those of one table, along their encoder.

N test rows.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gaam_cache.common.messages import brief, join_first
from gaam_decoder.reports.compare import (
    ENCODER,
    PairGroup,
    Pairs,
    TableEntries,
    compare_pairs_of_table,
)
from gaam_decoder.reports.entries import Comparison, Entry, MeasuredScore
from gaam_decoder.reports.gathering import rank
from gaam_decoder.reports.over_sets import MOST_NAMED
from gaam_decoder.reports.set_tables import (
    NamedTable,
    group_by_rows,
    name_tables,
    tell_encoders_apart,
)
from gaam_decoder.reports.table import Table
from gaam_decoder.stats import NO_CLAIM
from gaam_decoder.stats.groups import RowGroups, join_relations, row_groups

OF_STATES = ("pool", "state_scale")
"""Settings of a recipe that follow from the states, unless a person varies them."""


@dataclass(frozen=True, kw_only=True)
class ComparedEncoders:
    """Tables of several encoders on the same rows, and the pairs of their entries."""

    data_set: str
    tables: Sequence[NamedTable]
    pairs: Pairs
    has_joined_groups: bool
    """Whether the tables had other groups of rows, which were joined."""
    num_groups: int | None
    """Number of groups of test rows; None where rows are the unit."""

    @property
    def encoders(self) -> list[str]:
        """Their names, in the order of the report."""
        return [named.encoder for named in self.tables]

    @property
    def comparisons(self) -> list[Comparison]:
        """The comparisons of all pairs."""
        return [
            comparison
            for group in self.pairs.groups
            for comparison in group.pairs.values()
        ]


def compare_encoders(
    tables: Sequence[NamedTable], all_tables: Sequence[NamedTable]
) -> ComparedEncoders:
    """Compare the entries of tables of the same rows, along their encoders.

    Args:
        tables: of the report.
        all_tables: those of a report without filters, on the same rows, for the
            correction for many comparisons; empty if filters left nothing out.
    """
    groups = joined_groups([named.table for named in tables])
    first = tables[0].table
    entries = TableEntries(
        entries_of_encoders({named: named.table.entries for named in tables}, groups),
        entries_of_encoders(
            {named: named.table.entries for named in all_tables}, groups
        ),
    )
    pairs = compare_pairs_of_table(entries, ENCODER, first.margin, is_requested=True)
    with_pairs = [group for group in pairs.groups if group.pairs]
    # the decoder with the best mean stands first; those without a claim stand last
    best_first = sorted(
        with_pairs, key=lambda group: (not _has_claim(group), rank(group.entries[0]))
    )
    return ComparedEncoders(
        data_set=join_first(
            list(dict.fromkeys(named.data_set for named in tables)), MOST_NAMED
        ),
        tables=tables,
        pairs=pairs._replace(groups=best_first),
        has_joined_groups=any(
            not are_equal(groups_of(named.table), groups) for named in tables
        ),
        num_groups=None if groups is None else len(groups),
    )


def _has_claim(group: PairGroup) -> bool:
    """Whether any pair of a group has a verdict."""
    return any(pair.claim.verdict != NO_CLAIM for pair in group.pairs.values())


def tables_by_rows(tables: Sequence[Table]) -> list[list[NamedTable]]:
    """The tables in groups of the same rows, each with several caches of states.

    Every table of a group has an encoder name of its own.
    """
    named = name_tables([table for table in tables if table.entries])
    groups = group_by_rows(tell_encoders_apart(named))
    return [
        _with_own_names(group)
        for group in groups
        if len({named.table.cache.name_of_states for named in group}) > 1
    ]


def _with_own_names(tables: Sequence[NamedTable]) -> list[NamedTable]:
    """The tables, where encoders of one name also have the name of their cache."""
    count = Counter(named.encoder for named in tables)
    renamed = []
    for named in tables:
        if count[named.encoder] > 1:
            cache = brief(Path(named.table.cache.path).name, 40)
            named = replace(named, encoder=f"{named.encoder} in '{cache}'")
        renamed.append(named)
    # caches in folders of the same name have a number
    count = Counter(named.encoder for named in renamed)
    return [
        replace(named, encoder=f"{named.encoder} #{number}")
        if count[named.encoder] > 1
        else named
        for number, named in enumerate(renamed, 1)
    ]


def groups_of(table: Table) -> RowGroups | None:
    """The groups of the test rows of a table; None where rows are the unit."""
    return table.groups.row_groups if table.groups else None


def are_equal(first: RowGroups | None, second: RowGroups | None) -> bool:
    """Whether two groupings of the same rows put the same rows together."""
    if first is None or second is None:
        return first is second
    return np.array_equal(first.group_N, second.group_N)


def joined_groups(tables: Sequence[Table]) -> RowGroups | None:
    """The groups of the test rows: rows that any table puts together belong together.

    Imported states are an example: rows are known to be copies where their states are
    equal, which is so for some encoders only.
    """
    grouped = [groups for groups in map(groups_of, tables) if groups is not None]
    if not grouped:
        return None
    return row_groups(join_relations([groups.group_N for groups in grouped]))


def entries_of_encoders(
    entries_of_tables: Mapping[NamedTable, Sequence[Entry]], groups: RowGroups | None
) -> list[Entry]:
    """The entries of several tables, the best first, as those of one table.

    Every entry is given the name of its encoder, the common groups of test rows, and
    the name that its mechanism has for all encoders (``shared_name``). The settings
    ``OF_STATES`` are left out of its recipe, unless a decoder of one table was trained
    with several values of them.

    Args:
        entries_of_tables: the entries of every table.
        groups: the groups of the test rows of all tables.
    """
    all_entries = list(entries_of_tables.values())
    with_options = _mechanisms_with_options(all_entries)
    ignored = [name for name in OF_STATES if not _varies(name, all_entries)]
    joined = []
    for named, entries in entries_of_tables.items():
        for entry in entries:
            keeps_options = entry.mechanism in with_options
            recipe = {
                name: value
                for name, value in entry.recipe.items()
                if name not in ignored
            }
            joined.append(
                replace(
                    entry,
                    encoder=named.encoder,
                    shared_name=entry.attention if keeps_options else entry.mechanism,
                    recipe=recipe,
                    default_score=_with_groups(entry.default_score, groups),
                    compared_score=_with_groups(entry.compared_score, groups),
                )
            )
    return sorted(joined, key=rank)


def _varies(name: str, entries_of_tables: Sequence[Sequence[Entry]]) -> bool:
    """Whether a decoder of any table has several values of a setting."""
    for entries in entries_of_tables:
        values: dict[tuple[str, str], set[str]] = {}
        for entry in entries:
            decoder = (entry.attention, entry.head)
            values.setdefault(decoder, set()).add(str(entry.recipe.get(name)))
        if any(len(several) > 1 for several in values.values()):
            return True
    return False


def _mechanisms_with_options(
    entries_of_tables: Sequence[Sequence[Entry]],
) -> Collection[str]:
    """The mechanisms that are compared with their options: other options, another one.

    The default of ``heads`` follows from the number of layers. So other ``heads`` are
    no other mechanism, if all decoders that read as many layers have the same.
    """
    # mechanism -> number of layers that a decoder reads -> its forms with options
    forms_by_mechanism: dict[str, dict[int, set[str]]] = {}
    for entries in entries_of_tables:
        for entry in entries:
            num_layers = len(entry.runs[0].layer_numbers)
            forms = forms_by_mechanism.setdefault(entry.mechanism, {})
            forms.setdefault(num_layers, set()).add(entry.attention)
    with_options = set()
    for mechanism, forms_by_layers in forms_by_mechanism.items():
        all_forms = set().union(*forms_by_layers.values())
        has_other_options = len({_without_heads(form) for form in all_forms}) > 1
        has_several_forms = any(len(forms) > 1 for forms in forms_by_layers.values())
        if has_other_options or has_several_forms:
            with_options.add(mechanism)
    return with_options


def _without_heads(attention: str) -> tuple[str, ...]:
    """The options of a mechanism but for ``heads``: none of ``gaam:heads=2``."""
    _mechanism, _, options = attention.partition(":")
    return tuple(
        "heads" if option.startswith("heads=") else option
        for option in options.split(",")
    )


def _with_groups(measured: MeasuredScore, groups: RowGroups | None) -> MeasuredScore:
    """The same score, where these groups of test rows are the unit."""
    return replace(measured, scored=replace(measured.scored, groups=groups))
