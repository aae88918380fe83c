"""Decoders of several seeds as one model.

S seeds, B batch, L layers, D hidden size, C classes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from gaam_cache.encode import OPENING
from gaam_cache.errors import ConfigError
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
        num_seeds: S.
        dtype: of matrix products: float32, bfloat16 or float16.
    """

    def __init__(self, spec: DecoderSpec, num_seeds: int, *, dtype: str = "float32") -> None:
        super().__init__()
        self.spec = spec
        self.dtype = dtype
        with OPENING:
            self.decoder = build_decoder(spec, seed=0)
        self._stackable = self.decoder.attention.stackable and self.decoder.head.stackable
        for name in self.decoder.state_dict():  # without buffers that are no part of it
            path, _, last = name.rpartition(".")
            owner = self.decoder.get_submodule(path)
            one = getattr(owner, last)
            stacked = torch.zeros(num_seeds, *one.shape, dtype=one.dtype)
            if isinstance(one, nn.Parameter):
                setattr(owner, last, nn.Parameter(stacked, requires_grad=False))
            else:
                setattr(owner, last, stacked)
        self.eval()

    @classmethod
    def of(
        cls, spec: DecoderSpec, weights: Mapping[str, Tensor], *, dtype: str = "float32"
    ) -> Self:
        """Decoders of these weights, each (S, ...); ValueError where a decoder has others."""
        num_seeds = len(next(iter(weights.values()), ()))
        ensemble = cls(spec, num_seeds, dtype=dtype)
        shapes = {name: tuple(value.shape) for name, value in weights.items()}
        expected = {name: tuple(v.shape) for name, v in ensemble.decoder.state_dict().items()}
        if shapes != expected:
            other = sorted(dict(shapes.items() ^ expected.items()))
            raise ValueError(f"weights of another decoder: {', '.join(other[:4])}")
        ensemble.decoder.load_state_dict(dict(weights))
        return ensemble

    @property
    def num_seeds(self) -> int:
        """S."""
        return len(next(iter(self.decoder.state_dict().values())))

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 the signature of torch
        """It stays in evaluation."""
        return super().train(False)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) -> (S, B, C)."""
        with _TURN:
            return self._all_logits(x_BLD)

    def _all_logits(self, x_BLD: Tensor) -> Tensor:
        x_BLD, stacked = x_BLD.float(), self.decoder.state_dict()
        # one after the other where nothing waits for launches: convolutions of stacked seeds take
        # four times as long on a CPU, and nothing there is faster for it; products of fewer bits
        # would be rounded elsewhere than in the training, which stacks them
        apart = x_BLD.device.type == "cpu" and self.dtype == "float32"
        if self.num_seeds > 1 and self._stackable and not apart:
            return vmap(lambda one: self._logits(one, x_BLD))(stacked)
        return torch.stack(
            [
                self._logits({name: value[place] for name, value in stacked.items()}, x_BLD)
                for place in range(self.num_seeds)
            ]
        )

    def _logits(self, one: dict[str, Tensor], x_BLD: Tensor) -> Tensor:
        """Of one seed, as its training evaluates it."""
        lower = LOWER.get(self.dtype)
        with torch.autocast(x_BLD.device.type, lower, enabled=lower is not None):
            logits_BC: Tensor = functional_call(self.decoder, one, (x_BLD,))
        return logits_BC.float()


def check_alone(ensemble: Ensemble, attention: str, where: Path) -> None:
    """Refuse decoders that have no answer for one row: they predict it by the rows beside it."""
    if ensemble.decoder.attention.depends_on_batch:
        raise ConfigError(
            f"'{attention}' predicts a row by the rows beside it, and has no answer for one",
            expected="a mechanism that looks at one row at a time",
            where=str(where.absolute()),
            hint="its test accuracy is that of batches as they were: gaam report",
        )
