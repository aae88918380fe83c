"""What every seed learns from, is chosen by and is tested on.

N rows, L layers, D hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gaam_cache.cache import EmbeddingCache, Split
from gaam_cache.errors import ConfigError
from gaam_decoder.config import TrainConfig
from gaam_decoder.features import Features
from gaam_decoder.protocol import Rows, holdout


@dataclass(frozen=True, kw_only=True, slots=True)
class Subset:
    """Rows of a split with their labels, on the device."""

    features: Features
    rows: Rows
    label_N: Tensor  # noqa: N815 a shape suffix

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainData:
    """What every seed of every mechanism learns from, is chosen by and is tested on."""

    train: Subset
    choose: Subset | None
    """Rows that choose the epoch; None keeps the last."""
    test: Subset


def prepare_data(cache: EmbeddingCache, config: TrainConfig, device: torch.device) -> TrainData:
    """Load the splits that a config names and hold out the rows that choose.

    Raises:
        ConfigError: the cache has no such split or pooling, or too few rows to hold any out.
    """

    def features(split: Split) -> Features:
        array = split.pooled(config.pool) if config.pool else split.embeddings
        if config.layers is not None:
            array = array.keeping([layer - 1 for layer in config.layers])
        return Features(array, device)

    def subset(of: Features, split: Split, rows: Rows) -> Subset:
        labels = torch.from_numpy(split.labels[rows]).to(device)
        return Subset(features=of, rows=rows, label_N=labels)

    train_split, test_split = cache[config.train_split], cache[config.test_split]
    train_features = features(train_split)
    test = subset(features(test_split), test_split, np.arange(len(test_split)))
    train_rows, choose = np.arange(len(train_split)), None
    if config.select == "val":
        train_rows, val_rows = holdout(train_split.labels, config.val_fraction, config.split_seed)
        if not len(val_rows):
            raise ConfigError(
                "no rows can be held out to choose the epoch",
                expected=f"a class with two or more rows in '{config.train_split}'",
                found=f"{len(train_rows)} rows, each the only one of its class",
                hint="--select last, which chooses nothing",
            )
        choose = subset(train_features, train_split, val_rows)
    elif config.select == "test":
        choose = test
    return TrainData(
        train=subset(train_features, train_split, train_rows), choose=choose, test=test
    )
