"""What a training is: one frozen dataclass that validates itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from gaam_cache.devices import check_device
from gaam_cache.placing import Placing, check_placing
from gaam_decoder.config_checks import (
    check_choices,
    check_loss,
    check_precision,
    check_ranges,
    check_sweep,
    check_tuning,
    range_error,
)
from gaam_decoder.number_lists import Layers, Sizes, parse_layer_sets, parse_seeds, parse_sizes
from gaam_decoder.parse import (
    parse_groups,
    parse_list,
    parse_pools,
    parse_rates,
    parse_seed_batch,
    parse_shuffle,
    real,
    whole,
    yes_or_no,
)
from gaam_decoder.protocol_checks import TEST_SPLIT, check_protocol
from gaam_decoder.specs import USUAL_DECAY

WHOLE = ("epochs", "batch_size", "split_seed", "folds", "fold", "repeats", "seed_batch")
REAL = ("val_fraction", "clip_grad_norm", "memory_share")
RATES = ("lr", "weight_decay")
SIZES = ("train_rows", "shots")
PATHS = ("cache", "runs")
YES_OR_NO = ("allow_train_as_test", "skip_impossible", "probe", "shuffle_labels", "final")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig(Placing):
    """Everything ``gaam train`` can be told.

    Raises:
        ConfigError: on construction, when a value is out of its range or a name is unknown.
    """

    attn: tuple[str, ...] = field(default=("gaam",), metadata={"parse": parse_list})
    """Mechanisms, each ``name`` or ``name:key=value,...``."""
    head: str | tuple[str, ...] = field(default="linear", metadata={"parse": parse_list})
    """Classifier heads: linear, mlp, conv as published, or lbfgs, which is fitted at once."""
    loss: str = "cross-entropy"
    """cross-entropy, or focal as the paper used for speech: ``focal:gamma=2.5,alpha=0.25``."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: in training the loss of a row counts by its class, so that all count alike."""
    cache: Path = Path("cache")
    """Folder of the cache."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""
    seeds: tuple[int, ...] = field(default=tuple(range(10)), metadata={"parse": parse_seeds})
    """A number (10), a range (0-31) or a list (3,5,9)."""
    tune_seeds: tuple[int, ...] | None = field(default=None, metadata={"parse": parse_seeds})
    """Seeds that choose between several ``lr`` and ``weight_decay`` by validation accuracy: they
    train the grid, ``seeds`` what they choose. Default: all seeds train the grid."""
    epochs: int = 35
    """Passes over the training rows."""
    batch_size: int = 32
    """Rows of one step."""
    lr: float | tuple[float, ...] = field(default=3e-4, metadata={"parse": parse_rates})
    """Learning rate of AdamW, or several."""
    weight_decay: float | tuple[float, ...] = field(
        default=USUAL_DECAY, metadata={"parse": parse_rates}
    )
    """Weight decay of AdamW, or several."""
    schedule: Literal["constant", "plateau"] = "constant"
    """plateau: divide the rate by 10 when the watched accuracy has not risen for 10 epochs."""
    clip_grad_norm: float | None = None
    """Largest gradient norm; default: no clipping."""
    loss_scale: Literal["auto", "none", "dynamic"] = "auto"
    """dynamic: multiply the loss by a number that adapts, 65,536 at first, so that small gradients
    are numbers in float16, as torch's GradScaler does; auto: with --dtype float16."""
    clip_order: Literal["unscale-first", "clip-first"] = "unscale-first"
    """Whether the norm that is clipped is that of the gradient, or that of the scaled one, as the
    published code has it: then the limit is in effect --clip-grad-norm divided by the scale."""
    select: Literal["val", "last", "test"] = "val"
    """Epoch that is kept: best on a part of train, the last, or best on test (optimistic)."""
    ties: Literal["loss", "first"] = "loss"
    """Which of several best epochs is kept: that of the lowest loss, or the first, as published."""
    val_fraction: float = 0.1
    """Share of every class of train that --select val holds out."""
    split_seed: int = 0
    """Decides which rows --select val holds out, folds test, and --train-rows and --shots take."""
    train_rows: int | Sizes | None = field(default=None, metadata={"parse": parse_sizes})
    """Rows of train to learn from, or several such numbers, None for all. Each class has its share,
    at least a row; rows that choose are among them, and smaller ones lie in larger ones."""
    shots: int | Sizes | None = field(default=None, metadata={"parse": parse_sizes})
    """The same by rows of every class; those that choose are among them. Default: all."""
    pool: str | tuple[str | None, ...] | None = field(default=None, metadata={"parse": parse_pools})
    """Pooling to read, or several; default: the first in the cache."""
    layers: Layers | tuple[Layers, ...] = field(default=None, metadata={"parse": parse_layer_sets})
    """Encoder layers to learn from, counted from 1 as in the paper: layer n is ``hidden_states[n]``
    of transformers (0: of ``--layer-zero``). Or several such sets, None for all. Default: all."""
    train_split: str = "train"
    """Split to train on."""
    test_split: str = TEST_SPLIT
    """Split to report on; none: a final model, of all training rows, which is not evaluated."""
    final: bool = False
    """Also train a final model of every recipe, after what is evaluated."""
    allow_train_as_test: bool = False
    """Report on rows that were trained on; every report says that this is no test accuracy."""
    folds: int | None = None
    """Cross-validation: the train split in so many parts, each tested by decoders that learned from
    the others, each a run of its own; the test split is left alone. Default: none."""
    groups: str | Path | None = field(default=None, metadata={"parse": parse_groups})
    """A kept column of the cache, or a text file with one name per row of train, such as a session:
    rows of one name are never in two folds, nor in two of the rows that learn, choose and are
    tested. Default: folds, and the rows that choose, keep the share of every class."""
    repeats: int = 1
    """Cross-validations, each with its own folds: of ``split_seed``, the next seed, and so on."""
    fold: int | None = None
    """Which fold is tested, from 1; default: all."""
    shuffle_labels: bool = False
    """Sanity check: every seed learns from, and is chosen by, labels in an order of its own; tested
    on the true ones it must be at chance."""
    shuffle: str = field(default="full", metadata={"parse": parse_shuffle})
    """Order of the training rows: full, or ``window:ROWS``, which reads a cache that is larger than
    memory once an epoch: blocks of whole shards, of so many rows; every seed shuffles in each."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    """Arithmetic of matrix products; auto: bfloat16 where the device has it. Parameters, optimiser
    and loss are float32."""
    eval_dtype: Literal["same", "float32"] = "same"
    """The same in evaluation, or float32, as published."""
    seed_batch: int | None = field(default=None, metadata={"parse": parse_seed_batch})
    """Seeds trained together at most; default: chosen from memory."""
    memory_share: float = 0.5
    """Share of the free memory that rows may take; what does not fit stays on disk. It decides how
    long a training takes, and no number."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Whether torch.compile is used; auto: where there is a compiler and enough work for it."""
    track: str = "none"
    """Where else, below the runs, the curves of every seed go: a file in ``runs/trackers``."""
    probe: bool = True
    """Add the linear probe ``none + lbfgs``, where it is cheap: a row that is hard to beat."""
    skip_impossible: bool = False
    """Leave out what a sweep asks for and cannot be built, such as 8 heads on 3 layers."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work, before anything is read."""
        self._settle_types()
        check_ranges(self)
        check_device(self.device)
        check_placing(self)
        check_choices(self)
        check_protocol(self, _DEFAULTS)
        check_precision(self)
        check_loss(self)
        check_sweep(self)
        check_tuning(self)

    def _settle_types(self) -> None:
        """One spelling of every value, such as 0.0 for a weight decay of 0: it decides keys."""
        kinds: dict[str, tuple[Callable[[Any], Any], str]] = {
            **dict.fromkeys(WHOLE, (whole, "a whole number")),
            **dict.fromkeys(REAL, (real, "a number")),
            **dict.fromkeys(PATHS, (Path, "a path")),
            **dict.fromkeys(YES_OR_NO, (yes_or_no, "True or False")),
            "attn": (parse_list, ""),
            **dict.fromkeys(("seeds", "tune_seeds"), (parse_seeds, "")),
            "shuffle": (parse_shuffle, ""),
            "groups": (parse_groups, ""),
        }
        for name, (kind, expected) in kinds.items():
            value = getattr(self, name)
            if value is None and _DEFAULTS[name] is None:
                continue
            try:
                object.__setattr__(self, name, kind(value))
            except (TypeError, ValueError, OverflowError) as error:
                said = expected or str(error)
                raise range_error(name, said, value) from None
        lists = {**dict.fromkeys(RATES, parse_rates), **dict.fromkeys(SIZES, parse_sizes)}
        for name, parse in lists.items():
            try:
                parse(getattr(self, name))
            except ValueError as error:
                raise range_error(name, str(error), getattr(self, name)) from None

    @property
    def tests_on_train(self) -> bool:
        """Whether the rows that are tested are those that were trained on, by name."""
        return self.folds is None and self.train_split == self.test_split

    @property
    def pools(self) -> tuple[str | None, ...]:
        """All poolings; None is the first in the cache."""
        return parse_pools(self.pool)

    @property
    def heads(self) -> tuple[str, ...]:
        """All heads."""
        return parse_list(self.head)

    @property
    def lrs(self) -> tuple[float, ...]:
        """All learning rates."""
        return parse_rates(self.lr)

    @property
    def weight_decays(self) -> tuple[float, ...]:
        """All weight decays."""
        return parse_rates(self.weight_decay)

    @property
    def layer_sets(self) -> tuple[Layers, ...]:
        """All sets of layers."""
        return parse_layer_sets(self.layers)

    @property
    def sizes(self) -> Sizes:
        """All numbers of training rows."""
        return parse_sizes(self.train_rows)

    @property
    def shot_counts(self) -> Sizes:
        """All numbers of rows of every class."""
        return parse_sizes(self.shots)

    @property
    def draws(self) -> bool:
        """Whether some of what is trained learns from some of the training rows alone."""
        return any(size is not None for size in (*self.sizes, *self.shot_counts))


_DEFAULTS = {one.name: one.default for one in fields(TrainConfig)}
