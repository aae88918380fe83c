"""The plain loop: what one would write first, and what ``bench_train`` compares with.

    python -m tests.benchmarks.plain_loop CACHE HEAD STEPS [--tuned] [--cpu-time]
    python -m tests.benchmarks.plain_loop CACHE HEAD 0 --whole ROWS EPOCHS

One seed, ``nn.Module``, the head's ``nn.Conv2d`` in float32, a ``DataLoader`` over a list of
tensors, AdamW, ``loss.item()`` at every step. Run like this it waits: for every line on stdin it
trains STEPS steps and prints the seconds that an epoch would take. Nothing is set that PyTorch does
not set itself, unless ``--tuned`` asks for what ``gaam train`` sets. ``--whole`` trains ten seeds
of four mechanisms: validation after every epoch, the test rows at the best.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.data import DataLoader

from gaam_cache.store.reader import open_cache
from gaam_decoder.decoder import DecoderSpec, build_decoder
from gaam_decoder.heads.conv import ConvHead
from gaam_decoder.recipe import Recipe
from gaam_decoder.training.arithmetic.engine import keep_freed_memory
from gaam_decoder.training.data import Subset, TrainData, prepare_data
from gaam_decoder.training.experiments import plan_experiments
from tests.decoder.configs import loose_config


class PlainLoop:
    """One seed, the obvious way."""

    def __init__(
        self, spec: DecoderSpec, data: TrainData, recipe: Recipe, seed: int
    ) -> None:
        self.device = data.train.label_N.device
        self.decoder = build_decoder(spec, seed).to(self.device)
        if isinstance(self.decoder.head, ConvHead):
            head = self.decoder.head
            head.forward = lambda x, noise=None: as_published(head, x)  # type: ignore[method-assign,assignment]
        self.optimizer = torch.optim.AdamW(
            self.decoder.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay
        )
        items = list(zip(_rows(data.train), data.train.label_N.cpu(), strict=True))
        generator = torch.Generator().manual_seed(seed)
        self.loader: DataLoader[tuple[torch.Tensor, torch.Tensor]] = DataLoader(
            cast(Any, items),
            batch_size=recipe.batch_size,
            shuffle=True,
            generator=generator,
        )

    def epoch(self, steps: int | None = None) -> int:
        """Train; returns the number of rows seen."""
        self.decoder.train()
        total, seen = 0.0, 0
        for step, (x, label) in enumerate(self.loader):
            if step == steps:
                break
            x, label = x.to(self.device), label.to(self.device)
            loss = torch.nn.functional.cross_entropy(self.logits(x), label)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            seen += len(label)
        return seen

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """One module after the other."""
        logits: torch.Tensor = self.decoder.head(self.decoder.attention(x))
        return logits

    @torch.no_grad()
    def accuracy(self, subset: Subset) -> float:
        """Share of the rows that are right."""
        self.decoder.eval()
        x = torch.stack(_rows(subset)).to(self.device)
        parts = [self.logits(x[i : i + 512]).argmax(1) for i in range(0, len(x), 512)]
        return float((torch.cat(parts) == subset.label_N).float().mean())


def as_published(head: ConvHead, x_BLD: torch.Tensor) -> torch.Tensor:
    """The conv head without a layout for its images."""
    hidden_BKHW = head.conv1(x_BLD.unflatten(-1, head.image_shape)).relu()
    return head.fc(head.conv2(hidden_BKHW).relu().flatten(1))


def _rows(subset: Subset) -> list[torch.Tensor]:
    return list(
        next(iter(subset.features.batches(subset.rows, len(subset)))).float().cpu()
    )


def setting(
    cache_path: Path, attention: str, head: str, **options: Any
) -> tuple[DecoderSpec, TrainData, Recipe]:
    """What the command line would make of these options, without a validation split."""
    asked = {"select": "last", "device": "cpu"} | options
    config = loose_config(
        attn=(attention,), head=head, cache=cache_path, **({"lr": 3e-4} | asked)
    )
    cache = open_cache(cache_path)
    device = torch.device("cpu")
    item = plan_experiments(config, cache, device)[0]
    return item.spec, prepare_data(cache, item.recipe, device), item.recipe


def plain(
    spec: DecoderSpec,
    data: TrainData,
    recipe: Recipe,
    steps: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Callable[[], float]:
    """Seconds per seed-epoch of the plain loop, from its first steps."""
    loop = PlainLoop(spec, data, recipe, 0)
    loop.epoch(3)

    def run() -> float:
        start = clock()
        seen = loop.epoch(steps)
        return (clock() - start) * len(data.train) / seen

    return run


MECHANISMS, SEEDS = ("none", "gaam", "laplace", "mha"), 10


def whole(cache: Path, head: str, rows: int, epochs: int) -> None:
    """Train all mechanisms and seeds to the end, and print mean test accuracies."""
    for attention in MECHANISMS:
        asked: dict[str, Any] = {
            "select": "val",
            "train_rows": (rows,),
            "epochs": epochs,
        }
        spec, data, recipe = setting(cache, attention, head, **asked)
        assert data.selection is not None
        assert data.test is not None
        tested = []
        for seed in range(SEEDS):
            loop, best = PlainLoop(spec, data, recipe, seed), -1.0
            for _ in range(epochs):
                loop.epoch()
                if (reached := loop.accuracy(data.selection)) > best:
                    best, weights = reached, copy.deepcopy(loop.decoder.state_dict())
            loop.decoder.load_state_dict(weights)
            tested.append(loop.accuracy(data.test))
        print(f"{attention} {sum(tested) / SEEDS:.4f}", flush=True)


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cache", type=Path)
    parser.add_argument("head")
    parser.add_argument("steps", type=int)
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--whole", type=int, nargs=2)
    arguments = parser.parse_args()
    if arguments.whole:
        whole(arguments.cache, arguments.head, *arguments.whole)
        return
    if arguments.tuned:
        keep_freed_memory()
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    made = setting(arguments.cache, "gaam", arguments.head)
    run = plain(*made, arguments.steps, clock)
    for _ in sys.stdin:
        print(run(), flush=True)


if __name__ == "__main__":
    main()
