"""The arithmetic of a group of seeds where the head is better left to itself.

S seeds, B batch, L layers, D hidden size, C classes, K noise per sample.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from gaam_decoder.training.adamw import Stacked
from gaam_decoder.training.program import Found, Program, State, alone, copies, only

ATTENTION, HEAD = "attention.", "head."


class StagedProgram(Program):
    """The attention and the optimiser compiled, the head between them as it stands.

    A head that consists of a few large matrix products gains nothing from a compiler, but the many
    small operations around it do. The attention is computed forward, the head forward and backward,
    one seed after the other, and then the attention again with the gradient that the head handed
    back: it is cheap, and nothing has to be kept. Without a compiler this is the plain program.
    """

    def _in_one(self) -> bool:
        return super()._in_one() and not self.kernels.compiled

    def _find(
        self, state: State, x_SBLD: Tensor, label_SB: Tensor, noise_SBK: Tensor | None
    ) -> Found:
        if not self.kernels.compiled:
            return super()._find(state, x_SBLD, label_SB, noise_SBK)
        inside = _inside(ATTENTION, state.parameters), _inside(ATTENTION, state.buffers)
        key = (x_SBLD.shape, "training")
        y_SBLD = self.kernels.run(self._attend, key, *inside, x_SBLD)
        head = _inside(HEAD, state.parameters)
        results = [
            self._differentiate(only(head, place), y_BLD, label_SB[place], _at(noise_SBK, place))
            for place, y_BLD in enumerate(y_SBLD)
        ]
        grad_SBLD, of_head, loss_S, logits_SBC = _stacked(results)
        of_attention, after = self.kernels.run(self._pull, key, *inside, x_SBLD, grad_SBLD)
        gradients = _named(ATTENTION, of_attention) | _named(HEAD, of_head)
        ordered = {name: gradients[name] for name in state.parameters}
        return ordered, _named(ATTENTION, after), loss_S, logits_SBC

    @torch.no_grad()
    def logits(self, state: State, x_BLD: Tensor) -> Tensor:
        """As ``Program.logits``."""
        if not self.kernels.compiled:
            return super().logits(state, x_BLD)
        self.decoder.eval()
        inside = _inside(ATTENTION, state.parameters), _inside(ATTENTION, state.buffers)
        y_SBLD = self.kernels.run(self._attend, (x_BLD.shape, "same rows"), *inside, x_BLD)
        head = _inside(HEAD, state.parameters)
        each = [self._score(only(head, i), y_BLD, None) for i, y_BLD in enumerate(y_SBLD)]
        return torch.stack(each)

    def _attend(self, parameters: Stacked, buffers: Stacked, x: Tensor) -> Tensor:
        """What every seed's attention leaves of rows of its own (S, B, L, D) or of the same."""
        x = x.to(self._dtype)
        if not self._stacked:
            return self._attended(only(parameters), only(buffers), x[0] if x.ndim == 4 else x)[None]
        each = vmap(self._attended, in_dims=(0, 0, 0 if x.ndim == 4 else None))
        return each(parameters, buffers, x)

    def _attended(self, parameters: Stacked, buffers: Stacked, x_BLD: Tensor) -> Tensor:
        return self._call(self.decoder.attention, (parameters, copies(buffers)), x_BLD)

    def _score(self, weights: Stacked, y_BLD: Tensor, noise_BK: Tensor | None) -> Tensor:
        return self._call(self.decoder.head, (weights,), y_BLD, noise_BK).to(self._dtype)

    def _differentiate(
        self, weights: Stacked, y_BLD: Tensor, label_B: Tensor, noise_BK: Tensor | None
    ) -> tuple[Tensor, Stacked, Tensor, Tensor]:
        """One seed: gradients of what its head reads and of its parameters, loss and logits."""
        weights = {name: value.detach().requires_grad_() for name, value in weights.items()}
        y_BLD = y_BLD.detach().requires_grad_()
        with torch.enable_grad():
            logits_BC = self._score(weights, y_BLD, noise_BK)
            loss = self._loss_of(logits_BC, label_B)
            of_input, *others = torch.autograd.grad(loss, [y_BLD, *weights.values()])
        gradients = dict(zip(weights, others, strict=True))
        return of_input, gradients, loss.detach(), logits_BC.detach()

    def _pull(
        self, parameters: Stacked, buffers: Stacked, x_SBLD: Tensor, grad_SBLD: Tensor
    ) -> tuple[Stacked, Stacked]:
        """Gradients of the attentions' parameters, and their buffers afterwards."""
        if not parameters:
            return {}, {}
        x_SBLD = x_SBLD.to(self._dtype)
        if self._stacked:
            return vmap(self._pulled_back)(parameters, buffers, x_SBLD, grad_SBLD)
        one = self._pulled_back(only(parameters), only(buffers), x_SBLD[0], grad_SBLD[0])
        return alone(one[0]), alone(one[1])

    def _pulled_back(
        self, parameters: Stacked, buffers: Stacked, x_BLD: Tensor, grad_BLD: Tensor
    ) -> tuple[Stacked, Stacked]:
        """Gradients of one attention's parameters, and its buffers afterwards."""

        def product(parameters: Stacked) -> tuple[Tensor, Stacked]:
            after = copies(buffers)
            y_BLD = self._call(self.decoder.attention, (parameters, after), x_BLD)
            return (y_BLD * grad_BLD).sum(), after

        return grad(product, has_aux=True)(parameters)


def _inside(part: str, stacked: Stacked) -> Stacked:
    """What belongs to a part of the decoder, by its name there."""
    return {
        name.removeprefix(part): value for name, value in stacked.items() if name.startswith(part)
    }


def _named(part: str, tensors: Stacked) -> Stacked:
    return {part + name: value for name, value in tensors.items()}


def _at(noise_SBK: Tensor | None, place: int) -> Tensor | None:
    return None if noise_SBK is None else noise_SBK[place]


def _stacked(results: list[tuple[Tensor, Stacked, Tensor, Tensor]]) -> tuple[Any, ...]:
    of_input, gradients, losses, logits = zip(*results, strict=True)
    stacked = {name: torch.stack([one[name] for one in gradients]) for name in gradients[0]}
    return torch.stack(of_input), stacked, torch.stack(losses), torch.stack(logits)
