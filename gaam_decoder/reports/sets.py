"""Which table of a report is of which data set and encoder.

An answer over many data sets takes one table of each data set and encoder. What it
leaves out is said by name; no result decides what it takes.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import brief
from gaam_cache.config import IMPORTED
from gaam_cache.store.files import digest_of
from gaam_decoder.reports.compare import is_baseline
from gaam_decoder.reports.entries import Entry
from gaam_decoder.reports.over_sets import (
    MOST_NAMED,
    CellDifference,
    CellResult,
    ResultsOverSets,
)
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.titles import distinguishing_words
from gaam_decoder.reports.wording import join_first
from gaam_decoder.runs.records import CacheRecord
from gaam_decoder.runs.tuning import TUNED_SETTINGS
from gaam_decoder.stats.across import difference_of_claim, why_left_out
from gaam_decoder.stats.claims import Claim
from gaam_decoder.stats.scores.base import Interval

FACTORS = ("dataset", "encoder")
# an encoder reads every data set with these properties of its own
OF_ROWS = ("dataset", "columns", "class_names", "content")


def parse_factors(factors: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The factors of ``--across``: a list, or a text with commas.

    Raises:
        ConfigError: others than ``dataset``, or ``dataset`` and ``encoder``.
    """
    if factors is None:
        return None
    names = factors.split(",") if isinstance(factors, str) else factors
    chosen = {name.strip().lower() for name in names}
    parsed = tuple(name for name in FACTORS if name in chosen)
    if "dataset" in chosen and chosen <= {*FACTORS}:
        return parsed
    raise ConfigError(
        "--across names the factors of the answer over all tables",
        expected="dataset, or dataset,encoder",
        found=", ".join(sorted(chosen)),
        hint="encoders alone are no sample: they read the same test rows",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One data set, read by one encoder: the table of decoders on these states."""

    data_set: str
    encoder: str
    table: Table
    entries: Mapping[str, Entry]
    """Of the compared head and of its baseline, by a name that all tables share."""

    @property
    def name(self) -> str:
        """Both names, for a sentence."""
        return f"{self.data_set} through {self.encoder}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cells:
    """The tables that an answer over data sets takes."""

    cells: tuple[Cell, ...]
    baseline: str
    head: str
    left_out: tuple[str, ...]
    """Sentences on tables and entries that no answer takes."""
    remarks: tuple[str, ...]
    """Sentences on what differs between those that it takes."""

    @property
    def data_sets(self) -> list[str]:
        """Names of the data sets, in the order of the report."""
        return list(dict.fromkeys(cell.data_set for cell in self.cells))

    @property
    def encoders(self) -> list[str]:
        """Names of the encoders, in the order of the report."""
        return list(dict.fromkeys(cell.encoder for cell in self.cells))

    def results(self) -> ResultsOverSets:
        """What the tables say of every decoder, for an answer over data sets."""
        first = self.cells[0].table
        entries = [entry for cell in self.cells for entry in cell.entries.values()]
        conditions = []
        if any(entry.is_optimistic for entry in entries):
            conditions.append("some numbers are optimistic")
        if not any(entry.tunings for entry in entries):
            conditions.append("not tuned")
        return ResultsOverSets(
            results=tuple(
                _result(cell, name, entry, self.baseline)
                for cell in self.cells
                for name, entry in cell.entries.items()
            ),
            baseline=self.baseline,
            score=first.score,
            margin=first.margin,
            is_usual_score=first.score_name == first.task.default_score,
            head=self.head,
            conditions=tuple(conditions),
            left_out=self.left_out,
            remarks=self.remarks,
        )


def _result(cell: Cell, name: str, entry: Entry, baseline: str) -> CellResult:
    """What a table says of one decoder, whose entry has this name in all tables."""
    comparison = entry.comparison
    return CellResult(
        data_set=cell.data_set,
        encoder=cell.encoder,
        decoder=name,
        mean=entry.compared_score.mean,
        is_baseline=is_baseline(entry, baseline),
        compared=_difference(comparison.claim) if comparison else None,
    )


def _difference(claim: Claim) -> CellDifference:
    """The difference of a claim: above 0 the decoder is better, also for a loss."""
    tested = difference_of_claim("", claim)
    difference = claim.difference
    interval: Interval = claim.interval
    if not claim.larger_is_better:
        difference = -difference
        if interval is not None:
            low, high = interval
            interval = (-high, -low)
    return CellDifference(
        difference=difference,
        std_error=None if tested is None else math.sqrt(tested.variance),
        interval=interval,
        verdict=claim.verdict,
        why_left_out=why_left_out(claim),
    )


def gather_cells(tables: Sequence[Table]) -> Cells | None:
    """Take one table for each data set and encoder, for an answer over data sets.

    What is not taken is said in sentences. All tables have one baseline; of several
    heads the usual one is taken.

    Returns:
        None where no table compares decoders with a baseline.
    """
    compared = [table for table in tables if table.compared_entries]
    if not compared:
        return None
    baseline = str(compared[0].baseline)
    head = _usual_head(compared, baseline)
    # nothing but heads that are fitted in one step
    if head is None:
        return None
    left_out = _without_baseline(tables, baseline)

    usable = [
        table
        for table in compared
        if any(
            _is_in_answer(entry, head, baseline) for entry, _ in table.compared_entries
        )
    ]
    names = _Names.of(usable)
    left_out += names.take_one_set_of_rows(usable)
    left_out += names.take_one_cache()
    left_out += _other_heads(compared, head)

    entry_names = _entry_names(names.taken, head, baseline)
    cells = tuple(
        Cell(
            data_set=names.data_set[id(table)],
            encoder=names.encoder[id(table)],
            table=table,
            entries=entry_names[id(table)],
        )
        for table in names.taken
    )
    remarks = [*_other_encoders(cells), *_other_training(cells)]
    selection = tables[0].selection
    if selection is not None:
        remarks.append(f"this report is of {brief(selection.in_words(), 600)}")
    return Cells(
        cells=cells,
        baseline=baseline,
        head=head,
        left_out=tuple(left_out),
        remarks=tuple(remarks),
    )


def _usual_head(tables: Sequence[Table], baseline: str) -> str | None:
    """The head that most tables compare; of several the first by name.

    None where no table compares decoders that are trained in steps on one head: heads
    that are fitted at once are in no answer over data sets.
    """
    counts: Counter[str] = Counter()
    for table in tables:
        counts.update(
            {
                entry.head
                for entry, _ in table.compared_entries
                if _is_in_answer(entry, entry.head, baseline)
            }
        )
    if not counts:
        return None
    return min(counts, key=lambda head: (-counts[head], head))


def _without_baseline(tables: Sequence[Table], baseline: str) -> list[str]:
    """A sentence on the tables that lack the baseline; none where each has it."""
    titles = [
        table.title()
        for table in tables
        if table.entries and not table.compared_entries
    ]
    if not titles:
        return []
    return [
        f"no '{brief(baseline)}' to compare with, so left out: "
        f"{'; '.join(titles[:MOST_NAMED])}{_and_more(titles)}"
    ]


def _and_more(names: Sequence[str]) -> str:
    """How many names follow those that a sentence lists; empty where none do."""
    return f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""


def _other_heads(tables: Sequence[Table], head: str) -> list[str]:
    """A sentence on the compared entries that have another head, counted by head."""
    counts = Counter(
        entry.head
        for table in tables
        for entry, _ in table.compared_entries
        if entry.head != head
    )
    if not counts:
        return []
    others = [f"{brief(other, 60)} ({count})" for other, count in counts.items()]
    return [
        f"of head {brief(head, 60)} alone; decoders of other heads are left out: "
        f"{join_first(others, MOST_NAMED)}"
    ]


class _Names:
    """The names of data sets and encoders, and which tables are taken of each."""

    def __init__(
        self, tables: Sequence[Table], data_set: dict[int, str], encoder: dict[int, str]
    ) -> None:
        self.taken = list(tables)
        self.data_set = data_set
        self.encoder = encoder

    @classmethod
    def of(cls, tables: Sequence[Table]) -> "_Names":
        """Name data set and encoder of every table, as short as they are unique.

        ``data_set`` and ``encoder`` hold the names by the ``id`` of the table.
        """
        data_set = dict(
            zip(
                map(id, tables),
                _short_names([_data_set(table.cache) for table in tables]),
                strict=True,
            )
        )
        encoder = dict(
            zip(
                map(id, tables),
                _short_names([_encoder(table.cache) for table in tables]),
                strict=True,
            )
        )
        return cls(tables, data_set, encoder)

    def take_one_set_of_rows(self, tables: Sequence[Table]) -> list[str]:
        """Take one set of test rows of every data set, and leave other tables out.

        The set that most encoders read counts. Of several, the one whose words (such as
        "test split 'test'") most tables share; then the one with most test rows; then
        the first.

        Returns:
            A sentence for each data set with several sets of test rows.
        """
        kinds = Counter(table.tested_on for table in tables)
        by_data_set: dict[str, dict[object, list[Table]]] = {}
        for table in tables:
            by_rows = by_data_set.setdefault(self.data_set[id(table)], {})
            by_rows.setdefault(_rows_of(table), []).append(table)

        lines = []
        for name, by_rows in by_data_set.items():
            if len(by_rows) == 1:
                continue

            def weight(of_rows: Sequence[Table]) -> tuple[int, int, int]:
                encoders = {self.encoder[id(table)] for table in of_rows}
                first = of_rows[0]
                return len(encoders), kinds[first.tested_on], first.num_test_rows

            counted = max(by_rows.values(), key=weight)
            others = [
                table
                for of_rows in by_rows.values()
                for table in of_rows
                if of_rows is not counted
            ]
            self._leave_out(others)
            rows = "; ".join(map(_rows_in_words, others[:MOST_NAMED])) + _and_more(
                [table.tested_on for table in others]
            )
            lines.append(
                f"{name} has several sets of rows: {_rows_in_words(counted[0])} count; "
                f"left out: {rows}"
            )
        return lines

    def take_one_cache(self) -> list[str]:
        """Take one table of every data set and encoder, and leave other tables out.

        Several caches of a data set and encoder count as several encoders where a
        setting of the encoder, such as the pooling, tells them apart. Else the first
        cache counts.

        Returns:
            A sentence for each cache that is left out.
        """
        lines = []
        for name in dict.fromkeys(self.encoder[id(table)] for table in self.taken):
            tables = [t for t in self.taken if self.encoder[id(t)] == name]
            counts = Counter(self.data_set[id(table)] for table in tables)
            if max(counts.values()) > 1:
                lines += self._split_encoder(name, tables)
        return lines

    def _split_encoder(self, name: str, tables: Sequence[Table]) -> list[str]:
        """Name the encoder of these tables by its settings too; see above.

        Args:
            name: of the encoder, which all tables share.
            tables: its tables, several of them of one data set.
        """
        words = _settings_of_encoder([table.cache for table in tables])
        lines = []
        seen: set[tuple[str, str]] = set()
        for table, word in zip(tables, words, strict=True):
            encoder = f"{name} ({word})" if word else name
            self.encoder[id(table)] = encoder
            place = (self.data_set[id(table)], encoder)
            if place in seen:
                self._leave_out([table])
                lines.append(
                    f"{place[0]} through {encoder} has several caches: the first "
                    f"counts; left out: {brief(Path(table.cache.path).name, 60)}"
                )
            seen.add(place)
        return lines

    def _leave_out(self, tables: Sequence[Table]) -> None:
        """Remove these tables from those that are taken."""
        left_out = {id(table) for table in tables}
        self.taken = [table for table in self.taken if id(table) not in left_out]


Label = tuple[str, str, bool]
"""Full name, short name, and whether the full name is a path of this machine."""


def _short_names(labels: Sequence[Label]) -> list[str]:
    """The short name of each, or the full one where several of the hub share it."""
    full_by_short: dict[str, set[str]] = {}
    for full, short, is_path in labels:
        if not is_path:
            full_by_short.setdefault(short, set()).add(full)
    names = []
    for full, short, is_path in labels:
        is_shared = not is_path and len(full_by_short[short]) > 1
        names.append(brief(full if is_shared else short, 60))
    return names


def _data_set(cache: CacheRecord) -> Label:
    """The names of the data set of a cache."""
    record: Mapping[str, Any] = (cache.plan or {}).get("dataset", {})
    return _label(cache.dataset, record)


def _encoder(cache: CacheRecord) -> Label:
    """The names of the encoder of a cache."""
    record: Mapping[str, Any] = (cache.plan or {}).get("encoder", {})
    return _label(cache.encoder, record)


def _label(label: str, record: Mapping[str, Any]) -> Label:
    """A full name, and the short one that people recognise.

    The short name is the last part of a path, or of a name on the hub.

    Args:
        label: the full name, as reports write it.
        record: of the data set or encoder in the plan of the cache, with its ``name``
            and, where it is local, its ``path``.
    """
    name = str(record.get("name", label))
    path = Path(name)
    short = path.name or label
    # many data sets lie in files called train or data
    if record.get("path") and path.suffix and path.parent.name:
        short = f"{path.parent.name}/{path.name}"
    return label, label.replace(name, short, 1), bool(record.get("path"))


def _rows_of(table: Table) -> object:
    """What identifies training and test rows of a table, whichever encoder read them.

    Two tables with equal results have the same rows. The result holds hashes of the
    rows, where the cache has them. A cache of imported states has hashes of the states
    alone, so its counts of rows and test labels must do.
    """
    run = table.entries[0].runs[0]
    labels = digest_of(run.labels.tobytes())
    fields: Mapping[str, Any] = (table.cache.plan or {}).get("fingerprint_fields", {})
    kind = (table.cache.plan or {}).get("encoder", {}).get("kind", IMPORTED)
    content = None if kind == IMPORTED else json.dumps(fields.get("content"))
    counts = json.dumps(table.cache.rows, sort_keys=True)
    return table.tested_on, table.num_test_rows, labels, counts, content


def _rows_in_words(table: Table) -> str:
    """Test rows and size of all splits, for a sentence."""
    counts = " + ".join(
        f"{count:,} {brief(split, 40)}" for split, count in table.cache.rows.items()
    )
    return f"{table.tested_on} of {counts} rows"


def _settings_of_encoder(caches: Sequence[CacheRecord]) -> list[str]:
    """For every cache, the settings of its encoder that the others do not share.

    In words; empty texts where the encoders of all caches have the same settings.
    """
    # records that are equal where the same encoder read the rows
    stripped = [_encoder_alone(cache) for cache in caches]
    keys = [
        json.dumps([cache.plan, cache.layers], sort_keys=True, default=str)
        for cache in stripped
    ]
    distinct = dict(zip(keys, stripped, strict=True))
    if len(distinct) < 2:
        return [""] * len(caches)
    words = dict(
        zip(distinct, distinguishing_words(list(distinct.values())), strict=True)
    )
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


def _other_encoders(cells: Sequence[Cell]) -> list[str]:
    """Sentences on encoders that read some data sets with other settings."""
    lines = []
    for encoder in dict.fromkeys(cell.encoder for cell in cells):
        of_encoder = [cell for cell in cells if cell.encoder == encoder]
        # an encoder that is fitted to the rows (tf-idf) differs for every data set
        if any(cell.table.cache.fitted_on for cell in of_encoder):
            continue
        words = _settings_of_encoder([cell.table.cache for cell in of_encoder])
        if any(words):
            settings = [
                f"{cell.data_set}: {word}"
                for cell, word in zip(of_encoder, words, strict=True)
            ]
            lines.append(
                f"{encoder} is not the same for all data sets: "
                f"{join_first(settings, MOST_NAMED)}"
            )
    return lines


def _other_training(cells: Sequence[Cell]) -> list[str]:
    """A sentence on data sets whose decoders were trained or tested unlike most."""
    recipes = [_recipe(cell) for cell in cells]
    settings = sorted({name for recipe in recipes for name in recipe})
    others: dict[str, list[str]] = {}
    for name in settings:
        values = [recipe.get(name, "-") for recipe in recipes]
        usual = Counter(values).most_common(1)[0][0]
        for cell, value in zip(cells, values, strict=True):
            if value != usual:
                others.setdefault(cell.name, []).append(f"{name}={value}")
    if not others:
        return []
    texts = [f"{cell}: {', '.join(words)}" for cell, words in others.items()]
    return [f"trained or tested otherwise than most: {join_first(texts, MOST_NAMED)}"]


def _recipe(cell: Cell) -> dict[str, str]:
    """Name and value, as text, of the settings that all compared decoders share.

    Settings that split the rows or that were tuned are left out; ``test rows`` says
    which rows are the test rows.
    """
    entries = list(cell.entries.values())
    # settings that say nothing of how a decoder was trained
    left_out = {"split_seed", "fold", "plugins", "pool"}
    if any(entry.tunings for entry in entries):
        left_out.update(TUNED_SETTINGS)
    first = dict(entries[0].recipe) | {"test rows": cell.table.tested_on}
    shared = {}
    for name, value in first.items():
        if name == "test rows":
            shared[name] = str(value)
        elif name not in left_out and value is not None:
            values = {str(entry.recipe.get(name)) for entry in entries}
            if len(values) == 1:
                shared[name] = brief(str(value), 60)
    return shared


def _entry_names(
    tables: Sequence[Table], head: str, baseline: str
) -> dict[int, dict[str, Entry]]:
    """Compared entries of every table, and their baselines, by a common name.

    A mechanism has a short name, such as ``gaam``, unless a table has several forms of
    it, such as ``gaam:heads=1`` and ``gaam:heads=2``: its options may be chosen to fit
    the encoder. Settings that distinguish the entries of a mechanism in any table are
    part of the name.

    Returns:
        ``id`` of a table -> name -> entry.
    """
    entries_of = {
        id(table): [
            entry for entry in table.entries if _is_in_answer(entry, head, baseline)
        ]
        for table in tables
    }
    every_list = list(entries_of.values())
    several_forms = {
        name
        for entries in every_list
        for name, forms in _forms(entries).items()
        if len(forms) > 1
    }
    settings = sorted({name for entries in every_list for name in _varying(entries)})
    named: dict[int, dict[str, Entry]] = {}
    for key, entries in entries_of.items():
        by_name: dict[str, Entry] = {}
        for entry in entries:
            short = entry.attention.partition(":")[0]
            name = brief(entry.attention if short in several_forms else short)
            values = [
                brief(f"{setting}={entry.recipe[setting]}")
                for setting in settings
                if _is_given(entry, setting)
            ]
            full_name = " ".join([name, *values])
            if full_name in by_name:
                # the same mechanism of another plugin
                full_name = f"{full_name} {entry.code or len(by_name)}"
            by_name[full_name] = entry
        named[key] = by_name
    return named


def _is_in_answer(entry: Entry, head: str, baseline: str) -> bool:
    """Whether an answer over data sets may use an entry.

    It has this head, was trained in steps on true labels, and is compared with the
    baseline or is the baseline.
    """
    if (
        entry.head != head
        or entry.labels_shuffled
        or entry.fitted_at_once
        or entry.on_training_rows
    ):
        return False
    return entry.comparison is not None or is_baseline(entry, baseline)


def _forms(entries: Iterable[Entry]) -> dict[str, set[str]]:
    """Name of a mechanism -> all its forms: the name with its options."""
    forms: dict[str, set[str]] = {}
    for entry in entries:
        name = entry.attention.partition(":")[0]
        forms.setdefault(name, set()).add(entry.attention)
    return forms


def _is_given(entry: Entry, setting: str) -> bool:
    """Whether a person gave a setting of an entry; validation chose it otherwise."""
    if entry.tunings and setting in TUNED_SETTINGS:
        return False
    return entry.recipe.get(setting) is not None


def _varying(entries: Sequence[Entry]) -> set[str]:
    """Settings in which entries of the same mechanism differ."""
    varying: set[str] = set()
    for attention in {entry.attention for entry in entries}:
        same = [entry for entry in entries if entry.attention == attention]
        names = {name for entry in same for name in entry.recipe}
        for name in names:
            values = {
                str(entry.recipe.get(name)) if _is_given(entry, name) else "None"
                for entry in same
            }
            if len(values) > 1:
                varying.add(name)
    return varying
