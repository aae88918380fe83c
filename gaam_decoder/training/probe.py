"""Fit heads at once: their requirements, the fit, and the linear probe beside a sweep.

N rows, V validation rows, L layers, D hidden size, F = L' D' features, C classes.
"""

import time
import warnings
from collections.abc import Callable
from math import prod

import torch
from torch import Tensor

from gaam_cache.common.devices import free_memory, with_float64
from gaam_cache.common.errors import ConfigError, GaamWarning
from gaam_cache.store.reader import EmbeddingCache
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder, on_paper
from gaam_decoder.heads.base import Examples, Fit, FittedHead
from gaam_decoder.recipe import Recipe
from gaam_decoder.runs.write import SeedResult
from gaam_decoder.specs import Spec, head_class
from gaam_decoder.training.arithmetic.engine import (
    EVAL_BATCH_SIZE,
    Engine,
    enough_memory,
    free_on,
)
from gaam_decoder.training.data import Subset, TrainData, told_labels
from gaam_decoder.training.seed_batch import (
    Plateau,
    SeedState,
    add_attention_maps,
    result_of,
)
from gaam_decoder.training.splits import num_rows

ATTENTION = Spec("none")
HEAD = Spec("lbfgs")
SEED = 0  # of every fit: a fit draws no random numbers
MOST_SECONDS = 60.0  # estimated, of a probe that nobody asked for
MEMORY_SHARE = 0.5  # of the free memory, for such a probe
OPERATIONS = {"cpu": 8e9, "cuda": 4e11}
"""Of a fit in float64 a second: measured per thread of a CPU, assumed of a GPU."""


def check_decoder(spec: DecoderSpec, select: str) -> None:
    """Check that a decoder can be built, and that a fitted head suits its mechanism."""
    with on_paper():
        decoder = build_decoder(spec, seed=0)
    if head_class(spec.head).trained_by != "fit":
        return
    # a fit sees fixed features of each row, and validation rows choose its penalty
    learns = decoder.num_parameters()["attention"] > 0
    if learns or decoder.attention.depends_on_batch or select == "last":
        raise ConfigError(
            f"--head {spec.head.name} is fitted at once, and validation rows choose "
            "its penalty",
            expected="--select val, and a mechanism that learns nothing: --attn none",
            found=f"--select {select}, --attn {spec.attention}",
        )


def fit_cost(spec: DecoderSpec, rows: int, device: torch.device) -> tuple[float, float]:
    """Estimate the seconds and the bytes of memory that a fit may take."""
    head = head_class(spec.head)
    assert issubclass(head, FittedHead)
    with on_paper():
        layers, size = build_decoder(spec, seed=0).attention.output_shape
    operations, memory = head.cost(rows, layers * size, spec.num_classes)
    device_type = with_float64(device).type
    threads = torch.get_num_threads() if device_type == "cpu" else 1
    return operations / (OPERATIONS[device_type] * threads), memory


def probe_fits(
    spec: DecoderSpec, recipe: Recipe, cache: EmbeddingCache, device: torch.device
) -> bool:
    """Whether the linear probe is cheap enough to be fitted unasked; warn if not."""
    fit_device = with_float64(device)
    seconds, memory = fit_cost(spec, num_rows(recipe, cache), device)
    free = free_memory() if fit_device.type == "cpu" else free_on(fit_device)
    if seconds <= MOST_SECONDS and memory <= MEMORY_SHARE * free:
        return True
    warnings.warn(
        f"left out: the linear probe {recipe}: about {seconds / 60:,.0f} minutes and "
        f"{memory / 1e9:,.1f} GB of memory; --attn {ATTENTION} --head {HEAD} asks for "
        "it",
        GaamWarning,
        stacklevel=3,
    )
    return False


def fit_experiment(
    spec: DecoderSpec, data: TrainData, recipe: Recipe, tell: Callable[[str], None]
) -> tuple[SeedResult, Fit, Engine]:
    """Fit and evaluate a head.

    Args:
        spec: of the decoder.
        data: the rows.
        recipe: of the fit.
        tell: called with the outcome of each value of the head's setting.
    """
    start = time.perf_counter()
    device = data.train.label_N.device
    decoder = build_decoder(spec, SEED).to(device).eval()
    with enough_memory(recipe, (), str(device)):
        fit = _fit(decoder, data, recipe, tell)
    if fit.unconverged:
        warnings.warn(
            f"{recipe}: the fit did not converge for {len(fit.unconverged)} of "
            f"{fit.tried} values of {fit.setting}",
            GaamWarning,
            stacklevel=4,
        )

    # evaluate as a trained seed is evaluated
    test = data.test
    validation = data.choosing(recipe)
    logits_NC = torch.empty(0, spec.num_classes)
    if test is not None:
        logits_NC = _of_rows(decoder, test)
    validation_logits_VC: Tensor | None = None
    if validation is not None:
        validation_logits_VC = _of_rows(decoder, validation)
    member = SeedState(
        seed=SEED,
        schedule=Plateau(rate=0.0),
        best_epoch=fit.kept,
        log=[{"seed": SEED, **entry} for entry in fit.log],
    )
    result = result_of(decoder, member, logits_NC, validation_logits_VC)
    if test is not None and result.failed is None:
        add_attention_maps([(result, decoder.attention)], test, _batch_size(test))
    result.seconds = time.perf_counter() - start
    engine = Engine(
        device=str(device), dtype="float32", seed_batch=1, compiled=False, why="fitted"
    )
    return result, fit, engine


def _fit(
    decoder: Decoder, data: TrainData, recipe: Recipe, tell: Callable[[str], None]
) -> Fit:
    """Fit the head of a decoder to the features of its mechanism."""
    head = decoder.head
    assert isinstance(head, FittedHead)
    assert data.selection is not None
    label_SN, validation_label_SV = told_labels(
        data, [SEED], shuffle=recipe.shuffle_labels
    )
    assert validation_label_SV is not None
    fit_device = with_float64(data.train.label_N.device)

    def features_of(x_BLD: Tensor) -> Tensor:
        x_BF: Tensor = decoder.attention(x_BLD).flatten(1)
        return x_BF

    def examples_of(subset: Subset, label_N: Tensor) -> Examples:
        x_NF = _of_rows(features_of, subset, fit_device)
        return Examples(x_NF, label_N.to(fit_device))

    training = examples_of(data.train, label_SN[0])
    validation = examples_of(data.selection, validation_label_SV[0])
    return head.fit(training, validation, lambda done, text: tell(text))


@torch.inference_mode()
def _of_rows(
    function: Callable[[Tensor], Tensor],
    subset: Subset,
    device: torch.device | str = "cpu",
) -> Tensor:
    """A function of all rows, batch by batch."""
    batches = subset.features.batches(subset.rows, _batch_size(subset))
    return torch.cat([function(x_BLD.float()).to(device) for x_BLD in batches])


def _batch_size(subset: Subset) -> int:
    """Rows of a batch; no fitted mechanism depends on the other rows of it."""
    most = 2**26 // prod(subset.features.shape[1:])
    return max(1, min(EVAL_BATCH_SIZE, most, len(subset)))
