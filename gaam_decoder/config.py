"""What a training is: one frozen dataclass that validates itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from gaam_cache.config_checks import KEY
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
PATHS = ("cache", "runs")
YES_OR_NO = ("allow_train_as_test", "skip_impossible", "probe", "shuffle_labels", "final")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig(Placing):
    """Everything ``gaam train`` can be told.

    Raises:
        ConfigError: on construction, when a value is out of its range or a name is unknown.
    """

    attn: tuple[str, ...] = field(default=("gaam",), metadata={"parse": parse_list})
    """Mechanism as name or name:key=value, repeatable; 'gaam describe' explains them."""
    head: str | tuple[str, ...] = field(default="linear", metadata={"parse": parse_list})
    """Classifier on top: linear, mlp, conv as published, or lbfgs, which is fitted at once."""
    loss: str = "cross-entropy"
    """What is minimised; as in the paper for speech: focal:gamma=2.5,alpha=0.25."""
    class_weights: Literal["none", "balanced"] = field(default="none", metadata=KEY)
    """Weights of the classes in the training loss; balanced: all classes count alike."""
    cache: Path = Path("cache")
    """Folder of the cache."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    seeds: tuple[int, ...] = field(default=tuple(range(10)), metadata={"parse": parse_seeds})
    """A number (10), a range (0-31) or a list (3,5,9) (default: 10)."""
    tune_seeds: tuple[int, ...] | None = field(default=None, metadata={"parse": parse_seeds})
    """Seeds that choose between several --lr and weight decays by validation. They train the grid,
    ``seeds`` what they choose. Without them all seeds train the grid."""
    epochs: int = 35
    """Passes over the training rows."""
    batch_size: int = 32
    """Rows of one step."""
    lr: float | tuple[float, ...] = field(default=3e-4, metadata={"parse": parse_rates})
    """Learning rate of AdamW, or several."""
    weight_decay: float | tuple[float, ...] = field(
        default=USUAL_DECAY, metadata={"parse": parse_rates} | KEY
    )
    """Weight decay of AdamW, or several."""
    schedule: Literal["constant", "plateau"] = field(default="constant", metadata=KEY)
    """Course of the rate; plateau: a tenth after 10 epochs without a better accuracy."""
    clip_grad_norm: float | None = field(default=None, metadata=KEY)
    """Largest gradient norm (default: no clipping)."""
    loss_scale: Literal["auto", "none", "dynamic"] = field(default="auto", metadata=KEY)
    """Whether the loss is scaled so that float16 keeps small gradients. dynamic: by 65,536 at
    first, as torch's GradScaler; auto: with float16."""
    clip_order: Literal["unscale-first", "clip-first"] = field(
        default="unscale-first", metadata=KEY
    )
    """Whether the gradient is clipped, or (as published) that of the scaled loss. Then the limit is
    in effect ``clip_grad_norm`` divided by the scale."""
    select: Literal["val", "last", "test"] = "val"
    """Epoch that is kept: best on a part of train, the last, or (optimistic) best on test."""
    ties: Literal["loss", "first"] = field(default="loss", metadata=KEY)
    """Of equally good epochs: that of the lowest loss, or the first, as published."""
    val_fraction: float = field(default=0.1, metadata=KEY)
    """Share of every class of train that --select val holds out."""
    split_seed: int = field(default=0, metadata=KEY)
    """Which rows choose, which folds test, and which are drawn."""
    train_rows: int | str | Sizes | None = field(default=None, metadata={"parse": parse_sizes})
    """Learn from so many rows of train, or of every class: 100,1k,all,5/class. Each class has its
    share, at least a row; rows that choose are among them, and smaller budgets lie in larger
    ones."""
    pool: str | tuple[str | None, ...] | None = field(default=None, metadata={"parse": parse_pools})
    """Pooling to read, or several (default: the first in the cache)."""
    layers: Layers | tuple[Layers, ...] = field(default=None, metadata={"parse": parse_layer_sets})
    """Encoder layers to learn from, from 1: 19-21, or 1-8,12; repeatable (default: all). Layer n is
    ``hidden_states[n]`` of transformers, 0 what layer 1 reads."""
    train_split: str = field(default="train", metadata=KEY)
    """Split to learn from."""
    test_split: str = field(default=TEST_SPLIT, metadata=KEY)
    """Split to report on; none: learn from all of train and report nothing."""
    final: bool = False
    """Also train a final model on all of train."""
    allow_train_as_test: bool = field(default=False, metadata=KEY)
    """Report on rows that were learned from; every report marks it."""
    folds: int | None = None
    """Cross-validation over so many parts of train. Each is tested by decoders that learned from
    the others, a run of its own; the test split is left alone."""
    groups: str | Path | None = field(default=None, metadata={"parse": parse_groups})
    """Kept column, or file with a name per row: neither folds nor choosing rows part a name."""
    repeats: int = field(default=1, metadata=KEY)
    """Cross-validations, each with folds of its own."""
    fold: int | None = field(default=None, metadata=KEY)
    """Only this fold, from 1 (default: all)."""
    shuffle_labels: bool = field(default=False, metadata=KEY)
    """A sanity check: learn from, and choose by, shuffled labels; it must end at chance."""
    shuffle: str = field(default="full", metadata={"parse": parse_shuffle} | KEY)
    """Order of the training rows: full, or window:ROWS for a cache larger than memory. Blocks of
    whole shards, of so many rows, are read once an epoch; every seed shuffles in each."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    """Arithmetic of matrix products. auto: bfloat16 where the device has it. Parameters, optimiser
    and loss are float32."""
    eval_dtype: Literal["same", "float32"] = field(default="same", metadata=KEY)
    """The same in evaluation, or float32, as published."""
    seed_batch: int | None = field(default=None, metadata={"parse": parse_seed_batch} | KEY)
    """Seeds trained together at most (default: by memory)."""
    memory_share: float = field(default=0.5, metadata=KEY)
    """Share of the free memory that rows may take. What does not fit stays on disk; it decides how
    long a training takes, and no number."""
    compile: Literal["auto", "on", "off"] = field(default="auto", metadata=KEY)
    """Whether torch.compile is used; auto: where there is enough work for it."""
    track: str = field(default="none", metadata=KEY)
    """Where else curves go, below the runs: tensorboard or trackio, which are extras."""
    probe: bool = True
    """Add the linear probe none + lbfgs, where it takes less than about a minute."""
    skip_impossible: bool = field(default=False, metadata=KEY)
    """Leave out what of a sweep cannot be built, such as 8 heads on 3 layers."""

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
                raise range_error(self, name, said, value) from None
        lists = {**dict.fromkeys(RATES, parse_rates), "train_rows": parse_sizes}
        for name, parse in lists.items():
            try:
                parse(getattr(self, name))
            except ValueError as error:
                raise range_error(self, name, str(error), getattr(self, name)) from None

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
    def draws(self) -> bool:
        """Whether some of what is trained learns from some of the training rows alone."""
        return any(size is not None for size in self.sizes)


_DEFAULTS = {one.name: one.default for one in fields(TrainConfig)}
