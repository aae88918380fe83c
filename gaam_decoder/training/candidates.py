"""Items that are trained to choose between rates, and those that report, as far as is known."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gaam_cache.errors import GaamWarning
from gaam_decoder.config import TrainConfig
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import Choice, family, mean_validation
from gaam_decoder.training.grid import Item


def families_of(items: Sequence[Item]) -> list[list[Item]]:
    """Candidates of one row each, which may be one."""
    found: dict[str, list[Item]] = {}
    for item in items:
        recipe = item.recipe
        name = family(recipe.to_dict(), str(recipe.attention), str(recipe.head), "")
        found.setdefault(name, []).append(item)
    return list(found.values())


def apart(items: Sequence[Item], config: TrainConfig) -> tuple[list[Item], list[Item]]:
    """What is trained by itself, and the final models that ``--final`` adds to it."""
    final = [config.final and item.recipe.final for item in items]
    return (
        [item for item, added in zip(items, final, strict=True) if not added],
        [item for item, added in zip(items, final, strict=True) if added],
    )


def reporting_items(
    items: Sequence[Item],
    config: TrainConfig,
    tried: Mapping[str, Item],
    tuned: Sequence[RunResult],
    chosen: Choice,
) -> list[Item]:
    """What is trained when the candidates are there: those that were chosen, and what had none.

    ``tried`` has, by the key of every candidate, what was trained to choose.

    Of final models that differ in what is tuned alone, the one whose numbers are best: of the
    highest mean validation accuracy of the evaluated runs with these numbers, over the seeds that
    choose and, of a cross-validation, over its folds, each of which may itself have chosen others.
    Of equals that of the lower validation loss is taken, of these the smallest.

    Warns:
        GaamWarning: of some final model no value was finished by all seeds in all folds; it is
            left out.
    """
    evaluated, finals = apart(items, config)
    alone = {grid[0].key for grid in families_of(evaluated) if len(grid) == 1}
    best_of = {key for key, item in tried.items() if item.key in chosen.tunings}
    left = [item for item in evaluated if item.key in alone | best_of]
    dropped: set[str] = set()
    for grid in families_of(finals):
        if len(grid) == 1:
            continue
        scores = {item.key: _score(item, evaluated, tried, tuned, config) for item in grid}
        best = max(scores, key=lambda key: scores[key] or ())
        if scores[best] is None:
            text = f"left out: {grid[0]}: no rate was finished by all of --tune-seeds"
            warnings.warn(text, GaamWarning, stacklevel=2)
        dropped |= scores.keys() - ({best} if scores[best] else set())
    return left + [item for item in finals if item.key not in dropped]


def _score(
    final: Item,
    evaluated: Sequence[Item],
    tried: Mapping[str, Item],
    runs: Sequence[RunResult],
    config: TrainConfig,
) -> tuple[float, ...] | None:
    """What is largest for the best; None where a seed or fold is missing."""
    assert config.choosing_seeds is not None
    # the final model of the first repeat of a cross-validation is that of all
    split_seed = final.recipe.split_seed
    found = [
        mean_validation(
            [run for run in runs if run.key == tried[item.key].key], config.choosing_seeds
        )
        for item in evaluated
        if replace(item.recipe, split_seed=split_seed).without_test() == final.recipe
    ]
    accuracies = [accuracy for accuracy, _ in found if accuracy is not None]
    if len(accuracies) < len(found):
        return None
    mean, loss = math.fsum(accuracies) / len(found), math.fsum(loss for _, loss in found)
    return mean, -loss, -final.recipe.lr, -final.recipe.weight_decay
