"""A table of runs: one row per run and seed, as a frame of pandas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gaam_cache.common import plugins
from gaam_cache.store.files import short_digest
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import (
    VAL_FOLDS,
    choose_candidates,
    first_run_by_seed,
    reporting_seeds_of,
)
from gaam_decoder.specs import Settings

if TYPE_CHECKING:
    import pandas

    from gaam_decoder.stats.scores.base import Score

SCORE_PACKAGE = "gaam_decoder.stats.scores"


def score_column(name: str) -> str:
    """The column of a score: ``micro_f1`` of micro-f1."""
    return name.replace("-", "_")


SCORES = {score_column(name): name for name in plugins.names(SCORE_PACKAGE)}
"""Every score that a report may compare, by its column."""
_NAMES_BY_TYPE = {
    "string": "run decoder attention head pool layers loss select train_split "
    "test_split fold failed task dataset encoder fingerprint key path",
    "float64": f"lr weight_decay {' '.join(SCORES)} selection_accuracy "
    "selection_score majority_accuracy baseline_score seconds",
    "Int64": "seed epoch train_rows shots split_seed test_rows parameters "
    "attention_parameters",
    "bool": "counts tuning_seed evaluated on_training_rows shuffled_labels",
    "datetime64[s, UTC]": "created",
}
COLUMNS = {
    name: column_type
    for column_type, names in _NAMES_BY_TYPE.items()
    for name in names.split()
}
"""Columns of the frame and their types; a run or seed may lack some of the values.

``decoder`` is a different name for each key. ``counts`` says whether a report takes the
seed from this run. The accuracy of a report weighs folds by ``test_rows``;
a score that is no mean over rows, such as micro-F1, is of the rows of all folds.
"""


def frame_of_runs(runs: Sequence[RunResult]) -> pandas.DataFrame:
    """A row per run and seed, in their order, with ``COLUMNS``."""
    import pandas

    scores = {
        column: plugins.load(SCORE_PACKAGE, name, kind="score")()
        for column, name in SCORES.items()
    }
    titles = _distinct_titles(runs)
    counting_runs = _counting_runs(runs)
    choice = choose_candidates(runs)
    chosen_runs = set(choice.runs)

    rows: list[dict[str, Any]] = []
    for run in runs:
        # No seed of a candidate that tuning did not choose is reported.
        reported_seeds: list[int] = []
        if run in chosen_runs:
            reported_seeds = reporting_seeds_of(run.seeds, choice.tunings.get(run.key))
        # A seed that is in several runs of a key counts in one of them.
        counting_seeds = [
            seed for seed in reported_seeds if counting_runs[run.key][seed] is run
        ]
        rows += _rows_of_run(run, titles[run.key], counting_seeds, scores)
    frame = pandas.DataFrame(rows, columns=list(COLUMNS), dtype=object)
    return frame.astype(COLUMNS)


def _counting_runs(runs: Iterable[RunResult]) -> dict[str, dict[int, RunResult]]:
    """The run that counts, by key and seed."""
    runs_by_key: dict[str, list[RunResult]] = {}
    for run in runs:
        runs_by_key.setdefault(run.key, []).append(run)
    return {
        key: first_run_by_seed(runs_of_key) for key, runs_of_key in runs_by_key.items()
    }


def _rows_of_run(
    run: RunResult,
    title: str,
    counting_seeds: Collection[int],
    scores: Mapping[str, Score],
) -> list[dict[str, Any]]:
    """The rows of a run, one for each seed: value by column.

    Args:
        run: finished.
        title: the name of the decoder, different for each key.
        counting_seeds: seeds whose results a report takes from this run.
        scores: all scores, by their column.
    """
    from gaam_decoder.stats.scores.base import Answers

    # a final model is not evaluated, and has no test logits
    logits_by_seed = {}
    if run.evaluated:
        logits_by_seed = dict(zip(run.finished, run.finished_logits(), strict=True))
    selection_scores = _selection_scores(run)
    selection_column = f"selection_{run.task_definition.score_key}"

    shared = _shared_columns(run, title)
    rows = []
    for seed in run.seeds:
        failed = run.failed.get(seed)
        is_fitted_at_once = run.fit is not None
        has_epoch = not failed and not is_fitted_at_once
        row = shared | {
            "seed": seed,
            "tuning_seed": seed in run.tuning_seeds,
            "failed": failed,
            "epoch": run.epochs[seed] if has_epoch else None,
            "seconds": run.seconds[seed],
            selection_column: None if failed else selection_scores.get(seed),
            "counts": run.evaluated and seed in counting_seeds,
        }
        if seed in logits_by_seed:
            answers = Answers(logits_by_seed[seed], run.targets)
            for column, score in scores.items():
                if run.task in score.tasks:
                    row[column] = score.value(answers)
            row["test_rows"] = answers.num_rows
        rows.append(row)
    return rows


def _selection_scores(run: RunResult) -> dict[int, float | None]:
    """Validation score of the selected epoch or fit, by seed."""
    if not run.finished:
        return {}
    return {
        entry["seed"]: entry.get(run.task_definition.score_key)
        for entry in run.log
        if entry["epoch"] == run.epochs[entry["seed"]]
    }


def _shared_columns(run: RunResult, title: str) -> dict[str, Any]:
    """The columns that all seeds of a run share."""
    settings = {name: value for name, value in run.settings.items() if name in COLUMNS}
    columns = {
        "attention": run.attention,
        "head": run.head,
        "key": run.key,
        "created": run.created,
        "evaluated": run.evaluated,
        "task": run.task,
        "majority_accuracy": run.majority_accuracy,
        "baseline_score": run.baseline_score,
        "dataset": run.cache.dataset,
        "encoder": run.cache.encoder,
        "fingerprint": run.cache.fingerprint,
    }
    columns |= settings
    return columns | {
        "run": run.path.name,
        "decoder": title,
        "path": str(run.path),
        "on_training_rows": run.recipe.on_training_rows,
        "shuffled_labels": run.shuffled,
        "parameters": run.parameters["total"],
        "attention_parameters": run.parameters["attention"],
    }


def _distinct_titles(runs: Sequence[RunResult]) -> dict[str, str]:
    """A different title for each key of the runs, by key.

    It is the title of the run, and the settings in which the runs of this title differ.
    """
    settings_by_title: dict[str, dict[str, Settings]] = {}
    for run in runs:
        settings = run.settings | {
            "cache": short_digest(run.states),
            # Tuning seeds and reporting seeds of one decoder may differ in this
            # setting: with None for all of them no title names it.
            VAL_FOLDS: None,
        }
        settings_by_title.setdefault(run.title, {})[run.key] = settings

    titles = {}
    for title, settings_by_key in settings_by_title.items():
        names = _differing_settings(list(settings_by_key.values()))
        for key, settings in settings_by_key.items():
            words = [
                f"{name.replace('_', ' ')} {settings[name]}"
                for name in names
                if name in settings
            ]
            titles[key] = ", ".join([title, *words])
    return titles


def _differing_settings(recipes: Sequence[Settings]) -> list[str]:
    """Names of the settings that are not equal in all recipes, sorted."""
    names = {name for settings in recipes for name in settings}
    return [
        name
        for name in sorted(names)
        if len({str(settings.get(name)) for settings in recipes}) > 1
    ]
