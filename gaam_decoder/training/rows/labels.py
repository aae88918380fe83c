"""The classes that a seed is told: the true ones, or for a sanity check shuffled ones.

N rows, S seeds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gaam_decoder.decoder import stream_seed
from gaam_decoder.training.rows.data import TrainData


def told_labels(
    data: TrainData, seeds: Sequence[int], *, shuffle: bool
) -> tuple[Tensor, Tensor | None]:
    """Classes of the rows that learn and of those that choose, as each seed is told them.

    Shuffled, they are permuted among all of these rows, so that both parts agree in saying nothing
    about them. Every seed has a permutation of its own: a permutation that happens to say something
    is the luck of one seed, which the interval over seeds then covers. What is tested is not
    touched, also where it chooses (``--select test``).

    Shape:
        (S, N) and (S, N of those that choose); None where nothing chooses.
    """
    train, selection = data.train, data.selection
    count, choosing = len(train), selection is not None and selection is not data.test
    parts = [train, selection] if choosing and selection is not None else [train]
    if not shuffle:
        held = None if selection is None else selection.label_N.expand(len(seeds), -1)
        return train.label_N.expand(len(seeds), -1), held
    true_N = torch.cat([part.label_N for part in parts])
    order_N = torch.from_numpy(np.argsort(np.concatenate([part.rows for part in parts])))
    told = []
    for seed in seeds:
        generator = np.random.default_rng(stream_seed(seed, "labels"))
        # in the order of the data set: what is held out has no say in which row is told what
        drawn_N = order_N[torch.from_numpy(generator.permutation(len(order_N)))]
        label_N = torch.empty_like(true_N)
        label_N[order_N.to(true_N.device)] = true_N[drawn_N.to(true_N.device)]
        told.append(label_N)
    told_SN = torch.stack(told)
    if choosing:
        return told_SN[:, :count], told_SN[:, count:]
    held = None if selection is None else selection.label_N.expand(len(seeds), -1)
    return told_SN, held
