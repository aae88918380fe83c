"""The notes of a report: what a reader has to know about the numbers of a table.

Each note is one object of ``NOTES``; its function of the table returns a sentence, or
nothing where the note does not apply.
"""

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gaam_cache.common.messages import brief, counted, join_first
from gaam_cache.config import VALIDATION_NAMES
from gaam_decoder import stats
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.compare import (
    DEFAULT_BASELINE,
    is_baseline,
    num_tests_in_words,
    sampled_units,
    trained_in_steps,
)
from gaam_decoder.reports.entries import Entry
from gaam_decoder.reports.explanations import explain_numbers
from gaam_decoder.reports.groups import relation_in_words
from gaam_decoder.reports.table import ON_TRAINING_ROWS, Table
from gaam_decoder.reports.wording import (
    SELECT_NOTES,
    capitalised,
    chance,
    in_sentence,
)
from gaam_decoder.runs.groups import EQUAL_ROWS
from gaam_decoder.runs.loading import Selection
from gaam_decoder.runs.result import NO_TEMPERATURE, RunResult
from gaam_decoder.runs.tuning import TUNED_SETTINGS

CONTROLS = ("none", "scalar-mix")
NO_CONTROL = "no control: only 'gaam train --attn none' shows whether a mechanism helps"
# with fewer test rows, one row is more than three points; the same limit holds for the
# validation rows that choose an epoch
FEW_ROWS = 30
MANY_ROWS = 500  # validation rows that choose a penalty well
MOST_NAMED = 8  # decoders that a note names; it counts the rest
INTERVALS = (
    "95% CI: a confidence interval of the mean over {}; it does not predict what "
    "another test set gives"
)
UNDERTRAINED = (
    "† perhaps under-trained: longer training, or a learning rate other than the "
    "chosen one, may do better"
)


@dataclass(frozen=True, slots=True)
class Note:
    """A note of a report."""

    name: str
    # makes the sentence, without its full stop; None where the note does not apply
    text: Callable[[Table], str | None]
    # a warning also stands beside a section that is shown alone
    is_warning: bool = False
    # whether a table without entries may have it
    without_entries: bool = False


def notes(table: Table) -> list[str]:
    """All notes of a table: warnings, a legend, and how its numbers were made."""
    return [*notes_on_runs(table), *legend(table), *explain_numbers(table)]


def legend(table: Table) -> list[str]:
    """What intervals and marks of a table mean: lines that stand below it."""
    lines = []
    if any(entry.compared_score.seeds_rows_interval for entry in table.shown_entries):
        units = sampled_units(table.shown_entries, table.num_groups)
        line = INTERVALS.format(units)
        if table.compared_entries:
            line += "; that of a difference is corrected (Holm)"
        lines.append(line)
    if any(entry.is_undertrained for entry in table.shown_entries):
        lines.append(UNDERTRAINED)
    return lines


def notes_on_runs(table: Table) -> list[str]:
    """The notes on the runs of a table that apply, the gravest first."""
    return _texts(table, NOTES)


def warnings(table: Table) -> list[str]:
    """The notes that nobody may miss, as full sentences."""
    warning_notes = [note for note in NOTES if note.is_warning]
    return [f"{capitalised(text)}." for text in _texts(table, warning_notes)]


def _texts(table: Table, notes_of_report: Sequence[Note]) -> list[str]:
    """The sentences of the notes that apply to a table."""
    texts = []
    for note in notes_of_report:
        if table.entries or note.without_entries:
            text = note.text(table)
            if text:
                texts.append(text)
    return texts


def _note_naming_entries(
    text: str, applies: Callable[[Entry], object]
) -> Callable[[Table], str | None]:
    """Make a note's function: ``text``, then the entries for which ``applies`` is true.

    ``{score}`` in the text becomes the name of the task's score. The note does not
    apply to a table without such entries.
    """

    def make_note(table: Table) -> str | None:
        sentence = text.format(score=table.task.score_title)
        return _name_entries(table, sentence, applies)

    return make_note


def _name_entries(
    table: Table, sentence: str, applies: Callable[[Entry], object]
) -> str | None:
    """The sentence, then the entries for which ``applies`` is true; None: no entry."""
    labels = [entry.label for entry in table.entries if applies(entry)]
    if not labels:
        return None
    return f"{sentence}: {join_first(labels, MOST_NAMED)}"


def _without_class_weights(table: Table) -> str | None:
    """A note on heads that know no class weights, beside others that have them."""
    weights = {entry.runs[0].recipe.class_weights for entry in table.entries}
    if len(weights) < 2:
        return None
    return _name_entries(
        table,
        "the other decoders weigh classes (class-weights balanced), so differences to "
        "these say little",
        lambda entry: entry.runs[0].recipe.class_weights == "none",
    )


def _untried_values(table: Table) -> str | None:
    """A note on runs that are left out, because tuning did not try their values."""
    labels: list[str] = []
    for entry in table.entries:
        # folds may have tried the same values: a dictionary names each once
        untried = dict.fromkeys(
            _values_beside_chosen(values, tuning.chosen)
            for tuning in entry.tunings
            for values in tuning.untried
        )
        if untried:
            labels.append(f"{entry.label} at {', '.join(untried)}")
    if not labels:
        return None
    return (
        "runs are left out, because the tuning seeds did not try their values; to try "
        "them, train once with all values of --lr or --set weight-decay: "
        f"{join_first(labels, MOST_NAMED)}"
    )


def _values_beside_chosen(
    values: Mapping[str, float], chosen: Mapping[str, float]
) -> str:
    """The values that are not the chosen ones, such as 'lr 0.1, weight-decay 0.2'."""
    parts = [
        f"{name.replace('_', '-')} {values[name]:.6g}"
        for name in TUNED_SETTINGS
        if values[name] != chosen[name]
    ]
    return " with ".join(parts)


def _other_names(table: Table) -> str | None:
    """A note on further names of the data set: of caches with the same content."""
    names = dict.fromkeys(run.cache.dataset for run in table.runs)
    others = [brief(name) for name in names if name != table.cache.dataset]
    if not others:
        return None
    return (
        "caches of other names have the same states and labels, and stand in this "
        f"table: {join_first(others, MOST_NAMED)}"
    )


def _code_changed(entry: Entry) -> bool:
    """Whether the runs of a decoder were trained by different versions of its code."""
    hashes: dict[str, set[str]] = {}
    for run in entry.runs:
        for part, code_hash in run.environment.get("code", {}).items():
            hashes.setdefault(part, set()).add(str(code_hash))
    return any(len(hashes_of_part) > 1 for hashes_of_part in hashes.values())


def _selected(table: Table) -> str | None:
    """A note on what filters left out, and what this changes; None without filters.

    It changes the tests that Holm corrects for, and may leave out the baseline.
    """
    selection = table.selection
    if selection is None:
        return None

    message = f"this report is of {brief(selection.in_words(), 600)}"
    if selection.left_out and table.num_tests:
        message += _holm_after_selection(table)
    if table.baseline is None:
        message += _lost_baseline(selection)
    return message


def _holm_after_selection(table: Table) -> str:
    """Which comparisons Holm corrects for, where filters left runs out.

    Runs that filters left out were read, and count. Runs whose folders were not among
    those of the report, but beside them, were not read.
    """
    text = (
        "; Holm corrects for all comparisons of this table "
        f"({num_tests_in_words(table.num_tests)})"
    )
    if table.num_unread_runs > 0:
        return (
            f"{text}, but not for the {table.num_unread_runs:,} runs that were not "
            "named; if runs were chosen after a look at the results, p-values are too "
            "small"
        )
    return f"{text}, including those that filters left out"


def _lost_baseline(selection: Selection) -> str:
    """Which filter left the default baseline out; empty where none did."""
    filters = selection.lost_mechanisms.get(DEFAULT_BASELINE)
    if not filters:
        return ""
    return f"; {filters} left out the baseline '{DEFAULT_BASELINE}'"


def _failures(table: Table) -> str | None:
    """The failed seeds of every entry, with up to three reasons; None without any."""
    lines = []
    for entry in table.entries:
        if not entry.failed:
            continue
        seeds = "every seed"
        if entry.finished:
            seeds = f"seed {spell_numbers(sorted(entry.failed))}"
        reasons = sorted({brief(reason, 300) for reason in _failure_reasons(entry)})
        lines.append(f"{entry.label} {seeds} failed: {'; '.join(reasons[:3])}")
    if not lines:
        return None
    return f"failed seeds count in no mean and in no pair: {'; '.join(lines)}"


def _failure_reasons(entry: Entry) -> Iterator[str]:
    """Each distinct reason why seeds of an entry failed.

    Of a cross-validation, the fold stands before it, or the number of folds.
    """
    folds_by_reason: dict[str, set[str]] = {}
    for run in entry.runs:
        fold = str(run.recipe.fold or "")
        for seed, reason in run.failed.items():
            if seed in entry.failed:
                folds_by_reason.setdefault(reason, set()).add(fold)

    for reason, folds in folds_by_reason.items():
        named_folds = sorted(folds - {""})
        if not named_folds or entry.folds == 1:
            yield reason
        elif len(named_folds) == 1:
            yield f"fold {named_folds[0]}: {reason}"
        else:
            yield f"{len(named_folds)} folds: {reason}"


def _missing_folds(table: Table) -> str | None:
    """A warning of decoders and repeats that are left out, as folds are missing."""
    sentences = []
    if table.incomplete:
        names = join_first(table.incomplete, MOST_NAMED)
        sentences.append(f"left out, because folds are missing: {names}")
    if table.left_out_repeats:
        noun = "split seed" if len(table.left_out_repeats) == 1 else "split seeds"
        sentences.append(
            f"the folds of {noun} {spell_numbers(table.left_out_repeats)} are left "
            "out, because not all decoders have them"
        )
    return "; ".join(sentences) or None


def _no_control(table: Table) -> str | None:
    """A warning where no control was trained; None where one was.

    A control is a decoder without attention to the layers, see ``CONTROLS``. Of one
    that filters left out, the note on the filters tells.
    """
    selection = table.selection
    if selection is not None and not selection.lost_mechanisms.keys().isdisjoint(
        CONTROLS
    ):
        return None
    trained = trained_in_steps(table.entries)
    controls = [
        entry for entry in trained if entry.attention in CONTROLS and entry.finished
    ]
    if controls or not trained:
        return None
    return NO_CONTROL


def _unequal_seeds(table: Table) -> str | None:
    """A warning of differences over fewer seeds than the means beside them.

    The note on failures tells of failed seeds.
    """
    labels = []
    for entry, comparison in table.compared_entries:
        failed_seeds = {*entry.failed}
        for other in table.entries:
            if other.attention == comparison.baseline:
                failed_seeds |= {*other.failed}
        if set(comparison.dropped_seeds) - failed_seeds:
            labels.append(f"{entry.label} ({counted(len(comparison.seeds), 'seed')})")
    if not labels:
        return None
    return (
        "a difference is over the seeds that both decoders have, while a mean is over "
        f"all seeds of a decoder: {join_first(labels, MOST_NAMED)}"
    )


def _few_rows(table: Table) -> str | None:
    """A warning of few test rows, of which each makes more than three points."""
    num_rows = table.num_test_rows
    if num_rows >= FEW_ROWS:
        return None
    weight = ""
    if table.task.has_classes:
        weight = f"each is {100 / num_rows:.1f} points, and "
    return f"only {num_rows} test rows: {weight}the intervals say little"


def _few_seeds(table: Table) -> str | None:
    """A warning of comparisons with too few seeds for a claim."""
    if not table.compared_entries:
        return None
    fewest = min(
        compared.comparison.claim.num_seeds for compared in table.compared_entries
    )
    if fewest >= stats.LEAST_SEEDS:
        return None
    return (
        f"no claim with fewer than {stats.LEAST_SEEDS} seeds: "
        f"p is at least {2 / 2**fewest:.3g}"
    )


def _chosen_penalties(table: Table) -> str | None:
    """A warning that the verdicts on fits leave out the choice of their settings."""
    fits = [run.fit for entry, _ in table.compared_entries for run in entry.runs]
    if any(fit is not None and fit.tried > 1 for fit in fits):
        return (
            "validation rows chose the penalty of each fitted head, and no interval "
            "includes the uncertainty of this choice"
        )
    return None


def _like_groups(table: Table) -> str | None:
    """A warning that test rows may not be independent, and by which kept columns.

    Such a column looks like groups: accuracy varies with its values.
    """
    if not table.group_like_columns:
        return None
    columns = ", ".join(
        f"'{brief(name)}' ({count} values)"
        for name, count in table.group_like_columns.items()
    )
    first = shlex.quote(next(iter(table.group_like_columns)))
    return (
        f"{table.task.score_title} varies with {columns} more than chance explains: "
        "if rows with the same value belong together, intervals and verdicts are too "
        f"sure without --groups {brief(first)}"
    )


def _groups_not_known(table: Table) -> str | None:
    """A warning of test rows that belong together, but count as independent.

    A relation, such as a column of speakers, says which rows belong together; the runs
    or the cache may lack its values.
    """
    # a table without entries has no test rows
    if table.groups is None:
        return None
    if table.groups.unknown_relations:
        relations = ", ".join(
            relation_in_words(name) for name in table.groups.unknown_relations
        )
        return (
            f"rows that belong together ({relations}) count as independent: "
            "the runs do not record which rows"
        )

    split = table.entries[0].runs[0].recipe.tested_split
    # rows of the split whose text another row of it has
    num_copies = (table.cache.shared_texts or {}).get(split, {}).get(split, 0)
    if not num_copies or EQUAL_ROWS in table.groups.relations:
        return None
    return (
        f"{num_copies:,} rows of '{brief(split)}' are copies of other rows and "
        "count as independent: the cache does not record which rows"
    )


def _predicts_one_class(entry: Entry) -> bool:
    """Whether all seeds predict the same class for every test row."""
    predicted_C = entry.confusion.sum(0)
    if len(predicted_C) < 2 or not entry.finished:
        return False
    return bool((predicted_C > 0).sum() == 1)


def _no_temperature(table: Table) -> str | None:
    """A warning of decoders that have seeds without a fitted temperature.

    It counts these seeds; with several folds, pairs of a seed and a fold.
    """
    labels = []
    for entry in table.entries:
        if entry.temperatures is None:
            continue
        num_without = int((entry.temperatures == NO_TEMPERATURE).sum())
        if num_without == 0:
            continue
        units = "seeds" if entry.folds == 1 else "pairs of a seed and a fold"
        labels.append(
            f"{entry.label} ({units}: {num_without} of {entry.temperatures.size})"
        )
    if not labels:
        return None
    return (
        f"no temperature was fitted for {join_first(labels, MOST_NAMED)}, whose "
        "validation rows are all right: their log losses and calibration are those of "
        "T = 1"
    )


def _leaks(table: Table) -> str | None:
    """A note on test rows that are known before the test; None without any.

    Training rows may have the same texts, or the states may be fitted on the test split
    (by TF-IDF, for example).
    """
    split_pairs = _train_and_test_splits(table)
    leaks = []
    for train, test in sorted(split_pairs):
        shared = _shared_rows_in_words(table, test, train)
        if shared:
            leaks.append(f"{shared}; this inflates {table.task.score_title}")
    if table.cache.fitted_on in {test for _train, test in split_pairs}:
        leaks.append("the states were fitted on the test texts (not on their labels)")
    return "; ".join(leaks) or None


def _validation_rows_in_training(table: Table) -> str | None:
    """A note on rows of a validation split that decoders have learned from."""
    recipes = [entry.runs[0].recipe for entry in table.entries]
    split_pairs = {
        (recipe.train_split, recipe.val_split)
        for recipe in recipes
        if recipe.val_split is not None
    }
    parts = []
    for train, validation in sorted(split_pairs):
        shared = _shared_rows_in_words(table, validation, train)
        if shared:
            parts.append(
                f"{shared}: rows that were learned from have chosen epochs, rates and "
                "penalties"
            )
    return "; ".join(parts) or None


def _shared_rows_in_words(table: Table, split: str, other_split: str) -> str:
    """How many rows of a split have a text of another split; empty without any."""
    num_shared = (table.cache.shared_texts or {}).get(split, {}).get(other_split, 0)
    if not num_shared:
        return ""
    other_rows = (
        "another of these rows" if split == other_split else f"'{brief(other_split)}'"
    )
    return (
        f"{num_shared:,} of the {table.cache.rows[split]:,} rows of '{brief(split)}' "
        f"have a text that {other_rows} has, too"
    )


def _train_and_test_splits(table: Table) -> set[tuple[str, str]]:
    """Pairs of a split that decoders learn from or are chosen on, and the test split.

    Both are the same for folds.
    """
    split_pairs = set()
    for entry in table.entries:
        if entry.on_training_rows:
            continue
        recipe = entry.runs[0].recipe
        split_pairs.add((recipe.train_split, recipe.tested_split))
        if recipe.val_split is not None:
            split_pairs.add((recipe.val_split, recipe.tested_split))
    return split_pairs


def _not_compared(table: Table) -> str | None:
    """A note on the entries that are not compared with the baseline, and why."""
    baseline = table.baseline
    if baseline is None:
        if len(table.entries) > 1:
            return (
                "no differences are shown: --baseline NAME chooses what to compare with"
            )
        return None

    # the baseline, controls and, in most tables, heads that are fitted at once are not
    # compared
    def lacks_counterpart(entry: Entry) -> bool:
        is_never_compared = (
            is_baseline(entry, baseline)
            or entry.labels_shuffled
            or entry.fitted_at_once
        )
        return not (entry.comparison or is_never_compared)

    text = (
        f"not compared, because no '{brief(baseline)}' has the same head, recipe and "
        "seeds"
    )
    if any(entry.is_candidate for entry in table.entries):
        text += " (without --all each is compared at the learning rate that it chose)"
    return _name_entries(table, text, lacks_counterpart)


def _against_probe(table: Table) -> str | None:
    """A note on which decoders are better or worse than the linear probe.

    "better" comes first, even without a decoder. None without a comparison.
    """
    labels_by_verdict: dict[str, list[str]] = {"better": []}
    for entry in table.entries:
        if entry.probe_comparison:
            labels = labels_by_verdict.setdefault(
                entry.probe_comparison.claim.verdict, []
            )
            labels.append(in_sentence(entry.label))
    if not any(labels_by_verdict.values()):
        return None

    parts = []
    for verdict, labels in labels_by_verdict.items():
        parts.append(f"{verdict}: {join_first(labels, MOST_NAMED) or 'no decoder'}")
    return (
        f"compared with {table.task.probe_in_words} on the same states "
        f"(none + {table.task.probe_head}; Holm in a family of its own): "
        f"{'; '.join(parts)}"
    )


def _penalty_of_probe(table: Table) -> str | None:
    """A note on what a claim beside the linear probe does not know: its penalty."""
    has_claim = any(
        entry.probe_comparison.claim.verdict in ("better", "worse")
        for entry in table.entries
        if entry.probe_comparison
    )
    probes = [entry for entry in table.entries if entry.is_probe]
    num_rows = min(map(_num_validation_rows, probes), default=math.inf)
    # few rows have a note of their own
    if not has_claim or not FEW_ROWS <= num_rows < MANY_ROWS:
        return None
    return (
        f"{num_rows:,.0f} validation rows chose the penalty of {table.task.probe}: "
        "other rows might have chosen another one, which no interval includes"
    )


def _which_rows_chose(table: Table) -> str | None:
    """A note on a validation split: whether its rows chose, or none of them did."""
    recipes = [entry.runs[0].recipe for entry in table.entries if entry.select == "val"]
    val_splits = {recipe.val_split for recipe in recipes}
    named = sorted(split for split in val_splits if split is not None)
    if named:
        names = " and of ".join(f"'{brief(split)}'" for split in named)
        text = f"the rows of {names} chose epochs, rates and penalties"
        return text + (", where a decoder names them" if None in val_splits else "")
    used = {name for recipe in recipes for name in recipe.used_splits}
    for split in VALIDATION_NAMES:
        if recipes and split in table.cache.rows and split not in used:
            train = brief(recipes[0].train_split)
            return (
                f"'{split}' is not used: rows held out of '{train}' chose epochs, "
                "rates and penalties"
            )
    return None


def _untrained_groups(table: Table) -> str | None:
    """A note on groups of --groups that may be in training and test rows."""
    column = table.groups.unknown_to_training if table.groups else None
    if column is None:
        return None
    return (
        f"training did not know the groups of '{brief(column)}': one may have training "
        f"and test rows, which inflates {table.task.score_title}"
    )


def _few_validation_rows(entry: Entry) -> bool:
    """Whether few validation rows chose the epoch, or the value of a fitted head."""
    if entry.select != "val":
        return False
    # 0: the number of training rows, and so the expected number, is unknown
    return 0 < _num_validation_rows(entry) < FEW_ROWS


def _num_validation_rows(entry: Entry) -> float:
    """The fewest validation rows of the runs of an entry."""
    num_expected = _expected_validation_rows(entry)
    return min(_recorded_validation_rows(run) or num_expected for run in entry.runs)


def _recorded_validation_rows(run: RunResult) -> int:
    """The number of validation rows of a run; 0 where the run does not record it.

    Runs record it that draw a part of the training rows.
    """
    return run.drawn.num_validation_rows if run.drawn else 0


def _expected_validation_rows(entry: Entry) -> float:
    """The number of validation rows of each run of an entry.

    They are a share of the training split, or a split of their own. All runs of an
    entry have the same recipe, but for the fold.
    """
    first_run = entry.runs[0]
    val_split = first_run.recipe.val_split
    if val_split is not None:
        return first_run.cache.rows.get(val_split, 0)
    num_train = first_run.cache.rows.get(first_run.recipe.train_split, 0)
    num_expected = num_train * first_run.recipe.val_fraction
    if entry.folds > 1:
        # the test fold takes its share of the split first
        num_expected *= 1 - 1 / entry.folds
    return num_expected


def _few_training_rows(table: Table) -> str | None:
    """A note where training rows, not test rows, limit the precision of intervals."""
    fewest_train_rows = min(
        (
            entry.train_rows
            for entry in table.shown_entries
            if entry.compared_score.seeds_rows_interval
        ),
        default=math.inf,
    )
    if fewest_train_rows >= table.num_test_rows:
        return None

    # a training group counts as large as the mean test group, see ``Entry.train_rows``
    num_test_units = table.num_groups or table.num_test_rows
    num_training_units = fewest_train_rows * num_test_units / table.num_test_rows
    units = table.unit_noun
    return (
        f"in intervals, test {units} count as no more than training "
        f"{units} ({num_training_units:,.0f} at least): which training {units} were "
        "drawn matters as much (--folds 5 tests on all)"
    )


def _above_chance(entry: Entry) -> bool:
    """Whether a decoder learned shuffled labels."""
    # one seed is one permutation of the labels, which shows nothing
    if not entry.labels_shuffled or len(entry.finished) < 2:
        return False
    interval = entry.default_score.seeds_rows_interval
    return interval is not None and interval[0] > chance(entry)


def _below_chance(entry: Entry) -> bool:
    """Whether a decoder is worse than one and the same answer for every row."""
    mean = entry.default_score.mean
    if entry.labels_shuffled or mean is None:
        return False
    return mean < chance(entry)


# in order of weight
NOTES = (
    Note("selected", _selected, is_warning=True, without_entries=True),
    Note(
        "on training rows",
        _note_naming_entries(
            f"{ON_TRAINING_ROWS}, no test {{score}}",
            lambda entry: entry.on_training_rows,
        ),
        is_warning=True,
    ),
    Note(
        "selected on test rows",
        _note_naming_entries(
            f"select test: {SELECT_NOTES['test']}",
            lambda entry: entry.select == "test",
        ),
        is_warning=True,
    ),
    Note(
        "shuffled labels",
        _note_naming_entries(
            "{score} above chance with shuffled labels, so something leaks",
            _above_chance,
        ),
        is_warning=True,
    ),
    Note("failures", _failures, is_warning=True),
    Note("missing folds", _missing_folds, is_warning=True),
    Note("no control", _no_control, is_warning=True),
    Note("unequal seeds", _unequal_seeds, is_warning=True),
    Note("few rows", _few_rows, is_warning=True),
    Note("few seeds", _few_seeds, is_warning=True),
    Note("chosen penalties", _chosen_penalties, is_warning=True),
    Note("columns like groups", _like_groups, is_warning=True),
    Note("unknown groups", _groups_not_known, is_warning=True),
    Note("no temperature", _no_temperature, is_warning=True),
    Note("untried values", _untried_values, is_warning=True),
    Note("class weights", _without_class_weights, is_warning=True),
    Note(
        "tuning seeds",
        _note_naming_entries(
            "the scores are those of the tuning seeds, because no reporting seeds are "
            "trained yet",
            lambda entry: all(run.tuning_only for run in entry.runs),
        ),
        is_warning=True,
    ),
    Note(
        "versions of the code",
        _note_naming_entries(
            "the code of the mechanism, head, loss or optimizer changed between runs",
            _code_changed,
        ),
        is_warning=True,
    ),
    Note("names of the data set", _other_names),
    Note("leaks", _leaks),
    Note("validation rows in training", _validation_rows_in_training),
    Note(
        "one class",
        _note_naming_entries(
            "every seed predicts one and the same class", _predicts_one_class
        ),
    ),
    Note(
        "below chance",
        _note_naming_entries(
            "the mean {score} is below that of one and the same answer for every row, "
            "so differences to such a decoder say little",
            _below_chance,
        ),
    ),
    Note("not compared", _not_compared),
    Note("linear probe", _against_probe),
    Note("penalty of the probe", _penalty_of_probe),
    Note("validation split", _which_rows_chose),
    Note("groups of a report", _untrained_groups),
    Note("few training rows", _few_training_rows),
    Note(
        "too short",
        _note_naming_entries(
            "perhaps under-trained, because the best epoch is the last (use more "
            "--epochs)",
            lambda entry: entry.training_too_short,
        ),
    ),
    Note(
        "edge of the grid",
        _note_naming_entries(
            "perhaps under-trained, because the chosen lr or weight-decay is at the "
            "edge of its grid",
            lambda entry: entry.settings_at_edge,
        ),
    ),
    Note(
        "edge of the penalties",
        _note_naming_entries(
            "a penalty or width beyond those tried might do better, but their list is "
            "fixed",
            lambda entry: entry.penalty_at_edge,
        ),
    ),
    Note(
        "unsure choice",
        _note_naming_entries(
            "validation does not separate the learning rates or weight decays; the "
            "intervals include this uncertainty",
            lambda entry: entry.has_unsure_choice,
        ),
    ),
    Note(
        "few validation rows",
        _note_naming_entries(
            f"fewer than {FEW_ROWS} validation rows chose the epoch or the value of a "
            "fitted head; no interval includes this uncertainty",
            _few_validation_rows,
        ),
    ),
    Note(
        "not tuned",
        _note_naming_entries(
            "not tuned: no seed has a validation {score} for every candidate",
            lambda entry: entry.tuning_failed,
        ),
    ),
)
