"""A training step of several seeds at once, and their logits.

S seeds, B batch, L layers, D hidden size, C classes, K random numbers per row.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from gaam_cache.common.devices import float64
from gaam_decoder.decoder import Decoder, DecoderSpec
from gaam_decoder.losses.base import Loss, weighted_label_mean, weighted_mean
from gaam_decoder.optimizers.base import Optimizer, Stacked
from gaam_decoder.recipe import Recipe
from gaam_decoder.specs import build
from gaam_decoder.tasks import Task, task_of
from gaam_decoder.training.arithmetic.compiled import Compiler
from gaam_decoder.training.arithmetic.engine import (
    AUTOCAST_TYPES,
    Engine,
    keep_freed_memory,
)
from gaam_decoder.training.arithmetic.state import (
    Batch,
    State,
    Weights,
    clipped,
    unscaled,
)

COMPILED_SETTINGS = (
    "loss",
    "class_weights",
    "optimizer",
    "weight_decay",
    "clip_grad_norm",
    "clip_order",
    "loss_scale",
    "eval_dtype",
)
"""Settings of a recipe that are compiled into a step; others reach it as tensors."""


class Gradients(NamedTuple):
    """The gradients of a batch, and the losses and logits beside them."""

    by_parameter: Stacked
    loss_S: Tensor
    logits_SBC: Tensor
    buffers: Stacked  # new values: a batch normalisation counts the rows of the batch
    is_finite_S: Tensor | None = None
    """Whether all gradients of a seed are finite; None if losses are not scaled."""


class Step:
    """One step of an optimizer for a batch of seeds, and their logits.

    The decoder is written for one seed; ``torch.func.vmap`` runs it over stacked
    parameters. Nothing flows from one seed to another: the gradient, its norm, the
    learning rate and the state of the optimizer all have the seed as their first axis.
    A seed whose numbers are no longer finite leaves the others as they are.

    ``decoder`` is a module on the device, whose own parameters are not used.
    """

    def __init__(
        self,
        decoder: Decoder,
        loss_function: Loss,
        recipe: Recipe,
        engine: Engine,
        task: Task,
    ) -> None:
        self._decoder = decoder
        self._task = task
        self._dtype = decoder.dtype
        self.loss_function = loss_function
        self.optimizer: Optimizer = build(recipe.optimizer, "optimizer")
        self._weight_decay = recipe.weight_decay
        self._clip_grad_norm = recipe.clip_grad_norm
        # as in the published code, which clips the gradient of the scaled loss
        self._clips_before_unscaling = recipe.clip_order == "clip-first"
        # the type of matrix products, if it is not that of the parameters
        self._autocast = AUTOCAST_TYPES.get(engine.dtype)
        self.eval_autocast = self._autocast if recipe.eval_dtype == "same" else None
        self.compiler = Compiler(enabled=engine.compiled, device_type=engine.kind)

    @torch.no_grad()
    def __call__(self, state: State, batch: Batch, *, is_short: bool = False) -> None:
        """Take one step of every seed; ``state`` changes in place.

        Without clipping and loss scaling, all of it is one compiled function.

        Args:
            state: of all seeds.
            batch: of rows of every seed.
            is_short: whether this is the last batch of an epoch and has fewer rows than
                the others. It is not compiled: its number of rows varies between folds
                and seeds, and each number would be compiled anew.
        """
        self._decoder.train()
        shapes = batch.x_SBLD.shape
        run = _run_plainly if is_short else self.compiler.run
        # torch compiles a view for the size of its base, here the labels of all
        # training rows. Folds differ in that size, so every fold would be compiled
        # again: a copy avoids this.
        batch = batch._replace(label_SB=batch.label_SB.contiguous())
        if self._clip_grad_norm is None and state.scaling is None:
            run(self._step, shapes, state, batch)
            return

        # in parts: torch 2.13 cannot compile norms and gradients of some decoders
        # together
        gradients: Gradients = run(self._differentiate, shapes, state, batch)
        if state.scaling is None:
            gradients = self._clip(gradients)
        elif self._clips_before_unscaling:
            gradients = self._clip(gradients)
            gradients = run(self._unscale, shapes, state, gradients)
        else:
            gradients = run(self._unscale, shapes, state, gradients)
            gradients = self._clip(gradients)
        run(self._update, shapes, state, batch, gradients)

    @torch.no_grad()
    def logits(self, weights: Weights, x_BLD: Tensor) -> Tensor:
        """Logits of the same rows under every seed, (S, B, C)."""
        self._decoder.eval()
        shape = x_BLD.shape
        logits_SBC: Tensor = self.compiler.run(self._logits, shape, weights, x_BLD)
        return logits_SBC

    def _step(self, state: State, batch: Batch) -> None:
        """Compute the gradients of a batch and update the state."""
        self._update(state, batch, self._differentiate(state, batch))

    def _differentiate(self, state: State, batch: Batch) -> Gradients:
        """The gradients of the (scaled) loss of every seed."""
        x_SBLD = batch.x_SBLD.to(self._dtype)
        # A single seed that is not compiled does without ``torch.func``, which imports
        # the compiler. Compiled code and several seeds need it.
        gradients_and_loss: Callable[..., Any] = self._gradients_and_loss
        if torch.compiler.is_compiling() or len(x_SBLD) > 1:
            gradients_and_loss = grad_and_value(self._loss, has_aux=True)
        scale_S = None if state.scaling is None else state.scaling.scale_S
        gradients, (_loss_to_differentiate, outputs) = _map_over_seeds(
            gradients_and_loss,
            state.parameters,
            state.buffers,
            x_SBLD,
            batch.label_SB,
            batch.noise_SBK,
            batch.weight_SB,
            scale_S,
        )
        loss_S, logits_SBC, new_buffers = outputs
        return Gradients(gradients, loss_S, logits_SBC, new_buffers)

    @torch.enable_grad()
    def _gradients_and_loss(
        self, parameters: Stacked, *arguments: Any
    ) -> tuple[Stacked, tuple[Tensor, Any]]:
        """Differentiate the loss of one seed, as ``torch.func.grad_and_value`` does.

        That function imports the compiler of torch, which takes 1.4 seconds.

        Args:
            parameters: of the seed.
            arguments: the other arguments of ``_loss``.

        Returns:
            The gradients by parameter; and both results of ``_loss``.
        """
        leaves = {
            name: value.detach().requires_grad_() for name, value in parameters.items()
        }
        scaled_loss, outputs = self._loss(leaves, *arguments)
        gradients = torch.autograd.grad(
            scaled_loss, [*leaves.values()], materialize_grads=True
        )
        return dict(zip(leaves, gradients, strict=True)), (scaled_loss, outputs)

    def _clip(self, gradients: Gradients) -> Gradients:
        """Gradients whose norm is at most the limit of the recipe, if it has one."""
        if self._clip_grad_norm is None:
            return gradients
        clipped_gradients = clipped(gradients.by_parameter, self._clip_grad_norm)
        return gradients._replace(by_parameter=clipped_gradients)

    def _unscale(self, state: State, gradients: Gradients) -> Gradients:
        """Gradients of the loss instead of the scaled loss."""
        assert state.scaling is not None
        unscaled_gradients, is_finite_S = unscaled(
            gradients.by_parameter, state.scaling.scale_S
        )
        return gradients._replace(
            by_parameter=unscaled_gradients, is_finite_S=is_finite_S
        )

    def _update(self, state: State, batch: Batch, gradients: Gradients) -> None:
        """Update parameters, buffers, optimizer, loss scale and sums of the epoch."""
        # as in torch, steps that leave the parameters as they are change buffers, too
        for name, value in gradients.buffers.items():
            state.buffers[name].copy_(value)
        num_rows = batch.label_SB.shape[1]
        loss_S = gradients.loss_S
        step_constants = batch.step_constants
        score_S = self._task.batch_sums(gradients.logits_SBC, batch.label_SB)
        if state.scaling is not None and gradients.is_finite_S is not None:
            # skipped steps do not count, and each seed skipped steps of its own: each
            # has a step number of its own. In float32, Adam's corrections of its
            # moments would change by 1e-5
            step_S = float64(state.scaling.steps_S + 1)
            constants_by_seed = self.optimizer.numbers(step_S)
            has_step_constants = len(constants_by_seed) > 0
            if has_step_constants:
                step_constants = torch.stack(constants_by_seed).to(loss_S)
            state.scaling.update(gradients.is_finite_S)
            # batches with a loss that is not finite are in no mean
            has_finite_loss_S = loss_S.isfinite()
            loss_S = torch.where(has_finite_loss_S, loss_S, 0)
            score_S = _where_finite(score_S, has_finite_loss_S)
            state.scaling.rows_without_loss_S.add_(~has_finite_loss_S, alpha=num_rows)
        self.optimizer.step(
            state.parameters,
            gradients.by_parameter,
            state.optimizer,
            batch.lr_S,
            step_constants,
            self._weight_decay,
            gradients.is_finite_S,
        )
        state.loss_S.add_(loss_S, alpha=num_rows)
        state.score_S.add_(score_S)

    def _loss(
        self,
        parameters: Stacked,
        buffers: Stacked,
        x_BLD: Tensor,
        label_B: Tensor,
        noise_BK: Tensor | None,
        weight_B: Tensor | None,
        scale: Tensor | None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Stacked]]:
        """The loss of one seed on a batch.

        The arguments are those of a batch and a state, without the axis of seeds;
        ``noise_BK`` are K random numbers for each row.

        Returns:
            The scaled loss, which is differentiated; and a tuple of the loss, the
            logits and the new buffers.
        """
        new_buffers = {name: value.clone() for name, value in buffers.items()}
        logits_BC = self._forward(
            parameters, new_buffers, x_BLD, noise_BK, self._autocast
        )
        # with label sets the labels have weights, else the rows
        mean_loss = weighted_mean if label_B.ndim == 1 else weighted_label_mean
        loss = mean_loss(self.loss_function, logits_BC, label_B, weight_B)
        scaled_loss = loss if scale is None else loss * scale
        return scaled_loss, (loss.detach(), logits_BC.detach(), new_buffers)

    def _logits(self, weights: Weights, x_BLD: Tensor) -> Tensor:
        """Logits of the same rows under every seed, (S, B, C).

        ``logits`` runs it, compiled where that works.
        """
        x_BLD = x_BLD.to(self._dtype)

        def logits_of_seed(parameters: Stacked, buffers: Stacked) -> Tensor:
            return self._forward(
                parameters,
                buffers,
                x_BLD,
                noise_BK=None,
                product_dtype=self.eval_autocast,
            )

        logits_SBC: Tensor = _map_over_seeds(logits_of_seed, *weights)
        return logits_SBC

    def _forward(
        self,
        parameters: Stacked,
        buffers: Stacked,
        x_BLD: Tensor,
        noise_BK: Tensor | None,
        product_dtype: torch.dtype | None,
    ) -> Tensor:
        """Logits of one seed, in the type of its parameters.

        Args:
            parameters: of the seed.
            buffers: of the seed; the new values of training take their places.
            x_BLD: states of the rows.
            noise_BK: K uniform random numbers for each row, such as for dropout; None
                where the decoder draws none.
            product_dtype: of matrix products; None: that of the parameters.
        """
        has_autocast = product_dtype is not None
        tensors = parameters | buffers
        with torch.autocast(x_BLD.device.type, product_dtype, enabled=has_autocast):
            logits_BC: Tensor = functional_call(
                self._decoder, tensors, (x_BLD, noise_BK)
            )
        # a part may assign a new tensor to a buffer: torch writes it into ``tensors``
        buffers.update((name, tensors[name]) for name in buffers)
        return logits_BC.to(self._dtype)


def _where_finite(score_S: Tensor, has_finite_loss_S: Tensor) -> Tensor:
    """The sums of the seeds whose loss is finite, 0 for the others."""
    shape = (-1,) + (1,) * (score_S.ndim - 1)
    return torch.where(has_finite_loss_S.view(shape), score_S, 0)


def _map_over_seeds(
    function: Callable[..., Any], parameters: Stacked, *arguments: Any
) -> Any:
    """Call a function for every seed, and stack the results.

    Args:
        function: of the tensors of one seed.
        parameters: of all seeds, with the seed as their first axis.
        arguments: further arguments of all seeds: tensors, trees of tensors, or None.
    """
    stacked = (parameters, *arguments)
    if len(next(iter(parameters.values()))) > 1:
        in_dims = tuple(None if value is None else 0 for value in stacked)
        return vmap(function, in_dims=in_dims)(*stacked)
    # a single seed needs no vmap
    tensors = _map_tensors(lambda value: value[0], stacked)
    result = function(*tensors)
    return _map_tensors(lambda value: value[None], result)


def _map_tensors(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Apply a function to every tensor in tuples and dicts of tensors and None."""
    if isinstance(tree, dict):
        return {name: _map_tensors(function, value) for name, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_map_tensors(function, value) for value in tree)
    return None if tree is None else function(tree)


def _run_plainly(method: Callable[..., Any], shapes: object, *arguments: Any) -> Any:
    """Call a method as ``Compiler.run`` does, without compiling it for its shapes."""
    return method(*arguments)


class StepCache:
    """Keeps the steps of one decoder, by their number of seeds, for later seed batches.

    A ``Step`` holds compiled code. Seed batches, learning rates and folds differ in
    their tensors alone, so that they share it. A step for another decoder drops those
    of the last one.
    """

    def __init__(self) -> None:
        self._key: tuple[object, ...] | None = None
        self._by_size: dict[int, Step] = {}

    def get(
        self,
        spec: DecoderSpec,
        recipe: Recipe,
        engine: Engine,
        decoder: Decoder,
        loss_function: Loss,
        num_seeds: int,
    ) -> Step:
        """The step for a number of seeds, made at the first call."""
        key = (
            spec,
            decoder.dtype,
            engine.device,
            engine.dtype,
            engine.compiled,
            *(getattr(recipe, name) for name in COMPILED_SETTINGS),
        )
        if key != self._key:
            self._key = key
            self._by_size = {}
            # a setting of the process, made once, before the first step
            keep_freed_memory()
            # drop the compiled code of earlier decoders, which torch would keep
            if engine.compiled:
                torch._dynamo.reset()
        if num_seeds not in self._by_size:
            self._by_size[num_seeds] = Step(
                decoder, loss_function, recipe, engine, task_of(spec.task)
            )
        return self._by_size[num_seeds]
