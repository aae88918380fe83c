"""Steps that are kept for the next group: what was compiled once need not be compiled again."""

from __future__ import annotations

from typing import Any

import torch

from gaam_decoder.decoder import Decoder, DecoderSpec
from gaam_decoder.losses._base import Loss
from gaam_decoder.recipe import Recipe
from gaam_decoder.training.arithmetic import compiled
from gaam_decoder.training.arithmetic.engine import LOWER, Engine
from gaam_decoder.training.arithmetic.memory import keep_freed_memory
from gaam_decoder.training.arithmetic.step import Step


class Steps:
    """The steps of one decoder, by number of seeds.

    Groups, learning rates and folds differ in tensors only and share them. Those of the last
    decoder are dropped when another one comes.
    """

    def __init__(self) -> None:
        self._for: Any = None
        self._by_size: dict[int, tuple[Step, compiled.Compiler]] = {}

    def get(
        self,
        spec: DecoderSpec,
        recipe: Recipe,
        engine: Engine,
        decoder: Decoder,
        loss_of: Loss,
        num_seeds: int,
    ) -> tuple[Step, compiled.Compiler]:
        """The step for ``num_seeds`` seeds and what runs it, made if there is none.

        Args:
            spec: the decoder.
            recipe: of the training.
            engine: how it is run.
            decoder: one of the kind, on the device and in the type of its parameters.
            loss_of: the loss that the recipe names.
            num_seeds: S.
        """
        about = (
            *(spec, recipe.loss, recipe.weight_decay, recipe.clip_grad_norm, recipe.clip_order),
            *(recipe.loss_scale, recipe.eval_dtype, recipe.class_weights, decoder.dtype),
            *(engine.device, engine.dtype, engine.compiled),
        )
        if about != self._for:
            self._for, self._by_size = about, {}
            keep_freed_memory()
            if engine.compiled:
                compiled.forget()
        if num_seeds not in self._by_size:
            kind = torch.device(engine.device).type
            compiler = compiled.Compiler(asked=engine.compiled, device_type=kind)
            lower = LOWER.get(engine.dtype)
            step = Step(
                decoder,
                loss_of,
                compiler.run,
                weight_decay=recipe.weight_decay,
                clip_grad_norm=recipe.clip_grad_norm,
                clip_first=recipe.clip_order == "clip-first",
                autocast=lower,
                eval_autocast=lower if recipe.eval_dtype == "same" else None,
            )
            self._by_size[num_seeds] = step, compiler
        return self._by_size[num_seeds]
