"""Two splits out of one: ``--test-fraction``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import compress
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.sources._base import Rows
from gaam_cache.sources._holdout import held_out
from gaam_cache.sources._spool import spooled

R = TypeVar("R", bound=Rows)


class Divided:
    """The splits of what has none; it is read once, so that all are of the same content."""

    def __init__(self) -> None:
        self._parts: tuple[ExtractConfig, dict[str, Rows]] | None = None

    def read(self, config: ExtractConfig, split: str, whole: Callable[[], Rows]) -> Rows:
        """The rows of a split.

        Args:
            config: how large the part is, and which rows are in it.
            split: 'train' or 'test'.
            whole: reads all rows.

        Raises:
            DataError: no class has two rows, so that none could be tested on.
        """
        if self._parts is None or self._parts[0] != config:
            self._parts = config, divide(whole(), config)
        return self._parts[1][split]


def divide(rows: Rows, config: ExtractConfig) -> dict[str, Rows]:
    """The splits 'train' and 'test'; rows keep their order.

    Of what is several rows, such as the pieces of a sound, all are in one split. Rows that were
    left out count as of 'train'.

    Args:
        rows: all of them.
        config: which are for testing, and how many of each split are taken.

    Raises:
        DataError: no class has two rows.
    """
    assert config.test_fraction is not None
    unit_N = np.asarray(rows.units(), np.int64)
    first_U = np.unique(unit_N, return_index=True)[1]
    labels = [rows.labels[row] for row in first_U.tolist()]
    held_U = held_out(labels, config.test_fraction, config.split_seed)
    if not held_U.any():
        raise DataError(
            "there is nothing to hold out for testing",
            expected="a class with two rows at least",
            found=f"{len(labels):,} rows of as many classes",
            where=rows.origin,
        )
    held_N = held_U[unit_N]
    return {
        "train": _part(rows, "train", ~held_N, config.limit),
        "test": replace(_part(rows, "test", held_N, config.limit), skipped=()),
    }


def _part(rows: R, split: str, chosen_N: NDArray[np.bool_], limit: int | None) -> R:
    chosen = chosen_N & (np.cumsum(chosen_N) <= (len(rows) if limit is None else limit))
    mask = chosen.tolist()
    return replace(
        rows,
        inputs=rows.chosen_inputs(mask),
        labels=list(compress(rows.labels, mask)),
        origin=f"{rows.origin}, {split}",
        kept={name: spooled(compress(values, mask)) for name, values in rows.kept.items()},
    )
