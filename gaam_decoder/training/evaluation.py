"""Finished weights -> what a seed leaves: its logits, or why it failed, and its attention map.

N test rows, V rows that choose, L layers, D hidden size, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gaam_cache.devices import float64
from gaam_decoder.attention._base import Attention
from gaam_decoder.decoder import Decoder
from gaam_decoder.runs.writing import SeedResult
from gaam_decoder.training.data import Subset

EVAL_BATCH_SIZE = 512
EVAL_BYTES = {"cpu": 2**24, "cuda": 2**30, "mps": 2**28}
"""Of one batch in evaluation as float32; on a GPU of all seeds together, each of which makes states
of its own from it."""


def rows_at_once(device_type: str, numbers: int) -> int:
    """Rows of a batch in evaluation, at least one, of which each takes so many float32 numbers."""
    return max(1, EVAL_BYTES[device_type] // (4 * numbers))


def result_of(
    decoder: Decoder,
    weights: dict[str, Tensor],
    logits_NC: Tensor,
    held_VC: Tensor | None,
    *,
    seed: int,
    epoch: int,
    failed: str | None = None,
    log: list[dict[str, Any]],
) -> SeedResult:
    """Of one seed, but for map and time; ``decoder`` has its weights, which are kept as they are.

    Logits of test rows that are not finite make a seed a failed one, or weights where no rows are
    tested: only these can give a final model away.
    """
    if failed is None and not bool(logits_NC.isfinite().all()):
        failed = "the logits of the test rows are not finite"
    elif failed is None and not len(logits_NC):
        finite = all(bool(weight.isfinite().all()) for weight in weights.values())
        failed = None if finite else "the weights are not finite"
    if held_VC is not None and (failed or not bool(held_VC.isfinite().all())):
        held_VC = torch.full_like(held_VC, torch.nan)
    return SeedResult(
        seed=seed,
        failed=failed,
        epoch=0 if failed else epoch,
        seconds=0.0,
        weights=weights,
        test_logits=torch.full_like(logits_NC, torch.nan) if failed else logits_NC,
        attention_map=None,
        learned={
            name: value.detach().cpu().clone().contiguous()
            for name, value in decoder.attention.learned().items()
        },
        log=log,
        validation_logits=held_VC,
    )


@torch.inference_mode()
def add_attention_maps(
    finished: Sequence[tuple[SeedResult, Attention]], subset: Subset, batch_size: int
) -> None:
    """Give results the maps of one mechanism's seeds, averaged over rows that are read once."""
    totals: list[Tensor] = []
    for x_BLD in subset.features.batches(subset.rows, batch_size) if finished else ():
        x_BLD = x_BLD.float()
        parts = [
            float64(weights).sum(0)
            for _, attention in finished
            if (weights := attention.eval().attention_map(x_BLD)) is not None
        ]
        if not parts:
            return
        totals = [a + b for a, b in zip(totals, parts, strict=True)] if totals else parts
    for (result, _), total in zip(finished, totals, strict=True):
        result.attention_map = (total / len(subset)).float().cpu()
