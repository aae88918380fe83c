"""Attention and head as one model.

B batch, L layers, D hidden size, C classes, K noise per sample.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gaam_cache.common.errors import ConfigError
from gaam_decoder.attention._groups import DEFAULT_HEADS
from gaam_decoder.attention._softmax import Projected
from gaam_decoder.attention.base import Attention
from gaam_decoder.heads.base import Head
from gaam_decoder.heads.linear import LinearHead
from gaam_decoder.specs import Spec, build, is_foreign, plugin_options

FEW_CLASSES = 16  # of which a map of all features is less work than one of every row
ROWS_TRIED = 3
"""Random rows on which a decoder of somebody else is tried, together and one at a time."""
MIXING_SHARE = 1e-3
"""Share of the largest logit that other rows may move one by: rounding moves it by far less."""
STREAMS = {"attention": 1, "head": 2, "order": 3, "noise": 4}
STREAMS |= {"labels": 5, "shards": 6, "rows": 7, "rates": 8}
"""Independent random streams of one seed; the numbers are part of what a seed means."""


def stream_seed(seed: int, stream: str, *counters: int) -> int:
    """The seed of one of the ``STREAMS``, at further positions such as the epoch.

    Under one seed all mechanisms get the same head and the same order: comparisons are paired.
    """
    sequence = np.random.SeedSequence([seed, STREAMS[stream], *counters])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderSpec:
    """What is needed to build a decoder, whatever the seed."""

    attention: Spec
    head: Spec
    num_layers: int
    hidden_size: int
    num_classes: int


class Decoder(nn.Module):
    """``logits = head(attention(x))``, for one seed."""

    def __init__(self, attention: Attention, head: Head) -> None:
        super().__init__()
        self.attention = attention
        self.head = head

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters."""
        return next(self.parameters()).dtype

    def forward(self, x_BLD: Tensor, noise_BK: Tensor | None = None) -> Tensor:
        """(B, L, D) -> (B, C); ``noise_BK`` None is evaluation."""
        attention, head = self.attention, self.head
        if (
            isinstance(head, LinearHead)
            and isinstance(attention, Projected)
            and head.num_classes <= FEW_CLASSES
            and type(head).forward is LinearHead.forward  # others add something
            and type(attention).forward is Projected.forward
        ):
            last: Any = attention.get_submodule(attention.last)
            return head.after(last, attention.unprojected(x_BLD))
        return head(attention(x_BLD), noise_BK)

    def num_parameters(self) -> dict[str, int]:
        """Learned numbers of the attention and in all."""
        attention = sum(p.numel() for p in self.attention.parameters())
        return {
            "attention": attention,
            "total": sum(p.numel() for p in self.parameters()),
        }


@contextmanager
def without_random_numbers() -> Iterator[None]:
    """Raise ConfigError where a decoder draws random numbers of its own while it trains."""

    def states() -> list[Tensor]:
        gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        gpus += [torch.mps.get_rng_state()] if torch.backends.mps.is_available() else []
        return [torch.random.get_rng_state(), *gpus]

    before = states()
    yield
    if not all(map(torch.equal, before, states())):
        message = "the decoder draws random numbers of its own while it trains"
        raise ConfigError(message, expected="none: heads are handed noise")


@contextmanager
def on_paper() -> Iterator[None]:
    """Modules built inside have shapes and no memory; ConfigError where they have no shape."""
    try:
        with torch.device("meta"):
            yield
    except (RuntimeError, OverflowError) as error:
        message, found = (
            "the options ask for a size that no tensor has",
            str(error).splitlines()[0],
        )
        raise ConfigError(message, found=found) from error


def check_rows_stay_apart(spec: DecoderSpec) -> None:
    """Refuse a decoder of somebody else whose output for a row depends on the rows beside it.

    It is built and run on a few random rows, together and one at a time, in evaluation. A
    mechanism that means to read other rows says so: ``depends_on_batch = True``.

    Raises:
        ConfigError: rows are mixed, and the mechanism does not say that it mixes them.
    """
    if not is_foreign(spec.attention, "mechanism") and not is_foreign(
        spec.head, "head"
    ):
        return
    decoder = build_decoder(spec, seed=0).eval()
    if decoder.attention.depends_on_batch:
        return
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS_TRIED, spec.num_layers, spec.hidden_size)
    x_BLD = torch.randn(shape, generator=generator)
    with torch.inference_mode():
        together_BC = decoder(x_BLD)
        alone_BC = torch.cat(
            [decoder(x_BLD[row : row + 1]) for row in range(ROWS_TRIED)]
        )
    distance = (together_BC - alone_BC).abs().max()
    if distance <= MIXING_SHARE * alone_BC.abs().max():
        return
    raise ConfigError(
        f"'{spec.attention}' + '{spec.head}' gives a row other logits beside other rows",
        expected="the same logits for a row, whatever rows share its batch",
        found=f"logits that differ by {distance:.1e} of {alone_BC.abs().max():.1e}",
        hint="compute nothing over the first axis (x - x.mean(0)); a mechanism that means to reads "
        "other rows by depends_on_batch = True in its class",
    )


def build_attention(spec: Spec, num_layers: int, hidden_size: int) -> Attention:
    """The mechanism that a spec names; ConfigError where it does not fit these dimensions."""
    attention: Attention = build(spec, "mechanism", num_layers, hidden_size)
    return attention


def spelled_out(spec: Spec, num_layers: int, hidden_size: int) -> Spec:
    """The mechanism with the options that it chooses to fit, but for the usual number of heads."""
    chosen = _chosen(spec, num_layers, hidden_size)
    options = dict(spec.options) | {
        k: v for k, v in chosen.items() if v != DEFAULT_HEADS
    }
    return Spec(spec.name, tuple(sorted(options.items())))


def shortest(spec: Spec, num_layers: int, hidden_size: int) -> Spec:
    """The form that two mechanisms share exactly where they are the same on these dimensions."""
    spec = spelled_out(spec, num_layers, hidden_size)
    usual = {(k, DEFAULT_HEADS) for k in _chosen(spec, num_layers, hidden_size)}
    return Spec(spec.name, tuple(one for one in spec.options if one not in usual))


@functools.cache  # a sweep asks for the same mechanism thousands of times
def _chosen(spec: Spec, num_layers: int, hidden_size: int) -> dict[str, Any]:
    """Values of options that are chosen to fit, by name."""
    with on_paper():
        attention = build_attention(spec, num_layers, hidden_size)
    options = plugin_options(type(attention)).items()
    values = {
        name: getattr(attention, name, None)
        for name, (_, usual) in options
        if usual is None
    }
    return {k: v for k, v in values.items() if isinstance(v, (int, float, str))}


def build_decoder(spec: DecoderSpec, seed: int) -> Decoder:
    """A fresh decoder: the same bits on every device; the global random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would set those of GPUs too, and leave them so
        torch.default_generator.manual_seed(stream_seed(seed, "attention"))
        attention = build_attention(spec.attention, spec.num_layers, spec.hidden_size)
        torch.default_generator.manual_seed(stream_seed(seed, "head"))
        head = build(spec.head, "head", *attention.output_shape, spec.num_classes)
    return Decoder(attention, head)
