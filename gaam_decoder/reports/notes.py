"""Sentences about a table: its conclusion, its warnings and its notes.

Each note is a function of the table that returns a sentence or None. The conclusion
names the decoder to use; ``predict``, ``export`` and ``load`` ask ``recommended``.
"""

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gaam_cache.common.messages import brief
from gaam_cache.store.files import short_digest
from gaam_decoder import stats
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.compare import DEFAULT_BASELINE, counts_in_words, is_of
from gaam_decoder.reports.entries import DEFAULT, Entry
from gaam_decoder.reports.groups import in_words
from gaam_decoder.reports.table import ON_TRAINING_ROWS, Table
from gaam_decoder.runs.groups import EQUAL_ROWS
from gaam_decoder.runs.loading import Selection
from gaam_decoder.runs.tuning import tuning_in_words
from gaam_decoder.stats.scores.base import percent

CONTROLS = ("none", "scalar-mix")
# with fewer test rows, one row is more than three points; the same limit holds for the
# validation rows that choose an epoch
FEW_ROWS = 30
NAMED = 3  # decoders that the conclusion names; it counts the rest
LISTED = 8  # decoders that a note names; it counts the rest
PROBE = "logistic regression (none + lbfgs)"
NOT_TUNED = "not tuned: validation chose no learning rate"
SELECT_NOTES = {
    "val": "epoch chosen on a held-out part of train",
    "last": "last epoch, no rows choose: learning rates are not tuned, and there is no "
    "logistic regression (none + lbfgs) to compare with",
    "test": "epoch chosen on test: optimistic, do not quote as test accuracy",
}
INTERVALS = (
    "95% CI: a confidence interval of the mean over seeds and {}; it does not predict "
    "what another test set gives"
)
UNDERTRAINED = (
    "† under-trained: longer training, or another rate than the chosen one, "
    "may do better"
)
TEMPERATURE = (
    "a temperature was fitted for every seed and fold by the log loss of the rows that "
    "chose the epoch (Guo et al. 2017); log loss, Brier score, ECE and the reliability "
    "diagram are of logits divided by it, all else, AUROC too, of logits as they are"
)
Note = Callable[[Table], str | None]


class Recommendation(NamedTuple):
    """The entry to use, and a clause that says so and why."""

    entry: Entry
    advice: str


def notes(table: Table) -> list[str]:
    """All notes of a table: warnings, a legend, and how its numbers were made."""
    return [*caused(table), *below(table), *explained(table)]


def below(table: Table) -> list[str]:
    """The legend of intervals and marks, which stands unfolded below a table."""
    lines = []
    if any(entry.chosen.two_level for entry in table.shown):
        unit = "groups of test rows" if table.num_groups else "test rows"
        line = INTERVALS.format(unit)
        if table.compared:
            line += "; that of a difference is corrected (Holm)"
        lines.append(line)
    if any(entry.undertrained for entry in table.shown):
        lines.append(UNDERTRAINED)
    return lines


def caused(table: Table, most: int | None = None) -> list[str]:
    """The notes that these runs gave rise to, the gravest first.

    ``most`` limits how many of ``NOTES`` are considered. A table without entries has
    only the note on what filters left out.
    """
    functions = NOTES[:most] if table.entries else NOTES[:1]
    messages = []
    for function in functions:
        message = function(table)
        if message:
            messages.append(message)
    return messages


def warnings(table: Table) -> list[str]:
    """The notes that nobody may miss, as full sentences."""
    return [
        f"{message[0].upper()}{message[1:]}."
        for message in caused(table, NUM_GRAVE_NOTES)
    ]


def _note_on_entries(text: str, applies: Callable[[Entry], object]) -> Note:
    """Make a note that lists the entries to which ``applies`` says yes."""

    def note(table: Table) -> str | None:
        names = [entry.label for entry in table.entries if applies(entry)]
        return f"{text}: {_listed(names, LISTED)}" if names else None

    return note


def selected(table: Table) -> str | None:
    """Which runs filters left out, and what p-values and the baseline lose by it."""
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
    """Which comparisons Holm corrects for, although filters left runs out."""
    text = (
        "; Holm corrects for all comparisons of this table "
        f"({counts_in_words(table.num_tests)})"
    )
    if table.uncounted > 0:
        return (
            f"{text}, but for none of the {table.uncounted:,} runs that were not "
            "named: chosen after a look at the results, p-values are too small"
        )
    return f"{text}, those that filters left out among them"


def _lost_baseline(selection: Selection) -> str:
    """Which filter left the default baseline out; empty where none did."""
    filters = selection.lost.get(DEFAULT_BASELINE)
    if not filters:
        return ""
    return f"; the baseline '{DEFAULT_BASELINE}' is among what {filters} left out"


def _failures(table: Table) -> str | None:
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
    return f"what failed counts in no mean and no pair: {'; '.join(lines)}"


def _failure_reasons(entry: Entry) -> Iterator[str]:
    """Each reason why seeds of an entry failed, once, with its folds."""
    folds_by_reason: dict[str, set[str]] = {}
    for run in entry.runs:
        fold = str(run.recipe.get("fold") or "")
        for seed, reason in run.failed.items():
            if seed in entry.failed:
                folds_by_reason.setdefault(reason, set()).add(fold)

    for reason, folds in folds_by_reason.items():
        names = sorted(folds - {""})
        if not names or entry.folds == 1:
            yield reason
        elif len(names) == 1:
            yield f"fold {names[0]}: {reason}"
        else:
            yield f"{len(names)} folds: {reason}"


def _no_control(table: Table) -> str | None:
    trained = [entry for entry in table.entries if not (entry.fitted or entry.shuffled)]
    controls = [
        entry for entry in trained if entry.attention in CONTROLS and entry.finished
    ]
    if controls or not trained:
        return None
    return (
        "no control: whether a mechanism helps is open without 'gaam train --attn none'"
    )


def _few_rows(table: Table) -> str | None:
    num_rows = table.num_test_rows
    if num_rows >= FEW_ROWS:
        return None
    return (
        f"only {num_rows} test rows: each is {100 / num_rows:.1f} points, "
        "and intervals say little"
    )


def _few_seeds(table: Table) -> str | None:
    if not table.compared:
        return None
    fewest = min(len(comparison.seeds) for _, comparison in table.compared)
    if fewest >= stats.LEAST_SEEDS:
        return None
    return (
        f"no claim with fewer than {stats.LEAST_SEEDS} seeds: "
        f"p is {2 / 2**fewest:.3g} at least"
    )


def _like_groups(table: Table) -> str | None:
    """Kept columns with which accuracy varies: test rows may not be independent."""
    if not table.like_groups:
        return None
    columns = ", ".join(
        f"'{brief(name)}' ({count} values)" for name, count in table.like_groups.items()
    )
    first = shlex.quote(next(iter(table.like_groups)))
    return (
        f"accuracy varies with {columns} more than chance allows: where rows of one "
        "value belong together, intervals and verdicts are too sure without "
        f"--groups {brief(first)}"
    )


def _groups_not_known(table: Table) -> str | None:
    """Test rows that belong together, but count as independent."""
    if table.groups is None:
        return None
    if table.groups.unknown:
        relations = ", ".join(in_words(name) for name in table.groups.unknown)
        return (
            f"rows that belong together ({relations}) count as independent: "
            "the runs do not name them"
        )

    recipe = table.entries[0].runs[0].recipe
    split = recipe.get("test_split", "test")
    if recipe.get("fold"):
        split = recipe.get("train_split", "train")
    num_copies = table.cache.get("shared_texts", {}).get(split, {}).get(split, 0)
    if not num_copies or EQUAL_ROWS in table.groups.names:
        return None
    return (
        f"{num_copies:,} rows of '{brief(split)}' are copies of others and count as "
        "independent: the cache does not say which"
    )


def _predicts_one_class(entry: Entry) -> bool:
    predicted_C = entry.confusion.sum(0)
    if len(predicted_C) < 2 or not entry.finished:
        return False
    return bool((predicted_C > 0).sum() == 1)


def _leaks(table: Table) -> str | None:
    """Test texts that training, or the encoder, has seen."""
    split_pairs = _train_and_test_splits(table)
    shared_texts = table.cache.get("shared_texts", {})
    leaks = []
    for train, test in sorted(split_pairs):
        num_shared = shared_texts.get(test, {}).get(train, 0)
        if not num_shared:
            continue
        other = "another of them" if train == test else f"'{brief(train)}'"
        leaks.append(
            f"{num_shared:,} of the {table.cache['rows'][test]:,} rows of "
            f"'{brief(test)}' have a text that {other} has too, which inflates accuracy"
        )
    if table.cache.get("fitted_on") in {test for _, test in split_pairs}:
        leaks.append("the states were fitted on the texts that test (not on labels)")
    return "; ".join(leaks)


def _train_and_test_splits(table: Table) -> set[tuple[str, str]]:
    """Each training split with its test split; folds test on the training split."""
    split_pairs = set()
    for entry in table.entries:
        if entry.on_training_rows:
            continue
        recipe = entry.runs[0].recipe
        train = recipe.get("train_split", "train")
        test = train if recipe.get("fold") else recipe.get("test_split", "test")
        split_pairs.add((train, test))
    return split_pairs


def _not_compared(table: Table) -> str | None:
    baseline = table.baseline
    if baseline is None:
        if len(table.entries) > 1:
            return (
                "no differences are shown: --baseline NAME chooses what to compare with"
            )
        return None

    def lacks_counterpart(entry: Entry) -> bool:
        exempt = is_of(entry, baseline) or entry.shuffled or entry.fitted
        return not (entry.compared or exempt)

    text = f"not compared, no '{brief(baseline)}' of the same head, recipe and seeds"
    return _note_on_entries(text, lacks_counterpart)(table)


def _against_probe(table: Table) -> str | None:
    """The verdicts against logistic regression; better comes first, even if empty."""
    labels_by_verdict: dict[str, list[str]] = {"better": []}
    for entry in table.entries:
        if entry.probed:
            labels = labels_by_verdict.setdefault(entry.probed.claim.verdict, [])
            labels.append(entry.label)
    if not any(labels_by_verdict.values()):
        return None

    parts = []
    for verdict, labels in labels_by_verdict.items():
        parts.append(f"{verdict}: {_listed(labels, LISTED) or 'no decoder'}")
    return (
        "against logistic regression on the same states, none + lbfgs "
        f"(Holm in its own family): {'; '.join(parts)}"
    )


def _few_validation_rows(entry: Entry) -> bool:
    """Whether few rows chose the epoch.

    Where a run does not record their number, their share of the training split says it.
    """
    if entry.select != "val":
        return False

    first_run = entry.runs[0]
    num_train = first_run.cache["rows"].get(first_run.setting("train_split"), 0)
    expected = num_train * first_run.setting("val_fraction")
    if entry.folds > 1:
        # the test fold takes its share of the split first
        expected *= 1 - 1 / entry.folds
    fewest: float = min(run.drawn.get("choose") or expected for run in entry.runs)
    return 0 < fewest < FEW_ROWS


def _few_training_rows(table: Table) -> str | None:
    num_train = min((entry.train_rows for entry, _ in table.compared), default=math.inf)
    if num_train >= table.num_test_rows:
        return None

    # groups are counted as if training groups were as large as test groups
    num_units = table.num_groups or table.num_test_rows
    count = num_train * num_units / table.num_test_rows
    return (
        f"test {table.units} count as no more than training {table.units} "
        f"({count:,.0f} at least) in differences: which were drawn matters as much "
        "(--folds 5 tests on all)"
    )


def chance(entry: Entry) -> float:
    """Accuracy without information, a fraction: the share of the largest test class."""
    return float(entry.labels_per_class.max() / entry.labels_per_class.sum())


def _above_chance(entry: Entry) -> bool:
    """Whether a decoder learned shuffled labels."""
    # one seed is one permutation of the labels, which shows nothing
    if not entry.shuffled or len(entry.finished) < 2:
        return False
    interval = entry.accuracy.two_level
    return interval is not None and interval[0] > chance(entry)


# in order of weight
NOTES: tuple[Note, ...] = (
    selected,
    _note_on_entries(
        f"{ON_TRAINING_ROWS}, no test accuracy", lambda entry: entry.on_training_rows
    ),
    _note_on_entries(
        f"select test: {SELECT_NOTES['test']}", lambda entry: entry.select == "test"
    ),
    _note_on_entries(
        "above chance with shuffled labels, so something leaks", _above_chance
    ),
    _failures,
    _no_control,
    _few_rows,
    _few_seeds,
    _like_groups,
    _groups_not_known,
    _leaks,
    _note_on_entries("every seed predicts one and the same class", _predicts_one_class),
    _not_compared,
    _against_probe,
    _few_training_rows,
    _note_on_entries(
        "under-trained, the best epoch is the last (more --epochs)",
        lambda entry: entry.too_short,
    ),
    _note_on_entries(
        "under-trained, lr or weight-decay is at the edge of its grid",
        lambda entry: entry.at_edge,
    ),
    _note_on_entries(
        "a fit chose the smallest or largest penalty that was tried",
        lambda entry: entry.penalty_at_edge,
    ),
    _note_on_entries(
        "validation does not separate the rate, or decay, from others; intervals of "
        "differences include this uncertainty",
        lambda entry: entry.unsure,
    ),
    _note_on_entries(
        f"fewer than {FEW_ROWS} rows chose the epoch, which no interval covers",
        _few_validation_rows,
    ),
    _note_on_entries(
        "not tuned: no seed has a validation accuracy for every candidate",
        lambda entry: entry.unchosen,
    ),
)
NUM_GRAVE_NOTES = 10  # the first of NOTES, which are warnings


def explained(table: Table) -> Iterator[str]:
    """How the numbers were made, where reports differ; GUIDE.md says the rest."""
    for select in sorted({entry.select for entry in table.entries} - {"test"}):
        explanation = SELECT_NOTES.get(select, "not known here")
        yield f"select {brief(select, 40)}: {explanation}"
    if table.entries:
        majority = percent(chance(table.entries[0]))
        yield f"majority class alone: {majority}% of the tested rows"
    if table.incomplete:
        yield f"not here, because folds are missing: {', '.join(table.incomplete)}"
    if table.score != DEFAULT:
        yield _explain_score(table)
    if table.compared:
        yield _explain_differences(table)
    yield from _explain_tuning(table)
    if table.temperature:
        yield TEMPERATURE
    yield f"cache {short_digest(table.cache['fingerprint'])}, {brief(table.where)}"
    yield _explain_versions(table)


def _explain_score(table: Table) -> str:
    unit = table.unit
    better = "larger" if unit.larger_is_better else "smaller"
    text = f"compared by {unit.title}, of which {better} is better"
    if unit.no_claim:
        text += f"; no claim is made: {unit.no_claim}"
    return text


def _explain_differences(table: Table) -> str:
    unit = table.unit
    return (
        f"differences to '{brief(str(table.baseline))}' in {unit.of_differences}, "
        "within the same head and recipe; intervals and verdicts are of seeds and "
        f"{table.units}, corrected by Holm for {counts_in_words(table.num_tests)}; "
        f"equivalent: within {unit.size(table.margin)}"
    )


def _explain_tuning(table: Table) -> Iterator[str]:
    """What validation chose for each decoder, and which seeds chose."""
    for entry in table.entries:
        if entry.tunings:
            yield f"{entry.label}: {tuning_in_words(entry.tunings)}"

    seed_sets = Counter(
        (tuning.seeds, tuning.apart)
        for entry in table.entries
        for tuning in entry.tunings
    )
    for seeds, apart in seed_sets:
        reports = "others report" if apart else "they report, too"
        yield (
            f"tuned: seeds {spell_numbers(seeds)} chose by validation accuracy, "
            f"{reports}"
        )


def _explain_versions(table: Table) -> str:
    parts = []
    for name in ("python", "torch", "numpy", "device"):
        versions = {str(run.environment.get(name, "unknown")) for run in table.runs}
        spelled = " and ".join(brief(version) for version in sorted(versions))
        parts.append(f"{name} {spelled}")
    return f"versions: {', '.join(parts)}"


def conclusion(table: Table, *, advice: bool = True) -> str:
    """The main result and what to use, without a full stop.

    Where logistic regression on the same states is better than the mechanisms, the
    conclusion says so.

    Args:
        table: the table that it concludes from.
        advice: whether it names the decoder to use.
    """
    if not table.entries:
        return "Nothing is said of accuracies, for nothing was evaluated"

    # the clauses may name the decoder to use already
    choice = recommended(table) if advice else None
    advised = False
    if table.compared:
        parts, advised = _clauses_on_mechanisms(table, choice)
    elif any(entry.probed for entry in table.entries):
        parts, advised = _clauses_on_decoders(table, choice)
    else:
        parts = [_clause_without_comparison(table)]
    if choice and not advised:
        parts.append(choice.advice)

    text = "; ".join(parts) + _conditions(table)
    if table.score != DEFAULT:
        text = f"by {table.unit.title}, {text}"

    # a name of a decoder keeps its case; these first words are the report's own
    if text.startswith(("no ", "by ", "every ")):
        return text[0].upper() + text[1:]
    return text


def _clauses_on_mechanisms(
    table: Table, choice: Recommendation | None
) -> tuple[list[str], bool]:
    """What is shown of mechanisms, and whether that names the decoder to use."""
    claims = {entry.label: comparison.claim for entry, comparison in table.compared}
    behind = [entry.label for entry, _ in table.compared if _is_behind_probe(entry)]
    all_behind = len(behind) == len(claims)
    advised = bool(choice and choice.entry.fitted and behind and all_behind)
    worse_than_probe = f"worse than {PROBE}"
    if advised:
        worse_than_probe += ", which is the one to use"

    # too few seeds allow no verdict
    most_seeds = max(claim.num_seeds for claim in claims.values())
    makes_no_claim = any(claim.verdict == stats.NO_CLAIM for claim in claims.values())
    if most_seeds < stats.LEAST_SEEDS and not makes_no_claim:
        seeds = f"seeds: {most_seeds}, and a claim needs {stats.LEAST_SEEDS}"
        return [f"Nothing is said of differences yet ({seeds})"], False

    parts = _clauses(table, claims, f"'{brief(str(table.baseline))}'", "mechanism")
    if not all_behind:
        if behind:
            parts.append(f"{_with_verb(behind)} {worse_than_probe}")
        return parts, advised

    # one clause about all mechanisms can say both
    verdicts = {claim.verdict for claim in claims.values()}
    if verdicts in ({"better"}, {"worse"}):
        return [f"{parts[0]}, and {worse_than_probe}"], advised
    subject = f"{behind[0]} is" if len(behind) == 1 else "every mechanism is"
    return [f"{subject} {worse_than_probe}", *parts], advised


def _clauses_on_decoders(
    table: Table, choice: Recommendation | None
) -> tuple[list[str], bool]:
    """The same without a baseline: decoders against logistic regression."""
    claims = {
        entry.label: entry.probed.claim for entry in table.entries if entry.probed
    }
    parts = _clauses(table, claims, PROBE, "decoder")
    all_worse = len(parts) == 1 and " worse than " in parts[0]
    if choice and choice.entry.fitted and all_worse:
        return [f"{parts[0]}, which is the one to use"], True
    return parts, False


def _is_behind_probe(entry: Entry) -> bool:
    return entry.probed is not None and entry.probed.claim.verdict == "worse"


def _is_ahead_of_probe(entry: Entry) -> bool:
    return entry.probed is not None and entry.probed.claim.verdict == "better"


def _clauses(
    table: Table, claims: Mapping[str, stats.Claim], other: str, noun: str
) -> list[str]:
    """What is shown of decoders against another, a clause for each verdict."""
    labels: dict[str, list[str]] = {}
    for label, claim in claims.items():
        labels.setdefault(claim.verdict, []).append(label)

    parts = [
        f"{_with_verb(labels[verdict])} {verdict} than {other}"
        for verdict in ("better", "worse")
        if verdict in labels
    ]
    if not parts and ("equivalent" in labels or "undecided" in labels):
        spread = _spread(table, claims.values())
        parts.append(f"no {noun} is shown to differ from {other}: {spread}")
    if "equivalent" in labels:
        subject = _with_verb(labels["equivalent"])
        margin = table.unit.size(table.margin)
        parts.append(f"{subject} equivalent to {other} within {margin}")
    if 0 < len(labels.get("undecided", ())) < len(claims):
        parts.append(f"{_with_verb(labels['undecided'])} undecided")
    if stats.NO_CLAIM in labels:
        reason = next(claim.no_claim for claim in claims.values() if claim.no_claim)
        names = ", ".join(labels[stats.NO_CLAIM])
        parts.append(f"no claim is made of {names}: {reason}")
    return parts


def _spread(table: Table, claims: Iterable[stats.Claim]) -> str:
    """How far differences and their intervals reach, and what would decide."""
    unit = table.unit
    claims = list(claims)
    low = unit.difference(min(claim.difference for claim in claims))
    high = unit.difference(max(claim.difference for claim in claims))
    text = f"differences of {low}"
    if high != low:
        text += f" to {high}"
    if unit.percent:
        text += " points"

    intervals = [claim.interval_corrected for claim in claims]
    widths = [interval[1] - interval[0] for interval in intervals if interval]
    if widths:
        text += f", intervals up to {unit.size(max(widths), '.2f')} wide"

    furthest = max(claims, key=lambda claim: abs(claim.difference))
    rows = furthest.rows_to_decide
    groups = furthest.groups_to_decide
    if rows:
        text += f"; {table.num_test_rows:,} test rows cannot tell, about {rows:,} would"
    elif groups:
        text += f"; {table.num_groups:,} groups cannot tell, about {groups:,} would"
    return text


def recommended(table: Table) -> Recommendation | None:
    """The entry to use and why; None where the table does not allow an answer.

    All entries must have the same states, and no entry may be optimistic. The answer is
    the best entry if it is shown to be better than the baseline. Else it is the entry
    that nothing is shown to be better than: logistic regression where it is the best,
    or the baseline.
    """
    entries = [
        entry
        for entry in table.entries
        if entry.chosen.mean is not None and not entry.shuffled
    ]
    inputs = {(entry.drawn, entry.recipe.get("layers")) for entry in entries}
    if len(inputs) != 1 or any(entry.unchosen or entry.optimistic for entry in entries):
        return None

    best = entries[0]
    if best.compared and best.compared.claim.verdict == "better":
        reason = f"best mean, shown to be better than '{table.baseline}'"
        return Recommendation(best, f"use {best.label}: {reason}")

    reference = _unbeaten_reference(table, entries)
    if reference is None:
        return None
    probed = [entry for entry in table.entries if entry.probed]
    if reference.fitted and all(_is_behind_probe(entry) for entry in probed):
        reason = "shown to be better than every other decoder"
        return Recommendation(reference, f"use {reference.label}: {reason}")

    reasons = []
    if best is reference:
        reasons.append("best mean")
    fewest_parameters = min(entry.parameters["total"] for entry in entries)
    if reference.parameters["total"] == fewest_parameters:
        reasons.append("fewest parameters")
    if not reasons:
        return None
    reason = f"{', '.join(reasons)}, nothing is shown to be better than it"
    return Recommendation(reference, f"use {reference.label}: {reason}")


def _unbeaten_reference(table: Table, entries: Sequence[Entry]) -> Entry | None:
    """Logistic regression where it is the best entry, else the only baseline entry.

    None where an entry is shown to be better than it, and where nothing was compared.
    """
    best = entries[0]
    if best.fitted:
        probed = [entry for entry in table.entries if entry.probed]
        if not probed or any(_is_ahead_of_probe(entry) for entry in probed):
            return None
        return best

    if any(comparison.claim.verdict == "better" for _, comparison in table.compared):
        return None
    if not table.compared and not any(entry.probed for entry in table.entries):
        return None
    baselines = [
        entry
        for entry in entries
        if entry.attention == table.baseline and not entry.fitted
    ]
    return baselines[0] if len(baselines) == 1 else None


def _clause_without_comparison(table: Table) -> str:
    first = table.entries[0]
    interval = first.chosen.two_level
    mean = first.chosen.mean
    if len(table.entries) > 1 or interval is None or mean is None:
        return (
            "Nothing is compared with a baseline, "
            "so that nothing is said of differences"
        )
    unit = table.unit
    sign = "%" if unit.percent else ""
    drawn = "groups of test rows" if table.num_groups else "test rows"
    return (
        f"The mean {unit.title} of {first.label} is {unit.text(mean)}{sign}, with a "
        f"95% confidence interval of {unit.span(interval)}{sign} over seeds and {drawn}"
    )


def _conditions(table: Table) -> str:
    """The conditions of the conclusion, in brackets; notes say what else is weak."""
    trained = [entry for entry in table.entries if not (entry.fitted or entry.shuffled)]
    conditions = []
    if any(entry.optimistic for entry in trained):
        conditions.append("some of it from numbers that are optimistic")

    untuned = [entry for entry in trained if not entry.tunings]
    if any(entry.candidate for entry in untuned):
        conditions.append("not tuned: every candidate stands for itself")
    elif untuned and len(untuned) == len(trained):
        conditions.append(NOT_TUNED)
    elif untuned:
        conditions.append(f"{len(untuned)} of {len(trained)} decoders not tuned")

    if any(comparison.other_grid for _, comparison in table.compared):
        conditions.append("though not all had the same grid")
    num_undertrained = sum(entry.undertrained for entry in table.entries)
    if num_undertrained:
        conditions.append(
            f"and {num_undertrained} of {len(table.entries)} decoders under-trained"
        )
    return f" ({', '.join(conditions)})" if conditions else ""


def _with_verb(names: Sequence[str]) -> str:
    """The names as the subject of a sentence, with its verb."""
    if len(names) == 1:
        return f"{names[0]} is"
    if len(names) <= NAMED:
        return f"{', '.join(names[:-1])} and {names[-1]} are"
    return f"{_listed(names, NAMED)} are"


def _listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    text = ", ".join(names[:most])
    if len(names) > most:
        text += f" and {len(names) - most} more"
    return text
