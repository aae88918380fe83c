"""Fit the head of an experiment at once, and evaluate it as a trained seed is.

N rows, V validation rows, L layers, D hidden size, F = L' D' features, C classes.
"""

import time
import warnings
from collections.abc import Callable
from math import prod

import torch
from torch import Tensor

from gaam_cache.common.devices import with_float64
from gaam_cache.common.errors import GaamWarning
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder
from gaam_decoder.heads.base import Examples, Fit, FittedHead
from gaam_decoder.recipe import Recipe
from gaam_decoder.runs.write import SeedResult
from gaam_decoder.training.arithmetic.engine import (
    EVAL_BATCH_SIZE,
    Engine,
    explained_memory_errors,
)
from gaam_decoder.training.data import Subset, TrainData, labels_by_seed
from gaam_decoder.training.seed_result import (
    FinishedSeed,
    add_attention_maps,
    result_of,
)
from gaam_decoder.training.seed_state import Plateau, SeedState

FIT_SEED = 0  # of every fit: it draws no random numbers, and so needs one seed alone


def fit_experiment(
    spec: DecoderSpec, data: TrainData, recipe: Recipe, on_value: Callable[[str], None]
) -> tuple[SeedResult, Fit, Engine]:
    """Fit a head that is not trained in steps, and evaluate it.

    The head tries several values of a setting, such as the strength of its penalty,
    and validation rows choose one.

    Args:
        spec: of the decoder.
        data: the rows.
        recipe: of the fit.
        on_value: called with a line about each value that was tried.

    Returns:
        The result as that of a seed, the record of the fit, and how it was run.
    """
    start = time.perf_counter()
    device = data.train.label_N.device
    decoder = build_decoder(spec, FIT_SEED).to(device).eval()
    with explained_memory_errors(recipe, seeds=(), device=str(device)):
        fit = _fit(decoder, spec.task, data, recipe, on_value)
    _warn_of_unconverged(fit, recipe)

    # evaluate as a trained seed is evaluated
    test = data.test
    validation = data.validation(recipe)
    logits_NC = torch.empty(0, spec.num_classes)
    if test is not None:
        logits_NC = _apply_to_rows(decoder, test)
    validation_logits_VC: Tensor | None = None
    if validation is not None:
        validation_logits_VC = _apply_to_rows(decoder, validation)
    # a fit is recorded as a seed is: it has no learning rate, and in the place of the
    # best epoch stands the number of the tried value that validation chose
    seed_state = SeedState(
        seed=FIT_SEED,
        schedule=Plateau(rate=0.0),
        best_epoch=fit.kept,
        log=[{"seed": FIT_SEED, **entry} for entry in fit.log],
    )
    result = result_of(decoder, seed_state, logits_NC, validation_logits_VC)
    if test is not None and result.failed is None:
        finished = FinishedSeed(result, decoder.attention, decoder.states)
        add_attention_maps([finished], test, _batch_size(test))
    result.seconds = time.perf_counter() - start
    engine = Engine(
        device=str(device), dtype="float32", seed_batch=1, compiled=False, why="fitted"
    )
    return result, fit, engine


def _warn_of_unconverged(fit: Fit, recipe: Recipe) -> None:
    """Warn of tried values for which the fit did not converge."""
    if fit.unconverged:
        warnings.warn(
            f"{recipe}: the fit did not converge for {len(fit.unconverged)} of "
            f"{fit.tried} values of {fit.setting}",
            GaamWarning,
            stacklevel=5,
        )


def _fit(
    decoder: Decoder,
    task_name: str,
    data: TrainData,
    recipe: Recipe,
    on_value: Callable[[str], None],
) -> Fit:
    """Fit the head of a decoder to the features that its mechanism returns."""
    head = decoder.head
    assert isinstance(head, FittedHead)
    assert data.selection is not None
    label_SN, validation_label_SV = labels_by_seed(
        data, [FIT_SEED], shuffle=recipe.shuffle_labels
    )
    assert validation_label_SV is not None
    fit_device = with_float64(data.train.label_N.device)

    def features(x_BLD: Tensor) -> Tensor:
        x_BF: Tensor = decoder.attention(x_BLD).flatten(1)
        return x_BF

    def examples(subset: Subset, label_N: Tensor) -> Examples:
        x_NF = _apply_to_rows(features, subset, fit_device)
        return Examples(x_NF, label_N.to(fit_device), task_name)

    training = examples(data.train, label_SN[0])
    validation = examples(data.selection, validation_label_SV[0])
    return head.fit(training, validation, lambda done, text: on_value(text))


@torch.inference_mode()
def _apply_to_rows(
    function: Callable[[Tensor], Tensor],
    subset: Subset,
    device: torch.device | str = "cpu",
) -> Tensor:
    """The results of a function for all rows of a subset, batch by batch.

    Args:
        function: of a batch, (B, L, D) -> (B, ...).
        subset: the rows.
        device: of the result.
    """
    batches = subset.features.batches(subset.rows, _batch_size(subset))
    # every batch is written to its place: a list of them would take the memory twice
    results_N = torch.empty(0)
    start = 0
    for x_BLD in batches:
        result_B = function(x_BLD.float())
        if start == 0:
            shape = (len(subset), *result_B.shape[1:])
            results_N = torch.empty(shape, dtype=result_B.dtype, device=device)
        end = start + len(result_B)
        results_N[start:end] = result_B
        start = end
    return results_N


def _batch_size(subset: Subset) -> int:
    """Rows of a batch: at most 512, and at most 2**26 numbers."""
    largest = 2**26 // prod(subset.features.shape[1:])
    return max(1, min(EVAL_BATCH_SIZE, largest, len(subset)))
