"""Seed batches of random rows, and the plain loop of torch's own parts beside them.

L layers, D values of a layer, C classes, N rows, B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_

from gaam_cache.common import plugins
from gaam_decoder import TrainConfig
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder, stream_seed
from gaam_decoder.losses import Loss
from gaam_decoder.losses.cross_entropy import CrossEntropy
from gaam_decoder.recipe import Recipe
from gaam_decoder.specs import parse_attention, parse_head
from gaam_decoder.training.arithmetic.engine import Engine
from gaam_decoder.training.arithmetic.step import StepCache
from gaam_decoder.training.data import Features, Subset, TrainData
from gaam_decoder.training.experiments import recipes
from gaam_decoder.training.seed_batch import SeedBatch

L = 6
D = 16
C = 3
N = 37
B = 8
LEARNED_PREFIX = 29
"""Rows that learn; the others choose, and are tested."""
LR = 1e-3
"""Not more: once all rows are learned, gradients vanish and Adam follows rounding."""
VARIANTS = (
    *plugins.names("gaam_decoder.attention"),
    "laplace:location=median",
    "mha:published=true",
    "mha-bn:published=true",
    "gqa:published=true",
    "nadaraya-watson:kernel=boxcar",
    "gct:learn_scale=true",
)
EAGER = Engine(device="cpu", dtype="float32", seed_batch=8, compiled=False, why="test")
CPU = torch.device("cpu")


class FeaturesOfArray(Features):
    """Features of an array in memory, of any type."""

    def __init__(self, x_NLD: torch.Tensor) -> None:
        self.device = x_NLD.device
        self.shape = tuple(x_NLD.shape)
        self.location = "memory"
        self.dtype = x_NLD.dtype
        self.resident = x_NLD
        self._loaded_N = None


def states_of(rows: Subset) -> torch.Tensor:
    """The states of all rows, which are in memory."""
    states = rows.features.resident
    assert states is not None
    return states


def rows_to_test(data: TrainData) -> Subset:
    """The rows that are tested; there are some."""
    assert data.test is not None
    return data.test


def decoder_spec(attention: str, head: str = "linear") -> DecoderSpec:
    return DecoderSpec(
        attention=parse_attention(attention),
        head=parse_head(head),
        num_layers=L,
        hidden_size=D,
        num_classes=C,
    )


def train_data(
    dtype: torch.dtype = torch.float64, device: torch.device = CPU
) -> TrainData:
    """Random rows with random labels."""
    generator = torch.Generator().manual_seed(3)
    x_NLD = torch.randn(N, L, D, generator=generator, dtype=torch.float64)
    features = FeaturesOfArray(x_NLD.to(device, dtype))
    label_N = torch.randint(C, (N,), generator=generator).to(device)

    def subset(first: int, last: int) -> Subset:
        rows = np.arange(first, last)
        return Subset(features=features, rows=rows, label_N=label_N[first:last])

    return TrainData(
        train=subset(0, LEARNED_PREFIX),
        selection=subset(LEARNED_PREFIX, N),
        test=subset(LEARNED_PREFIX, N),
    )


def decoder_recipe(attention: str, head: str, **settings: Any) -> Recipe:
    """A recipe of 13 epochs with these settings."""
    common: dict[str, Any] = {
        "pool": "mean",
        "epochs": 13,
        "batch_size": B,
        "lr": LR,
        "weight_decay": 0.1,
    }
    [recipe] = recipes(TrainConfig(**common), "float32")
    decoder = {"attention": parse_attention(attention), "head": parse_head(head)}
    return replace(recipe, **(decoder | settings))


def seed_batch(
    attention: str,
    seeds: list[int],
    head: str = "linear",
    dtype: torch.dtype = torch.float64,
    engine: Engine = EAGER,
    steps: StepCache | None = None,
    device: torch.device = CPU,
    loss: Loss | None = None,
    data: TrainData | None = None,
    **settings: Any,
) -> SeedBatch:
    """Seeds that are trained together, of a recipe with these settings."""
    return SeedBatch(
        decoder_spec(attention, head),
        data or train_data(device=device),
        decoder_recipe(attention, head, **settings),
        seeds,
        loss_function=loss or CrossEntropy(),
        engine=replace(engine, device=str(device)),
        dtype=dtype,
        steps=steps,
    )


def balanced_weights(labels: list[int]) -> dict[int, float]:
    """The weight of every class that has rows, counted by hand."""
    classes = set(labels)
    return {
        label: len(labels) / (len(classes) * labels.count(label)) for label in classes
    }


def plain_loop(
    attention: str,
    seed: int,
    epochs: int,
    head: str,
    clip: float | None,
    weighted_loss: Loss | None = None,
    rows: Subset | None = None,
    make_optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    make_schedule: Callable[[torch.optim.Optimizer], Any] | None = None,
) -> dict[str, torch.Tensor]:
    """The tensors of one seed, trained by ``nn.Module``, autograd and torch.optim.

    A loss that is given is computed row by row, with the weights of balanced classes.
    """
    rows = rows or train_data().train
    decoder = build_decoder(decoder_spec(attention, head), seed).double()
    optimizer = make_optimizer(decoder.parameters(), lr=LR, weight_decay=0.1)
    schedule = None if make_schedule is None else make_schedule(optimizer)
    for epoch in range(1, epochs + 1):
        generator = np.random.default_rng(stream_seed(seed, "order", epoch))
        order = generator.permutation(len(rows))
        noise = torch.Generator().manual_seed(stream_seed(seed, "noise", epoch))
        for start in range(0, len(order), B):
            batch = torch.from_numpy(order[start : start + B])
            optimizer.zero_grad()
            batch_loss(decoder, rows, batch, noise, weighted_loss).backward()
            if clip is not None:
                clip_grad_norm_(decoder.parameters(), clip)
            optimizer.step()
            if schedule is not None:
                schedule.step()
    return decoder.state_dict()


def batch_loss(
    decoder: Decoder,
    rows: Subset,
    batch: torch.Tensor,
    noise: torch.Generator,
    weighted_loss: Loss | None,
) -> torch.Tensor:
    """The loss of a batch of the plain loop."""
    drawn = None
    if decoder.head.num_noise:
        drawn = torch.rand(len(batch), decoder.head.num_noise, generator=noise)
    logits_BC = decoder(states_of(rows)[batch], drawn)
    label_B = rows.label_N[batch]
    if weighted_loss is None:
        return torch.nn.functional.cross_entropy(logits_BC, label_B)
    weights = balanced_weights(rows.label_N.tolist())
    losses = []
    for place in range(len(batch)):
        single = slice(place, place + 1)
        loss = weighted_loss(logits_BC[single], label_B[single])
        losses.append(weights[int(label_B[place])] * loss)
    return torch.stack(losses).sum() / len(batch)


def assert_equals_plain_loop(
    batch: SeedBatch,
    attention: str,
    epochs: int,
    head: str = "linear",
    clip: float | None = None,
    **options: Any,
) -> None:
    """Every tensor of every seed is that of the plain loop."""
    tensors = {**batch.state.parameters, **batch.state.buffers}
    for place, seed in enumerate(batch.seeds):
        expected = plain_loop(attention, seed, epochs, head, clip, **options)
        for name, tensor in expected.items():
            torch.testing.assert_close(
                tensors[name][place],
                tensor,
                atol=1e-9,
                rtol=0,
                msg=f"{name} of {attention}, seed {seed}",
            )
