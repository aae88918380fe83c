"""Decoders of several seeds as one model.

S seeds, B batch, L layers, D hidden size, C classes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from gaam_cache.encode import OPENING
from gaam_cache.errors import CacheError, ConfigError
from gaam_decoder.decoder import DecoderSpec, build_decoder
from gaam_decoder.training.arithmetic.engine import LOWER

_TURN = threading.Lock()
"""Held while a decoder runs: the weights of a seed are put into a module that threads share."""


class Ensemble(nn.Module):
    """``logits_s = head_s(attention_s(x))`` for every seed s, evaluated and never trained.

    Names of the parameters are those of one decoder behind ``decoder.``, each with the seeds as
    its first axis.

    Shape:
        x (B, L, D) of the layers that the decoders learned from -> logits (S, B, C), float32.

    Args:
        spec: of the decoders.
        weights: of them, each (S, ...).
        dtype: of matrix products: float32, bfloat16 or float16.

    Raises:
        CacheError: weights of another decoder.
        ConfigError: decoders that have no answer for one row: they predict it by those beside it.
    """

    def __init__(
        self, spec: DecoderSpec, weights: Mapping[str, Tensor], *, dtype: str = "float32"
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self.num_seeds = len(next(iter(weights.values()), ()))
        with OPENING:
            self.decoder = build_decoder(spec, seed=0)
        own = self.decoder.state_dict()  # without buffers that are no part of it
        expected = {(name, self.num_seeds, *one.shape) for name, one in own.items()}
        if other := expected ^ {(name, *one.shape) for name, one in weights.items()}:
            raise CacheError(
                "the weights are of another decoder",
                expected=f"those of {spec.attention} + {spec.head}, as this gaam has them",
                found=f"others of {', '.join(sorted({name for name, *_ in other})[:4])}",
                hint="an earlier gaam may have meant another one by that name: train it again",
            )
        if self.decoder.attention.depends_on_batch:
            raise ConfigError(
                f"'{spec.attention}' predicts a row by the rows beside it",
                expected="a mechanism that looks at one row at a time",
                hint="its test accuracy is that of batches as they were: gaam report",
            )
        for name, one in own.items():
            path, _, last = name.rpartition(".")
            owner, stacked = self.decoder.get_submodule(path), weights[name].to(one.dtype)
            if isinstance(getattr(owner, last), nn.Parameter):
                stacked = nn.Parameter(stacked, requires_grad=False)
            setattr(owner, last, stacked)
        self.eval()

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 the signature of torch
        """It stays in evaluation."""
        return super().train(False)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) -> (S, B, C)."""
        with _TURN:
            x_BLD, stacked = x_BLD.float(), self.decoder.state_dict()
            # one after the other where nothing waits for launches: convolutions of stacked seeds
            # take four times as long on a CPU, and nothing there is faster for it; products of
            # fewer bits would be rounded elsewhere than in the training, which stacks them
            apart = x_BLD.device.type == "cpu" and self.dtype == "float32"
            stackable = self.decoder.attention.stackable and self.decoder.head.stackable
            if self.num_seeds > 1 and stackable and not apart:
                return vmap(lambda one: self._logits(one, x_BLD))(stacked)
            seeds = range(self.num_seeds)
            each = [{name: value[place] for name, value in stacked.items()} for place in seeds]
            return torch.stack([self._logits(one, x_BLD) for one in each])

    def _logits(self, one: dict[str, Tensor], x_BLD: Tensor) -> Tensor:
        """Of one seed, as its training evaluates it."""
        lower = LOWER.get(self.dtype)
        with torch.autocast(x_BLD.device.type, lower, enabled=lower is not None):
            logits_BC: Tensor = functional_call(self.decoder, one, (x_BLD,))
        return logits_BC.float()
