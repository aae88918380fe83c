"""What a training is: one frozen dataclass that validates itself."""

from __future__ import annotations

import functools
import typing
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from gaam_cache import settings
from gaam_cache.config import Placing, check_placing
from gaam_cache.devices import check_device
from gaam_cache.errors import ConfigError
from gaam_cache.messages import shortened
from gaam_cache.settings import KEY, spelled
from gaam_decoder.config_checks import TEST_SPLIT, check_together
from gaam_decoder.number_lists import (
    Layers,
    Sizes,
    parse_groups,
    parse_layer_sets,
    parse_list,
    parse_pools,
    parse_rates,
    parse_seed_batch,
    parse_seeds,
    parse_shuffle,
    parse_sizes,
    spell_numbers,
)
from gaam_decoder.specs import USUAL_DECAY, head_class, parse_head

USUAL_RATE = 3e-4
TRIED_RATES = (3e-4, 2e-3, 1e-2, 5e-2)
"""Where nobody names a rate, and rows of train may choose one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig(Placing):
    """Everything ``gaam train`` can be told.

    Where a field is a tuple, one value may stand for itself, or the text of an option for several.

    Raises:
        ConfigError: on construction, when a value is out of its range or a name is unknown.
    """

    attn: tuple[str, ...] = field(default=("gaam",), metadata={"parse": parse_list})
    """Mechanism as name or name:key=value, repeatable; 'gaam describe' explains them."""
    head: tuple[str, ...] = field(default=("linear",), metadata={"parse": parse_list})
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
    ``seeds`` what they choose; each holds out another part of train, so that all rows choose.
    Without them all seeds train the grid (default, where --lr is not given: 1000-1002)."""
    epochs: int = 25
    """Passes over the training rows."""
    batch_size: int = 32
    """Rows of one step."""
    lr: tuple[float, ...] | None = field(default=None, metadata={"parse": parse_rates})
    """Learning rate of AdamW, or several (default: of 3e-4, 2e-3, 1e-2 and 5e-2 that which
    --tune-seeds choose; 3e-4 where no rows of train may choose)."""
    weight_decay: tuple[float, ...] = field(
        default=(USUAL_DECAY,), metadata={"parse": parse_rates} | KEY
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
    val_folds: int | None = field(default=None, metadata=KEY)
    """In how many parts train is cut, of which --select val holds out one: seed n part n modulo
    their number (default: as many as --tune-seeds, for these alone). 1: --tune-seeds hold out what
    all others do."""
    split_seed: int = field(default=0, metadata=KEY)
    """Which rows choose, which folds test, and which are drawn."""
    train_rows: Sizes = field(default=(None,), metadata={"parse": parse_sizes})
    """Learn from so many rows of train, or of every class: 100,1k,all,5/class. Each class has its
    share, at least a row; rows that choose are among them, and smaller budgets lie in larger
    ones."""
    pool: tuple[str | None, ...] = field(default=(None,), metadata={"parse": parse_pools})
    """Pooling to read, or several (default: the first in the cache)."""
    layers: tuple[Layers, ...] = field(default=(None,), metadata={"parse": parse_layer_sets})
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
    groups: str | None = field(default=None, metadata={"parse": parse_groups})
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
        """Parse every value into its type, and refuse what cannot work before anything is read."""
        for one in fields(self):
            value = getattr(self, one.name)
            if value is None and one.default is None:
                continue
            try:
                parsed = settings.parsed(value, _hints()[one.name], one.metadata)
            except (TypeError, ValueError, OverflowError) as error:
                message, found = f"{spelled(self, one.name)} is out of range", shortened(str(value))
                raise ConfigError(message, expected=str(error), found=found) from None
            object.__setattr__(self, one.name, parsed)
        check_device(self.device)
        check_placing(self)
        check_together(self)

    @property
    def rates(self) -> tuple[float, ...]:
        """Learning rates that are trained: ``lr``, or the usual ones."""
        return self.lr or (TRIED_RATES if self._tunes else (USUAL_RATE,))

    @property
    def choosing_seeds(self) -> tuple[int, ...] | None:
        """Seeds that choose between them: ``tune_seeds``, or three that report nothing."""
        if self.tune_seeds is not None or not self._tunes:
            return self.tune_seeds
        first = max(1000, max(self.seeds) + 1)
        return first, first + 1, first + 2

    def tuning_in_words(self) -> str:
        """What chooses a rate, where nobody named one, and what that costs; '' elsewhere."""
        if not self._tunes:
            return ""
        seeds = self.choosing_seeds or ()
        return (
            f"{len(seeds)} seeds ({spell_numbers(seeds)}) choose among the rates "
            f"{', '.join(f'{rate:g}' for rate in self.rates)}, then {len(self.seeds)} report: "
            f"{len(seeds) * len(self.rates)} more trainings of each decoder; --lr NUMBER trains one"
        )

    @property
    def _tunes(self) -> bool:
        """Whether nobody named a rate, and rows of train may choose one."""
        heads = map(head_class, map(parse_head, self.head))
        in_steps = any(head.trained_by != "fit" for head in heads)
        return not self.lr and self.select == "val" and in_steps


@functools.cache
def _hints() -> dict[str, Any]:
    return typing.get_type_hints(TrainConfig)
