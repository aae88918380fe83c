"""Heads that are fitted at once: what they go with, the fit, and the linear probe beside a sweep.

N rows, L layers, D hidden size, F = L' D' features, C classes.
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
from gaam_decoder.decoder import DecoderSpec, build_decoder, on_paper
from gaam_decoder.heads._fitted import Examples, Fit, FittedHead
from gaam_decoder.recipe import Recipe
from gaam_decoder.runs.result import SeedResult
from gaam_decoder.specs import Spec, head_class
from gaam_decoder.training.arithmetic.engine import (
    EVAL_BATCH_SIZE,
    Engine,
    enough_memory,
    free_on,
)
from gaam_decoder.training.data import Subset, TrainData, told_labels
from gaam_decoder.training.group import (
    Plateau,
    SeedState,
    add_attention_maps,
    result_of,
)
from gaam_decoder.training.protocol import num_rows

ATTENTION, HEAD = Spec("none"), Spec("lbfgs")
SEED = 0  # of every fit: there is nothing that a seed decides
MOST_SECONDS, MEMORY_SHARE = 60.0, 0.5
"""By estimate, of one fit that nobody asked for by name; the share is of the free memory."""
OPERATIONS = {"cpu": 8e9, "cuda": 4e11}
"""A second of a fit, in float64: measured on each thread of a CPU; of a GPU assumed."""


def check_decoder(spec: DecoderSpec, select: str) -> None:
    """Build it on paper; refuse to fit a head at once on what learns or looks at other rows."""
    with on_paper():
        decoder = build_decoder(spec, seed=0)
    learns = decoder.num_parameters()["attention"] or decoder.attention.depends_on_batch
    if head_class(spec.head).trained_by == "fit" and (learns or select == "last"):
        raise ConfigError(
            f"--head {spec.head.name} is fitted at once, on rows that choose its penalty",
            expected="--select val, and a mechanism that learns nothing: --attn none",
            found=f"--select {select}, --attn {spec.attention}",
        )


def fit_cost(spec: DecoderSpec, rows: int, device: torch.device) -> tuple[float, float]:
    """Seconds that a fit on so many rows may take, and bytes of memory; an estimate."""
    head = head_class(spec.head)
    assert issubclass(head, FittedHead)
    with on_paper():
        layers, size = build_decoder(spec, seed=0).attention.output_shape
    operations, memory = head.cost(rows, layers * size, spec.num_classes)
    place = with_float64(device).type
    threads = torch.get_num_threads() if place == "cpu" else 1
    return operations / (OPERATIONS[place] * threads), memory


def probe_fits(
    spec: DecoderSpec, recipe: Recipe, cache: EmbeddingCache, device: torch.device
) -> bool:
    """Whether the probe is cheap enough to be fitted unasked; if not, that is said."""
    place, (seconds, memory) = (
        with_float64(device),
        fit_cost(spec, num_rows(recipe, cache), device),
    )
    free = free_memory() if place.type == "cpu" else free_on(place)
    if seconds > MOST_SECONDS or memory > MEMORY_SHARE * free:
        text = f"left out: the linear probe {recipe}: about {seconds / 60:,.0f} minutes and "
        text += f"{memory / 1e9:,.1f} GB of memory; --attn {ATTENTION} --head {HEAD} asks for it"
        warnings.warn(text, GaamWarning, stacklevel=3)
        return False
    return True


def fit_item(
    spec: DecoderSpec, data: TrainData, recipe: Recipe, tell: Callable[[str], None]
) -> tuple[SeedResult, Fit, Engine]:
    """Fit and evaluate a head; ``tell`` is called with what came of a value of the setting."""
    assert data.selection is not None
    start = time.perf_counter()
    device = data.train.label_N.device
    decoder = build_decoder(spec, SEED).to(device).eval()
    head = decoder.head
    assert isinstance(head, FittedHead)
    told_SN, held_SN = told_labels(data, [SEED], shuffle=recipe.shuffle_labels)
    assert held_SN is not None
    with enough_memory(recipe, (), str(device)):
        place, examples = with_float64(device), []
        for subset, label_N in ((data.train, told_SN[0]), (data.selection, held_SN[0])):
            x_NF = _of_rows(
                lambda x_BLD: decoder.attention(x_BLD).flatten(1), subset, place
            )
            examples.append(Examples(x_NF, label_N.to(place)))
        learn, choose = examples
        fit = head.fit(learn, choose, lambda done, text: tell(text))
    if missed := len(fit.unconverged):
        text = f"the fit did not converge for {missed} of {fit.tried} values of {fit.setting}"
        warnings.warn(f"{recipe}: {text}", GaamWarning, stacklevel=4)
    test, held = data.test, data.choosing(recipe)
    logits_NC = (
        torch.empty(0, spec.num_classes) if test is None else _of_rows(decoder, test)
    )
    held_VC = None if held is None else _of_rows(decoder, held)
    log = [{"seed": SEED, **entry} for entry in fit.log]
    member = SeedState(seed=SEED, schedule=Plateau(rate=0.0), best_epoch=fit.kept, log=log)
    result = result_of(decoder, member, logits_NC, held_VC)
    if test is not None and result.failed is None:
        add_attention_maps([(result, decoder.attention)], test, _batch_size(test))
    result.seconds = time.perf_counter() - start
    engine = Engine(
        device=str(device), dtype="float32", seed_batch=1, compiled=False, why="fitted"
    )
    return result, fit, engine


@torch.inference_mode()
def _of_rows(
    function: Callable[[Tensor], Tensor],
    subset: Subset,
    place: torch.device | str = "cpu",
) -> Tensor:
    batches = subset.features.batches(subset.rows, _batch_size(subset))
    return torch.cat([function(x_BLD.float()).to(place) for x_BLD in batches])


def _batch_size(subset: Subset) -> int:
    """Rows of a batch; a mechanism that looks at other rows of it is not fitted on."""
    most = 2**26 // prod(subset.features.shape[1:])
    return max(1, min(EVAL_BATCH_SIZE, most, len(subset)))
