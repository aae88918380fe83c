"""Runs as a DataFrame of pandas: a row per run and seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gaam_cache import plugins
from gaam_cache.errors import ConfigError
from gaam_decoder.number_lists import DRAWN_BY
from gaam_decoder.runs.counting import first_runs, on_training_rows
from gaam_decoder.runs.filters import published
from gaam_decoder.runs.result import RunResult
from gaam_decoder.stats.scores._base import Answers

if TYPE_CHECKING:
    import pandas

PACKAGE = "gaam_decoder.stats.scores"
SCORES = {name: name.replace("-", "_") for name in plugins.names(PACKAGE)}
"""Every score that a report may compare, and its column."""
COLUMNS: dict[str, str] = {
    "run": "string",
    "attention": "category",
    "head": "category",
    "pool": "category",
    "layers": "string",
    "lr": "float64",
    "weight_decay": "float64",
    "loss": "category",
    "select": "category",
    "train_split": "category",
    "test_split": "category",
    "fold": "string",
    "split_seed": "Int64",
    "train_rows": "Int64",
    "shots": "Int64",
    "seed": "Int64",
    "counts": "bool",
    "tuning_seed": "bool",
    "failed": "string",
    "epoch": "Int64",
    "seconds": "float64",
    "evaluated": "bool",
    "on_training_rows": "bool",
    "shuffled_labels": "bool",
    "test_rows": "Int64",
    **dict.fromkeys(("accuracy", "macro_f1", *SCORES.values()), "float64"),
    "selection_accuracy": "float64",
    "majority_accuracy": "float64",
    "parameters": "Int64",
    "attention_parameters": "Int64",
    "dataset": "category",
    "encoder": "category",
    "fingerprint": "category",
    "key": "category",
    "created": "datetime64[s, UTC]",
    "path": "string",
}
"""Names and types. ``layers`` and ``fold`` are missing where a run has all layers or no folds,
``train_rows`` and ``shots`` where it learned from all rows,
``lr``, ``weight_decay``, ``loss`` and ``epoch`` where a head is fitted at once, ``failed`` (why)
where a seed finished, scores and ``majority_accuracy`` where a run was not evaluated.
``parameters`` are all of a decoder, ``created`` is when the run was published, and
``on_training_rows`` and ``shuffled_labels`` mark what is no test accuracy. ``counts`` says whether
a report takes the seed from this run: not from a second one that has it too, and not from a final
model, which is not evaluated."""


def frame(runs: Sequence[RunResult]) -> pandas.DataFrame:
    """A row per run and seed, in the order of the runs and their seeds.

    Raises:
        ConfigError: pandas is not installed.
        CacheError: a run is damaged.
    """
    try:
        import pandas
    except ImportError as error:
        raise ConfigError(
            "a table of runs needs pandas", found=str(error), hint="pip install pandas"
        ) from error
    rows = list(records(runs))
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    typed = {name: _typed(columns[name], kind, pandas) for name, kind in COLUMNS.items()}
    return pandas.DataFrame(typed)


def _typed(values: list[Any], kind: str, pandas: Any) -> Any:
    # kept as Python has them: halves of characters, which a name may hold, fit in no other string
    if kind == "string":
        filled = [pandas.NA if value is None else value for value in values]
        return pandas.array(filled, dtype=pandas.StringDtype("python"))
    if kind == "category":
        there = sorted({value for value in values if value is not None})
        codes = [there.index(value) if value is not None else -1 for value in values]
        return pandas.Categorical.from_codes(codes, categories=pandas.Index(there, dtype=object))
    if kind.startswith("datetime"):
        return pandas.array(pandas.to_datetime(values, utc=True), dtype=kind)
    if kind == "Int64":
        filled = [pandas.NA if value is None else value for value in values]
        return pandas.array(filled, dtype=kind)
    if kind == "float64":
        values = [math.nan if value is None else value for value in values]
    return pandas.Series(values, dtype=kind)


def records(runs: Sequence[RunResult]) -> Iterator[dict[str, Any]]:
    """A row per run and seed, by the names of ``COLUMNS``.

    Raises:
        CacheError: a run is damaged.
    """
    of_key: dict[str, list[RunResult]] = {}
    for run in runs:
        of_key.setdefault(run.key, []).append(run)
    counting = {key: first_runs(same) for key, same in of_key.items()}
    for run in runs:
        of_run, scores = _of_run(run), _scores(run)
        for seed in run.seeds:
            counts = run.evaluated and counting[run.key][seed] is run
            yield {**of_run, **scores.get(seed, {}), **_of_seed(run, seed), "counts": counts}


def _of_run(run: RunResult) -> dict[str, Any]:
    recipe, cache = run.recipe, run.cache
    names = ("pool", "layers", "lr", "weight_decay", "loss", "select", "train_split")
    return {
        "run": run.path.name,
        "attention": run.attention,
        "head": run.head,
        **{name: recipe.get(name) for name in (*names, "test_split", "split_seed", *DRAWN_BY)},
        "fold": recipe.get("fold"),
        "evaluated": run.evaluated,
        "on_training_rows": on_training_rows(recipe),
        "shuffled_labels": run.shuffled,
        **dict.fromkeys(("test_rows", "accuracy", "macro_f1", *SCORES.values())),
        "majority_accuracy": run.majority_accuracy,
        "parameters": run.parameters["total"],
        "attention_parameters": run.parameters["attention"],
        "dataset": cache["dataset"],
        "encoder": cache["encoder"],
        "fingerprint": cache["fingerprint"],
        "key": run.key,
        "created": published(run),
        "path": str(run.path.absolute()),
    }


def _scores(run: RunResult) -> dict[int, dict[str, float | None]]:
    """Every score of every finished seed; None where these rows and classes have none."""
    if not (run.evaluated and run.finished):
        return {}
    scores = {of: plugins.load(PACKAGE, name, kind="score")() for name, of in SCORES.items()}
    answers = [Answers(logits_NC, run.labels) for logits_NC in run.finished_logits()]
    return {
        seed: {of: score.value(one) for of, score in scores.items()} | {"test_rows": one.num_rows}
        for seed, one in zip(run.finished, answers, strict=True)
    }


def _of_seed(run: RunResult, seed: int) -> dict[str, Any]:
    failed = run.failed.get(seed)
    return {
        "seed": seed,
        "tuning_seed": seed in run.tuning_seeds,
        "failed": failed,
        "epoch": None if failed is not None or run.fit else run.epochs[seed],
        "seconds": run.seconds[seed],
        "selection_accuracy": None if failed is not None else _selection_accuracy(run, seed),
    }


def _selection_accuracy(run: RunResult, seed: int) -> float | None:
    """Of the epoch or fit that was kept, on the rows that chose it; None where none did."""
    for entry in run.log:
        if entry["seed"] == seed and entry["epoch"] == run.epochs[seed]:
            value: float | None = entry.get("accuracy")
            return value
    return None
