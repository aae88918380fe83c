"""Seeds of one decoder that are trained together: from initialisation to results.

S seeds, N rows, V rows that choose, L layers, D hidden size, C classes, K noise per sample.
"""

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaam_cache.common.devices import float64, send
from gaam_decoder.attention.base import Attention
from gaam_decoder.decoder import (
    Decoder,
    DecoderSpec,
    build_decoder,
    stream_seed,
    without_random_numbers,
)
from gaam_decoder.losses._weighted import balanced
from gaam_decoder.losses.base import Loss
from gaam_decoder.optimizers.base import Optimizer
from gaam_decoder.recipe import Recipe
from gaam_decoder.runs.result import SeedResult
from gaam_decoder.specs import build
from gaam_decoder.training.arithmetic.engine import (
    EVAL_BATCH_SIZE,
    Engine,
    rows_at_once,
)
from gaam_decoder.training.arithmetic.state import Batch, Stacked, State, Weights
from gaam_decoder.training.arithmetic.step import Steps
from gaam_decoder.training.checkpoint import Checkpoint
from gaam_decoder.training.data import Subset, TrainData, epoch_batches, told_labels

FACTOR, PATIENCE, THRESHOLD, SMALLEST_CHANGE = (
    0.1,
    10,
    1e-4,
    1e-8,
)  # of torch's ReduceLROnPlateau
SMALLEST_SCALE = 1.0  # of a loss: below it gradients overflow as they are
Score = tuple[float, float]  # accuracy and loss of an epoch on the rows that select it


@dataclass(kw_only=True, slots=True)
class Plateau:
    """torch's ReduceLROnPlateau(mode='max') without an optimiser, which seeds of a group share."""

    rate: float
    best: float = float("-inf")
    waited: int = 0

    def watch(self, value: float) -> None:
        self.waited += 1
        if value > self.best * (1 + THRESHOLD):
            self.best, self.waited = value, 0
        if self.waited > PATIENCE:
            self.waited, lower = 0, self.rate * FACTOR
            self.rate = lower if self.rate - lower > SMALLEST_CHANGE else self.rate


def cosine(step: int, steps: int) -> float:
    """Share of the rate at a step, from 1: up over a twentieth of all, then half a cosine to 0."""
    warm = steps // 20
    if step <= warm:
        return step / (warm + 1)
    return (1 + math.cos(math.pi * (step - 1 - warm) / (steps - warm))) / 2


@dataclass(kw_only=True, slots=True)
class Member:
    """What is known of one seed of a group beside its tensors: rate, best epoch, log."""

    seed: int
    schedule: Plateau
    best: Score | None = None
    best_epoch: int
    failed: str | None = None
    log: list[dict[str, Any]] = field(default_factory=list)

    def note(
        self,
        recipe: Recipe,
        epoch: int,
        loss: float,
        accuracy: float,
        score: Score | None,
        scaled: tuple[float, int, int] | None,
    ) -> bool:
        """Take notice of an epoch: whether the weights as they are now are to be kept.

        ``scaled`` holds the scale, steps of the epoch that were not taken, and all that were.
        """
        entry: dict[str, Any] = {"seed": self.seed, "epoch": epoch, "loss": loss}
        entry |= {"train_accuracy": accuracy, "lr": self.schedule.rate}
        self.log.append(entry)
        scale, skipped, steps = scaled or (SMALLEST_SCALE, 0, 1)
        if scaled is not None:
            entry |= {"loss_scale": scale, "skipped": skipped}
        if not np.isfinite(loss):
            entry["loss"] = None
            self.failed = f"the loss became {loss} in epoch {epoch}"
        elif scale < SMALLEST_SCALE:
            self.failed = (
                f"gradients overflow in epoch {epoch} even at a loss scale of {scale:g}"
            )
        elif epoch == recipe.epochs and not steps:
            self.failed = (
                f"no step was taken in {epoch} epochs: gradients overflowed in all"
            )
        if self.failed is not None:
            return True
        keeps = score is None and epoch == recipe.epochs
        if score is not None:
            entry |= {"accuracy": score[0], "selection_loss": score[1]}
            best, counted = self.best, 1 if recipe.ties == "first" else 2
            if (
                best is None
                or (score[0], -score[1])[:counted] > (best[0], -best[1])[:counted]
            ):
                self.best, self.best_epoch, keeps = score, epoch, True
        if recipe.schedule == "plateau":
            self.schedule.watch(accuracy if score is None else score[0])
        return keeps


class Group:
    """Seeds of one decoder that are trained together; ``steps`` are what earlier ones compiled."""

    def __init__(
        self,
        spec: DecoderSpec,
        data: TrainData,
        recipe: Recipe,
        seeds: Sequence[int],
        *,
        engine: Engine,
        loss_of: Loss | None = None,
        dtype: torch.dtype = torch.float32,
        steps: Steps | None = None,
    ) -> None:
        self.spec, self.data, self.recipe, self.seeds = spec, data, recipe, list(seeds)
        self.loss_of: Loss = loss_of or build(recipe.loss, "loss")
        self.epochs_done, self.seconds = 0, 0.0
        self._share = 1.0  # of the rate, at the last step
        self.members = [
            Member(
                seed=seed, schedule=Plateau(rate=recipe.lr), best_epoch=recipe.epochs
            )
            for seed in seeds
        ]
        device = data.train.label_N.device
        self._told_SN, self._held_SN = told_labels(
            data, seeds, shuffle=recipe.shuffle_labels
        )
        self._weight_SC = None
        if recipe.class_weights == "balanced":
            self._weight_SC = balanced(self._told_SN, spec.num_classes, dtype)
        decoders = [build_decoder(spec, seed).to(dtype) for seed in seeds]
        self.decoder = copy.deepcopy(decoders[0]).to(device)
        self.optimizer: Optimizer = build(recipe.optimizer, "optimizer")
        scaled = recipe.loss_scale == "dynamic"
        self.state = State.of(decoders, device, self.optimizer.moments, scaled=scaled)
        weights = self.state.weights
        self.kept = Weights(
            *({k: one.clone() for k, one in part.items()} for part in weights)
        )
        kind = spec, recipe, engine, self.decoder, self.loss_of, len(seeds)
        self.step = (steps or Steps()).get(*kind)
        self.compiler = self.step.compiler

    def train(
        self,
        checkpoint: Checkpoint | None = None,
        on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
    ) -> list[SeedResult]:
        """One result per seed, in order; ``on_epoch`` hears (epoch from 1, mean training loss).

        A loss that is not finite ends that seed, and nothing is retried.
        """
        if checkpoint is not None:
            self.resume(checkpoint)
        while not self.finished():
            loss = self.train_epoch()
            if checkpoint is not None and checkpoint.due and not self.finished():
                self.save(checkpoint)
            on_epoch(self.epochs_done, loss)
        return self.results()

    def train_epoch(self) -> float:
        """One pass over the rows, and what is made of it; mean loss of seeds that are finite."""
        start = time.perf_counter()
        epoch = self.epochs_done + 1
        count, scaling = len(self.data.train), self.state.scaling
        with without_random_numbers():
            self._pass(epoch)
        # rows whose loss was not finite are in no mean
        counted = count if scaling is None else count - scaling.lost_S
        losses = (self.state.loss_S / counted).tolist()
        accuracies = (self.state.hit_S / count).tolist()
        scaled: list[Any] = [None] * len(losses)
        if scaling is not None:
            columns = (scaling.scale_S, scaling.skipped_S, scaling.steps_S)
            scaled = list(zip(*(column.tolist() for column in columns), strict=True))
        finite = [loss for loss in losses if np.isfinite(loss)]
        scores: list[Any] = [None] * len(losses)
        if self.data.selection is not None and self._held_SN is not None and finite:
            logits_SNC = self.logits(self.data.selection, self.state.weights)
            hit_S = float64(logits_SNC.argmax(-1) == self._held_SN).mean(1)
            held = [
                float(self.loss_of(*p))
                for p in zip(logits_SNC, self._held_SN, strict=True)
            ]
            scores = list(zip(hit_S.tolist(), held, strict=True))
        self.seconds += time.perf_counter() - start
        seen = zip(self.members, losses, accuracies, scores, scaled, strict=True)
        for place, (member, *about) in enumerate(seen):
            if member.failed is None and member.note(self.recipe, epoch, *about):
                for part, new in zip(self.kept, self.state.weights, strict=True):
                    for name, value in new.items():
                        part[name][place].copy_(value[place])
            if member.failed is None:
                member.log[-1]["lr"] *= self._share
                member.log[-1]["seconds"] = round(self.seconds / len(self.members), 4)
        self.epochs_done = epoch
        return float(np.mean(finite)) if finite else float("nan")

    def _pass(self, epoch: int) -> None:
        """Every seed sees all its rows once, in an order of its own."""
        train, state = self.data.train, self.state
        device, like = train.label_N.device, state.loss_S
        streams = (stream_seed(seed, "noise", epoch) for seed in self.seeds)
        noise = [torch.Generator().manual_seed(stream) for stream in streams]
        lr_S = like.new_tensor([member.schedule.rate for member in self.members])
        steps = -(-len(train) // self.recipe.batch_size)
        every = range((epoch - 1) * steps + 1, epoch * steps + 1)
        numbers_TK = like.new_tensor([self.optimizer.numbers(step) for step in every])
        state.loss_S.zero_()
        state.hit_S.zero_()
        if state.scaling is not None:
            state.scaling.skipped_S.zero_()
            state.scaling.lost_S.zero_()
        batches = epoch_batches(train, self._told_SN, self.recipe, self.seeds, epoch)
        for step, (x_SBLD, label_SB) in enumerate(batches):
            noise_SBK = None
            if width := self.decoder.head.num_noise:
                shape = (x_SBLD.shape[1], width)
                drawn_SBK = torch.stack([torch.rand(shape, generator=g) for g in noise])
                noise_SBK = send(drawn_SBK, device)
            weight_SB = (
                None if self._weight_SC is None else self._weight_SC.gather(1, label_SB)
            )
            if self.recipe.schedule == "cosine":
                self._share = cosine(every[step], steps * self.recipe.epochs)
            lr = lr_S if self._share == 1 else lr_S * self._share
            self.step(
                state,
                Batch(x_SBLD, label_SB, noise_SBK, lr, numbers_TK[step], weight_SB),
            )

    def logits(self, subset: Subset, weights: Weights) -> Tensor:
        rows, size = subset.rows, self.eval_batch_size(subset)
        if not self.decoder.attention.depends_on_batch:
            # one shape for all batches: another one would be compiled again
            rows = np.concatenate([rows, np.repeat(rows[:1], -len(rows) % size)])
        parts = [
            self.step.logits(weights, x_BLD)
            for x_BLD in subset.features.batches(rows, size)
        ]
        return torch.cat(parts, dim=1)[:, : len(subset)]

    def eval_batch_size(self, subset: Subset) -> int:
        if self.decoder.attention.depends_on_batch:
            return self.recipe.batch_size
        device, states = subset.label_N.device.type, subset.features.shape[1:]
        together = 1 if device == "cpu" else len(self.members)
        fitting = rows_at_once(device, int(np.prod(states)) * together)
        return min(EVAL_BATCH_SIZE, max(fitting, self.recipe.batch_size), len(subset))

    def finished(self) -> bool:
        failed = (member.failed is not None for member in self.members)
        return self.epochs_done >= self.recipe.epochs or all(failed)

    def _tensors(self) -> Stacked:
        kept = self.kept.parameters | self.kept.buffers
        return self.state.tensors() | {
            f"kept.{name}": value for name, value in kept.items()
        }

    def save(self, checkpoint: Checkpoint) -> None:
        about = {
            name: getattr(self, name) for name in ("seeds", "epochs_done", "seconds")
        }
        about["members"] = [asdict(member) for member in self.members]
        checkpoint.save(self._tensors(), about)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Take up where ``save`` was called last, if there is such a file and it fits."""
        (tensors, about), target = checkpoint.load(), self._tensors()
        if {k: v.shape for k, v in target.items()} != {
            k: v.shape for k, v in tensors.items()
        }:
            return  # there is none, or it was only planned
        for name, value in target.items():
            value.copy_(tensors[name])
        self.epochs_done, self.seconds = about["epochs_done"], about["seconds"]
        for member, saved in zip(self.members, about["members"], strict=True):
            for name, value in saved.items():
                setattr(member, name, value)
            member.schedule = Plateau(**saved["schedule"])
            member.best = saved["best"] and tuple(saved["best"])

    def results(self) -> list[SeedResult]:
        """What every seed leaves, of the epoch that the protocol keeps."""
        start, test, held = (
            time.perf_counter(),
            self.data.test,
            self.data.choosing(self.recipe),
        )
        logits_SNC = torch.empty(len(self.seeds), 0, self.spec.num_classes)
        if test is not None:
            logits_SNC = self.logits(test, self.kept).float().cpu()
        held_SVC = None if held is None else self.logits(held, self.kept).float().cpu()
        kept = self.kept.parameters | self.kept.buffers
        results: list[SeedResult] = []
        finished: list[tuple[SeedResult, Attention]] = []
        for place, member in enumerate(self.members):
            # without buffers that are not part of it
            own = {name: kept[name][place] for name in self.decoder.state_dict()}
            self.decoder.load_state_dict(own)
            held_VC = None if held_SVC is None else held_SVC[place]
            results.append(result_of(self.decoder, member, logits_SNC[place], held_VC))
            if results[-1].failed is None:
                finished.append((results[-1], copy.deepcopy(self.decoder.attention)))
        if test is not None:
            add_attention_maps(finished, test, self.eval_batch_size(test))
        for result in results:
            result.seconds = (self.seconds + time.perf_counter() - start) / len(
                self.seeds
            )
        return results


def result_of(
    decoder: Decoder, member: Member, logits_NC: Tensor, held_VC: Tensor | None
) -> SeedResult:
    """Of one seed, but for map and time; ``decoder`` has its weights."""
    weights, learned = (
        {name: value.detach().cpu().clone().contiguous() for name, value in of.items()}
        for of in (decoder.state_dict(), decoder.attention.learned())
    )
    failed = member.failed
    if not bool(logits_NC.isfinite().all()):
        failed = failed or "the logits of the test rows are not finite"
    elif not len(logits_NC) and not all(
        bool(one.isfinite().all()) for one in weights.values()
    ):
        failed = failed or "the weights are not finite"
    if held_VC is not None and (failed or not bool(held_VC.isfinite().all())):
        held_VC = torch.full_like(held_VC, torch.nan)
    return SeedResult(
        seed=member.seed,
        failed=failed,
        epoch=0 if failed else member.best_epoch,
        seconds=0.0,
        weights=weights,
        test_logits=torch.full_like(logits_NC, torch.nan) if failed else logits_NC,
        attention_map=None,
        learned=learned,
        log=member.log,
        validation_logits=held_VC,
    )


@torch.inference_mode()
def add_attention_maps(
    finished: Sequence[tuple[SeedResult, Attention]], subset: Subset, batch_size: int
) -> None:
    """Give results the maps of one mechanism's seeds, averaged over rows that are read once."""
    totals: list[Tensor] = []
    for x_BLD in subset.features.batches(subset.rows, batch_size) if finished else ():
        x_BLD = x_BLD.float()
        parts = [
            float64(weights).sum(0)
            for _, attention in finished
            if (weights := attention.eval().attention_map(x_BLD)) is not None
        ]
        if not parts:
            return
        totals = (
            [a + b for a, b in zip(totals, parts, strict=True)] if totals else parts
        )
    for (result, _), total in zip(finished, totals, strict=True):
        result.attention_map = (total / len(subset)).float().cpu()
