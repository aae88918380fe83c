"""Write finished seeds into a run folder, which says how it was made.

N rows, V validation rows.
"""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gaam_cache.common import devices
from gaam_cache.common.version import __version__
from gaam_cache.store.reader import EmbeddingCache
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import build_decoder
from gaam_decoder.heads.base import Fit
from gaam_decoder.number_lists import PER_CLASS, spell_numbers
from gaam_decoder.recipe import STEP_SETTINGS, Recipe
from gaam_decoder.runs.files import RELATION_PREFIX
from gaam_decoder.runs.folders import remove_temporary_folders, run_name
from gaam_decoder.runs.groups import relations_of_split
from gaam_decoder.runs.records import CacheRecord, DrawnRows
from gaam_decoder.runs.write import SeedResult, TestedRows, padded, write_run
from gaam_decoder.tasks import CLASSIFICATION, task_of
from gaam_decoder.training.arithmetic.engine import Engine
from gaam_decoder.training.data import TrainData
from gaam_decoder.training.experiments import Experiment
from gaam_decoder.training.splits import divide

Numbers = NDArray[Any]
Relations = Mapping[str, Numbers]
"""By name, ways in which rows belong together, such as ``speaker``: a number for every
row of a split (N,). Rows with the same number belong together."""


def publish(
    experiment: Experiment,
    results: list[SeedResult],
    data: TrainData,
    engine: Engine,
    config: TrainConfig,
    cache: EmbeddingCache,
    fit: Fit | None = None,
) -> Path:
    """Write a run folder with the seeds of an experiment.

    Args:
        experiment: the decoder and its recipe.
        results: of the seeds.
        data: the rows of the training.
        engine: that trained the seeds.
        config: of the training.
        cache: with the states.
        fit: of a head that was fitted at once; None: seeds were trained in steps.

    Returns:
        The run folder.
    """
    remove_temporary_folders(config.runs, experiment.key)
    recipe = experiment.recipe
    relations_of_train = relations_of_split(
        cache, recipe.train_split, recipe.named_groups
    )
    relations_of_validation = relations_of_train
    if recipe.val_split is not None:
        relations_of_validation = relations_of_split(cache, recipe.val_split, None)
    test = _test_rows(recipe, data, cache, relations_of_train)
    validation = _validation_rows(recipe, data, cache, results, relations_of_validation)

    description = _describe_decoder(experiment, engine, data, cache)
    description |= _describe_task(recipe, data, cache)
    description |= _describe_rows(recipe, data, test, relations_of_train)
    if fit is not None:
        description["fit"] = fit.to_dict()
    elif config.resolved_tune_seeds is not None:
        description["tuning"] = {"seeds": list(config.resolved_tune_seeds)}

    seeds = [result.seed for result in results]
    return write_run(
        config.runs,
        run_name(str(recipe.attention), str(recipe.head), experiment.key, seeds),
        results,
        test,
        validation,
        description=description,
        config=_config_toml(recipe, seeds, engine, config, cache),
    )


def _test_rows(
    recipe: Recipe,
    data: TrainData,
    cache: EmbeddingCache,
    relations_of_train: Relations,
) -> TestedRows:
    """The test rows with their labels and relations."""
    if data.test is None:
        # no row, in the type and shape of the labels
        return TestedRows(labels=data.train.label_N[:0].cpu())
    # a fold tests some rows of the train split: which ones is recorded
    relations_of_test = relations_of_train
    row_N: Numbers | None = data.test.rows
    if recipe.fold is None:
        relations_of_test = relations_of_split(cache, recipe.test_split, None)
        row_N = None
    return TestedRows(
        labels=data.test.label_N.cpu(),
        rows=row_N,
        relations={
            name: number_N[data.test.rows]
            for name, number_N in relations_of_test.items()
        },
    )


def _describe_task(
    recipe: Recipe, data: TrainData, cache: EmbeddingCache
) -> dict[str, Any]:
    """The task, and the score of its trivial prediction; classes are the usual task."""
    score = _baseline_score(recipe, data, cache)
    if cache.task == CLASSIFICATION.name:
        return {"majority_accuracy": score}
    return {"task": cache.task, "baseline_score": score}


def _baseline_score(
    recipe: Recipe, data: TrainData, cache: EmbeddingCache
) -> float | None:
    """Test score of the trivial prediction, such as the most frequent training class.

    None without test rows.
    """
    if data.test is None:
        return None
    training_label_N = cache[recipe.train_split].labels
    if recipe.fold is not None:
        training_label_N = np.delete(training_label_N, data.test.rows, axis=0)
    test_label_N = data.test.label_N.cpu().numpy()
    return task_of(cache.task).baseline_score(training_label_N, test_label_N)


def _describe_rows(
    recipe: Recipe,
    data: TrainData,
    test: TestedRows,
    relations_of_train: Relations,
) -> dict[str, Any]:
    """What a run records of its rows, as JSON values.

    ``drawn`` has the numbers of rows of a budget, ``learned_groups`` the number of
    groups of the used rows of the train split by relation, ``groups`` where the groups
    that divide the rows are from.
    """
    description: dict[str, Any] = {}
    validation = data.selection if recipe.select == "val" else None
    if recipe.has_budget:
        validation_rows = 0 if validation is None else len(validation)
        description["drawn"] = asdict(
            DrawnRows(learn=len(data.train), choose=validation_rows)
        )
    # folds learn from all groups in turn: a report needs no number of them
    if test.relations and recipe.fold is None:
        learned_N = data.train.rows
        if validation is not None and recipe.holds_out_rows:
            learned_N = np.concatenate([learned_N, validation.rows])
        description["learned_groups"] = {
            name: len(np.unique(number_N[learned_N]))
            for name, number_N in relations_of_train.items()
        }
    if recipe.groups is not None:
        description["groups"] = {
            "kind": recipe.groups.kind,
            "source": recipe.groups.source,
        }
    return description


def _validation_rows(
    recipe: Recipe,
    data: TrainData,
    cache: EmbeddingCache,
    results: Sequence[SeedResult],
    relations: Relations,
) -> dict[str, Numbers] | None:
    """Labels, numbers and relations of the validation rows, if there are any.

    Args:
        recipe: of the run.
        data: its rows.
        cache: with the states.
        results: of the seeds.
        relations: of all rows of the split of the validation rows.

    Returns:
        Arrays by their name in the file of validation rows: ``labels``, ``rows`` and
        ``same.NAME`` for each relation.
    """
    subset = data.validation(recipe)
    if subset is None:
        return None
    label_V = subset.label_N.cpu().numpy()
    row_V = subset.rows

    # tuning seeds have validation rows of their own, (S, V); -1 pads shorter parts
    if recipe.val_folds is not None:
        train_label_N = cache[recipe.train_split].labels
        stratum_N = task_of(cache.task).stratify_by(train_label_N)
        rows_by_seed = [
            divide(stratum_N, recipe, result.seed).validation_N for result in results
        ]
        label_V = padded([train_label_N[rows] for rows in rows_by_seed])
        row_V = padded(rows_by_seed)
    validation: dict[str, Numbers] = {"labels": label_V, "rows": row_V}
    for name, number_N in relations.items():
        validation[RELATION_PREFIX + name] = np.where(row_V < 0, -1, number_N[row_V])
    return validation


def _describe_decoder(
    experiment: Experiment, engine: Engine, data: TrainData, cache: EmbeddingCache
) -> dict[str, Any]:
    """What a run records of its decoder, cache and machine, as JSON values."""
    recipe = experiment.recipe
    decoder = build_decoder(experiment.spec, seed=0)
    learned_start = {
        name: [value.min().item(), value.max().item()]
        for name, value in decoder.attention.learned().items()
    }
    return {
        "key": experiment.key,
        "attention": str(recipe.attention),
        "head": str(recipe.head),
        "recipe": recipe.to_dict(),
        "cache": CacheRecord.from_plan(cache.plan, cache.root).to_dict(),
        "environment": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "platform": platform.platform(),
            "device": devices.name_of(torch.device(engine.device)),
            "cpu": devices.cpu_name(),
            "cpus": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "code": recipe.code(),
        },
        "engine": engine.to_dict() | {"data": data.train.features.location},
        "parameters": decoder.num_parameters(),
        "learned_start": learned_start,
    }


def _config_toml(
    recipe: Recipe,
    seeds: list[int],
    engine: Engine,
    config: TrainConfig,
    cache: EmbeddingCache,
) -> str:
    """The TOML that trains one run again: all its settings, resolved and tuned."""
    values = _config_values(recipe, seeds, engine, config, cache)
    unused: set[str] = set()
    if recipe.is_fitted_at_once:
        unused = {*STEP_SETTINGS, "seed_batch", "compile"}
    lines = [
        f"# gaam {__version__}: everything that decides the numbers of this run",
        "# Train it again: gaam train --config config.toml --runs ANOTHER_FOLDER",
        "# Change a copy of this file, never the file itself: it is a part of the run.",
        "[train]",
    ]
    for field in fields(TrainConfig):
        name = field.name
        if name in unused:
            continue
        value = values[name] if name in values else getattr(recipe, name, None)
        if value is not None:
            # TOML allows no bare DEL in a string, JSON does
            text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
            lines.append(f"{name} = {text}")
    return "\n".join([*lines, ""])


def _config_values(
    recipe: Recipe,
    seeds: list[int],
    engine: Engine,
    config: TrainConfig,
    cache: EmbeddingCache,
) -> dict[str, Any]:
    """The settings of a config that a recipe lacks, or holds in another form."""
    train_rows: int | str | None = recipe.train_rows
    if recipe.shots is not None:
        train_rows = f"{recipe.shots}{PER_CLASS}"
    return {
        "attn": str(recipe.attention),
        "head": str(recipe.head),
        "loss": str(recipe.loss),
        "optimizer": str(recipe.optimizer),
        "cache": str(cache.root),
        "runs": str(config.runs),
        # a list: a number alone would be a number of seeds
        "seeds": spell_numbers(seeds) if len(seeds) > 1 else seeds,
        "layers": spell_numbers(recipe.layers) if recipe.layers else "all",
        "train_rows": train_rows,
        "fold": None if recipe.fold is None else recipe.fold.number,
        "folds": None if recipe.fold is None else recipe.fold.total,
        "groups": None if recipe.groups is None else recipe.groups.source,
        "final": False,
        "probe": False,
        "device": engine.kind,
        # both decide how sums are ordered, and so the last bits
        "seed_batch": engine.seed_batch,
        "compile": "on" if engine.compiled else "off",
    }
