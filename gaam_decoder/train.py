"""Training of one seed.

B batch, N rows, L layers, D hidden size, C classes.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache import registry
from gaam_cache.cache import EmbeddingCache, Split
from gaam_cache.errors import ConfigError
from gaam_decoder.config import TrainConfig, parse_loss
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder, stream_seed
from gaam_decoder.features import Features
from gaam_decoder.losses._base import Loss
from gaam_decoder.protocol import Rows, Score, holdout

EVAL_BATCH_SIZE = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Subset:
    """Rows of a split with their labels, on the device."""

    features: Features
    rows: Rows
    label_N: Tensor  # noqa: N815 a shape suffix

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def batch(self, position_B: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """(B, L, D) states and (B,) labels of the rows at these positions of the subset."""
        x_BLD = self.features.batch(self.rows[position_B])
        return x_BLD, self.label_N[torch.from_numpy(position_B).to(self.label_N.device)]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainData:
    """What every seed of every mechanism learns from, is chosen by and is tested on."""

    train: Subset
    choose: Subset | None
    """Rows that choose the epoch; None keeps the last."""
    test: Subset


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedResult:
    """What one seed left behind; tensors on the CPU."""

    seed: int
    failed: str | None
    """Why it stopped, or None."""
    epoch: int
    """Epoch that was kept, from 1; 0 where it failed."""
    seconds: float
    weights: dict[str, Tensor]
    test_logits: Tensor
    """(N, C); NaN where it failed."""
    attention_map: Tensor | None
    """Mean over the test rows."""
    learned: dict[str, Tensor]
    """Parameters that mean something by themselves, in their domain: ``Attention.learned``."""
    log: list[dict[str, Any]]


def prepare_data(cache: EmbeddingCache, config: TrainConfig, device: torch.device) -> TrainData:
    """Load the splits that a config names and hold out the rows that choose.

    Raises:
        ConfigError: the cache has no such split or pooling, or too few rows to hold any out.
    """

    def features(split: Split) -> Features:
        array = split.pooled(config.pool) if config.pool else split.embeddings
        if config.layers is not None:
            array = array.keeping([layer - 1 for layer in config.layers])
        return Features(array, device)

    def subset(of: Features, split: Split, rows: Rows) -> Subset:
        labels = torch.from_numpy(split.labels[rows]).to(device)
        return Subset(features=of, rows=rows, label_N=labels)

    train_split, test_split = cache[config.train_split], cache[config.test_split]
    train_features = features(train_split)
    test = subset(features(test_split), test_split, np.arange(len(test_split)))
    train_rows, choose = np.arange(len(train_split)), None
    if config.select == "val":
        train_rows, val_rows = holdout(train_split.labels, config.val_fraction, config.split_seed)
        if not len(val_rows):
            raise ConfigError(
                "no rows can be held out to choose the epoch",
                expected=f"a class with two or more rows in '{config.train_split}'",
                found=f"{len(train_rows)} rows, each the only one of its class",
                hint="--select last, which chooses nothing",
            )
        choose = subset(train_features, train_split, val_rows)
    elif config.select == "test":
        choose = test
    return TrainData(
        train=subset(train_features, train_split, train_rows), choose=choose, test=test
    )


def build_loss(config: TrainConfig) -> Loss:
    """The loss that a config names."""
    spec = parse_loss(config.loss)
    return registry.load("gaam_decoder.losses", spec.name, kind="loss")(**dict(spec.options))


def train_seed(
    spec: DecoderSpec,
    data: TrainData,
    config: TrainConfig,
    seed: int,
    *,
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
) -> SeedResult:
    """Train one decoder and evaluate the epoch that the protocol keeps.

    A loss that is not finite ends the seed as failed; nothing is retried.

    Args:
        spec: the decoder.
        data: rows.
        config: recipe and protocol.
        seed: initialisation and order of the rows.
        on_epoch: called with (epoch from 1, mean training loss).
    """
    start = time.perf_counter()
    device = data.train.label_N.device
    decoder = build_decoder(spec, seed).to(device)
    loss_of = build_loss(config)
    optimizer = torch.optim.AdamW(
        decoder.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True
    )
    schedule = None
    if config.schedule == "plateau":
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, mode="max", factor=0.1, patience=10
        )
    best: Score | None = None
    best_epoch = config.epochs
    weights: dict[str, Tensor] | None = None
    log: list[dict[str, Any]] = []
    failed = None
    for epoch in range(1, config.epochs + 1):
        loss, train_accuracy = _train_epoch(
            decoder, optimizer, data.train, loss_of, config, seed, epoch
        )
        entry: dict[str, Any] = {
            "seed": seed,
            "epoch": epoch,
            "loss": loss,
            "train_accuracy": train_accuracy,
        }
        entry["lr"] = optimizer.param_groups[0]["lr"]
        log.append(entry)
        on_epoch(epoch, loss)
        if not np.isfinite(loss):
            failed = f"the loss became {loss} in epoch {epoch}"
            entry["loss"] = None
            break
        watched = train_accuracy
        if data.choose is not None:
            score = _score(decoder, data.choose, loss_of, config.batch_size)
            entry |= {"accuracy": score.accuracy, "choose_loss": score.loss}
            watched = score.accuracy
            if score.beats(best):
                best, best_epoch = score, epoch
                weights = copy.deepcopy(decoder.state_dict())
        if schedule is not None:
            schedule.step(watched)
        entry["seconds"] = round(time.perf_counter() - start, 4)
    if weights is not None and not failed:
        decoder.load_state_dict(weights)
    return _result(decoder, data.test, config.batch_size, seed, failed, best_epoch, log, start)


def _train_epoch(
    decoder: Decoder,
    optimizer: torch.optim.Optimizer,
    train: Subset,
    loss_of: Loss,
    config: TrainConfig,
    seed: int,
    epoch: int,
) -> tuple[float, float]:
    decoder.train()
    order_N = np.random.default_rng(stream_seed(seed, "order", epoch)).permutation(len(train))
    noise = torch.Generator().manual_seed(stream_seed(seed, "noise", epoch))
    loss_sum = torch.zeros((), device=train.label_N.device)
    hits = torch.zeros((), device=train.label_N.device)
    for start in range(0, len(order_N), config.batch_size):
        x_BLD, label_B = train.batch(order_N[start : start + config.batch_size])
        noise_BK = None
        if decoder.num_noise:
            noise_BK = torch.rand(len(label_B), decoder.num_noise, generator=noise).to(x_BLD)
        logits_BC = decoder(x_BLD, noise_BK)
        loss = loss_of(logits_BC, label_B)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if config.clip_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(decoder.parameters(), config.clip_grad_norm)
        optimizer.step()
        # summed on the device: reading a number at every step would wait for it
        loss_sum += loss.detach() * len(label_B)
        hits += (logits_BC.detach().argmax(1) == label_B).sum()
    return float(loss_sum) / len(train), float(hits) / len(train)


@torch.inference_mode()
def _logits(decoder: Decoder, subset: Subset, batch_size: int) -> Tensor:
    decoder.eval()
    return torch.cat([decoder(x_BLD) for x_BLD in _in_order(decoder, subset, batch_size)])


def _in_order(decoder: Decoder, subset: Subset, batch_size: int) -> Iterator[Tensor]:
    size = batch_size if decoder.attention.depends_on_batch else EVAL_BATCH_SIZE
    for start in range(0, len(subset), size):
        yield subset.batch(np.arange(start, min(start + size, len(subset))))[0]


def _score(decoder: Decoder, subset: Subset, loss_of: Loss, batch_size: int) -> Score:
    logits_NC = _logits(decoder, subset, batch_size)
    hits = (logits_NC.argmax(1) == subset.label_N).float().mean()
    return Score(float(hits), float(loss_of(logits_NC, subset.label_N)))


@torch.inference_mode()
def _mean_attention_map(decoder: Decoder, subset: Subset, batch_size: int) -> Tensor | None:
    total: Tensor | None = None
    for x_BLD in _in_order(decoder, subset, batch_size):
        weights = decoder.attention.attention_map(x_BLD)
        if weights is None:
            return None
        part = weights.double().sum(0)
        total = part if total is None else total + part
    return None if total is None else (total / len(subset)).float().cpu()


def _result(
    decoder: Decoder,
    test: Subset,
    batch_size: int,
    seed: int,
    failed: str | None,
    epoch: int,
    log: list[dict[str, Any]],
    start: float,
) -> SeedResult:
    logits_NC = _logits(decoder, test, batch_size).cpu()
    return SeedResult(
        seed=seed,
        failed=failed,
        epoch=0 if failed else epoch,
        seconds=time.perf_counter() - start,
        weights={name: value.cpu() for name, value in decoder.state_dict().items()},
        test_logits=torch.full_like(logits_NC, torch.nan) if failed else logits_NC,
        attention_map=None if failed else _mean_attention_map(decoder, test, batch_size),
        learned={
            name: value.detach().cpu().clone().contiguous()
            for name, value in decoder.attention.learned().items()
        },
        log=log,
    )
