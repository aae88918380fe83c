"""The linear probe beside a sweep, and what heads that are fitted at once go with."""

from __future__ import annotations

import warnings

import torch

from gaam_cache.cache import EmbeddingCache
from gaam_cache.devices import free_on, with_float64
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder, on_paper
from gaam_decoder.heads._fitted import FittedHead
from gaam_decoder.recipe import NO_TEST, Recipe
from gaam_decoder.specs import Spec, head_class
from gaam_decoder.training.rows.budget import num_rows
from gaam_decoder.training.rows.free_memory import free_memory

ATTENTION, HEAD = Spec("none"), Spec("lbfgs")
MOST_SECONDS = 60.0
"""By estimate, of one fit that nobody asked for by name."""
OPERATIONS = {"cpu": 8e9, "cuda": 4e11}
"""Floating-point operations a second of a fit, in float64, which does little with each number that
it reads: measured on each thread of a CPU; of a GPU assumed from the speed of its memory."""
MEMORY_SHARE = 0.5
"""Of the free memory, for a fit that nobody asked for by name."""


def check_fitted(decoder: Decoder, spec: DecoderSpec, select: str) -> None:
    """Whether a head that is fitted at once may stand on this mechanism.

    Args:
        decoder: built, on paper or not.
        spec: what it was built from.
        select: selection protocol.

    Raises:
        ConfigError: the mechanism learns, or looks at other rows, or nothing chooses.
    """
    if head_class(spec.head).trained_by != "fit":
        return
    head, learned = spec.head.name, decoder.num_parameters()["attention"]
    if learned or decoder.attention.depends_on_batch:
        raise ConfigError(
            f"--head {head} is fitted at once to what a mechanism leaves",
            expected="a mechanism that learns nothing, such as --attn none",
            found=f"--attn {spec.attention} learns {learned:,} numbers"
            if learned
            else f"--attn {spec.attention} looks at the other rows of a batch",
            hint=f"another --head, or --attn none --head {head}",
        )
    if select == "last":
        raise ConfigError(
            f"--head {head} chooses its penalty on rows that it does not learn from",
            expected="--select val, which holds out a part of train",
            found="--select last, which chooses nothing",
            hint="leave --select out",
        )


def fit_cost(spec: DecoderSpec, rows: int, device: torch.device) -> tuple[float, float]:
    """Seconds that a fit on so many rows may take, and bytes of memory; an estimate.

    A pure function of its arguments and the number of threads.
    """
    head = head_class(spec.head)
    assert issubclass(head, FittedHead)
    with on_paper():
        layers, size = build_decoder(spec, seed=0).attention.output_shape
    operations, memory = head.cost(rows, layers * size, spec.num_classes)
    place = with_float64(device).type
    threads = torch.get_num_threads() if place == "cpu" else 1
    return operations / (OPERATIONS[place] * threads), memory


def probe_wanted(config: TrainConfig) -> bool:
    """Whether the probe is to be added to a sweep; beside what is not evaluated it says nothing."""
    if config.test_split == NO_TEST or not config.probe:
        return False
    if any(text.partition(":")[0] == HEAD.name for text in config.head):
        return False
    if config.select == "last":
        _warn("--select last chooses nothing, and the probe needs rows that choose its penalty")
        return False
    return True


def probe_fits(
    spec: DecoderSpec, recipe: Recipe, cache: EmbeddingCache, device: torch.device
) -> bool:
    """Whether the probe is cheap enough to be fitted without being asked for; if not, it is said.

    Warns:
        GaamWarning: it is too expensive.
    """
    seconds, memory = fit_cost(spec, num_rows(recipe, cache), device)
    if seconds > MOST_SECONDS:
        _warn(f"it would take about {seconds / 60:,.0f} minutes ({recipe})")
        return False
    place = with_float64(device)
    free = free_memory() if place.type == "cpu" else free_on(place)
    if memory > MEMORY_SHARE * free:
        _warn(f"it would take {memory / 1e9:,.1f} GB of memory ({recipe})")
        return False
    return True


def _warn(why: str) -> None:
    warnings.warn(
        f"left out: the linear probe {ATTENTION} + {HEAD} beside the sweep: {why}; "
        f"--attn {ATTENTION} --head {HEAD} asks for it, --no-probe for none",
        GaamWarning,
        stacklevel=5,
    )
