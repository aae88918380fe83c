"""Items that are trained to choose between rates, and those that report, as far as is known."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace

from gaam_cache.errors import GaamWarning
from gaam_decoder.config import TrainConfig
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import Choice, mean_validation
from gaam_decoder.training.grid import Item, families_of


def apart(items: Sequence[Item], config: TrainConfig) -> tuple[list[Item], list[Item]]:
    """What is trained by itself, and the final models that ``--final`` adds to it."""
    added = [item for item in items if config.final and item.recipe.final]
    keys = {item.key for item in added}
    return [item for item in items if item.key not in keys], added


def tried_items(items: Sequence[Item], config: TrainConfig) -> list[Item]:
    """Candidates, which seeds of their own choose between."""
    return [item for family in families_of(apart(items, config)[0]) for item in family]


def reporting_items(
    items: Sequence[Item], config: TrainConfig, tuned: Sequence[RunResult], chosen: Choice
) -> list[Item]:
    """What is trained when the candidates are there: those that were chosen, and what had none.

    Of final models that differ in what is tuned alone, the one whose numbers are best: of the
    highest mean validation accuracy of the evaluated runs with these numbers, over the seeds that
    choose and, of a cross-validation, over its folds, each of which may itself have chosen others.
    Of equals that of the lower validation loss is taken, of these the smallest.

    Warns:
        GaamWarning: of some final model no value was finished by all seeds in all folds; it is
            left out.
    """
    evaluated, finals = apart(items, config)
    tried = {item.key for item in tried_items(items, config)}
    left = [item for item in evaluated if item.key in chosen.tunings or item.key not in tried]
    dropped: set[str] = set()
    for family in families_of(finals):
        scores = {item.key: _score(item, evaluated, tuned, config) for item in family}
        able = {key: score for key, score in scores.items() if score is not None}
        if not able:
            warnings.warn(
                f"left out: {family[0]}: no rate was finished by all of --tune-seeds",
                GaamWarning,
                stacklevel=2,
            )
        dropped |= scores.keys() - ({max(able, key=lambda key: able[key])} if able else set())
    return left + [item for item in finals if item.key not in dropped]


def _score(
    final: Item, evaluated: Sequence[Item], runs: Sequence[RunResult], config: TrainConfig
) -> tuple[float, ...] | None:
    """What is largest for the best; None where a seed or fold is missing."""
    assert config.tune_seeds is not None
    # the final model of the first repeat of a cross-validation is that of all
    split_seed = final.recipe.split_seed
    parts = [
        item.key
        for item in evaluated
        if replace(item.recipe, split_seed=split_seed).without_test() == final.recipe
    ]
    found = [mean_validation([r for r in runs if r.key == key], config.tune_seeds) for key in parts]
    accuracies = [accuracy for accuracy, _ in found if accuracy is not None]
    if len(accuracies) < len(parts):
        return None
    mean, loss = math.fsum(accuracies) / len(parts), math.fsum(loss for _, loss in found)
    return mean, -loss, -final.recipe.lr, -final.recipe.weight_decay
