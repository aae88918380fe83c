"""The tables of a report that an answer over data sets takes, and what they say.

It takes one table of each data set and encoder, and one head. What it leaves out is
said by name; no result decides what it takes.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import brief, join_first
from gaam_cache.config import IMPORTED
from gaam_decoder.reports.compare import is_baseline
from gaam_decoder.reports.entries import Comparison, Entry
from gaam_decoder.reports.over_sets import (
    MOST_NAMED,
    CellDifference,
    CellResult,
    ResultsOverSets,
)
from gaam_decoder.reports.set_tables import (
    NamedTable,
    choose_tables,
    settings_of_encoders,
)
from gaam_decoder.reports.table import Table
from gaam_decoder.runs.tuning import TUNED_SETTINGS
from gaam_decoder.stats.across import difference_of_claim, why_left_out
from gaam_decoder.stats.scores.base import Interval

FACTORS = ("dataset", "encoder")


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
    without_names: tuple[str, ...] = ()
    """Sentences on imported caches that have one name for different rows."""
    common_rows: tuple[str, ...] = ()
    """Sentences on data sets that are left out, because another one has their rows."""

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
        return self._results(self.baseline, lambda entry: entry.comparison)

    def results_against_probe(self) -> ResultsOverSets:
        """The same, with the linear probe on the same states in the baseline's place.

        The baseline is compared with it too.
        """
        probe = self.cells[0].table.task.probe
        return self._results(probe, lambda entry: entry.probe_comparison)

    def _results(
        self, baseline: str, comparison_of: Callable[[Entry], Comparison | None]
    ) -> ResultsOverSets:
        """The results of all entries, each with its comparison with the baseline."""
        first = self.cells[0].table
        return ResultsOverSets(
            results=tuple(
                CellResult(
                    data_set=cell.data_set,
                    encoder=cell.encoder,
                    decoder=name,
                    mean=entry.compared_score.mean,
                    is_baseline=is_baseline(entry, baseline),
                    compared=_difference(comparison_of(entry)),
                )
                for cell in self.cells
                for name, entry in cell.entries.items()
            ),
            baseline=baseline,
            score=first.score,
            margin=first.margin,
            is_usual_score=first.score_name == first.task.default_score,
            head=self.head,
            conditions=tuple(self._conditions(comparison_of)),
            left_out=self.left_out,
            remarks=self.remarks,
        )

    def _conditions(
        self, comparison_of: Callable[[Entry], Comparison | None]
    ) -> Iterator[str]:
        """What makes all numbers doubtful, for the end of a sentence."""
        entries = [entry for cell in self.cells for entry in cell.entries.values()]
        if any(entry.is_optimistic for entry in entries):
            yield "some numbers are optimistic"
        num_tuned = sum(bool(entry.tunings) for entry in entries)
        if num_tuned == 0:
            yield "not tuned"
        elif num_tuned < len(entries):
            num_untuned = len(entries) - num_tuned
            yield f"{num_untuned} of {len(entries)} decoders in tables not tuned"
        comparisons = [comparison_of(entry) for entry in entries]
        if any(comparison and comparison.grids_differ for comparison in comparisons):
            yield "not all were tuned over the same grid"


def _difference(comparison: Comparison | None) -> CellDifference | None:
    """What a comparison says: above 0 the decoder is better, also for a loss."""
    if comparison is None:
        return None
    claim = comparison.claim
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
        shared_variance=None if tested is None else tested.shared_variance,
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
    with_head = _tables_with_head(compared, head, baseline)
    chosen = choose_tables(with_head)
    cells = _cells_of(chosen.tables, head, baseline)
    remarks = [*remarks_on(cells), *chosen.remarks]
    selection = tables[0].selection
    if selection is not None:
        remarks.append(f"this report is of {brief(selection.in_words(), 600)}")
    return Cells(
        cells=cells,
        baseline=baseline,
        head=head,
        left_out=(
            *_without_baseline(tables, baseline),
            *chosen.same_names,
            *chosen.common_rows,
            *_other_heads(compared, head),
        ),
        remarks=tuple(remarks),
        without_names=_without_names(with_head, chosen.same_names),
        common_rows=tuple(chosen.common_rows),
    )


def _tables_with_head(tables: Sequence[Table], head: str, baseline: str) -> list[Table]:
    """The tables that compare decoders of that head with a baseline."""
    return [
        table
        for table in tables
        if any(
            _is_in_answer(compared.entry, head, baseline)
            for compared in table.compared_entries
        )
    ]


def remarks_on(cells: Sequence[Cell]) -> list[str]:
    """Sentences on what differs between the cells of an answer, and on failures."""
    return [
        *_other_encoders(cells),
        *_other_training(cells),
        *_other_options(cells),
        *_failed_seeds(cells),
        *_units_of_numbers(cells),
    ]


def _without_names(
    tables: Sequence[Table], same_names: Sequence[str]
) -> tuple[str, ...]:
    """Sentences on tables of the same names, if all are of imported caches.

    Such caches are called as their files, unless a person gave them a name.
    """
    kinds = {
        (table.cache.plan or {}).get("encoder", {}).get("kind", IMPORTED)
        for table in tables
    }
    return tuple(same_names) if kinds == {IMPORTED} else ()


def _cells_of(
    chosen: Sequence[NamedTable], head: str, baseline: str
) -> tuple[Cell, ...]:
    """The cells of these tables, with their entries of that head and baseline."""
    entries_of_tables = _entries_by_name(
        [named.table for named in chosen], head, baseline
    )
    return tuple(
        Cell(
            data_set=named.data_set,
            encoder=named.encoder,
            table=named.table,
            entries=entries,
        )
        for named, entries in zip(chosen, entries_of_tables, strict=True)
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
                compared.entry.head
                for compared in table.compared_entries
                # whether it would be in an answer on its own head
                if _is_in_answer(compared.entry, compared.entry.head, baseline)
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
        f"no '{brief(baseline)}' of the same recipe with a score to compare with, so "
        f"left out: {join_first(titles, MOST_NAMED, '; ')}"
    ]


def _other_heads(tables: Sequence[Table], head: str) -> list[str]:
    """A sentence on the compared entries that have another head, counted by head."""
    counts = Counter(
        compared.entry.head
        for table in tables
        for compared in table.compared_entries
        if compared.entry.head != head
    )
    if not counts:
        return []
    left_out_heads = [
        f"{brief(other, 60)} ({count})" for other, count in counts.items()
    ]
    return [
        f"of head {brief(head, 60)} alone; decoders of other heads are left out: "
        f"{join_first(left_out_heads, MOST_NAMED)}"
    ]


def _other_encoders(cells: Sequence[Cell]) -> list[str]:
    """Sentences on encoders that read some data sets with other settings."""
    lines = []
    for encoder in dict.fromkeys(cell.encoder for cell in cells):
        of_encoder = [cell for cell in cells if cell.encoder == encoder]
        # an encoder that is fitted to the rows (tf-idf) differs for every data set
        if any(cell.table.cache.fitted_on for cell in of_encoder):
            continue
        words = settings_of_encoders([cell.table.cache for cell in of_encoder])
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


def _other_options(cells: Sequence[Cell]) -> list[str]:
    """Sentences on decoders that have other options in some tables than in most."""
    lines = []
    for name in dict.fromkeys(name for cell in cells for name in cell.entries):
        forms = [
            (cell.name, cell.entries[name].attention)
            for cell in cells
            if name in cell.entries
        ]
        usual = Counter(form for _cell, form in forms).most_common(1)[0][0]
        others = [f"{brief(form)} in {cell}" for cell, form in forms if form != usual]
        if others:
            lines.append(
                f"{name} is {brief(usual)} in most tables, and "
                f"{join_first(others, MOST_NAMED)}"
            )
    return lines


def _failed_seeds(cells: Sequence[Cell]) -> list[str]:
    """A sentence on the failed seeds of all tables; none without any."""
    failed = [
        f"{len(entry.failed)} of {name} in {cell.name}"
        for cell in cells
        for name, entry in cell.entries.items()
        if entry.failed
    ]
    if not failed:
        return []
    return [f"failed seeds, which count in no mean: {join_first(failed, MOST_NAMED)}"]


def _units_of_numbers(cells: Sequence[Cell]) -> list[str]:
    """A sentence on a score in the unit of each data set's numbers; else none."""
    if len({cell.data_set for cell in cells}) < 2:
        return []
    score = cells[0].table.score
    if not score.has_unit_of_numbers:
        return []
    return [
        f"{score.title} has the unit of the numbers of each data set: a mean over data "
        "sets says nothing if their units differ"
    ]


def _recipe(cell: Cell) -> dict[str, str]:
    """Name and value, as text, of the settings that all compared decoders share.

    Settings that split the rows or that were tuned are left out; ``test rows`` says
    which rows are the test rows.
    """
    entries = list(cell.entries.values())
    # settings that say nothing of how a decoder was trained
    left_out = {"split_seed", "fold"}
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


def _entries_by_name(
    tables: Sequence[Table], head: str, baseline: str
) -> list[dict[str, Entry]]:
    """Compared entries and baselines of every table, by names that all tables share.

    The name is short, such as ``gaam``, so that tables share it where a person gave the
    mechanism other options for another encoder. A mechanism with several forms in one
    table, such as ``gaam:heads=1`` and ``gaam:heads=2``, keeps its options. Settings
    that distinguish the entries of a mechanism in any table are part of the name; so is
    the code of a plug-in that differs between any two entries of the report.

    Returns:
        Name -> entry, for every table.
    """
    entries_of_tables = [
        [entry for entry in table.entries if _is_in_answer(entry, head, baseline)]
        for table in tables
    ]
    several_forms = {
        name
        for entries in entries_of_tables
        for name, forms in _forms(entries).items()
        if len(forms) > 1
    }
    settings = sorted(
        {name for entries in entries_of_tables for name in _varying(entries)}
    )
    all_entries = [entry for entries in entries_of_tables for entry in entries]
    codes: dict[str, set[str]] = {}
    for entry in all_entries:
        codes.setdefault(entry.mechanism, set()).add(entry.code)
    several_codes = {name for name, digests in codes.items() if len(digests) > 1}
    named: list[dict[str, Entry]] = []
    for entries in entries_of_tables:
        by_name: dict[str, Entry] = {}
        for entry in entries:
            name = _entry_name(entry, several_forms, settings)
            if entry.mechanism in several_codes:
                name = f"{name} {entry.code}"
            by_name[name] = entry
        named.append(by_name)
    return named


def _entry_name(
    entry: Entry, several_forms: Collection[str], settings: Sequence[str]
) -> str:
    """The name of an entry in an answer over data sets.

    Args:
        entry: the entry.
        several_forms: mechanisms that keep their options.
        settings: those that distinguish entries.
    """
    short = entry.mechanism
    name = brief(entry.attention if short in several_forms else short)
    values = [
        brief(f"{setting}={entry.recipe[setting]}")
        for setting in settings
        if _is_given(entry, setting)
    ]
    return " ".join([name, *values])


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
        forms.setdefault(entry.mechanism, set()).add(entry.attention)
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
