"""A head that is fitted at once: what the mechanism leaves of all rows, the fit, the result.

N rows, L layers, D hidden size, F = L' D' features, C classes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gaam_cache.devices import with_float64
from gaam_cache.errors import GaamWarning
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder
from gaam_decoder.heads._fitted import Examples, Fit, FittedHead
from gaam_decoder.recipe import Recipe
from gaam_decoder.runs.writing import SeedResult
from gaam_decoder.training.arithmetic.engine import Engine
from gaam_decoder.training.group import EVAL_BATCH_SIZE
from gaam_decoder.training.room import room_for
from gaam_decoder.training.rows.data import Subset, TrainData, choosing
from gaam_decoder.training.rows.labels import told_labels
from gaam_decoder.training.train_group import kept_logits, mean_attention_maps, why_unusable

SEED = 0
"""Of every fit: there is nothing that a seed decides."""


def fitted_engine(device: torch.device) -> Engine:
    """How a head is fitted."""
    return Engine(
        device=str(device),
        dtype="float32",
        seed_batch=1,
        compiled=False,
        why="fitted at once in float64",
    )


def fit_item(
    spec: DecoderSpec,
    data: TrainData,
    recipe: Recipe,
    *,
    tell: Callable[[int, str], None] = lambda done, text: None,
) -> tuple[SeedResult, Fit]:
    """Fit the head of a decoder whose mechanism has no parameters, and evaluate it.

    It fails as any seed does, by logits of test rows, or weights, that are not finite.

    Args:
        spec: the decoder.
        data: rows; there are some that choose.
        recipe: which rows they are.
        tell: called with (values of the setting that are done, what came of the last).

    Raises:
        ShortOfMemoryError: there is too little memory for all rows at once.

    Warns:
        GaamWarning: values of the setting with which the fit did not converge.
    """
    assert data.selection is not None
    start = time.perf_counter()
    decoder = build_decoder(spec, SEED).to(data.train.label_N.device).eval()
    head = decoder.head
    assert isinstance(head, FittedHead)
    told_SN, held_SN = told_labels(data, [SEED], shuffle=recipe.shuffle_labels)
    assert held_SN is not None
    with room_for(recipe, (), str(data.train.label_N.device)):
        learn = _examples(decoder, data.train, told_SN[0])
        fit = head.fit(learn, _examples(decoder, data.selection, held_SN[0]), tell)
    if fit.unconverged:
        values = ", ".join(f"{value:.3g}" for value in fit.unconverged[:5])
        warnings.warn(
            f"{recipe}: the fit did not converge for {len(fit.unconverged)} of {fit.tried} values "
            f"of {fit.setting} ({values}{', ...' if len(fit.unconverged) > 5 else ''})",
            GaamWarning,
            stacklevel=4,
        )
    logits_NC = torch.empty(0, spec.num_classes)
    if data.test is not None:
        logits_NC = _logits(decoder, data.test)
    weights = {name: value.cpu() for name, value in decoder.state_dict().items()}
    failed = why_unusable(weights, logits_NC)
    result = SeedResult(
        seed=SEED,
        failed=failed,
        epoch=0 if failed else fit.kept,
        seconds=0.0,
        weights=weights,
        test_logits=torch.full_like(logits_NC, torch.nan) if failed else logits_NC,
        attention_map=None,
        learned={},
        log=[{"seed": SEED, **entry} for entry in fit.log],
    )
    if (held := choosing(data, recipe)) is not None:
        result.validation_logits = kept_logits(_logits(decoder, held), failed)
    if not failed and data.test is not None:
        [result.attention_map] = mean_attention_maps(
            [decoder.attention], data.test, _batch_size(data.test)
        )
    result.seconds = time.perf_counter() - start
    return result, fit


@torch.inference_mode()
def _examples(decoder: Decoder, subset: Subset, label_N: Tensor) -> Examples:
    """What the mechanism leaves of all rows, (N, F), where it can be computed with in float64."""
    place = with_float64(label_N.device)
    parts = [
        decoder.attention(x_BLD.float()).flatten(1).to(place)
        for x_BLD in subset.features.batches(subset.rows, _batch_size(subset))
    ]
    return Examples(torch.cat(parts), label_N.to(place))


@torch.inference_mode()
def _logits(decoder: Decoder, subset: Subset) -> Tensor:
    batches = subset.features.batches(subset.rows, _batch_size(subset))
    return torch.cat([decoder(x_BLD.float()) for x_BLD in batches]).cpu()


def _batch_size(subset: Subset) -> int:
    """Rows of a batch; a mechanism that looks at other rows of it is not fitted on."""
    most = 2**26 // int(np.prod(subset.features.shape[1:]))
    return max(1, min(EVAL_BATCH_SIZE, most, len(subset)))
