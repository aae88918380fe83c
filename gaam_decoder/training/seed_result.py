"""The result of one seed: weights, logits, learned parameters, mean attention map.

N test rows, V validation rows, B batch, L layers, D hidden size, C classes.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gaam_cache.common.devices import float64
from gaam_decoder.attention.base import Attention
from gaam_decoder.decoder import Decoder
from gaam_decoder.optimizers.base import Stacked
from gaam_decoder.runs.write import SeedResult
from gaam_decoder.training.data import Subset
from gaam_decoder.training.seed_state import SeedState


def result_of(
    decoder: Decoder,
    seed_state: SeedState,
    test_logits_NC: Tensor,
    validation_logits_VC: Tensor | None,
) -> SeedResult:
    """The result of one seed, without its attention map and its time.

    Args:
        decoder: with the weights of the seed.
        seed_state: the state of the seed.
        test_logits_NC: logits of the test rows.
        validation_logits_VC: logits of the validation rows, if there are any.
    """
    weights = _copied_to_cpu(decoder.state_dict())
    learned = _copied_to_cpu(decoder.attention.learned())
    failed = seed_state.failed
    if not failed:
        failed = _result_failure(test_logits_NC, weights)

    # a failed seed has no logits
    if failed:
        test_logits_NC = torch.full_like(test_logits_NC, torch.nan)
    if validation_logits_VC is not None:
        is_finite = bool(validation_logits_VC.isfinite().all())
        if failed or not is_finite:
            validation_logits_VC = torch.full_like(validation_logits_VC, torch.nan)
    return SeedResult(
        seed=seed_state.seed,
        failed=failed,
        epoch=0 if failed else seed_state.best_epoch,
        seconds=0.0,
        weights=weights,
        test_logits=test_logits_NC,
        attention_map=None,
        learned=learned,
        log=seed_state.log,
        validation_logits=validation_logits_VC,
    )


def _result_failure(test_logits_NC: Tensor, weights: Stacked) -> str | None:
    """Why the result of a seed counts as failed, or None."""
    if not bool(test_logits_NC.isfinite().all()):
        return "the logits of the test rows are not finite"
    # without test rows, the weights themselves must be finite
    has_test_rows = len(test_logits_NC) > 0
    if has_test_rows:
        return None
    if not all(bool(value.isfinite().all()) for value in weights.values()):
        return "the weights are not finite"
    return None


def _copied_to_cpu(tensors: Mapping[str, Tensor]) -> Stacked:
    """Copies of tensors, by the same names, without gradients."""
    return {
        name: value.detach().cpu().clone().contiguous()
        for name, value in tensors.items()
    }


class FinishedSeed(NamedTuple):
    """A seed that finished."""

    result: SeedResult
    attention: Attention
    """Its trained mechanism."""
    states: nn.Module
    """What the mechanism reads of the states, as ``Decoder.states``."""


@torch.inference_mode()
def add_attention_maps(
    finished: Sequence[FinishedSeed], subset: Subset, batch_size: int
) -> None:
    """Add the mean attention map over the rows of a subset to every result.

    The seeds share a mechanism, so that either all have maps or none. Every batch is
    read once for all of them.

    Args:
        finished: the seeds that finished.
        subset: the rows.
        batch_size: rows of a batch.
    """
    if not finished:
        return
    # of each result, the sum of the maps of the rows so far
    totals: list[Tensor] = []
    for x_BLD in subset.features.batches(subset.rows, batch_size):
        x_BLD = x_BLD.float()
        batch_sums: list[Tensor] = []
        for seed in finished:
            attention = seed.attention.eval()
            attention_map = attention.attention_map(seed.states(x_BLD))
            if attention_map is None:
                return
            batch_sums.append(float64(attention_map).sum(0))
        if not totals:
            totals = batch_sums
            continue
        totals = [
            total + batch_sum
            for total, batch_sum in zip(totals, batch_sums, strict=True)
        ]
    for seed, total in zip(finished, totals, strict=True):
        seed.result.attention_map = (total / len(subset)).float().cpu()
