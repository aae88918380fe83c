"""Seeds of one decoder from initialisation to results.

N rows, V rows that choose, C classes.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from gaam_cache.devices import float64
from gaam_decoder.attention._base import Attention
from gaam_decoder.decoder import DecoderSpec
from gaam_decoder.recipe import Recipe
from gaam_decoder.runs.unfinished import Checkpoint
from gaam_decoder.runs.writing import SeedResult
from gaam_decoder.specs import build
from gaam_decoder.training.arithmetic.engine import Engine
from gaam_decoder.training.arithmetic.reuse import Steps
from gaam_decoder.training.group import Group
from gaam_decoder.training.room import room_for
from gaam_decoder.training.rows.data import Subset, TrainData, choosing


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

    A loss that is not finite ends that seed as failed, and so do logits of test rows that are not,
    or weights where no rows are tested; nothing is retried. Where losses are scaled,
    ``Member.note`` says what else ends it.

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
    logits_SNC = torch.empty(len(seeds), 0, spec.num_classes)
    if data.test is not None:
        logits_SNC = group.logits(data.test, group.kept).float().cpu()
    held = choosing(data, recipe)
    held_SVC = None if held is None else group.logits(held, group.kept).float().cpu()
    results = []
    finished: list[tuple[SeedResult, Attention]] = []
    for place in range(len(seeds)):
        result = _result(group, place, logits_SNC[place])
        if held_SVC is not None:
            result.validation_logits = kept_logits(held_SVC[place], result.failed)
        results.append(result)
        if result.failed is None:
            finished.append((result, copy.deepcopy(group.decoder.attention)))
    if data.test is not None:
        maps = mean_attention_maps(
            [attention for _, attention in finished], data.test, group.eval_batch_size(data.test)
        )
        for (result, _), found in zip(finished, maps, strict=True):
            result.attention_map = found
    seconds = (group.seconds + time.perf_counter() - start) / len(seeds)
    for result in results:
        result.seconds = seconds
    return results, group.compiler.works


def _result(group: Group, place: int, logits_NC: Tensor) -> SeedResult:
    """Of one seed, but for the map; its weights are left in ``group.decoder``."""
    member = group.members[place]
    names = group.decoder.state_dict()  # without buffers that are not part of it
    kept = group.kept.parameters | group.kept.buffers
    weights = {name: kept[name][place].cpu() for name in names}
    group.decoder.load_state_dict(weights)
    if member.failed is None:
        member.failed = why_unusable(weights, logits_NC)
    failed = member.failed is not None
    return SeedResult(
        seed=member.seed,
        failed=member.failed,
        epoch=0 if failed else member.best_epoch,
        seconds=0.0,
        weights=weights,
        test_logits=torch.full_like(logits_NC, torch.nan) if failed else logits_NC,
        attention_map=None,
        learned={
            name: value.detach().cpu().clone().contiguous()
            for name, value in group.decoder.attention.learned().items()
        },
        log=member.log,
    )


def kept_logits(logits_VC: Tensor, failed: str | None) -> Tensor:
    """Of the rows that choose; NaN of a seed that failed, and where they are not finite."""
    usable = failed is None and bool(torch.isfinite(logits_VC).all())
    return logits_VC if usable else torch.full_like(logits_VC, torch.nan)


def why_unusable(weights: Mapping[str, Tensor], logits_NC: Tensor) -> str | None:
    """Why a seed whose losses were finite has failed all the same; None where it has not.

    Args:
        weights: that are kept.
        logits_NC: of the test rows; none of a final model, which only its weights can give away.
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
    """Maps averaged over rows, which are read once for all; on the CPU.

    Args:
        attentions: of one mechanism, such as its seeds.
        subset: the rows.
        batch_size: rows at once.

    Returns:
        One for each; None where the mechanism has none.
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
