"""Settings of ``gaam train`` and ``gaam plant``: dataclasses that check themselves."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from gaam_cache.common.devices import check_device
from gaam_cache.common.messages import counted
from gaam_cache.common.settings import (
    Rule,
    check_at_least,
    check_rules,
    key,
    option,
    parse_fields,
    setting_rule,
)
from gaam_cache.config import WorkerConfig, check_workers
from gaam_decoder import number_lists
from gaam_decoder.recipe import NO_TEST
from gaam_decoder.specs import (
    USUAL_DECAY,
    Spec,
    build,
    head_class,
    parse_checked,
    parse_specs,
)

OUT_OF_RANGE = "is out of range"
FIRST_TUNING_SEED = 1000
"""Least tuning seed where none is given, so that few reporting seeds ever reach it."""
DEFAULT_VAL_FRACTION = 0.1
_VALIDATION = "--select val, which holds out a part of train"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig(WorkerConfig):
    """All settings of ``gaam train``; ``gaam describe --settings`` explains each.

    A field that is a tuple also takes a single value, or the text of an option.

    >>> gaam_decoder.TrainConfig(attn="gaam", seeds="0-2,7").seeds
    (0, 1, 2, 7)

    Raises:
        ConfigError: on construction, if a value is out of range or a name is unknown.
    """

    attn: tuple[Spec, ...] = option(
        ("gaam",),
        "Mechanism as name, name:key=value or FILE.py:CLASS, repeatable; 'gaam "
        "describe' explains them.",
        parse=partial(parse_specs, kind="mechanism"),
    )
    head: tuple[Spec, ...] = option(
        ("linear",),
        "Head, which predicts from what the mechanism gives: linear, mlp and conv (as "
        "published) are trained over seeds; lbfgs, ridge, knn, class-means and "
        "nadaraya-watson are fitted in one step.",
        parse=partial(parse_specs, kind="head"),
    )
    loss: Spec | None = option(
        None,
        "Loss to minimise, such as focal:gamma=2.5,alpha=0.25.",
        shown_default="cross-entropy; for numbers mse, for label sets "
        "binary-cross-entropy",
        parse=partial(parse_checked, kind="loss"),
    )
    class_weights: Literal["none", "balanced"] = key(
        "none",
        "Weights of the classes in the training loss; balanced: every class has the "
        "same weight in all; for label sets the rows with a label have the same "
        "weight as those without it.",
    )
    state_scale: Literal["auto", "none", "layer"] = key(
        "auto",
        "layer: decoders that train in steps divide the states of each layer by the "
        "power of two near their root mean square; auto: if the largest of these is "
        "above 2 or below 0.015.",
    )
    cache: Path = option(Path("cache"), "Folder of the cache.")
    runs: Path = option(Path("runs"), "Folder of the runs.")
    seeds: tuple[int, ...] = option(
        tuple(range(10)),
        "Seeds: a number (10), a range (0-31) or a list (3,5,9).",
        shown_default="10",
        parse=number_lists.parse_seeds,
    )
    tune_seeds: tuple[int, ...] | None = option(
        None,
        "Tuning seeds: they try every --lr and weight decay, and validation rows "
        "choose. Then the reporting seeds, --seeds, train.",
        shown_default="1000-1002 without --lr",
        parse=number_lists.parse_seeds,
    )
    epochs: int = option(25, "Passes over the training rows.")
    batch_size: int = option(32, "Rows of one step.")
    optimizer: Spec = option(
        "adamw",
        "Optimizer: adamw, or sgd:momentum=0.9,nesterov=true.",
        parse=partial(parse_checked, kind="optimizer"),
    )
    lr: tuple[float, ...] | None = option(
        None,
        "Learning rate; tuning seeds choose one of a list on validation rows.",
        shown_default="tune over 3e-4, 2e-3, 1e-2, 5e-2, with sgd over 3e-3 to 5e-1; "
        "without validation rows: the first",
        parse=number_lists.parse_rates,
    )
    weight_decay: tuple[float, ...] = key(
        (USUAL_DECAY,),
        "Weight decay; tuning seeds choose one of a list on validation rows.",
        parse=number_lists.parse_rates,
    )
    schedule: Literal["constant", "plateau", "cosine"] = key(
        "constant",
        "Schedule of the learning rate; plateau: a tenth after 10 epochs without "
        "a better score; cosine: up over a twentieth of all steps, then half a "
        "cosine to 0.",
    )
    clip_grad_norm: float | None = key(
        None, "Largest gradient norm.", shown_default="no clipping"
    )
    loss_scale: Literal["auto", "none", "dynamic"] = key(
        "auto", "Scale the loss to keep small gradients; auto: with float16."
    )
    clip_order: Literal["unscale-first", "clip-first"] = key(
        "unscale-first",
        "Clip the gradient, or (as published) the gradient of the scaled loss.",
    )
    select: Literal["val", "last", "test"] = option(
        "val",
        "Epoch to keep: best on validation rows, the last, or (optimistic) best "
        "on test.",
    )
    ties: Literal["loss", "first"] = key(
        "loss",
        "Choice between equally good epochs: the lowest loss, or the first, as "
        "published.",
    )
    val_fraction: float = key(
        DEFAULT_VAL_FRACTION,
        "Share of every class of train that --select val holds out for validation.",
    )
    val_folds: int | None = key(
        None,
        "Number of parts of train for validation: seed n holds out part n modulo this "
        "number; 1: all seeds hold out the same rows.",
        shown_default="one part for each tuning seed; 1 for reporting seeds",
    )
    split_seed: int = key(
        0, "Seed of the validation rows, the folds and the drawn training rows."
    )
    train_rows: number_lists.Sizes = option(
        (None,),
        "Labelled rows to use, validation rows included: a total (100, 1k, all), or a "
        "number for every class or label (5/class). A list gives one training for each "
        "of its sizes.",
        parse=number_lists.parse_sizes,
    )
    pool: tuple[str, ...] = option(
        (),
        "Pooling of the cache to read; several give one training for each.",
        shown_default="the first in the cache",
    )
    layers: number_lists.LayerSets = option(
        (None,),
        "Encoder layers to learn from, from 1: 19-21, or 1-8,12; repeatable; "
        "each: every layer by itself.",
        shown_default="all",
        parse=number_lists.parse_layer_sets,
    )
    train_split: str = key("train", "Split to learn from.")
    val_split: str | None = key(
        None,
        "Split whose rows choose the epoch, the learning rate and the penalty, in "
        "the place of rows that are held out of train-split.",
        shown_default="rows of train-split",
    )
    test_split: str = key(
        "test",
        "Split to report on; none: train a final model alone and report nothing.",
    )
    final: bool = option(
        False,
        "Also train a final model, which leaves out no fold and is not tested; "
        "validation rows still choose its epoch, except with --select last.",
    )
    allow_train_as_test: bool = key(
        False, "Allow a report on training rows; every report marks it."
    )
    folds: int | None = option(
        None,
        "Cross-validate over this number of parts of train; the test split is left "
        "alone.",
    )
    groups: str | None = option(
        None,
        "Kept column, or file with a name per training row: rows of one group "
        "are never split between training, validation and the rows of a fold.",
    )
    repeats: int = key(1, "Repeats of the cross-validation, each with its own folds.")
    fold: int | None = key(None, "Only this fold, from 1.", shown_default="all")
    shuffle_labels: bool = key(
        False,
        "Sanity check: train and validate on shuffled labels; the score must be that "
        "of chance.",
    )
    shuffle: str = key(
        "full",
        "Order of the training rows: full, or window:ROWS for a cache larger than "
        "memory.",
        parse=number_lists.parse_shuffle,
    )
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = option(
        "float32",
        "Arithmetic of matrix products; auto: bfloat16 where the device has it.",
    )
    eval_dtype: Literal["same", "float32"] = key(
        "same", "Arithmetic of evaluation: the same, or float32, as published."
    )
    seed_batch: int | None = key(
        None, "Largest number of seeds that train together.", shown_default="by memory"
    )
    memory_share: float = key(
        0.5, "Share of the free memory for rows; all other rows stay on disk."
    )
    compile: Literal["auto", "on", "off"] = key(
        "auto", "Use torch.compile; auto: where there is enough work for it."
    )
    track: str = key(
        "none", "Tracker that receives the curves too: tensorboard, which is an extra."
    )
    probe: bool = option(
        True,
        "Add the linear probe (none + lbfgs, for numbers none + ridge), if it takes "
        "less than about a minute.",
    )
    skip_impossible: bool = key(
        False,
        "Skip decoders of a sweep that cannot be built, such as 8 heads on 3 layers.",
    )

    def __post_init__(self) -> None:
        """Parse every value, and refuse settings that cannot work."""
        parse_fields(self)
        check_device(self.device)
        check_workers(self)
        check_at_least(self, 0, "split_seed")
        counts = ("epochs", "batch_size", "seed_batch", "fold", "repeats", "val_folds")
        check_at_least(self, 1, *counts)
        check_at_least(self, 2, "folds")
        check_rules(self, _rules(self))

    @property
    def rates(self) -> tuple[float, ...]:
        """Learning rates to train with: ``lr``, or the usual ones of the optimizer.

        Where nothing is tuned, it is the first of the usual ones.
        """
        usual_rates: tuple[float, ...] = build(self.optimizer, "optimizer").rates
        if self.lr:
            return self.lr
        return usual_rates if self._tunes_usual_rates else usual_rates[:1]

    @property
    def resolved_tune_seeds(self) -> tuple[int, ...] | None:
        """Tuning seeds: ``tune_seeds``, or three by default; None without tuning."""
        if self.tune_seeds:
            return self.tune_seeds
        if not self._tunes_usual_rates:
            return None
        # above the reporting seeds: no seed is both
        first = max(FIRST_TUNING_SEED, max(self.seeds) + 1)
        return (first, first + 1, first + 2)

    @property
    def tuning_cost_in_words(self) -> str:
        """How many trainings the tuning takes, on one line; empty without tuning."""
        tuning_seeds = self.resolved_tune_seeds
        if not tuning_seeds:
            return ""
        num_candidates = len(self.rates) * len(self.weight_decay)
        cost = num_candidates * len(tuning_seeds) + len(self.seeds)
        candidates = "rates and decays" if len(self.weight_decay) > 1 else "rates"
        verb = "tries" if len(tuning_seeds) == 1 else "try"
        then_verb = "trains" if len(self.seeds) == 1 else "train"
        unit = "a decoder and fold" if self.folds else "a decoder"
        return (
            f"tuning: {counted(len(tuning_seeds), 'tuning seed')} {verb} "
            f"{num_candidates} {candidates}, then {counted(len(self.seeds), 'seed')} "
            f"{then_verb} with the best: {cost} trainings {unit}; "
            "--lr RATE skips the tuning"
        )

    @property
    def _tunes_usual_rates(self) -> bool:
        """Whether no rate is given, and validation chooses among the usual ones."""
        return not self.lr and self.select == "val" and self.has_head_trained_in_steps

    @property
    def has_head_trained_in_steps(self) -> bool:
        """Whether any head is trained in steps, not fitted at once as ``lbfgs`` is."""
        return any(head_class(spec).trained_by != "fit" for spec in self.head)


def _rules(config: TrainConfig) -> Iterator[Rule]:
    """The rules of a config in order; the first that is broken is reported."""
    yield from _rules_of_numbers(config)
    yield from _rules_of_folds(config)
    yield from _rules_of_rows(config)
    if config.val_split is not None:
        yield from _rules_of_validation_split(config, config.val_split)
    if config.tune_seeds is not None:
        yield from _rules_of_tuning(config, config.tune_seeds)
    yield setting_rule(
        "class_weights",
        "head",
        holds=config.class_weights == "none" or config.has_head_trained_in_steps,
        problem="weigh losses of rows",
        expected="a --head that is trained in steps",
    )
    yield setting_rule(
        "state_scale",
        "head",
        holds=config.state_scale in ("auto", "none")
        or config.has_head_trained_in_steps,
        problem="is for training in steps",
        expected="a --head that is trained in steps",
    )


def _rules_of_numbers(config: TrainConfig) -> Iterator[Rule]:
    """Fractions and rates are in their ranges, and the fold exists."""
    yield setting_rule(
        "lr",
        holds=all(0 < rate < math.inf for rate in config.rates),
        problem=OUT_OF_RANGE,
        expected="a positive number",
    )
    clip = config.clip_grad_norm
    yield setting_rule(
        "clip_grad_norm",
        holds=clip is None or 0 < clip < math.inf,
        problem=OUT_OF_RANGE,
        expected="a positive number",
    )
    yield setting_rule(
        "weight_decay",
        holds=all(0 <= decay < math.inf for decay in config.weight_decay),
        problem=OUT_OF_RANGE,
        expected=">= 0",
    )
    yield setting_rule(
        "val_fraction",
        holds=0 < config.val_fraction <= 0.5,
        problem=OUT_OF_RANGE,
        expected="more than 0, at most 0.5",
    )
    yield setting_rule(
        "memory_share",
        holds=0 <= config.memory_share <= 1,
        problem=OUT_OF_RANGE,
        expected="0 to 1",
    )
    yield setting_rule(
        "fold",
        holds=config.fold is None or config.fold <= (config.folds or 0),
        problem=OUT_OF_RANGE,
        expected="1 to what --folds says",
    )


def _rules_of_folds(config: TrainConfig) -> Iterator[Rule]:
    """Repeats, groups and the test split fit ``--folds``, or the lack of it."""
    has_folds = config.folds is not None
    yield setting_rule(
        "repeats",
        "folds",
        holds=has_folds or config.repeats == 1,
        problem="repeats --folds",
        expected="--folds beside it",
    )
    yield setting_rule(
        "groups",
        "select",
        holds=config.select == "val" or has_folds or config.groups is None,
        problem="plays no part where no rows are held out",
        expected="--folds, or --select val",
    )
    yield setting_rule(
        "test_split",
        "folds",
        holds=not has_folds or config.test_split == "test",
        problem="plays no part with --folds, which test on parts of train-split",
        expected="one of the two",
    )
    # the part that a seed holds out would neither be learned from nor choose anything
    yield setting_rule(
        "val_folds",
        "select",
        holds=config.val_folds is None or config.select == "val",
        problem="holds out rows, which choose nothing",
        expected=_VALIDATION,
    )


def _rules_of_rows(config: TrainConfig) -> Iterator[Rule]:
    """Final models have no test rows, and groups are not drawn row by row."""
    is_untested = config.test_split == NO_TEST
    yield setting_rule(
        "final",
        "test_split",
        holds=not (is_untested and config.final),
        problem="adds a final model to what is evaluated, and nothing is",
        expected="one of the two",
    )
    yield setting_rule(
        "select",
        "final",
        "test_split",
        holds=config.select != "test" or not (is_untested or config.final),
        problem="needs test rows, and a final model has none",
        expected=f"{_VALIDATION}, or --select last",
    )
    yield setting_rule(
        "train_rows",
        "groups",
        holds=config.train_rows == (None,) or config.groups is None,
        problem="are drawn one by one, of every group some",
        expected="one of the two",
    )


def _rules_of_validation_split(config: TrainConfig, val_split: str) -> Iterator[Rule]:
    """A validation split chooses, and nothing is held out of the training rows."""
    yield setting_rule(
        "val_split",
        "select",
        holds=config.select == "val",
        problem="would choose nothing",
        expected="--select val",
    )
    yield setting_rule(
        "val_split",
        "train_split",
        "test_split",
        holds=val_split not in (config.train_split, config.test_split),
        problem="may be neither the training nor the test split",
        expected="a third split; --select test chooses on test rows, as every report "
        "says",
    )
    defaults_of_held_out_rows = {
        "val_fraction": DEFAULT_VAL_FRACTION,
        "val_folds": None,
        "split_seed": 0,
    }
    for name, default in defaults_of_held_out_rows.items():
        yield setting_rule(
            "val_split",
            name,
            holds=getattr(config, name) == default,
            problem="has all validation rows",
            expected=f"no {name.replace('_', '-')} beside it: no row is held out",
        )
    yield from _rules_beside_validation_split(config)


def _rules_beside_validation_split(config: TrainConfig) -> Iterator[Rule]:
    """Folds, final models and budgets divide training rows otherwise."""
    yield setting_rule(
        "val_split",
        "folds",
        holds=config.folds is None,
        problem="plays no part with --folds, which hold out rows of train-split",
        expected="one of the two",
    )
    yield setting_rule(
        "final",
        "val_split",
        holds=not config.final,
        problem="trains what is tested already: no training row is held out",
        expected="one of the two",
    )
    yield setting_rule(
        "val_split",
        "train_rows",
        holds=config.train_rows == (None,),
        problem="has labelled rows, which --train-rows counts",
        expected="one of the two: with --train-rows, rows of the budget validate",
    )


def _rules_of_tuning(
    config: TrainConfig, tune_seeds: tuple[int, ...]
) -> Iterator[Rule]:
    """Tuning needs several candidates, validation rows, and seeds of its own.

    A message begins with the first setting of a rule, which is the subject of its
    ``problem``: "tuning seeds choose by their validation score".
    """
    num_candidates = len(config.rates) * len(config.weight_decay)
    yield setting_rule(
        "tune_seeds",
        "lr",
        "weight_decay",
        holds=num_candidates > 1,
        problem="have nothing to choose from",
        expected="several --lr or weight decays: --lr 1e-4,3e-4,1e-3",
    )
    yield setting_rule(
        "tune_seeds",
        "select",
        holds=config.select == "val",
        problem="choose by their validation score",
        expected=_VALIDATION,
    )
    # Without val_folds the rows of train are cut into n folds, the number of tuning
    # seeds. Seed s holds out the fold s % n.
    held_out_folds = {seed % len(tune_seeds) for seed in tune_seeds}
    has_folds_of_seeds = config.val_folds is None and config.val_split is None
    yield setting_rule(
        "tune_seeds",
        "val_folds",
        holds=not has_folds_of_seeds or len(held_out_folds) == len(tune_seeds),
        problem="hold out a part of train twice",
        expected="consecutive seeds, such as 1000-1002",
    )
    yield setting_rule(
        "tune_seeds",
        "seeds",
        holds=set(config.seeds).isdisjoint(tune_seeds),
        problem="may not be reporting seeds too",
        expected="--seeds without them; without --tune-seeds all seeds choose and "
        "report",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class PlantConfig:
    """All settings of ``gaam plant``.

    >>> config = gaam_decoder.PlantConfig(out="planted", gate="student-t", rows=90)

    Raises:
        ConfigError: on construction, when a value is out of its range.
    """

    out: Path = option(Path("planted"), "Folder of the cache.")
    gate: Literal["laplace", "gaussian", "student-t", "two-peaks", "none"] = option(
        "laplace",
        "Gate through which the labels depend on the states; none: through their mean.",
    )
    strength: float = option(4.0, "Standard deviation of the teacher's logits.")
    from_cache: Path | None = option(
        None,
        "Take the rows of this cache and draw new labels.",
        shown_default="Gaussian states",
        flag="--from",
    )
    layers: int | None = key(None, "Layers of Gaussian states.", shown_default="16")
    width: int | None = key(None, "Hidden size of Gaussian states.", shown_default="8")
    classes: int = key(4, "Number of classes.")
    rows: int | None = option(
        None,
        "Rows in all; a third of them is 'test'.",
        shown_default="6,000, or all of the cache",
    )
    seed: int = option(0, "Seed of states, teacher and labels.")
    storage_dtype: Literal["float16", "float32"] | None = key(
        None,
        "Type of the stored states.",
        shown_default="float32, or that of the cache",
    )

    def __post_init__(self) -> None:
        """Refuse values that cannot work, before anything is read."""
        parse_fields(self)
        check_at_least(self, 0, "seed")
        check_at_least(self, 1, "width")
        check_at_least(self, 2, "classes")
        check_at_least(self, 3, "rows")
        check_at_least(self, 1, "layers")
        has_own_size = self.layers is not None or self.width is not None
        strength_rule = setting_rule(
            "strength",
            holds=0 < self.strength < math.inf,
            problem=OUT_OF_RANGE,
            expected="a positive number",
        )
        size_rule = setting_rule(
            "from_cache",
            "layers",
            "width",
            holds=self.from_cache is None or not has_own_size,
            problem="has its own",
            expected="no layers or width beside it",
        )
        check_rules(self, [strength_rule, size_rule])
