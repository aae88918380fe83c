"""The arithmetic of a group of seeds: a training step and logits, of stacked tensors.

S seeds, B batch, L layers, D hidden size, C classes, K noise per sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from gaam_decoder.decoder import Decoder
from gaam_decoder.losses._base import Loss
from gaam_decoder.training.adamw import Stacked, adamw, clipped
from gaam_decoder.training.kernels import Kernels


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What a training step reads and changes in place."""

    parameters: Stacked
    buffers: Stacked
    mean: Stacked
    """First moments of the gradients."""
    square: Stacked
    """Second moments."""
    loss_S: Tensor  # noqa: N815
    """Losses of the epoch's rows so far, added up."""
    hit_S: Tensor  # noqa: N815
    """Rows of the epoch that were right when they were seen."""

    def tensors(self) -> Stacked:
        """What has to be kept to go on, by name."""
        return {
            f"{part}.{name}": value
            for part in ("parameters", "buffers", "mean", "square")
            for name, value in getattr(self, part).items()
        }


Found = tuple[Stacked, Stacked, Tensor, Tensor]
"""Gradients, buffers afterwards, losses (S,) and logits (S, B, C)."""


class Program:
    """One step of AdamW and one evaluation, for any group of ``num_seeds`` seeds.

    The decoder is written for one seed. Several are run together by ``torch.func.vmap`` over
    stacked parameters; a group of one needs no vmap. Nothing flows from one seed to another: the
    gradient, its norm, the moments and the rate all have the seed as their first axis, so that a
    seed whose numbers are no longer finite leaves the others as they are.

    Args:
        decoder: any decoder of the kind, on the device; its parameters are not used.
        loss_of: the loss.
        num_seeds: S.
        weight_decay: of AdamW.
        clip_grad_norm: largest norm of one seed's gradient, or None.
        autocast: type of matrix products where it is not that of the parameters.
        compiled: whether to hand the arithmetic to ``torch.compile``.

    Attributes:
        kernels: what runs the arithmetic, and knows whether it is compiled.
    """

    def __init__(
        self,
        decoder: Decoder,
        loss_of: Loss,
        *,
        num_seeds: int,
        weight_decay: float,
        clip_grad_norm: float | None,
        autocast: torch.dtype | None,
        compiled: bool,
    ) -> None:
        self.decoder = decoder
        self.kernels = Kernels(compiled)
        self._loss_of = loss_of
        self._stacked = num_seeds > 1
        self._weight_decay = weight_decay
        self._clip = clip_grad_norm
        self._autocast = autocast
        self._dtype = decoder.dtype

    @torch.no_grad()
    def step(
        self,
        state: State,
        x_SBLD: Tensor,
        label_SB: Tensor,
        noise_SBK: Tensor | None,
        lr_S: Tensor,
        correction: Tensor,
    ) -> None:
        """One step of every seed, on rows of its own; ``state`` changes in place.

        Args:
            state: of S seeds.
            x_SBLD: the rows that each seed sees, in any floating type.
            label_SB: their classes.
            noise_SBK: uniform numbers, or None where the decoder needs none.
            lr_S: learning rate of every seed.
            correction: (2,), ``1 - beta1^t`` and ``sqrt(1 - beta2^t)`` at step t.
        """
        self.decoder.train()
        tensors = (state.parameters, state.buffers, state.mean, state.square)
        if self._in_one():
            sums = (state.loss_S, state.hit_S)
            rows = (x_SBLD, label_SB, noise_SBK)
            self.kernels.run(self._step, x_SBLD.shape, *tensors, *sums, *rows, lr_S, correction)
            return
        gradients, after, loss_S, logits_SBC = self._find(state, x_SBLD, label_SB, noise_SBK)
        if self._clip is not None:
            gradients = clipped(gradients, self._clip)
        self.kernels.run(self._update, (), *tensors, gradients, after, lr_S, correction)
        count_rows(state.loss_S, state.hit_S, loss_S, logits_SBC, label_SB)

    def _in_one(self) -> bool:
        """Whether a step is one kernel. torch 2.13 cannot compile norms beside some gradients."""
        return self._clip is None

    def _find(
        self, state: State, x_SBLD: Tensor, label_SB: Tensor, noise_SBK: Tensor | None
    ) -> Found:
        """What a step learns from its rows."""
        arguments = (state.parameters, state.buffers, x_SBLD, label_SB, noise_SBK)
        found: Found = self.kernels.run(self._gradients, x_SBLD.shape, *arguments)
        return found

    @torch.no_grad()
    def logits(self, state: State, x_BLD: Tensor) -> Tensor:
        """Logits of the same rows under every seed, (S, B, C)."""
        self.decoder.eval()
        arguments = (state.parameters, state.buffers, x_BLD)
        result: Tensor = self.kernels.run(self._logits, x_BLD.shape, *arguments)
        return result

    def _one(
        self, parameters: Stacked, buffers: Stacked, x_BLD: Tensor, noise_BK: Tensor | None
    ) -> Tensor:
        """Logits of one seed, in the type of its parameters or float32."""
        logits_BC = self._call(self.decoder, (parameters, buffers), x_BLD, noise_BK)
        return logits_BC.to(self._dtype)

    def _call(self, module: nn.Module, tensors: tuple[Stacked, ...], *inputs: Any) -> Tensor:
        """A module with the parameters and buffers of one seed."""
        kind, lower = inputs[0].device.type, self._autocast
        with torch.autocast(kind, lower, enabled=lower is not None):
            result: Tensor = functional_call(module, tensors, inputs)
        return result

    def _loss(
        self,
        parameters: Stacked,
        buffers: Stacked,
        x_BLD: Tensor,
        label_B: Tensor,
        noise_BK: Tensor | None,
    ) -> tuple[Tensor, tuple[Tensor, Stacked]]:
        after = copies(buffers)
        logits_BC = self._one(parameters, after, x_BLD, noise_BK)
        return self._loss_of(logits_BC, label_B), (logits_BC.detach(), after)

    def _logits(self, parameters: Stacked, buffers: Stacked, x_BLD: Tensor) -> Tensor:
        x_BLD = x_BLD.to(self._dtype)
        if not self._stacked:
            return self._one(only(parameters), only(buffers), x_BLD, None)[None]
        several = vmap(self._one, in_dims=(0, 0, None, None))
        return several(parameters, buffers, x_BLD, None)

    def _step(
        self,
        parameters: Stacked,
        buffers: Stacked,
        mean: Stacked,
        square: Stacked,
        loss_S: Tensor,
        hit_S: Tensor,
        x_SBLD: Tensor,
        label_SB: Tensor,
        noise_SBK: Tensor | None,
        lr_S: Tensor,
        correction: Tensor,
    ) -> None:
        gradients, after, batch_loss_S, logits_SBC = self._gradients(
            parameters, buffers, x_SBLD, label_SB, noise_SBK
        )
        self._update(parameters, buffers, mean, square, gradients, after, lr_S, correction)
        count_rows(loss_S, hit_S, batch_loss_S, logits_SBC, label_SB)

    def _gradients(
        self,
        parameters: Stacked,
        buffers: Stacked,
        x_SBLD: Tensor,
        label_SB: Tensor,
        noise_SBK: Tensor | None,
    ) -> Found:
        x_SBLD = x_SBLD.to(self._dtype)
        differentiate = grad_and_value(self._loss, has_aux=True)
        if self._stacked:
            many = vmap(differentiate, in_dims=(0, 0, 0, 0, None if noise_SBK is None else 0))
            gradients, (loss_S, (logits_SBC, after)) = many(
                parameters, buffers, x_SBLD, label_SB, noise_SBK
            )
            return gradients, after, loss_S, logits_SBC
        noise_BK = None if noise_SBK is None else noise_SBK[0]
        gradients, (loss, (logits_BC, after)) = differentiate(
            only(parameters), only(buffers), x_SBLD[0], label_SB[0], noise_BK
        )
        return alone(gradients), alone(after), loss[None], logits_BC[None]

    def _update(
        self,
        parameters: Stacked,
        buffers: Stacked,
        mean: Stacked,
        square: Stacked,
        gradients: Stacked,
        after: Stacked,
        lr_S: Tensor,
        correction: Tensor,
    ) -> None:
        for name, value in after.items():
            buffers[name].copy_(value)
        adamw(parameters, mean, square, gradients, lr_S, correction, self._weight_decay)


def count_rows(
    loss_S: Tensor, hit_S: Tensor, batch_loss_S: Tensor, logits_SBC: Tensor, label_SB: Tensor
) -> None:
    """Add a batch to the epoch's losses and to its rows that were right, in place."""
    loss_S.add_(batch_loss_S, alpha=label_SB.shape[1])
    hit_S.add_((logits_SBC.argmax(-1) == label_SB).sum(1))


def alone(tensors: Stacked) -> Stacked:
    """Tensors of one seed as those of a group of one."""
    return {name: value[None] for name, value in tensors.items()}


def only(stacked: Stacked, place: int = 0) -> Stacked:
    """The tensors of one seed; by default those of a group of one."""
    return {name: value[place] for name, value in stacked.items()}


def copies(buffers: Stacked) -> Stacked:
    """What a module in training writes into."""
    return {name: value.clone() for name, value in buffers.items()}
