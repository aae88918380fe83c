"""Seeds of one decoder that are trained together: from initialisation to results.

S seeds, N rows, V rows that choose, L layers, D hidden size, C classes, K noise per sample.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from gaam_cache.devices import float64, send
from gaam_decoder.attention._base import Attention
from gaam_decoder.decoder import (
    DecoderSpec,
    build_decoder,
    stream_seed,
    without_random_numbers,
)
from gaam_decoder.losses._base import Loss
from gaam_decoder.losses._weighted import balanced
from gaam_decoder.recipe import Recipe
from gaam_decoder.runs.writing import SeedResult
from gaam_decoder.specs import build
from gaam_decoder.training.arithmetic.adamw import bias_corrections
from gaam_decoder.training.arithmetic.engine import Engine
from gaam_decoder.training.arithmetic.state import Batch, Stacked, State, Weights
from gaam_decoder.training.arithmetic.step import Steps
from gaam_decoder.training.checkpoint import Checkpoint
from gaam_decoder.training.data import Subset, TrainData, choosing, epoch_batches, told_labels
from gaam_decoder.training.memory import enough_memory
from gaam_decoder.training.selection import Member, Scaled, Score

EVAL_BATCH_SIZE = 512
EVAL_BYTES = {"cpu": 2**24, "cuda": 2**30, "mps": 2**28}
"""Of one batch in evaluation as float32; on a GPU of all seeds together, each of which makes states
of its own from it."""


def rows_at_once(device_type: str, numbers: int) -> int:
    """Rows of a batch in evaluation, at least one, of which each takes so many float32 numbers."""
    return max(1, EVAL_BYTES[device_type] // (4 * numbers))


class Group:
    """Seeds of one decoder that are trained together.

    A seed decides initialisation, order of the rows and noise. Parameters and optimiser are of
    ``dtype``; ``steps`` are what earlier groups compiled.
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
        self.spec = spec
        self.data = data
        self.recipe = recipe
        self.seeds = list(seeds)
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

    def train_epoch(self) -> float:
        """One pass over the training rows, and what the protocol makes of it.

        Returns:
            Mean training loss over the seeds that are still finite; NaN where none is.
        """
        start = time.perf_counter()
        epoch = self.epochs_done + 1
        count, scaling = len(self.data.train), self.state.scaling
        with without_random_numbers():
            self._pass(epoch)
        # rows whose loss was not finite are in no mean
        counted = count if scaling is None else count - scaling.lost_S
        losses = (self.state.loss_S / counted).tolist()
        accuracies = (self.state.hit_S / count).tolist()
        scaled: list[Scaled | None] = [None] * len(losses)
        if scaling is not None:
            columns = (scaling.scale_S, scaling.skipped_S, scaling.steps_S)
            scaled = [Scaled(*of) for of in zip(*(c.tolist() for c in columns), strict=True)]
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
        content, target = checkpoint.load(), self._tensors()
        if content is None or not content[1].get("epochs_done"):
            return
        tensors, about = content
        if {k: v.shape for k, v in target.items()} != {k: v.shape for k, v in tensors.items()}:
            return
        for name, value in target.items():
            value.copy_(tensors[name])
        self.epochs_done, self.seconds = about["epochs_done"], about["seconds"]
        self.members = [Member.from_dict(member) for member in about["members"]]

    def results(self) -> list[SeedResult]:
        """What every seed leaves, of the epoch that the protocol keeps.

        Logits of test rows that are not finite make a seed a failed one, or weights where no rows
        are tested.
        """
        start, data = time.perf_counter(), self.data
        logits_SNC = torch.empty(len(self.seeds), 0, self.spec.num_classes)
        if data.test is not None:
            logits_SNC = self.logits(data.test, self.kept).float().cpu()
        held = choosing(data, self.recipe)
        held_SVC = None if held is None else self.logits(held, self.kept).float().cpu()
        results = []
        finished: list[tuple[SeedResult, Attention]] = []
        for place in range(len(self.seeds)):
            result = self._result(place, logits_SNC[place])
            if held_SVC is not None:
                result.validation_logits = kept_logits(held_SVC[place], result.failed)
            results.append(result)
            if result.failed is None:
                finished.append((result, copy.deepcopy(self.decoder.attention)))
        if data.test is not None:
            attentions = [attention for _, attention in finished]
            maps = mean_attention_maps(attentions, data.test, self.eval_batch_size(data.test))
            for (result, _), found in zip(finished, maps, strict=True):
                result.attention_map = found
        for result in results:
            result.seconds = (self.seconds + time.perf_counter() - start) / len(self.seeds)
        return results

    def _result(self, place: int, logits_NC: Tensor) -> SeedResult:
        """Of one seed, but for the map; its weights are left in ``decoder``."""
        member = self.members[place]
        kept = self.kept.parameters | self.kept.buffers
        # without buffers that are not part of it
        weights = {name: kept[name][place].cpu() for name in self.decoder.state_dict()}
        self.decoder.load_state_dict(weights)
        failed = member.failed or why_unusable(weights, logits_NC)
        learned = self.decoder.attention.learned()
        return SeedResult(
            seed=member.seed,
            failed=failed,
            epoch=0 if failed else member.best_epoch,
            seconds=0.0,
            weights=weights,
            test_logits=torch.full_like(logits_NC, torch.nan) if failed else logits_NC,
            attention_map=None,
            learned={n: v.detach().cpu().clone().contiguous() for n, v in learned.items()},
            log=member.log,
        )


def train_group(
    spec: DecoderSpec,
    data: TrainData,
    recipe: Recipe,
    seeds: Sequence[int],
    *,
    engine: Engine,
    checkpoint: Checkpoint | None = None,
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
    steps: Steps | None = None,
) -> tuple[list[SeedResult], bool]:
    """One result per seed, in order, and whether the arithmetic was compiled to the end.

    A loss that is not finite ends that seed, and nothing is retried. ``on_epoch`` is called with
    (epoch from 1, mean training loss).

    Raises:
        ShortOfMemoryError: there is too little memory for so many seeds and rows together.
    """
    with enough_memory(recipe, seeds, engine.device):
        loss_of: Loss = build(recipe.loss, "loss")
        group = Group(spec, data, recipe, seeds, loss_of=loss_of, engine=engine, steps=steps)
        if checkpoint is not None:
            group.resume(checkpoint)
        while not group.finished():
            loss = group.train_epoch()
            if checkpoint is not None and checkpoint.due and not group.finished():
                group.save(checkpoint)
            on_epoch(group.epochs_done, loss)
        return group.results(), group.compiler.works


def kept_logits(logits_VC: Tensor, failed: str | None) -> Tensor:
    """Of the rows that choose; NaN of a seed that failed, and where they are not finite."""
    usable = failed is None and bool(torch.isfinite(logits_VC).all())
    return logits_VC if usable else torch.full_like(logits_VC, torch.nan)


def why_unusable(weights: Mapping[str, Tensor], logits_NC: Tensor) -> str | None:
    """Why a seed whose losses were finite has failed all the same; None where it has not.

    A final model has no logits of test rows: only its weights can give it away.
    """
    if not bool(torch.isfinite(logits_NC).all()):
        return "the logits of the test rows are not finite"
    if not len(logits_NC) and not all(bool(torch.isfinite(w).all()) for w in weights.values()):
        return "the weights are not finite"
    return None


@torch.inference_mode()
def mean_attention_maps(
    attentions: Sequence[Attention], subset: Subset, batch_size: int
) -> list[Tensor | None]:
    """Maps of one mechanism's seeds averaged over rows, which are read once for all; on the CPU.

    None of a mechanism that has none.
    """
    totals: list[Tensor | None] = [None] * len(attentions)
    if not attentions:
        return totals
    for x_BLD in subset.features.batches(subset.rows, batch_size):
        x_BLD = x_BLD.float()
        for place, attention in enumerate(attentions):
            weights = attention.eval().attention_map(x_BLD)
            if weights is None:
                return totals
            part, total = float64(weights).sum(0), totals[place]
            totals[place] = part if total is None else total + part
    return [None if t is None else (t / len(subset)).float().cpu() for t in totals]
