"""A group of seeds: their tensors, an epoch of training, logits, checkpoints.

S seeds, N rows, L layers, D hidden size, C classes, K noise per sample.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder, stream_seed
from gaam_decoder.losses._base import Loss
from gaam_decoder.training.adamw import Stacked, corrections
from gaam_decoder.training.data import Subset, TrainData
from gaam_decoder.training.engine import Engine
from gaam_decoder.training.program import State
from gaam_decoder.training.programs import Programs
from gaam_decoder.training.protocol import Score
from gaam_decoder.training.schedule import Plateau
from gaam_decoder.training.seed_store import Checkpoint

EVAL_BATCH_SIZE = 512
EVAL_BYTES = {"cpu": 2**24, "cuda": 2**30}
"""Of one batch in evaluation as float32."""


@dataclass(kw_only=True, slots=True)
class Member:
    """What a seed of a group knows beside its tensors."""

    seed: int
    schedule: Plateau
    best: Score | None = None
    best_epoch: int
    failed: str | None = None
    log: list[dict[str, Any]] = field(default_factory=list)


class Group:
    """Seeds of one decoder that are trained together.

    Args:
        spec: the decoder.
        data: rows.
        config: recipe and protocol.
        seeds: initialisation, order of the rows and noise of each.
        loss_of: what is minimised.
        engine: how they are run.
        dtype: of parameters and optimiser; tests take float64.
        programs: what earlier groups compiled.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        data: TrainData,
        config: TrainConfig,
        seeds: Sequence[int],
        *,
        loss_of: Loss,
        engine: Engine,
        dtype: torch.dtype = torch.float32,
        programs: Programs | None = None,
    ) -> None:
        self.data = data
        self.config = config
        self.loss_of = loss_of
        self.epochs_done = 0
        self.seconds = 0.0
        self.members = [
            Member(seed=seed, schedule=Plateau(rate=config.lrs[0]), best_epoch=config.epochs)
            for seed in seeds
        ]
        device = data.train.label_N.device
        decoders = [build_decoder(spec, seed).to(dtype) for seed in seeds]
        self.decoder = copy.deepcopy(decoders[0]).to(device)
        self.state = _stacked_state(decoders, device, dtype)
        self.kept: Stacked = {name: value.clone() for name, value in self._weights().items()}
        self.program = (programs or Programs()).get(
            spec, config, engine, self.decoder, loss_of, len(seeds)
        )

    @property
    def seeds(self) -> list[int]:
        """Seeds of the group, in order."""
        return [member.seed for member in self.members]

    def _weights(self) -> Stacked:
        return {**self.state.parameters, **self.state.buffers}

    def train_epoch(self) -> float:
        """One pass over the training rows, and what the protocol makes of it.

        Returns:
            Mean training loss over the seeds that are still finite; NaN where none is.
        """
        start = time.perf_counter()
        epoch = self.epochs_done + 1
        count = len(self.data.train)
        self._pass(epoch)
        losses = (self.state.loss_S / count).tolist()
        accuracies = (self.state.hit_S / count).tolist()
        finite = [loss for loss in losses if np.isfinite(loss)]
        scores: list[Score | None] = [None] * len(losses)
        if self.data.choose is not None and finite:
            scores = list(self._scores(self.data.choose))
        self.seconds += time.perf_counter() - start
        for place, member in enumerate(self.members):
            if member.failed is None:
                self._note(place, member, epoch, losses[place], accuracies[place], scores[place])
        self.epochs_done = epoch
        return float(np.mean(finite)) if finite else float("nan")

    def _pass(self, epoch: int) -> None:
        train, size, state = self.data.train, self.config.batch_size, self.state
        device = train.label_N.device
        order_SN = np.stack(
            [
                np.random.default_rng(stream_seed(seed, "order", epoch)).permutation(len(train))
                for seed in self.seeds
            ]
        )
        noise = [
            torch.Generator().manual_seed(stream_seed(seed, "noise", epoch)) for seed in self.seeds
        ]
        label_SN = train.label_N[torch.from_numpy(order_SN).to(device)]
        rates = [member.schedule.rate for member in self.members]
        like = state.loss_S
        lr_S = torch.tensor(rates, dtype=like.dtype, device=device)
        steps = -(-len(train) // size)
        correction_T2 = corrections((epoch - 1) * steps + 1, steps, like)
        state.loss_S.zero_()
        state.hit_S.zero_()
        batches = train.features.batches(train.rows[order_SN], size)
        for step, x_SBLD in enumerate(batches):
            noise_SBK = None
            if self.decoder.num_noise:
                shape = (x_SBLD.shape[1], self.decoder.num_noise)
                noise_SBK = torch.stack([torch.rand(shape, generator=g) for g in noise]).to(device)
            label_SB = label_SN[:, step * size : (step + 1) * size]
            self.program.step(state, x_SBLD, label_SB, noise_SBK, lr_S, correction_T2[step])

    def _note(
        self,
        place: int,
        member: Member,
        epoch: int,
        loss: float,
        accuracy: float,
        score: Score | None,
    ) -> None:
        """Log one seed's epoch and keep its weights if the protocol says so."""
        entry: dict[str, Any] = {"seed": member.seed, "epoch": epoch, "loss": loss}
        entry |= {"train_accuracy": accuracy, "lr": member.schedule.rate}
        member.log.append(entry)
        if not np.isfinite(loss):
            member.failed = f"the loss became {loss} in epoch {epoch}"
            entry["loss"] = None
            self._keep(place)
            return
        watched = accuracy
        if score is not None:
            entry |= {"accuracy": score.accuracy, "choose_loss": score.loss}
            watched = score.accuracy
            if score.beats(member.best):
                member.best, member.best_epoch = score, epoch
                self._keep(place)
        elif epoch == self.config.epochs:
            self._keep(place)
        if self.config.schedule == "plateau":
            member.schedule.watch(watched)
        entry["seconds"] = round(self.seconds / len(self.members), 4)

    def _keep(self, place: int) -> None:
        for name, value in self._weights().items():
            self.kept[name][place].copy_(value[place])

    def _scores(self, subset: Subset) -> list[Score]:
        logits_SNC = self.logits(subset, self.state)
        hit_S = (logits_SNC.argmax(-1) == subset.label_N).double().mean(1)
        losses = [float(self.loss_of(logits_NC, subset.label_N)) for logits_NC in logits_SNC]
        return [Score(hit, loss) for hit, loss in zip(hit_S.tolist(), losses, strict=True)]

    def logits(self, subset: Subset, state: State) -> Tensor:
        """(S, N, C) of all rows."""
        rows, size = subset.rows, self.eval_batch_size(subset)
        if not self.decoder.attention.depends_on_batch:
            # one shape for all batches: another one would be compiled again
            rows = np.concatenate([rows, np.repeat(rows[:1], -len(rows) % size)])
        parts = [self.program.logits(state, x_BLD) for x_BLD in subset.features.batches(rows, size)]
        return torch.cat(parts, dim=1)[:, : len(subset)]

    def kept_state(self) -> State:
        """The weights that the protocol keeps, as far as an evaluation needs a state."""
        return State(
            parameters={name: self.kept[name] for name in self.state.parameters},
            buffers={name: self.kept[name] for name in self.state.buffers},
            mean={},
            square={},
            loss_S=self.state.loss_S,
            hit_S=self.state.hit_S,
        )

    def eval_batch_size(self, subset: Subset) -> int:
        """Rows of one batch in evaluation."""
        if self.decoder.attention.depends_on_batch:
            return self.config.batch_size
        device, states = subset.label_N.device.type, subset.features.shape[1:]
        fitting = EVAL_BYTES[device] // (4 * int(np.prod(states)))
        return min(EVAL_BATCH_SIZE, max(fitting, self.config.batch_size), len(subset))

    def finished(self) -> bool:
        """Whether all epochs are done, or no seed is left that has not failed."""
        all_failed = all(member.failed is not None for member in self.members)
        return all_failed or self.epochs_done >= self.config.epochs

    def save(self, checkpoint: Checkpoint) -> None:
        """Write everything that is needed to go on."""
        tensors = self.state.tensors()
        tensors |= {f"kept.{name}": value for name, value in self.kept.items()}
        about = {
            "seeds": self.seeds,
            "epochs_done": self.epochs_done,
            "seconds": self.seconds,
            "members": [asdict(member) for member in self.members],
        }
        checkpoint.save({name: value.cpu() for name, value in tensors.items()}, about)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Take up where ``save`` was called last, if there is such a file and it fits."""
        content = checkpoint.load()
        if content is None or content[1].get("seeds") != self.seeds:
            return
        tensors, about = content
        target = self.state.tensors() | {f"kept.{k}": value for k, value in self.kept.items()}
        if {k: v.shape for k, v in target.items()} != {k: v.shape for k, v in tensors.items()}:
            return
        try:
            epochs_done, seconds = int(about["epochs_done"]), float(about["seconds"])
            members = [_member(**member) for member in about["members"]]
        except (KeyError, TypeError):
            return  # of another version: the same is trained from the beginning
        for name, value in target.items():
            value.copy_(tensors[name])
        self.epochs_done, self.seconds, self.members = epochs_done, seconds, members


def _member(schedule: dict[str, Any], best: dict[str, Any] | None, **rest: Any) -> Member:
    return Member(schedule=Plateau(**schedule), best=Score(**best) if best else None, **rest)


def _stacked_state(decoders: Sequence[Decoder], device: torch.device, dtype: torch.dtype) -> State:
    def stack(named: str) -> Stacked:
        first = dict(getattr(decoders[0], named)())
        return {
            name: torch.stack([dict(getattr(d, named)())[name].detach() for d in decoders]).to(
                device
            )
            for name in first
        }

    parameters = stack("named_parameters")
    return State(
        parameters=parameters,
        buffers=stack("named_buffers"),
        mean={name: torch.zeros_like(value) for name, value in parameters.items()},
        square={name: torch.zeros_like(value) for name, value in parameters.items()},
        loss_S=torch.zeros(len(decoders), dtype=dtype, device=device),
        hit_S=torch.zeros(len(decoders), dtype=torch.int64, device=device),
    )
