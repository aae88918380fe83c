"""Seeds of one decoder from initialisation to results.

N rows, C classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gaam_cache.devices import float64
from gaam_decoder.attention._base import Attention
from gaam_decoder.decoder import DecoderSpec
from gaam_decoder.recipe import Recipe
from gaam_decoder.runs.seed_result import SeedResult
from gaam_decoder.specs import build
from gaam_decoder.training.arithmetic.engine import Engine
from gaam_decoder.training.arithmetic.reuse import Steps
from gaam_decoder.training.group import Group
from gaam_decoder.training.room import room_for
from gaam_decoder.training.rows.data import Subset, TrainData
from gaam_decoder.unfinished.checkpoint import Checkpoint


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
    """Train some seeds of a decoder and evaluate, for each, the epoch that the protocol keeps.

    A loss that is not finite ends that seed as failed, and so do logits of test rows that are not;
    nothing is retried. Where losses are scaled, ``Member.note`` says what else ends it.

    Args:
        spec: the decoder.
        data: rows.
        recipe: hyperparameters and protocol.
        seeds: initialisation and order of the rows.
        engine: how they are run.
        checkpoint: where the last epoch is kept, and taken up again.
        on_epoch: called with (epoch from 1, mean training loss).
        steps: what earlier groups compiled.

    Returns:
        One result per seed, in order, and whether the arithmetic was compiled to the end.

    Raises:
        ShortOfMemoryError: there is too little memory for so many seeds and rows together.
    """
    with room_for(recipe, seeds, engine.device):
        return _train_group(spec, data, recipe, seeds, engine, checkpoint, on_epoch, steps)


def _train_group(
    spec: DecoderSpec,
    data: TrainData,
    recipe: Recipe,
    seeds: Sequence[int],
    engine: Engine,
    checkpoint: Checkpoint | None,
    on_epoch: Callable[[int, float], None],
    steps: Steps | None,
) -> tuple[list[SeedResult], bool]:
    group = Group(
        spec, data, recipe, seeds, loss_of=build(recipe.loss, "loss"), engine=engine, steps=steps
    )
    if checkpoint is not None:
        group.resume(checkpoint)
    while not group.finished():
        loss = group.train_epoch()
        if checkpoint is not None and checkpoint.due and not group.finished():
            group.save(checkpoint)
        on_epoch(group.epochs_done, loss)
    start = time.perf_counter()
    logits_SNC = group.logits(data.test, group.kept).float().cpu()
    results = [_result(group, place, logits_SNC[place]) for place in range(len(seeds))]
    seconds = (group.seconds + time.perf_counter() - start) / len(seeds)
    for result in results:
        result.seconds = seconds
    return results, group.compiler.works


def _result(group: Group, place: int, logits_NC: Tensor) -> SeedResult:
    member = group.members[place]
    if member.failed is None and not bool(torch.isfinite(logits_NC).all()):
        member.failed = "the logits of the test rows are not finite"
    names = group.decoder.state_dict()  # without buffers that are not part of it
    kept = group.kept.parameters | group.kept.buffers
    weights = {name: kept[name][place].cpu() for name in names}
    group.decoder.load_state_dict(weights)
    failed, test = member.failed is not None, group.data.test
    return SeedResult(
        seed=member.seed,
        failed=member.failed,
        epoch=0 if failed else member.best_epoch,
        seconds=0.0,
        weights=weights,
        test_logits=torch.full_like(logits_NC, torch.nan) if failed else logits_NC,
        attention_map=None
        if failed
        else mean_attention_map(group.decoder.attention, test, group.eval_batch_size(test)),
        learned={
            name: value.detach().cpu().clone().contiguous()
            for name, value in group.decoder.attention.learned().items()
        },
        log=member.log,
    )


@torch.inference_mode()
def mean_attention_map(attention: Attention, subset: Subset, batch_size: int) -> Tensor | None:
    """Attention map averaged over rows, on the CPU; None where the mechanism has none."""
    attention.eval()
    total: Tensor | None = None
    for x_BLD in subset.features.batches(subset.rows, batch_size):
        weights = attention.attention_map(x_BLD.float())
        if weights is None:
            return None
        part = float64(weights).sum(0)
        total = part if total is None else total + part
    return None if total is None else (total / len(subset)).float().cpu()
