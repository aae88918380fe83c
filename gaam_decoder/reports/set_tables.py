"""Which table of a report stands for a data set and an encoder.

Data sets and encoders are known by their names. Where several tables have the same
names, a rule that looks at no result takes one of them.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache.common.messages import brief, join_first
from gaam_cache.config import IMPORTED
from gaam_cache.store.files import digest_of
from gaam_cache.store.row_sketch import common_share, joined
from gaam_decoder.reports.entries import split_seed_of
from gaam_decoder.reports.over_sets import MOST_NAMED
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.titles import distinguishing_words
from gaam_decoder.runs.records import CacheRecord

MOST_COMMON_ROWS = 0.5
"""Share of common rows from which two data sets count as one."""
SAID_COMMON_ROWS = 0.1
"""Share of common rows from which a sentence says so."""
# an encoder reads every data set with these properties of its own
OF_ROWS = ("dataset", "columns", "class_names", "content", "rows", "unlabelled")


@dataclass(frozen=True, eq=False, slots=True)
class NamedTable:
    """A table with the names of its data set and of its encoder."""

    table: Table
    data_set: str
    encoder: str


class ChosenTables(NamedTuple):
    """One table of every data set and encoder, and what is to be said of the others."""

    tables: list[NamedTable]  # in the order of the report
    same_names: list[str]
    """Sentences on tables that are left out, because another one has their names."""
    common_rows: list[str]
    """Sentences on data sets that are left out, because another one has their rows."""
    remarks: list[str]
    """Sentences on data sets with some rows in common, few enough to count."""


def choose_tables(tables: Sequence[Table]) -> ChosenTables:
    """Take one table of every data set and encoder."""
    with_same_rows, other_rows = _take_one_set_of_rows(name_tables(tables))
    one_each, other_caches = _take_one_cache(with_same_rows)
    share_by_pair = _shares_of_common_rows(one_each)
    counted, common_rows = _take_data_sets_of_own_rows(one_each, share_by_pair)
    return ChosenTables(
        tables=counted,
        same_names=[*other_rows, *other_caches],
        common_rows=common_rows,
        remarks=_some_common_rows(counted, share_by_pair),
    )


def name_tables(tables: Sequence[Table]) -> list[NamedTable]:
    """The tables, with short names of their data sets and encoders."""
    data_sets = _short_names([_names_of_data_set(table.cache) for table in tables])
    encoders = _short_names([_names_of_encoder(table.cache) for table in tables])
    return [
        NamedTable(table, data_set, encoder)
        for table, data_set, encoder in zip(tables, data_sets, encoders, strict=True)
    ]


def _take_one_set_of_rows(
    tables: Sequence[NamedTable],
) -> tuple[list[NamedTable], list[str]]:
    """Take one set of test rows of every data set.

    The set that most encoders read counts. Among equals these decide, in this order:

    1. how many tables of the report have test rows of that kind ("test split 'test'");
    2. the number of test rows.

    If several sets are equal in all of this, none counts: what decides would be the
    names of folders.

    Returns:
        The tables with these rows; and a sentence for each data set with several sets.
    """
    num_tables_by_kind = Counter(named.table.tested_on for named in tables)

    def rank(tables_of_rows: Sequence[NamedTable]) -> tuple[int, int, int]:
        encoders = {named.encoder for named in tables_of_rows}
        table = tables_of_rows[0].table
        return len(encoders), num_tables_by_kind[table.tested_on], table.num_test_rows

    left_out: set[NamedTable] = set()
    sentences = []
    for data_set in dict.fromkeys(named.data_set for named in tables):
        by_rows = group_by_rows(
            [named for named in tables if named.data_set == data_set]
        )
        best_rank = max(map(rank, by_rows))
        best = [group for group in by_rows if rank(group) == best_rank]
        if len(best) > 1:
            tables_of_data_set = [named for group in by_rows for named in group]
            left_out.update(tables_of_data_set)
            sentences.append(
                f"{data_set} is the name of several sets of rows, and none counts: "
                f"{_first_rows_in_words(tables_of_data_set)}; "
                "give each a name of its own"
            )
            continue
        [counted] = best
        others = [named for group in by_rows if group is not counted for named in group]
        if others:
            left_out.update(others)
            sentences.append(
                f"{data_set} has several sets of rows: "
                f"{_rows_in_words(counted[0].table)} count; left out: "
                f"{_first_rows_in_words(others)}"
            )
    return [named for named in tables if named not in left_out], sentences


def group_by_rows(tables: Sequence[NamedTable]) -> list[list[NamedTable]]:
    """The tables in groups, one for each set of training and test rows.

    The plan of a cache has a hash of its rows. That of imported states hashes the
    states instead, which differ between encoders: there the numbers of rows and the
    labels of the test rows, in their order, must do. Sorted labels prove little: such
    states also need the same name of their data set.
    """
    by_labels: dict[object, list[NamedTable]] = {}
    for named in tables:
        by_labels.setdefault(_labels_of_rows(named.table), []).append(named)

    groups: list[list[NamedTable]] = []
    for tables_of_labels in by_labels.values():
        identities = {_identity_of_rows(named) for named in tables_of_labels}
        # an unknown value fits every other one
        known_values = [
            {value for value in values if value is not None}
            for values in zip(*identities, strict=True)
        ]
        if all(len(values) < 2 for values in known_values):
            groups.append(tables_of_labels)
            continue
        # imported states may be of any of these rows: they stay a group of their own
        by_identity: dict[object, list[NamedTable]] = {}
        for named in tables_of_labels:
            by_identity.setdefault(_identity_of_rows(named), []).append(named)
        groups += by_identity.values()
    return groups


class _Identity(NamedTuple):
    """What tells rows with the same labels apart; None: unknown."""

    hash_of_rows: str | None  # unknown for imported states
    names: tuple[str, ...] | None  # of the classes; unknown where they are numbers
    data_set: str | None  # matters where sorted labels are all that is known


def _identity_of_rows(named: NamedTable) -> _Identity:
    """What tells the rows of a table apart from others with the same labels."""
    cache = named.table.cache
    names: tuple[str, ...] | None = cache.names
    if list(cache.names) == list(map(str, range(len(cache.names)))):
        names = None
    labels = named.table.entries[0].runs[0].labels
    is_sorted = labels.ndim == 1 and bool((labels[:-1] <= labels[1:]).all())
    return _Identity(
        hash_of_rows=_hash_of_rows(named.table),
        names=names,
        data_set=named.data_set if is_imported(cache) and is_sorted else None,
    )


def _take_one_cache(
    tables: Sequence[NamedTable],
) -> tuple[list[NamedTable], list[str]]:
    """Take one table of every data set and encoder: the first.

    Encoders that differ in a setting, such as the pooling, are several encoders.

    Returns:
        These tables; and a sentence for each table that is left out.
    """
    first: dict[tuple[str, str], NamedTable] = {}
    sentences = []
    for named in tell_encoders_apart(tables):
        names = (named.data_set, named.encoder)
        if names in first:
            cache = brief(Path(named.table.cache.path).name, 60)
            sentences.append(
                f"{named.data_set} through {named.encoder} has several caches: the "
                f"first counts; left out: {cache}"
            )
        else:
            first[names] = named
    return list(first.values()), sentences


def tell_encoders_apart(tables: Sequence[NamedTable]) -> list[NamedTable]:
    """Add settings to the name of an encoder that read a data set several times.

    The settings are those in which its tables differ.
    """
    renamed = list(tables)
    for encoder in dict.fromkeys(named.encoder for named in tables):
        positions = [
            position
            for position, named in enumerate(tables)
            if named.encoder == encoder
        ]
        num_tables = Counter(tables[position].data_set for position in positions)
        if max(num_tables.values()) == 1:
            continue
        settings = settings_of_encoders(
            [tables[position].table.cache for position in positions]
        )
        for position, words in zip(positions, settings, strict=True):
            if words:
                name = f"{encoder} ({words})"
                renamed[position] = replace(tables[position], encoder=name)
    return renamed


def _shares_of_common_rows(
    tables: Sequence[NamedTable],
) -> dict[frozenset[str], float]:
    """For each pair of data sets the share of the smaller one's rows that both have.

    It is an estimate, and 0 for caches of earlier versions, which have no sketches of
    their rows. Imported caches of two encoders have different sketches of one row: the
    largest share counts.
    """
    sketches_by_set: dict[str, list[list[str]]] = {}
    for named in tables:
        sketch = _sketch_of_rows(named.table.cache)
        sketches_by_set.setdefault(named.data_set, []).append(sketch)
    return {
        frozenset([first, second]): max(
            common_share(one, another)
            for one in sketches_by_set[first]
            for another in sketches_by_set[second]
        )
        for first, second in combinations(sketches_by_set, 2)
    }


def _take_data_sets_of_own_rows(
    tables: Sequence[NamedTable], share_by_pair: Mapping[frozenset[str], float]
) -> tuple[list[NamedTable], list[str]]:
    """Leave out data sets that have most of their rows in common with another one.

    Two columns of labels of the same rows are an example: their decoders err on the
    same rows, so that they are no two data sets. The set that most encoders read
    counts, then the one with most test rows, then the first by name.

    Returns:
        The tables of the others; and a sentence for each set that is left out.
    """
    by_name: dict[str, list[NamedTable]] = {}
    for named in tables:
        by_name.setdefault(named.data_set, []).append(named)

    def rank(name: str) -> tuple[int, int, str]:
        group = by_name[name]
        return -len(group), -group[0].table.num_test_rows, name

    counted: list[str] = []
    sentences = []
    for name in sorted(by_name, key=rank):
        shares = {
            counted_name: share_by_pair[frozenset([name, counted_name])]
            for counted_name in counted
        }
        most_similar = max(shares, key=shares.__getitem__, default=None)
        if most_similar is None or shares[most_similar] < MOST_COMMON_ROWS:
            counted.append(name)
        else:
            sentences.append(
                f"{name} and {most_similar} share about {shares[most_similar]:.0%} of "
                "the rows of the smaller one: one data set, whatever the labels; "
                f"{most_similar} counts"
            )
    return [named for named in tables if named.data_set in counted], sentences


def _some_common_rows(
    counted: Sequence[NamedTable], share_by_pair: Mapping[frozenset[str], float]
) -> list[str]:
    """Sentences on counted data sets that have some rows in common."""
    names = dict.fromkeys(named.data_set for named in counted)
    sentences = []
    for first, second in combinations(names, 2):
        share = share_by_pair[frozenset([first, second])]
        if share >= SAID_COMMON_ROWS:
            sentences.append(
                f"{first} and {second} share about {share:.0%} of the rows of the "
                "smaller one: they are less independent than two data sets should be"
            )
    return sentences


def _sketch_of_rows(cache: CacheRecord) -> list[str]:
    """The hashes in the sketch of all rows of a cache; empty if it has none."""
    record: Mapping[str, Any] = (cache.plan or {}).get("dataset", {})
    return joined(record.get("row_sketches", {}).values())


class Names(NamedTuple):
    """The names of a data set or an encoder."""

    full: str
    short: str
    is_path: bool  # whether the full name is a path of this machine


def _short_names(names: Sequence[Names]) -> list[str]:
    """The short name of each, or the full one where several of the hub share it."""
    full_by_short: dict[str, set[str]] = {}
    for name in names:
        if not name.is_path:
            full_by_short.setdefault(name.short, set()).add(name.full)
    shown = []
    for name in names:
        is_shared = not name.is_path and len(full_by_short[name.short]) > 1
        shown.append(brief(name.full if is_shared else name.short, 60))
    return shown


def _names_of_data_set(cache: CacheRecord) -> Names:
    """The names of the data set of a cache."""
    record: Mapping[str, Any] = (cache.plan or {}).get("dataset", {})
    return _names(cache.dataset, record)


def _names_of_encoder(cache: CacheRecord) -> Names:
    """The names of the encoder of a cache."""
    record: Mapping[str, Any] = (cache.plan or {}).get("encoder", {})
    return _names(cache.encoder, record)


def _names(full: str, record: Mapping[str, Any]) -> Names:
    """A full name, and the short one that people recognise.

    The short name is the last part of a path, or of a name on the hub.

    Args:
        full: the name as reports write it, such as a path with a revision behind it.
        record: of the data set or encoder in the plan of the cache, with its ``name``
            and, where it is local, its ``path``.
    """
    name = str(record.get("name", full))
    path = Path(name)
    last_part = path.name or full
    # many data sets lie in files called train or data
    if record.get("path") and path.suffix and path.parent.name:
        last_part = f"{path.parent.name}/{path.name}"
    # what stands behind the path or name, such as a revision, stays
    short = full.replace(name, last_part, 1)
    return Names(full, short, is_path=bool(record.get("path")))


def _labels_of_rows(table: Table) -> object:
    """A key of the numbers of rows and of the labels of all test rows of a table.

    In a cross-validation it covers which rows each fold tests.
    """
    labels_by_part: dict[tuple[int, str], str] = {}
    for run in table.entries[0].runs:
        # without folds, the split seed does not change the test rows
        fold = run.recipe.fold
        part = (split_seed_of(run) if fold else 0, str(fold))
        if part not in labels_by_part:
            row_numbers = b"" if run.test_rows is None else run.test_rows.tobytes()
            labels_by_part[part] = digest_of(run.labels.tobytes() + row_numbers)
    counts = tuple(table.cache.rows.get(split) for split in _used_splits(table))
    labels = tuple(sorted(labels_by_part.items()))
    return table.tested_on, table.num_test_rows, counts, labels


def _used_splits(table: Table) -> list[str]:
    """The splits of a table's training and test rows; further ones do not count."""
    recipe = table.entries[0].runs[0].recipe
    return list(dict.fromkeys([recipe.train_split, recipe.tested_split]))


def _hash_of_rows(table: Table) -> str | None:
    """The hash of all training and test rows of a table; None for imported states."""
    if is_imported(table.cache):
        return None
    fields: Mapping[str, Any] = (table.cache.plan or {}).get("fingerprint_fields", {})
    content = fields.get("content") or {}
    return json.dumps([content.get(split) for split in _used_splits(table)])


def is_imported(cache: CacheRecord) -> bool:
    """Whether the states of a cache were imported, so that it knows no rows."""
    kind = (cache.plan or {}).get("encoder", {}).get("kind", IMPORTED)
    return bool(kind == IMPORTED)


def _first_rows_in_words(tables: Sequence[NamedTable]) -> str:
    """The rows of the first tables, each set of rows once."""
    descriptions = dict.fromkeys(_rows_in_words(named.table) for named in tables)
    return join_first(list(descriptions), MOST_NAMED, "; ")


def _rows_in_words(table: Table) -> str:
    """Test rows and size of all splits, for a sentence."""
    counts = " + ".join(
        f"{count:,} {brief(split, 40)}" for split, count in table.cache.rows.items()
    )
    folder = brief(Path(table.cache.path).name, 40)
    return f"{table.tested_on} of {counts} rows in '{folder}'"


def settings_of_encoders(caches: Sequence[CacheRecord]) -> list[str]:
    """For every cache, the settings of its encoder that the others do not share.

    In words; empty texts where the encoders of all caches have the same settings.
    """
    # records that are equal where the same encoder read the rows
    stripped = [_encoder_alone(cache) for cache in caches]
    keys = [
        json.dumps(
            [cache.plan, cache.layers, cache.hidden_size], sort_keys=True, default=str
        )
        for cache in stripped
    ]
    distinct = dict(zip(keys, stripped, strict=True))
    if len(distinct) < 2:
        return [""] * len(caches)
    sizes = {(cache.layers, cache.hidden_size) for cache in distinct.values()}
    if len(sizes) > 1:
        words = {
            key: f"{cache.layers} layers x {cache.hidden_size}"
            for key, cache in distinct.items()
        }
    else:
        caches_apart = distinguishing_words(list(distinct.values()))
        words = dict(zip(distinct, caches_apart, strict=True))
    return [words[key] for key in keys]


def _encoder_alone(cache: CacheRecord) -> CacheRecord:
    """A copy of the record of a cache that holds the settings of its encoder alone.

    Everything that depends on the rows is left out, so that copies of several data sets
    are equal where the same encoder read them.
    """
    plan = cache.plan or {}
    fields = {
        name: value
        for name, value in plan.get("fingerprint_fields", {}).items()
        if name not in OF_ROWS
    }
    encoder_fields = dict(fields.get("encoder", {}))
    # what was imported, or fitted, is of the rows too
    for name in ("imported", "fitted_on"):
        encoder_fields.pop(name, None)
    fields["encoder"] = encoder_fields
    encoder = {name: plan.get("encoder", {}).get(name) for name in ("kind", "revision")}
    return replace(cache, plan={"encoder": encoder, "fingerprint_fields": fields})
