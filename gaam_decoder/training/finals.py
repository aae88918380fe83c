"""Which final models of a grid are trained: what validation chose of the evaluated ones."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace

from gaam_cache.errors import GaamWarning
from gaam_decoder.config import TrainConfig
from gaam_decoder.recipe import Recipe
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import mean_validation
from gaam_decoder.training.items import Item, families_of


def apart(items: Sequence[Item], config: TrainConfig) -> tuple[list[Item], list[Item]]:
    """What is trained by itself, and the final models that ``--final`` adds to it."""
    added = [item for item in items if config.final and item.recipe.final]
    return [item for item in items if item not in added], added


def chosen_finals(
    finals: Sequence[Item],
    evaluated: Sequence[Item],
    runs: Sequence[RunResult],
    seeds: Sequence[int],
) -> list[Item]:
    """Of final models that differ in what is tuned alone, the one whose numbers are best.

    Best is the highest mean validation accuracy of the evaluated runs with these numbers, over the
    seeds that choose and, of a cross-validation, over its folds, each of which may itself have
    chosen others. Of equals that of the lower validation loss is taken, of these the smallest.

    Args:
        finals: all that could be trained.
        evaluated: what they are the final models of.
        runs: of what is evaluated, by the seeds that choose.
        seeds: those.

    Warns:
        GaamWarning: of some no value was finished by all seeds in all folds; they are left out.
    """
    dropped: set[str] = set()
    for family in families_of(finals):
        scores = {item.key: _score(item, evaluated, runs, seeds) for item in family}
        able = {key: score for key, score in scores.items() if score is not None}
        if not able:
            warnings.warn(
                f"left out: {family[0]}: no rate was finished by all of --tune-seeds"
                + (" in all folds" if any(item.recipe.fold for item in evaluated) else ""),
                GaamWarning,
                stacklevel=3,
            )
        dropped |= scores.keys() - ({max(able, key=lambda key: able[key])} if able else set())
    return [item for item in finals if item.key not in dropped]


def _score(
    final: Item, evaluated: Sequence[Item], runs: Sequence[RunResult], seeds: Sequence[int]
) -> tuple[float, ...] | None:
    """What is largest for the best; None where a seed or fold is missing."""
    parts = [item.key for item in evaluated if _of(item, final) == final.recipe]
    found = [mean_validation([run for run in runs if run.key == key], seeds) for key in parts]
    accuracies = [accuracy for accuracy, _ in found if accuracy is not None]
    if len(accuracies) < len(parts):
        return None
    mean, loss = math.fsum(accuracies) / len(parts), math.fsum(loss for _, loss in found)
    return mean, -loss, -final.recipe.lr, -final.recipe.weight_decay


def _of(item: Item, final: Item) -> Recipe:
    """The final model of a recipe; that of its first repeat is that of all."""
    return replace(item.recipe, split_seed=final.recipe.split_seed).without_test()
