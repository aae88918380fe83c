"""How the numbers of a table were made, where reports differ in it."""

from collections.abc import Iterator, Sequence
from dataclasses import fields

from gaam_cache.common.messages import brief
from gaam_cache.store.files import short_digest
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.compare import num_tests_in_words
from gaam_decoder.reports.entries import Entry
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.wording import SELECT_NOTES, TEMPERATURE
from gaam_decoder.runs.tuning import tuning_in_words
from gaam_decoder.specs import USUAL_DECAY
from gaam_decoder.stats.scores.base import percent

EXPLAINED_SETTINGS = (
    "class_weights",
    "epochs",
    "batch_size",
    "optimizer",
    "schedule",
    "clip_grad_norm",
    "clip_order",
    "val_fraction",
    "ties",
    "shuffle",
)
"""Settings of training in steps whose defaults are those of ``TrainConfig``."""
USUAL_SETTINGS: dict[str, object] = {
    option.name: option.default
    for option in fields(TrainConfig)
    if option.name in EXPLAINED_SETTINGS
}
USUAL_SETTINGS |= {
    "weight_decay": USUAL_DECAY,
    "dtype": "float32",
    "state_scale": "none",
}
"""Settings of training in steps, with the values that ``gaam train`` has unasked."""


def explain_numbers(table: Table) -> Iterator[str]:
    """Sentences on how the numbers of a table were made, where reports differ in it.

    docs/concepts/verdicts-computed.md says what holds for all reports.
    """
    # how the epoch was selected; selection by test rows has a note of its own
    trained = [entry for entry in table.entries if not entry.fitted_at_once]
    for select in sorted({entry.select for entry in trained} - {"test"}):
        explanation = SELECT_NOTES.get(select, "not known here")
        if select == "val":
            explanation = f"{_validation_rows_in_words(trained)} choose the epoch"
        yield f"select {brief(select, 40)}: {explanation}"
    if not trained:
        yield from _explain_fits(table)
    yield from _explain_settings(trained)
    if table.entries:
        yield _explain_chance(table)
    if table.score_name != table.task.default_score:
        yield _explain_score(table)
    if table.compared_entries:
        yield _explain_differences(table)
    yield from _explain_tuning(table)
    if table.temperature:
        yield TEMPERATURE
    yield f"cache {short_digest(table.cache.fingerprint)}, {brief(table.tested_on)}"
    yield _explain_versions(table)


def _validation_rows_in_words(entries: Sequence[Entry]) -> str:
    """Where the validation rows of entries are from."""
    val_splits = {
        entry.runs[0].recipe.val_split for entry in entries if entry.select == "val"
    }
    sources = [
        f"the rows of the split '{brief(split)}'"
        for split in sorted(split for split in val_splits if split is not None)
    ]
    if None in val_splits:
        sources.insert(0, "validation rows, a part of the training split,")
    return " or ".join(sources)


def _explain_settings(entries: Sequence[Entry]) -> Iterator[str]:
    """The settings that all decoders share, and that are not those of ``gaam train``.

    Where decoders differ in a setting, their names or the notes on tuning say it.

    Args:
        entries: those that are trained in steps.
    """
    recipes = [entry.runs[0].recipe for entry in entries]
    if not recipes:
        return
    usual_values = USUAL_SETTINGS | {"loss": entries[0].task.default_loss}
    parts = []
    for name, usual_value in usual_values.items():
        values = {str(getattr(recipe, name)) for recipe in recipes}
        if len(values) == 1 and values != {str(usual_value)}:
            parts.append(f"{name.replace('_', '-')} {brief(values.pop())}")
    if parts:
        yield f"settings of all decoders: {', '.join(parts)}"


def _explain_fits(table: Table) -> Iterator[str]:
    """What validation rows chose for heads that are fitted in one step."""
    settings = sorted(
        {run.fit.setting for run in table.runs if run.fit and run.select == "val"}
    )
    if settings:
        rows = _validation_rows_in_words(table.entries)
        yield f"select val: {rows} choose {' and '.join(settings)}"


def _explain_chance(table: Table) -> str:
    """The score of the trivial prediction, which looks at no row."""
    task = table.task
    score = table.entries[0].trivial_score
    if task.has_classes:
        return f"{task.baseline_in_words}: {percent(score)}% of the test rows"
    return f"{task.baseline_in_words}: {task.with_title(score)} on the test rows"


def _explain_score(table: Table) -> str:
    """The score that is compared, its direction, order of classes, and claims."""
    score = table.score
    better = "larger" if score.larger_is_better else "smaller"
    text = f"compared by {score.title}: {better} is better"
    if score.needs_class_order:
        order = ", ".join(map(brief, table.class_order)) or "by the number of each"
        text += f"; classes from low to high: {order}"
    if score.no_claim_reason:
        text += f"; no claim is made: {score.no_claim_reason}"
    return text


def _explain_differences(table: Table) -> str:
    """Unit, pairing, correction and margin of the differences to the baseline."""
    score = table.score
    num_tests = num_tests_in_words(table.num_tests)
    return (
        f"differences to '{brief(str(table.baseline))}' in {score.difference_unit}, "
        "within the same head and recipe; intervals and verdicts cover "
        f"{table.covered}, corrected by Holm for {num_tests}; "
        f"equivalent means within {score.size(table.margin)}"
    )


def _explain_tuning(table: Table) -> Iterator[str]:
    """What validation chose for each decoder, and which seeds chose."""
    for entry in table.entries:
        if entry.tunings:
            yield f"{entry.label}: {tuning_in_words(entry.tunings)}"

    # each set of tuning seeds once; a dictionary keeps their order
    seed_sets = dict.fromkeys(
        (tuning.seeds, tuning.has_reporting_seeds)
        for entry in table.entries
        for tuning in entry.tunings
    )
    for seeds, has_reporting_seeds in seed_sets:
        reporting_seeds = "other seeds" if has_reporting_seeds else "the same seeds"
        yield (
            f"tuning: seeds {spell_numbers(seeds)} chose by validation "
            f"{table.task.score_title}; {reporting_seeds} report"
        )


def _explain_versions(table: Table) -> str:
    """Versions of the libraries that trained the runs, and their devices."""
    parts = []
    for name in ("python", "torch", "numpy", "device"):
        versions = {str(run.environment.get(name, "unknown")) for run in table.runs}
        spelled = " and ".join(brief(version) for version in sorted(versions))
        parts.append(f"{name} {spelled}")
    return f"versions: {', '.join(parts)}"
