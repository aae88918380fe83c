"""Programs that are kept for the next group: what was compiled once need not be compiled again."""

from __future__ import annotations

from typing import Any

import torch

from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import Decoder, DecoderSpec
from gaam_decoder.losses._base import Loss
from gaam_decoder.training.engine import Engine
from gaam_decoder.training.program import Program


class Programs:
    """The programs of one decoder, by number of seeds.

    Groups, learning rates and folds differ in tensors only and share them. Those of the last
    decoder are dropped when another one comes.
    """

    def __init__(self) -> None:
        self._for: Any = None
        self._by_size: dict[int, Program] = {}

    def get(
        self,
        spec: DecoderSpec,
        config: TrainConfig,
        engine: Engine,
        decoder: Decoder,
        loss_of: Loss,
        num_seeds: int,
    ) -> Program:
        """The program for ``num_seeds`` seeds, made if there is none.

        Args:
            spec: the decoder.
            config: its recipe.
            engine: how it is run.
            decoder: one of the kind, on the device and in the type of its parameters.
            loss_of: the loss that the recipe names.
            num_seeds: S.
        """
        recipe = (config.loss, config.weight_decay, config.clip_grad_norm)
        about = (spec, recipe, decoder.dtype, engine.device, engine.dtype, engine.compiled)
        if about != self._for:
            self._for, self._by_size = about, {}
            if engine.compiled:
                torch._dynamo.reset()  # gives back what the compiler remembers of the last one
        if num_seeds not in self._by_size:
            self._by_size[num_seeds] = Program(
                decoder,
                loss_of,
                num_seeds=num_seeds,
                weight_decay=config.weight_decay,
                clip_grad_norm=config.clip_grad_norm,
                autocast=torch.bfloat16 if engine.dtype == "bfloat16" else None,
                compiled=engine.compiled,
            )
        return self._by_size[num_seeds]
