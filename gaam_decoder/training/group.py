"""A group of seeds: their tensors, an epoch of training, logits, checkpoints.

S seeds, N rows, L layers, D hidden size, C classes, K noise per sample.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gaam_cache.devices import float64, send
from gaam_decoder.decoder import (
    DecoderSpec,
    build_decoder,
    stream_seed,
    without_random_numbers,
)
from gaam_decoder.losses._base import Loss
from gaam_decoder.losses._weighted import balanced
from gaam_decoder.recipe import Recipe
from gaam_decoder.runs.unfinished import Checkpoint
from gaam_decoder.training.arithmetic.adamw import bias_corrections
from gaam_decoder.training.arithmetic.engine import Engine
from gaam_decoder.training.arithmetic.reuse import Steps
from gaam_decoder.training.arithmetic.state import Batch, Stacked, State, Weights
from gaam_decoder.training.member import Member, Scaled
from gaam_decoder.training.rows.data import Subset, TrainData
from gaam_decoder.training.rows.epoch import epoch_batches
from gaam_decoder.training.rows.labels import told_labels
from gaam_decoder.training.rows.protocol import Score

EVAL_BATCH_SIZE = 512
EVAL_BYTES = {"cpu": 2**24, "cuda": 2**30, "mps": 2**28}
"""Of one batch in evaluation as float32; on a GPU of all seeds together, each of which makes states
of its own from it."""


def rows_at_once(device_type: str, numbers: int) -> int:
    """Rows of a batch in evaluation, at least one, of which each takes so many float32 numbers."""
    return max(1, EVAL_BYTES[device_type] // (4 * numbers))


class Group:
    """Seeds of one decoder that are trained together.

    Args:
        spec: the decoder.
        data: rows.
        recipe: hyperparameters and protocol.
        seeds: initialisation, order of the rows and noise of each.
        loss_of: what is minimised.
        engine: how they are run.
        dtype: of parameters and optimiser; tests take float64.
        steps: what earlier groups compiled.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        data: TrainData,
        recipe: Recipe,
        seeds: Sequence[int],
        *,
        loss_of: Loss,
        engine: Engine,
        dtype: torch.dtype = torch.float32,
        steps: Steps | None = None,
    ) -> None:
        self.data = data
        self.recipe = recipe
        self.loss_of = loss_of
        self.epochs_done = 0
        self.seconds = 0.0
        self.members = [Member.of(seed, recipe) for seed in seeds]
        device = data.train.label_N.device
        self._told_SN, self._chosen_by_SN = told_labels(data, seeds, shuffle=recipe.shuffle_labels)
        self._weight_SC = None
        if recipe.class_weights == "balanced":
            self._weight_SC = balanced(self._told_SN, spec.num_classes, dtype)
        decoders = [build_decoder(spec, seed).to(dtype) for seed in seeds]
        self.decoder = copy.deepcopy(decoders[0]).to(device)
        scaled = recipe.loss_scale == "dynamic"
        self.state = State.of(decoders, device, dtype, scaled=scaled)
        self.kept = self.state.weights.copy()
        self.step, self.compiler = (steps or Steps()).get(
            spec, recipe, engine, self.decoder, loss_of, len(seeds)
        )

    @property
    def seeds(self) -> list[int]:
        """Seeds of the group, in order."""
        return [member.seed for member in self.members]

    def train_epoch(self) -> float:
        """One pass over the training rows, and what the protocol makes of it.

        Returns:
            Mean training loss over the seeds that are still finite; NaN where none is.
        """
        start = time.perf_counter()
        epoch = self.epochs_done + 1
        count = len(self.data.train)
        with without_random_numbers():
            self._pass(epoch)
        scaled, counted = self._scaled(), count - self._lost()
        losses = (self.state.loss_S / counted).tolist()
        accuracies = (self.state.hit_S / count).tolist()
        finite = [loss for loss in losses if np.isfinite(loss)]
        scores: list[Score | None] = [None] * len(losses)
        if self.data.selection is not None and finite:
            scores = list(self._scores(self.data.selection))
        self.seconds += time.perf_counter() - start
        for place, member in enumerate(self.members):
            if member.failed is not None:
                continue
            about = (losses[place], accuracies[place], scores[place], scaled[place])
            if member.note(self.recipe, epoch, *about):
                self.kept.keep(place, self.state.weights)
            if member.failed is None:
                member.log[-1]["seconds"] = round(self.seconds / len(self.members), 4)
        self.epochs_done = epoch
        return float(np.mean(finite)) if finite else float("nan")

    def _pass(self, epoch: int) -> None:
        """Every seed sees all its rows once, in an order of its own."""
        train, state = self.data.train, self.state
        device, like = train.label_N.device, state.loss_S
        noise = [
            torch.Generator().manual_seed(stream_seed(seed, "noise", epoch)) for seed in self.seeds
        ]
        rates = [member.schedule.rate for member in self.members]
        lr_S = torch.tensor(rates, dtype=like.dtype, device=device)
        steps = -(-len(train) // self.recipe.batch_size)
        bias_correction_T2 = bias_corrections((epoch - 1) * steps + 1, steps, like)
        state.loss_S.zero_()
        state.hit_S.zero_()
        if state.scaling is not None:
            state.scaling.new_epoch()
        batches = epoch_batches(train, self._told_SN, self.recipe, self.seeds, epoch)
        for step, (x_SBLD, label_SB) in enumerate(batches):
            noise_SBK = None
            if self.decoder.num_noise:
                shape = (x_SBLD.shape[1], self.decoder.num_noise)
                drawn_SBK = torch.stack([torch.rand(shape, generator=g) for g in noise])
                noise_SBK = send(drawn_SBK, device)
            weight_SB = None if self._weight_SC is None else self._weight_SC.gather(1, label_SB)
            bias_correction = bias_correction_T2[step]
            self.step(state, Batch(x_SBLD, label_SB, noise_SBK, lr_S, bias_correction, weight_SB))

    def _scaled(self) -> list[Scaled] | list[None]:
        """What the scaling of losses came to, for every seed."""
        scaling = self.state.scaling
        if scaling is None:
            return [None] * len(self.members)
        found = (scaling.scale_S, scaling.skipped_S, scaling.steps_S)
        return [Scaled(*of) for of in zip(*(one.tolist() for one in found), strict=True)]

    def _lost(self) -> Tensor | int:
        """Rows of the epoch that are in no mean loss, of every seed."""
        return 0 if self.state.scaling is None else self.state.scaling.lost_S

    def _scores(self, subset: Subset) -> list[Score]:
        logits_SNC = self.logits(subset, self.state.weights)
        assert self._chosen_by_SN is not None
        told_SN = self._chosen_by_SN
        hit_S = float64(logits_SNC.argmax(-1) == told_SN).mean(1)
        losses = [float(self.loss_of(*each)) for each in zip(logits_SNC, told_SN, strict=True)]
        return [Score(hit, loss) for hit, loss in zip(hit_S.tolist(), losses, strict=True)]

    def logits(self, subset: Subset, weights: Weights) -> Tensor:
        """(S, N, C) of all rows."""
        rows, size = subset.rows, self.eval_batch_size(subset)
        if not self.decoder.attention.depends_on_batch:
            # one shape for all batches: another one would be compiled again
            rows = np.concatenate([rows, np.repeat(rows[:1], -len(rows) % size)])
        parts = [self.step.logits(weights, x_BLD) for x_BLD in subset.features.batches(rows, size)]
        return torch.cat(parts, dim=1)[:, : len(subset)]

    def eval_batch_size(self, subset: Subset) -> int:
        """Rows of one batch in evaluation."""
        if self.decoder.attention.depends_on_batch:
            return self.recipe.batch_size
        device, states = subset.label_N.device.type, subset.features.shape[1:]
        together = 1 if device == "cpu" else len(self.members)
        fitting = rows_at_once(device, int(np.prod(states)) * together)
        return min(EVAL_BATCH_SIZE, max(fitting, self.recipe.batch_size), len(subset))

    def finished(self) -> bool:
        """Whether all epochs are done, or no seed is left that has not failed."""
        all_failed = all(member.failed is not None for member in self.members)
        return all_failed or self.epochs_done >= self.recipe.epochs

    def _tensors(self) -> Stacked:
        """All that a checkpoint holds, by name."""
        kept = self.kept.parameters | self.kept.buffers
        return self.state.tensors() | {f"kept.{name}": value for name, value in kept.items()}

    def save(self, checkpoint: Checkpoint) -> None:
        """Write everything that is needed to go on."""
        about = {
            "seeds": self.seeds,
            "epochs_done": self.epochs_done,
            "seconds": self.seconds,
            "members": [member.to_dict() for member in self.members],
        }
        checkpoint.save({name: value.cpu() for name, value in self._tensors().items()}, about)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Take up where ``save`` was called last, if there is such a file and it fits."""
        content = checkpoint.load()
        if content is None or content[1].get("seeds") != self.seeds:
            return
        (tensors, about), target = content, self._tensors()
        if {k: v.shape for k, v in target.items()} != {k: v.shape for k, v in tensors.items()}:
            return
        try:
            epochs_done, seconds = int(about["epochs_done"]), float(about["seconds"])
            members = [Member.from_dict(member) for member in about["members"]]
        except (KeyError, TypeError):
            return  # of another version: the same is trained from the beginning
        for name, value in target.items():
            value.copy_(tensors[name])
        self.epochs_done, self.seconds, self.members = epochs_done, seconds, members
