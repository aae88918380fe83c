"""The experiments of a training: each decoder under each recipe that a config asks for.

With tuning seeds, the experiments are candidates; validation chooses those that report.
"""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

import numpy as np
import torch

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError, GaamNote, GaamWarning
from gaam_cache.common.messages import did_you_mean, shortened
from gaam_cache.config import VALIDATION_NAMES
from gaam_cache.store.reader import EmbeddingCache
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import (
    DecoderSpec,
    canonical_spec,
    with_derived_options,
)
from gaam_decoder.number_lists import EACH, PER_CLASS, Layers, Sizes
from gaam_decoder.recipe import NO_TEST, Dtype, Fold, Groups, Recipe
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import Choice, decoder_family, mean_validation
from gaam_decoder.specs import KINDS, Spec, plugin_tasks
from gaam_decoder.tasks import CLASSIFICATION, Task, task_of
from gaam_decoder.training.arithmetic.engine import resolve_dtype
from gaam_decoder.training.data import Features, LayerSizes, measure_layers
from gaam_decoder.training.own_decoder import check_own_decoder
from gaam_decoder.training.probe import PROBE_ATTENTION, check_decoder, probe_fits
from gaam_decoder.training.splits import check_rows, read_groups

LARGE_STATES = 2.0
"""Root mean square of a layer above which ``state_scale=auto`` divides the states.

Measured on 1,500 rows of AG News through MiniLM, with all states multiplied by one
number: at a root mean square of 1.9 ``gaam:heads=1`` was right in 85.6% of test rows
and ``none`` in 85.3%, at 3.8 in 84.3 and 83.3%; divided, in 86.0 and 85.7%. Through a
Llama of 30 x 576, a linear head had a log loss of 0.36 to 0.38 at 0.25 to 3, of 3.1 at
12, and of 5.5 at 21. Layers of sentence encoders have 0.1 to 0.3, those of Whisper 0.7
to 1.1."""
SMALL_STATES = 0.015
"""If no layer has a larger root mean square, ``state_scale=auto`` divides them, too.

Measured on 1,500 rows of AG News through MiniLM, with all states multiplied by one
number: at a root mean square of 0.2 and 0.02 ``gaam:heads=1`` was right in 85.4 and
86.0% of test rows, at 0.002 in 83.9%, at 0.0002 in 82.2%, and ``laplace:heads=1``
there in 78.6%; divided, they had 86.0 and 86.4%. A vector of 4,096 features and length
1 has 0.016."""
LEAST_SPREAD = 0.02
"""Warn if the standard deviation over rows is a smaller share of the root mean square.

Layers of a Llama have 0.19 or more, those of MiniLM 0.5."""
ROUNDING = 1e-6
"""A share that rounding makes where all rows are equal, as at the first token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """One decoder under one recipe; its seeds make one run."""

    spec: DecoderSpec
    recipe: Recipe
    key: str
    """Hash of decoder, recipe and states, as in the run."""

    @property
    def epochs(self) -> int:
        """Epochs of a seed; 0 of a head that is fitted at once."""
        return 0 if self.recipe.is_fitted_at_once else self.recipe.epochs

    def __str__(self) -> str:
        return str(self.recipe)

    @property
    def name(self) -> str:
        """The name of unfinished work and leases, such as ``laplace-1f9c2a7b``.

        It has no seeds: after an interruption, a user may request other seeds.
        """
        return f"{self.recipe.attention.name}-{self.key[:8]}"

    def seeds_to_train(self, requested_seeds: Sequence[int]) -> tuple[int, ...]:
        """The requested seeds; seed 0 for a fit, which draws no random numbers."""
        return (0,) if self.recipe.is_fitted_at_once else tuple(requested_seeds)

    def missing_seeds(
        self, requested_seeds: Sequence[int], runs: Sequence[RunResult]
    ) -> list[int]:
        """The seeds to train that no run holds, ascending."""
        existing_seeds = {seed for run in runs for seed in run.seeds}
        return sorted(set(self.seeds_to_train(requested_seeds)) - existing_seeds)


def plan_experiments(
    config: TrainConfig, cache: EmbeddingCache, device: torch.device
) -> list[Experiment]:
    """List the experiments of a config in order, with linear probes and final models.

    Args:
        config: of the training.
        cache: with the states.
        device: that trains.

    Raises:
        ConfigError: the config does not fit the cache.
    """
    # check everything before anything is trained
    _check_torch_defaults()
    config = _resolve_config(config, cache)
    dtype = resolve_dtype(config.dtype, device)
    groups = None
    if config.groups is not None:
        groups = read_groups(str(config.groups), cache, config.train_split)
    requested_recipes = recipes(config, dtype, groups)
    check_rows(requested_recipes, cache)
    if config.state_scale == "auto":
        requested_recipes = _with_state_scales(requested_recipes, cache)

    # several spellings of a mechanism have the same key: one experiment for them
    experiment_by_key: dict[str, Experiment] = {}
    for recipe in requested_recipes:
        experiment = _experiment(recipe, cache)
        experiment_by_key[experiment.key] = experiment
    experiments = _possible_experiments(list(experiment_by_key.values()), config)
    experiments += _probe_experiments(config, cache, device, dtype, groups)
    if not config.final:
        return experiments

    # all folds and repeats of a decoder share one final model
    final_recipes: dict[Recipe, None] = {}
    for experiment in experiments:
        recipe = replace(experiment.recipe, split_seed=config.split_seed)
        final_recipes[recipe.without_test_rows()] = None
    return experiments + [_experiment(recipe, cache) for recipe in final_recipes]


def _with_state_scales(
    requested: Sequence[Recipe], cache: EmbeddingCache
) -> list[Recipe]:
    """Recipes that divide each layer if the states of the cache are large or small.

    All layers of the cache decide, and some rows of the train split: decoders of other
    layers, folds and budgets stay comparable.
    """
    is_divided_by_pool: dict[str, bool] = {}
    resolved: list[Recipe] = []
    for recipe in requested:
        if recipe.is_fitted_at_once:
            resolved.append(recipe)
            continue
        if recipe.pool not in is_divided_by_pool:
            is_divided_by_pool[recipe.pool] = _needs_division(recipe, cache)
        if is_divided_by_pool[recipe.pool]:
            recipe = replace(recipe, state_scale="layer")
        resolved.append(recipe)
    return resolved


def _needs_division(recipe: Recipe, cache: EmbeddingCache) -> bool:
    """Whether the states of a recipe's pooling are large or small; a note says so.

    Of imported states a warning says whether rows hardly differ from one another: then
    a division does not help.
    """
    split = cache[recipe.train_split]
    # on the disk: only the sample is read
    features = Features(split.pooled(recipe.pool), torch.device("cpu"), "disk")
    measured = measure_layers(features, np.arange(len(split)))
    if cache.plan.imported:
        _warn_of_equal_rows(measured, split.first_layer)

    largest = measured.mean_square_L.max().sqrt().item()
    is_large = largest > LARGE_STATES
    is_small = 0 < largest < SMALL_STATES
    if not (is_large or is_small):
        return False
    warnings.warn(
        f"the states are {'large' if is_large else 'small'} (root mean square of a "
        f"layer up to {largest:.2g}): decoders that train in steps divide each layer "
        "by a power of two (--set state-scale=none: as they are)",
        GaamNote,
        stacklevel=5,
    )
    return True


def _warn_of_equal_rows(measured: LayerSizes, first_layer: int) -> None:
    """Warn of layers whose rows differ by little of their size.

    Steps fit what all rows have in common before they fit a difference.
    """
    # a layer of zeros has a share of nan, which is not within the limits
    share_L = (measured.variance_L / measured.mean_square_L).sqrt()
    is_alike_L = (share_L > ROUNDING) & (share_L < LEAST_SPREAD)
    if not is_alike_L.any():
        return
    layer = int(is_alike_L.nonzero()[0, 0])
    warnings.warn(
        f"rows of layer {first_layer + layer} differ from one another by "
        f"{share_L[layer].item():.1g} of their size: decoders that train in steps "
        "hardly learn from them; subtract the mean of each feature before the import",
        GaamWarning,
        stacklevel=6,
    )


def _check_torch_defaults() -> None:
    """Refuse global settings of torch, made by the caller, that change the numbers."""
    dtype = torch.get_default_dtype()
    device_type = torch.get_default_device().type
    has_autocast = any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
    if dtype != torch.float32 or device_type != "cpu" or has_autocast:
        raise ConfigError(
            "this session would change the numbers",
            expected=(
                "default type torch.float32, no torch.autocast or torch.device "
                "around it"
            ),
        )


def _possible_experiments(
    experiments: Sequence[Experiment], config: TrainConfig
) -> list[Experiment]:
    """The experiments whose decoders can be built and trained.

    Raises:
        ConfigError: a decoder is impossible and not to be skipped, or no decoder is
            possible.
    """
    # the first experiment of each decoder stands for it
    experiment_by_spec: dict[DecoderSpec, Experiment] = {}
    for experiment in experiments:
        experiment_by_spec.setdefault(experiment.spec, experiment)
    impossible: set[DecoderSpec] = set()
    for spec, experiment in experiment_by_spec.items():
        try:
            check_decoder(spec, config.select)
            check_own_decoder(spec)
        except ConfigError as error:
            error.details.setdefault("where", str(experiment))
            impossible.add(spec)
            if not config.skip_impossible and len(experiment_by_spec) > 1:
                error.details["to do"] = (
                    "--set skip-impossible=true trains the others; in the table of a "
                    "study: skip-impossible = true"
                )
            is_none_left = len(impossible) == len(experiment_by_spec)
            if not config.skip_impossible or is_none_left:
                raise
            text = f"left out: {error.details['where']}: {error.message}"
            warnings.warn(text, GaamWarning, stacklevel=3)
    return [
        experiment for experiment in experiments if experiment.spec not in impossible
    ]


def _probe_experiments(
    config: TrainConfig,
    cache: EmbeddingCache,
    device: torch.device,
    dtype: Dtype,
    groups: Groups | None,
) -> list[Experiment]:
    """The linear probes beside the decoders, if they are cheap and not requested.

    A linear probe is a linear model of the states that is fitted at once, such as
    logistic regression: with it, a report shows how much a mechanism adds.
    """
    head = Spec(task_of(cache.task).probe_head)
    is_requested = any(spec.name == head.name for spec in config.head)
    if not config.probe or is_requested:
        return []
    # validation rows choose the penalty of a fit, and it knows no weights of classes;
    # without test rows a probe shows nothing
    if config.select == "last" or config.test_split == NO_TEST:
        return []
    probe_config = replace(
        config,
        attn=(PROBE_ATTENTION,),
        head=(head,),
        class_weights="none",
        state_scale="none",
    )
    probes = [
        _experiment(recipe, cache) for recipe in recipes(probe_config, dtype, groups)
    ]

    # the first recipe of each decoder stands for its cost
    recipe_by_spec = {
        experiment.spec: experiment.recipe for experiment in reversed(probes)
    }
    cheap_specs = {
        spec
        for spec, recipe in recipe_by_spec.items()
        if probe_fits(spec, recipe, cache, device)
    }
    return [experiment for experiment in probes if experiment.spec in cheap_specs]


def _experiment(recipe: Recipe, cache: EmbeddingCache) -> Experiment:
    """The experiment of a recipe, keyed by the canonical spec of its mechanism."""
    # a window reads whole shards, so that their size decides the order of rows
    if recipe.window_rows is not None:
        recipe = replace(recipe, shard_rows=cache.plan.shard_rows)
    num_layers = cache.num_layers if recipe.layers is None else len(recipe.layers)
    size = cache.hidden_size

    # Several spellings of a mechanism have one canonical spec, the shortest: it makes
    # the key. The recipe spells derived options out, such as the number of heads.
    # A mechanism that cannot be built has neither; ``check_decoder`` reports it later.
    canonical_recipe = recipe
    with suppress(ConfigError):
        canonical_recipe = replace(
            recipe, attention=canonical_spec(recipe.attention, num_layers, size)
        )
        recipe = replace(
            recipe, attention=with_derived_options(recipe.attention, num_layers, size)
        )
    spec = DecoderSpec(
        attention=recipe.attention,
        head=recipe.head,
        num_layers=num_layers,
        hidden_size=size,
        num_classes=len(cache.target_names),
        task=cache.task,
        scales_states=recipe.state_scale != "none",
    )
    key = canonical_recipe.key(cache.plan.states_id, task_of(cache.task).division_rule)
    return Experiment(spec=spec, recipe=recipe, key=key)


def recipes(
    config: TrainConfig, dtype: Dtype, groups: Groups | None = None
) -> list[Recipe]:
    """One recipe for each combination of values, in order, without duplicates.

    Args:
        config: of the training, checked against the cache.
        dtype: of matrix products.
        groups: of the training rows, such as speakers.
    """
    settings = _shared_settings(config, dtype, groups)
    folds: list[Fold | None] = [None]
    if config.folds:
        numbers = [config.fold] if config.fold else range(1, config.folds + 1)
        folds = [Fold(number, config.folds) for number in numbers]
    split_seeds = range(config.split_seed, config.split_seed + config.repeats)
    # settings of a recipe that may have several values in a config
    values_by_setting: dict[str, Iterable[Any]] = {
        "attention": config.attn,
        "head": config.head,
        "pool": config.pool,
        "lr": config.rates,
        "weight_decay": config.weight_decay,
        "layers": config.layers,
        "train_rows": config.train_rows,
        "split_seed": split_seeds,
        "fold": folds,
    }
    distinct: dict[Recipe, None] = {}
    for values in product(*values_by_setting.values()):
        combination = settings | dict(zip(values_by_setting, values, strict=True))
        # rows of every class, such as 5/class, are another setting of a recipe
        train_rows = combination["train_rows"]
        if isinstance(train_rows, str):
            combination["train_rows"] = None
            combination["shots"] = int(train_rows.removesuffix(PER_CLASS))
        distinct[Recipe(**combination).normalized()] = None
    return list(distinct)


def _shared_settings(
    config: TrainConfig, dtype: Dtype, groups: Groups | None
) -> dict[str, Any]:
    """The settings that all recipes of a config share."""
    # the values of equal names; ``recipes`` replaces those that may be several
    config_names = {field.name for field in fields(config)}
    recipe_names = {field.name for field in fields(Recipe)}
    settings = {name: getattr(config, name) for name in config_names & recipe_names}
    # a config that was checked against a cache has the loss of its task
    settings["loss"] = config.loss or Spec(CLASSIFICATION.default_loss)
    # the states decide it for each recipe: see ``_with_state_scales``
    if config.state_scale == "auto":
        settings["state_scale"] = "none"
    settings["dtype"] = dtype
    settings["groups"] = groups

    # gradients underflow in float16 alone
    is_scaled = config.loss_scale == "dynamic"
    if config.loss_scale == "auto":
        is_scaled = dtype == "float16"
    settings["loss_scale"] = "dynamic" if is_scaled else "none"
    # spellings of one meaning become one: an evaluation in float32 is in the same type
    # as a training in float32, and with one part all seeds share the validation rows
    if dtype == "float32":
        settings["eval_dtype"] = "same"
    if config.val_folds == 1:
        settings["val_folds"] = None
    return settings


def candidate_grids(experiments: Sequence[Experiment]) -> list[list[Experiment]]:
    """Group the experiments of each decoder.

    Those of a group differ in their learning rate and weight decay alone, and are the
    candidates of which tuning chooses one.
    """
    grids: dict[str, list[Experiment]] = {}
    for experiment in experiments:
        recipe = experiment.recipe
        name = decoder_family(
            recipe.to_dict(),
            str(recipe.attention),
            str(recipe.head),
            states="",  # all experiments of a training read the same cache
        )
        grids.setdefault(name, []).append(experiment)
    return list(grids.values())


def candidates_of(
    experiments: Sequence[Experiment], config: TrainConfig, cache: EmbeddingCache
) -> dict[str, Experiment]:
    """The experiments that the tuning seeds train, by the key of their candidate.

    Each of several tuning seeds validates on another part of the training rows. Then
    the tuning experiment of a candidate is another experiment than the candidate: its
    recipe has ``val_folds``, the number of parts. A decoder with a single candidate is
    not tuned.
    """
    # a part for every tuning seed, unless the config says how many
    num_parts = config.val_folds or len(config.resolved_tune_seeds or ())
    # all tuning seeds share the rows of a validation split
    if config.val_split is not None:
        num_parts = 1
    tuning_experiments: dict[str, Experiment] = {}
    for grid in candidate_grids(experiments):
        # the tuning runs of tested experiments decide for the final model, too
        if len(grid) == 1 or _is_added_final_model(grid[0], config):
            continue
        for candidate in grid:
            tuning_experiment = candidate
            if num_parts > 1:
                recipe = replace(candidate.recipe, val_folds=num_parts)
                tuning_experiment = _experiment(recipe, cache)
            tuning_experiments[candidate.key] = tuning_experiment
    return tuning_experiments


def _is_added_final_model(experiment: Experiment, config: TrainConfig) -> bool:
    """Whether ``--final`` added an experiment: a model of all rows, which no row tests.

    With ``--test-split none`` and without ``--final``, no experiment has test rows and
    none is added.
    """
    return config.final and experiment.recipe.final


def reporting_experiments(
    experiments: Sequence[Experiment],
    config: TrainConfig,
    tuning_experiments: Mapping[str, Experiment],
    tuning_runs: Sequence[RunResult],
    choice: Choice,
) -> list[Experiment]:
    """The experiments to train with the reporting seeds: the chosen and untuned ones.

    Args:
        experiments: all experiments of the config.
        config: of the training.
        tuning_experiments: the experiments that the tuning seeds trained, by the key
            of their candidate.
        tuning_runs: the runs of these experiments.
        choice: of one candidate for each decoder with test rows. Its ``tunings`` have
            the keys of the chosen tuning experiments alone; a tuning experiment may
            differ from its candidate in the folds of its validation rows, and then has
            another key.
    """
    reporting_keys: set[str] = set()
    # a decoder with a single candidate needs no tuning
    for grid in candidate_grids(experiments):
        if len(grid) == 1:
            reporting_keys.add(grid[0].key)

    # tuning chose among the candidates of decoders with test rows
    for candidate_key, tuning_experiment in tuning_experiments.items():
        if tuning_experiment.key in choice.tunings:
            reporting_keys.add(candidate_key)

    # ``choice`` leaves out final models, which have no test rows
    finals = _chosen_final_models(experiments, config, tuning_experiments, tuning_runs)
    reporting_keys.update(final.key for final in finals)
    return [
        experiment for experiment in experiments if experiment.key in reporting_keys
    ]


def _chosen_final_models(
    experiments: Sequence[Experiment],
    config: TrainConfig,
    tuning_experiments: Mapping[str, Experiment],
    tuning_runs: Sequence[RunResult],
) -> list[Experiment]:
    """The best candidate of every final model that has several; warn if all failed.

    The arguments are those of ``reporting_experiments``.
    """
    tested: list[Experiment] = []
    finals: list[Experiment] = []
    for experiment in experiments:
        if _is_added_final_model(experiment, config):
            finals.append(experiment)
        else:
            tested.append(experiment)

    chosen_finals: list[Experiment] = []
    tuning_seeds = config.resolved_tune_seeds or ()
    for grid in candidate_grids(finals):
        if len(grid) == 1:
            continue
        chosen = _chosen_final_model(
            grid, tested, tuning_experiments, tuning_runs, tuning_seeds
        )
        if chosen is None:
            text = f"left out: {grid[0]}: no rate was finished by all of --tune-seeds"
            warnings.warn(text, GaamWarning, stacklevel=3)
        else:
            chosen_finals.append(chosen)
    return chosen_finals


def _chosen_final_model(
    grid: Sequence[Experiment],
    tested: Sequence[Experiment],
    tuning_experiments: Mapping[str, Experiment],
    tuning_runs: Sequence[RunResult],
    seeds: Sequence[int],
) -> Experiment | None:
    """The best candidate of a final model, or None if all lack a finished tuning seed.

    It has the highest mean validation accuracy over tuning seeds and folds; of equals
    the lower validation loss, then the smaller learning rate and weight decay.

    Args:
        grid: the candidates.
        tested: the experiments with test rows.
        tuning_experiments: by the key of their candidate among ``tested``.
        tuning_runs: of these experiments.
        seeds: the tuning seeds.
    """
    best: Experiment | None = None
    best_rank: tuple[float, ...] = ()
    for candidate in grid:
        tuning_keys = [
            tuning_experiments[experiment.key].key
            for experiment in _tested_like(candidate, tested)
        ]
        rank = _final_rank(candidate, tuning_keys, tuning_runs, seeds)
        if rank is not None and (best is None or rank > best_rank):
            best = candidate
            best_rank = rank
    return best


def _tested_like(final: Experiment, tested: Sequence[Experiment]) -> list[Experiment]:
    """The experiments with the settings of a final model, for every fold and repeat.

    The settings, among them mechanism and head, are the recipe without what only
    decides the test rows.
    """
    # the repeats of a cross-validation, each with a split seed of its own, share the
    # final model of the first repeat
    split_seed = final.recipe.split_seed
    return [
        experiment
        for experiment in tested
        if replace(experiment.recipe, split_seed=split_seed).without_test_rows()
        == final.recipe
    ]


def _final_rank(
    final: Experiment,
    tuning_keys: Sequence[str],
    tuning_runs: Sequence[RunResult],
    seeds: Sequence[int],
) -> tuple[float, ...] | None:
    """The rank of a candidate of a final model, or None if a tuning seed failed.

    Args:
        final: the candidate.
        tuning_keys: of the experiments that tuned its settings, one for each fold and
            repeat.
        tuning_runs: of all tuning experiments.
        seeds: the tuning seeds.

    Returns:
        Mean validation accuracy, then the negative sum of the validation losses, the
        negative learning rate and weight decay: the largest tuple is best.
    """
    accuracies: list[float] = []
    losses: list[float] = []
    for tuning_key in tuning_keys:
        runs = [run for run in tuning_runs if run.key == tuning_key]
        accuracy, loss = mean_validation(runs, seeds)
        if accuracy is None:
            return None
        accuracies.append(accuracy)
        losses.append(loss)

    # exact sums: rounding must not decide between equals
    mean_accuracy = math.fsum(accuracies) / len(accuracies)
    loss_sum = math.fsum(losses)
    return mean_accuracy, -loss_sum, -final.recipe.lr, -final.recipe.weight_decay


def _resolve_config(config: TrainConfig, cache: EmbeddingCache) -> TrainConfig:
    """Check a config against a cache, and fill in the values that the cache decides."""
    tests_a_split = config.folds is None and config.test_split != NO_TEST
    _check_names(config, cache, tests_a_split=tests_a_split)
    task = task_of(cache.task)
    config = replace(config, loss=config.loss or Spec(task.default_loss))
    _check_task(config, task)

    # nobody shall test on training rows by mistake
    content = cache.plan.fingerprint_fields["content"]
    tests_training_rows = (
        tests_a_split and content[config.train_split] == content[config.test_split]
    )
    if tests_training_rows and not config.allow_train_as_test:
        raise ConfigError(
            "the test rows are the training rows",
            found=(
                f"the splits '{config.train_split}' and '{config.test_split}' hold the "
                "same rows"
            ),
            hint=(
                "--folds 5, or --set allow-train-as-test=true, which every report marks"
            ),
        )
    _check_validation_rows(config, cache)
    _check_folds(config, num_rows=len(cache[config.train_split]))
    first_pooling = cache.plan.pooling[:1]
    return replace(
        config,
        allow_train_as_test=tests_training_rows,
        pool=config.pool or first_pooling,
        layers=tuple(_layer_sets(config, cache)),
        train_rows=_budgets(config, num_rows=len(cache[config.train_split])),
    )


def _check_validation_rows(config: TrainConfig, cache: EmbeddingCache) -> None:
    """Check that a validation split has other rows than the training and test splits.

    A warning says how many of its rows have the text of another split.

    Raises:
        ConfigError: all of them are rows of another split.
    """
    val_split = config.val_split
    if val_split is None:
        _note_unused_validation(config, cache)
        return
    content = cache.plan.fingerprint_fields["content"]
    shared_texts = cache.plan.dataset.shared_texts.get(val_split, {})
    num_rows = len(cache[val_split])
    rows_that_choose = {
        config.train_split: "rows that are learned from choose",
        config.test_split: "test rows, which a score then overestimates, choose",
    }
    for split, rows_in_words in rows_that_choose.items():
        num_shared = shared_texts.get(split, 0)
        if num_shared == num_rows or content[val_split] == content.get(split):
            raise ConfigError(
                f"the validation rows are rows of '{shortened(split)}'",
                expected="a split with rows of its own",
                found=f"--set val-split={shortened(val_split)}",
                hint="without val-split, a part of the training rows validates",
            )
        if num_shared:
            warnings.warn(
                f"{num_shared:,} of the {num_rows:,} rows of '{shortened(val_split)}' "
                f"have a text that '{shortened(split)}' has, too: {rows_in_words} "
                "epochs, rates and penalties",
                GaamWarning,
                stacklevel=4,
            )


def _note_unused_validation(config: TrainConfig, cache: EmbeddingCache) -> None:
    """Say that the cache has a validation split whose rows could choose."""
    has_budget = config.train_rows != (None,)
    if config.select != "val" or config.folds is not None or has_budget:
        return
    used = {config.train_split, config.test_split, *cache.unlabelled}
    unused = set(cache) & set(VALIDATION_NAMES) - used
    for split in sorted(unused):
        warnings.warn(
            f"rows held out of '{shortened(config.train_split)}' choose epochs and "
            f"rates (--set val-split={split}: the rows of '{split}' choose)",
            GaamNote,
            stacklevel=5,
        )


def _check_task(config: TrainConfig, task: Task) -> None:
    """Check that loss, heads and settings fit the task of a cache.

    Raises:
        ConfigError: one does not.
    """
    parts = [("head", spec) for spec in config.head]
    if config.loss is not None and config.has_head_trained_in_steps:
        parts.append(("loss", config.loss))
    for kind, spec in parts:
        if task.name in plugin_tasks(spec, kind):
            continue
        option = KINDS[kind].option
        fitting = [
            name
            for name in plugins.names(KINDS[kind].package)
            if task.name in plugin_tasks(Spec(name), kind)
        ]
        raise ConfigError(
            f"the {kind} '{spec.name}' is not for {task.name}",
            expected=f"one of: {', '.join(fitting)}",
            found=f"{option} {spec}, and a cache whose task is {task.name}",
            hint=f"leave {option} out" if kind == "loss" else f"{option} {fitting[0]}",
        )
    # classes and labels can be weighted and have rows of their own; numbers cannot
    if task.has_balance:
        return
    by_class = [size for size in config.train_rows if isinstance(size, str)]
    is_set_by_setting = {
        "--set class-weights=balanced": config.class_weights != "none",
        f"--train-rows {by_class[0] if by_class else ''}": bool(by_class),
    }
    for setting, is_set in is_set_by_setting.items():
        if is_set:
            raise ConfigError(
                f"{setting} needs classes or labels: numbers have no rows of a class",
                expected="a cache of classes or label sets, or another setting",
                found=f"a cache whose task is {task.name}",
                hint="leave it out; --train-rows 100 draws rows from low to high",
            )


def _check_folds(config: TrainConfig, num_rows: int) -> None:
    """Check that there are not more folds than training rows."""
    if (config.folds or 0) > num_rows:
        raise ConfigError(
            "too many parts of train",
            expected=f"--folds of at most {num_rows}, the number of rows",
            found=str(config.folds),
        )


def _budgets(config: TrainConfig, num_rows: int) -> Sizes:
    """The budgets of a config, where None stands for all rows of the train split."""
    # a fold never trains on all rows of the split: no budget is all of them
    if config.folds is not None:
        return config.train_rows
    return tuple(None if size == num_rows else size for size in config.train_rows)


def _check_names(
    config: TrainConfig, cache: EmbeddingCache, *, tests_a_split: bool
) -> None:
    """Check that the cache has the splits and poolings of a config.

    Args:
        config: of the training.
        cache: with the states.
        tests_a_split: whether a split of the cache is tested, instead of folds.
    """
    labelled = tuple(name for name in cache if name not in cache.unlabelled)
    requested = [("split with labels", config.train_split, labelled)]
    if config.val_split is not None:
        requested.append(("split with labels", config.val_split, labelled))
    if tests_a_split:
        requested.append(("split with labels", config.test_split, labelled))
    requested += [("pooling", pool, cache.plan.pooling) for pool in config.pool]
    for kind, name, existing in requested:
        if name in existing:
            continue
        hint = did_you_mean(name, existing)
        if not hint and name == config.train_split:
            hint = _train_split_hint(config, labelled)
        elif not hint and name == config.val_split:
            hint = _val_split_hint(name, labelled)
        elif not hint and name == config.test_split:
            hint = "--folds 5 tests on parts of train-split"
        raise ConfigError(
            f"the cache has no {kind} '{shortened(name)}'",
            expected=f"one of: {', '.join(existing)}",
            where=str(cache.root),
            hint=hint,
        )


def _val_split_hint(val_split: str, labelled: Sequence[str]) -> str:
    """What the user can do if the cache lacks the validation split."""
    same_split = [name for name in labelled if name in VALIDATION_NAMES]
    if same_split and val_split in VALIDATION_NAMES:
        return f"--set val-split={same_split[0]}"
    splits = " ".join(f"--split {shortened(name)}" for name in [*labelled, val_split])
    return f"gaam extract {splits} --out ANOTHER reads that split too"


def _train_split_hint(config: TrainConfig, labelled: Sequence[str]) -> str:
    """What the user can do if the cache lacks the train split.

    Args:
        config: of the training.
        labelled: the splits of the cache that have labels, one at least.
    """
    not_tested = [split for split in labelled if split != config.test_split]
    if not_tested:
        return f"--set train-split={not_tested[0]} learns from that split"
    # the test split is the only one: it can be tested part by part alone
    [split] = labelled
    return f"--set train-split={split} --folds 5 tests on parts of '{split}'"


def _layer_sets(config: TrainConfig, cache: EmbeddingCache) -> list[Layers]:
    """The sets of layers of a config, where None stands for all layers.

    ``each`` stands for one set per layer.
    """
    layers = range(cache.first_layer, cache.first_layer + cache.num_layers)
    layer_sets: list[Layers] = []
    for requested in config.layers:
        if isinstance(requested, str):
            assert requested == EACH
            layer_sets += [(layer,) for layer in layers]
        else:
            layer_sets.append(requested)

    requested_layers = {layer for layer_set in layer_sets for layer in layer_set or ()}
    missing_layers = requested_layers - set(layers)
    if missing_layers:
        raise ConfigError(
            f"the cache has no layer {min(missing_layers)}",
            expected=f"--layers from {layers[0]} to {layers[-1]}",
        )
    # a list of all layers is another spelling of None
    return [
        None if layer_set is None or len(layer_set) == len(layers) else layer_set
        for layer_set in layer_sets
    ]
