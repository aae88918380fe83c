"""What a training is: one frozen dataclass that validates itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from gaam_cache import registry
from gaam_cache.errors import ConfigError
from gaam_decoder.number_lists import Layers, parse_layer_sets, parse_seeds, spell_layers
from gaam_decoder.specs import parse_attention, parse_head, parse_loss


def parse_list(value: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """One spec or several; commas belong to the options of a spec and do not separate specs."""
    return (value,) if isinstance(value, str) else tuple(value)


def parse_rates(value: str | float | list[float] | tuple[float, ...]) -> tuple[float, ...]:
    """Read one number or several: ``1e-4,3e-4``.

    Raises:
        ValueError: anything else.
    """
    parts = value.split(",") if isinstance(value, str) else value
    try:
        rates = [float(part) for part in (parts if isinstance(parts, (list, tuple)) else [parts])]
    except (TypeError, ValueError):
        raise ValueError("a number, or several: 1e-4,3e-4") from None
    return tuple(rates)


def parse_seed_batch(value: str | int | None) -> int | None:
    """Read ``auto`` (None) or a number.

    Raises:
        ValueError: anything else.
    """
    if value in ("auto", None):
        return None
    try:
        return int(str(value))
    except ValueError:
        raise ValueError("auto or a number") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """Everything ``gaam train`` can be told.

    Raises:
        ConfigError: on construction, when a value is out of its range or a name is unknown.
    """

    attn: tuple[str, ...] = field(default=("gaam",), metadata={"parse": parse_list})
    """Mechanisms, each ``name`` or ``name:key=value,...``."""
    head: str | tuple[str, ...] = field(default="linear", metadata={"parse": parse_list})
    """Classifier heads: linear, mlp, or conv as published."""
    loss: str = "cross-entropy"
    """cross-entropy, or focal as the paper used for speech: ``focal:gamma=2.5,alpha=0.25``."""
    cache: Path = Path("cache")
    """Folder of the cache."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""
    seeds: tuple[int, ...] = field(default=tuple(range(10)), metadata={"parse": parse_seeds})
    """A number (10), a range (0-31) or a list (3,5,9)."""
    epochs: int = 35
    """Passes over the training rows."""
    batch_size: int = 32
    """Rows of one step."""
    lr: float | tuple[float, ...] = field(default=3e-4, metadata={"parse": parse_rates})
    """Learning rate of AdamW, or several."""
    weight_decay: float = 0.01
    """Weight decay of AdamW."""
    schedule: Literal["constant", "plateau"] = "constant"
    """plateau: divide the rate by 10 when the watched accuracy has not risen for 10 epochs."""
    clip_grad_norm: float | None = None
    """Largest gradient norm; default: no clipping."""
    select: Literal["val", "last", "test"] = "val"
    """Epoch that is kept: best on a part of train, the last, or best on test (optimistic)."""
    val_fraction: float = 0.1
    """Share of every class of train that --select val holds out."""
    split_seed: int = 0
    """Decides which rows --select val holds out."""
    pool: str | None = None
    """Pooling to read; default: the first in the cache."""
    layers: Layers | tuple[Layers, ...] = field(default=None, metadata={"parse": parse_layer_sets})
    """Encoder layers to learn from, counted from 1 as in the paper: layer n is ``hidden_states[n]``
    of transformers. Or several such sets, None for all layers. Default: all."""
    train_split: str = "train"
    """Split to train on."""
    test_split: str = "test"
    """Split to report on."""
    folds: int | None = None
    """Cross-validation: the train split in so many parts, each tested by decoders that learned from
    the others, each a run of its own; the test split is left alone. Default: none."""
    groups: Path | None = None
    """A text file with one name per row of the train split, such as a session or a speaker: rows of
    one name are never in two folds. Default: folds keep the share of every class."""
    fold: int | None = None
    """Which fold is tested, from 1; default: all."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    """Arithmetic of matrix products; auto: bfloat16 where the device has it. Parameters, optimiser
    and loss are float32."""
    seed_batch: int | None = field(default=None, metadata={"parse": parse_seed_batch})
    """Seeds trained together at most; default: chosen from memory."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Whether torch.compile is used; auto: where there is a compiler and enough work for it."""
    track: Literal["none", "tensorboard"] = "none"
    """Where else the curves of every seed go: tensorboard, below the runs."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work, before anything is read."""
        at_least = {"epochs": 1, "batch_size": 1, "split_seed": 0, "folds": 2, "fold": 1}
        for name, minimum in at_least.items():
            if getattr(self, name) is not None and getattr(self, name) < minimum:
                raise _range_error(name, f">= {minimum:g}", getattr(self, name))
        positive: list[tuple[str, float | None]] = [("lr", lr) for lr in self.lrs]
        for name, value in [*positive, ("clip_grad_norm", self.clip_grad_norm)]:
            if value is not None and not 0 < value < float("inf"):
                raise _range_error(name, "a positive number", value)
        if self.seed_batch is not None and self.seed_batch < 1:
            raise _range_error("seed_batch", "auto, or at least 1", self.seed_batch)
        if not 0 <= self.weight_decay < float("inf"):
            raise _range_error("weight_decay", ">= 0", self.weight_decay)
        if not 0 < self.val_fraction <= 0.5:
            raise _range_error("val_fraction", "more than 0, at most 0.5", self.val_fraction)
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise _range_error("device", "auto, cpu, cuda or cuda:N", self.device)
        if self.fold is not None and self.fold > (self.folds or 0):
            raise _range_error("fold", f"at most --folds, {self.folds}", self.fold)
        if self.groups is not None and self.folds is None:
            raise ConfigError(
                "--groups says what a fold keeps together", expected="--folds with it"
            )
        try:
            sets = self.layer_sets
        except (TypeError, ValueError) as error:
            raise _range_error("layers", str(error), self.layers) from None
        if any(layers is not None and layers[0] < 1 for layers in sets):
            raise _range_error("layers", "layer numbers from 1 on", self.layers)
        specs = [str(parse_attention(text)) for text in self.attn]
        heads = [str(parse_head(text)) for text in self.heads]
        loss = parse_loss(self.loss)
        registry.load("gaam_decoder.losses", loss.name, kind="loss")(**dict(loss.options))
        lists: dict[str, list[Any]] = {"attn": specs, "head": heads, "lr": list(self.lrs)}
        lists["layers"] = [spell_layers(layers) for layers in sets]
        for name, values in lists.items():
            if not values:
                raise ConfigError("nothing to train", expected=f"at least one --{name}")
            if repeated := {value for value in values if values.count(value) > 1}:
                raise ConfigError(f"--{name} {', '.join(map(str, repeated))} is given twice")

    @property
    def heads(self) -> tuple[str, ...]:
        """All heads."""
        return parse_list(self.head)

    @property
    def lrs(self) -> tuple[float, ...]:
        """All learning rates."""
        return parse_rates(self.lr)

    @property
    def layer_sets(self) -> tuple[Layers, ...]:
        """All sets of layers."""
        return parse_layer_sets(self.layers)

    def recipes(self) -> list[TrainConfig]:
        """One config per mechanism, head, learning rate, set of layers and fold, in this order."""
        folds = [self.fold] if self.fold or not self.folds else range(1, self.folds + 1)
        return [
            replace(self, attn=(attention,), head=head, lr=lr, layers=layers, fold=fold)
            for attention in self.attn
            for head in self.heads
            for lr in self.lrs
            for layers in self.layer_sets
            for fold in folds
        ]


def _range_error(name: str, expected: str, found: Any) -> ConfigError:
    option = "--" + name.replace("_", "-")
    return ConfigError(f"{option} is out of range", expected=expected, found=str(found))
