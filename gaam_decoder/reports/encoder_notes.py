"""Notes below the pairs of encoders: what is doubtful, and what is not compared."""

from collections.abc import Iterator, Sequence

from gaam_cache.common.messages import brief, counted, join_first
from gaam_decoder.reports.compare import MOST_VALUES, num_tests_in_words
from gaam_decoder.reports.encoder_pairs import OF_STATES, ComparedEncoders
from gaam_decoder.reports.notes import warnings as warnings_on
from gaam_decoder.reports.over_sets import MOST_NAMED
from gaam_decoder.reports.set_tables import NamedTable, is_imported
from gaam_decoder.reports.table import Table


def warnings_of(compared: Sequence[ComparedEncoders]) -> list[str]:
    """What nobody may miss: the warnings on the tables, and on the pairs."""
    lines = [
        line
        for encoders in compared
        for named in encoders.tables
        for line in warnings_on(named.table)
    ]
    for encoders in compared:
        lines += [*_other_seeds(encoders), *_other_grids(encoders)]
        lines += _chosen_penalties(encoders)
    return list(dict.fromkeys(lines))


def _other_seeds(encoders: ComparedEncoders) -> Iterator[str]:
    """A line on decoders with other seeds on the states of some encoders."""
    names = [
        f"{group.name} ({counted(len(comparison.seeds), 'seed')})"
        for group in encoders.pairs.groups
        for comparison in group.pairs.values()
        if comparison.dropped_seeds
    ]
    if names:
        yield (
            "A difference is over the seeds that both encoders have, while a mean is "
            f"over all seeds: {join_first(list(dict.fromkeys(names)), MOST_NAMED)}."
        )


def _other_grids(encoders: ComparedEncoders) -> Iterator[str]:
    """A line on decoders that were tuned over other candidates for some encoders."""
    names = [
        group.name
        for group in encoders.pairs.groups
        if any(comparison.grids_differ for comparison in group.pairs.values())
    ]
    if names:
        yield (
            "Learning rates or weight decays were tuned over another grid for some "
            f"encoders: {join_first(names, MOST_NAMED)}."
        )


def _chosen_penalties(encoders: ComparedEncoders) -> Iterator[str]:
    """A line on fits whose setting validation rows chose."""
    fits = [
        run.fit
        for group in encoders.pairs.groups
        for entry in group.entries
        for run in entry.runs
    ]
    if any(fit is not None and fit.tried > 1 for fit in fits):
        yield (
            "Validation rows chose the penalty of each fitted head, and no interval "
            "includes the uncertainty of this choice."
        )


def notes_on(compared: Sequence[ComparedEncoders]) -> Iterator[str]:
    """How pairs are compared, and what is not."""
    score = compared[0].tables[0].table.score
    num_tests = [num_tests_in_words(encoders.pairs.num_tests) for encoders in compared]
    yield (
        f"differences are in {score.difference_unit}, by seed and test row (heads that "
        "are fitted at once: by test row); Holm corrects for all pairs of encoders on "
        f"the same rows: {join_first(num_tests, MOST_NAMED, '; ')}"
    )
    for encoders in compared:
        prefix = "" if len(compared) == 1 else f"{encoders.data_set}: "
        for line in _notes_on_rows(encoders):
            yield f"{prefix}{line}"


def _notes_on_rows(encoders: ComparedEncoders) -> Iterator[str]:
    """The notes on the pairs of one set of rows."""
    if encoders.num_groups is not None:
        yield (
            f"{encoders.num_groups:,} groups of test rows are the unit of intervals "
            "and verdicts"
        )
    if encoders.has_joined_groups:
        yield "rows that belong together for one encoder count as one group for all"
    if any(len(group.entries) > MOST_VALUES for group in encoders.pairs.groups):
        yield (
            f"the {MOST_VALUES} best encoders are compared each with each, all others "
            "with the best one"
        )
    yield from _options_by_encoder(encoders)
    yield from _not_compared(encoders)
    if any(is_imported(named.table.cache) for named in encoders.tables):
        yield (
            "imported states are paired by their order: the labels of the test rows "
            f"are the same ({encoders.data_set})"
        )


def _options_by_encoder(encoders: ComparedEncoders) -> Iterator[str]:
    """Lines on decoders that have other options or settings for other encoders."""
    for group in encoders.pairs.groups:
        forms = {
            label: brief(entry.attention)
            for label, entry in zip(group.labels, group.entries, strict=True)
        }
        yield from _values_by_encoder(group.name, forms)
    for name in OF_STATES:
        values = {
            named.encoder: str(named.table.entries[0].runs[0].setting(name))
            for named in encoders.tables
        }
        yield from _values_by_encoder(name.replace("_", "-"), values)


def _values_by_encoder(name: str, value_by_encoder: dict[str, str]) -> Iterator[str]:
    """A line that gives the value for each encoder; none where all have the same."""
    if len(set(value_by_encoder.values())) > 1:
        values = [f"{value} for {name}" for name, value in value_by_encoder.items()]
        yield f"{name} is {join_first(values, MOST_NAMED)}"


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
            "not compared, for lack of the same decoder, settings and seeds on another "
            f"encoder: {join_first(left_out, MOST_NAMED)}"
        )


def not_among_same_rows(
    tables: Sequence[Table], groups: Sequence[Sequence[NamedTable]]
) -> Iterator[str]:
    """A line on the tables whose rows no other encoder has.

    Args:
        tables: of the report.
        groups: the tables of the same rows.
    """
    grouped = {id(named.table) for group in groups for named in group}
    titles = [
        table.title() for table in tables if table.entries and id(table) not in grouped
    ]
    if titles:
        yield (
            "no other encoder has the same training and test rows, so not compared: "
            f"{join_first(titles, MOST_NAMED, '; ')}"
        )
