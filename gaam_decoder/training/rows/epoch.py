"""Batches of one epoch for a group of seeds, from wherever the rows are.

S seeds, B batch, N training rows, M rows of a block, L layers, D hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gaam_decoder.recipe import Recipe
from gaam_decoder.training.rows.data import Subset
from gaam_decoder.training.rows.features import taken
from gaam_decoder.training.rows.order import Section, blocks_of_epoch, in_order
from gaam_decoder.training.rows.protocol import Rows


class Drawn(NamedTuple):
    """Some rows of every seed."""

    x_SBLD: Tensor  # noqa: N815 a shape suffix
    label_SB: Tensor  # noqa: N815


def epoch_batches(
    train: Subset, told_SN: Tensor, recipe: Recipe, seeds: Sequence[int], epoch: int
) -> Iterator[Drawn]:
    """All batches of an epoch; only the last may be short.

    Which rows are in which depends on nothing but rows, recipe, seed and epoch: whether they are on
    the device, in memory or on disk, and in which group a seed is, changes no bit.

    Args:
        train: the training rows.
        told_SN: classes as the seeds are told them.
        recipe: order and size of a batch.
        seeds: of the group.
        epoch: from 1.
    """
    blocks = blocks_of_epoch(train.rows, recipe, epoch)
    sections, size = in_order(blocks, seeds, epoch), recipe.batch_size
    if recipe.window is None and not train.features.on_device:
        # all rows are one block, which is too large: every seed reads its own
        for section in sections:
            label_parts = _labels(told_SN, section).split(size, dim=1)
            x_parts = train.features.batches(train.rows[section.order_SM], size)
            for x_SBLD, label_SB in zip(x_parts, label_parts, strict=True):
                yield Drawn(x_SBLD, label_SB)
        return
    begun: list[Drawn] = []
    """Of a batch that the next block completes."""
    for source, place_SM, label_SM in _blocks(train, told_SN, blocks, sections):
        start, stop = 0, size - sum(part.label_SB.shape[1] for part in begun)
        while start < place_SM.shape[1]:
            x_SBLD = taken(source, place_SM[:, start:stop])
            begun.append(Drawn(x_SBLD, label_SM[:, start:stop]))
            if stop <= place_SM.shape[1]:
                yield _joined(begun)
                begun = []
            start, stop = stop, stop + size
    if begun:
        yield _joined(begun)


def _blocks(
    train: Subset, told_SN: Tensor, blocks: Sequence[Rows], sections: Iterator[Section]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For every block: states, places in them in the order of every seed, and labels."""
    features = train.features
    if features.resident is not None and features.on_device:
        for section in sections:
            row_SM = features.places(train.rows[section.block_M[section.order_SM]])
            place_SM = torch.from_numpy(row_SM).to(features.device)
            yield features.resident, place_SM, _labels(told_SN, section)
        return
    read = features.blocks([train.rows[block_M] for block_M in blocks])
    for block_MLD, section in zip(read, sections, strict=True):
        place_SM = torch.from_numpy(section.order_SM).to(features.device)
        yield block_MLD, place_SM, _labels(told_SN, section)


def _labels(told_SN: Tensor, section: Section) -> Tensor:
    place_SM = torch.from_numpy(section.block_M[section.order_SM])
    return told_SN.gather(1, place_SM.to(told_SN.device))


def _joined(parts: Sequence[Drawn]) -> Drawn:
    if len(parts) == 1:
        return parts[0]
    x_parts, label_parts = zip(*parts, strict=True)
    return Drawn(torch.cat(x_parts, dim=1), torch.cat(label_parts, dim=1))
