"""The state of one seed beside its tensors: learning rate, best epoch, log."""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from gaam_decoder.recipe import Recipe
from gaam_decoder.tasks import CLASSIFICATION, Task

# the defaults of torch's ReduceLROnPlateau
FACTOR = 0.1  # of the learning rate at each reduction
PATIENCE = 10  # epochs without a better score
THRESHOLD = 1e-4  # relative rise that makes a score better
SMALLEST_CHANGE = 1e-8  # of the learning rate
SMALLEST_SCALE = 1.0  # of a loss: below it unscaled gradients overflow


class Score(NamedTuple):
    """How good the weights after an epoch are, on the validation rows."""

    value: float  # ``Task.selection_score``, such as the accuracy: larger is better
    loss: float


class EpochScaling(NamedTuple):
    """The loss scaling of one seed after an epoch."""

    scale: float
    skipped: int  # steps of the epoch whose gradients overflowed
    steps: int  # steps of all epochs that changed the parameters


@dataclass(kw_only=True, slots=True)
class Plateau:
    """The learning rate of one seed by torch's ReduceLROnPlateau(mode='max').

    Torch's own schedule needs an optimizer, which the seeds of a batch share.
    """

    rate: float
    best: float = float("-inf")  # score
    waited: int = 0  # epochs since the best score or the last reduction

    def end_epoch(self, score: float) -> None:
        """Reduce the rate if the score has not risen for more than 10 epochs."""
        self.waited += 1
        # a score below 0 rises towards 0
        threshold = THRESHOLD if self.best >= 0 else -THRESHOLD
        if score > self.best * (1 + threshold):
            self.best = score
            self.waited = 0
        if self.waited > PATIENCE:
            self.waited = 0
            reduced_rate = self.rate * FACTOR
            if self.rate - reduced_rate > SMALLEST_CHANGE:
                self.rate = reduced_rate


def cosine(step: int, num_steps: int) -> float:
    """The factor of the learning rate at a step by a cosine schedule with warm-up.

    It rises over the first twentieth of the steps, then falls to 0 as half a cosine.

    Args:
        step: number of the step, from 1.
        num_steps: of the whole training.
    """
    num_warm_up = num_steps // 20
    if step <= num_warm_up:
        return step / (num_warm_up + 1)
    fraction = (step - 1 - num_warm_up) / (num_steps - num_warm_up)
    return (1 + math.cos(math.pi * fraction)) / 2


@dataclass(kw_only=True, slots=True)
class SeedState:
    """The state of one seed beside its tensors: learning rate, best epoch, log."""

    seed: int
    schedule: Plateau
    best: Score | None = None  # of the best epoch so far, on the validation rows
    best_epoch: int  # from 1; without validation rows the last epoch
    failed: str | None = None  # why its training has ended early
    log: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def before_training(cls, seed: int, recipe: Recipe) -> Self:
        """The state of a seed before its first epoch."""
        return cls(
            seed=seed, schedule=Plateau(rate=recipe.lr), best_epoch=recipe.epochs
        )

    def log_epoch(
        self,
        recipe: Recipe,
        epoch: int,
        loss: float,
        training_score: float,
        score: Score | None,
        scaling: EpochScaling | None,
        task: Task = CLASSIFICATION,
    ) -> bool:
        """Log an epoch; return whether to keep the weights after it.

        They are kept if they are the best so far, or those of the last epoch without
        validation rows, or those with which the seed failed.

        Args:
            recipe: of the training.
            epoch: from 1.
            loss: mean training loss.
            training_score: on the training rows.
            score: on the validation rows, if there are any.
            scaling: of the loss, if it is scaled.
            task: names the scores in the log.
        """
        entry: dict[str, Any] = {
            "seed": self.seed,
            "epoch": epoch,
            # JSON has no number that is not finite
            "loss": loss if np.isfinite(loss) else None,
            task.training_key: training_score,
            "lr": self.schedule.rate,
        }
        self.log.append(entry)
        if scaling is not None:
            entry["loss_scale"] = scaling.scale
            entry["skipped"] = scaling.skipped

        # a failed seed keeps the weights that it failed with
        self.failed = _failure(recipe, epoch, loss, scaling)
        if self.failed is not None:
            return True

        if score is not None:
            entry[task.score_key] = score.value
            entry["selection_loss"] = score.loss
        is_kept = self._record_best(recipe, epoch, score)
        # the plateau is that of the validation score, or else of the training score
        if recipe.schedule == "plateau":
            self.schedule.end_epoch(training_score if score is None else score.value)
        return is_kept

    def _record_best(self, recipe: Recipe, epoch: int, score: Score | None) -> bool:
        """Record an epoch if it is the best so far; return whether it is.

        Without validation rows (no score), the last epoch counts as the best.
        """
        if score is None:
            return epoch == recipe.epochs
        if self.best is not None and not _is_better(score, self.best, recipe):
            return False
        self.best = score
        self.best_epoch = epoch
        return True


def _failure(
    recipe: Recipe, epoch: int, loss: float, scaling: EpochScaling | None
) -> str | None:
    """Why the training of a seed has failed in an epoch, or None."""
    if not np.isfinite(loss):
        return f"the loss became {loss} in epoch {epoch}"
    if scaling is None:
        return None
    if scaling.scale < SMALLEST_SCALE:
        return (
            f"gradients overflow in epoch {epoch} even at a loss scale of "
            f"{scaling.scale:g}"
        )
    if epoch == recipe.epochs and not scaling.steps:
        return f"no step was taken in {epoch} epochs: gradients overflowed in all"
    return None


def _is_better(score: Score, best: Score, recipe: Recipe) -> bool:
    """Whether an epoch is better than the best one before it.

    Among equal scores the lower loss is better, or with ``ties="first"`` the earlier
    epoch.
    """
    if recipe.ties == "first":
        return score.value > best.value
    # compare the values first, and the losses only where the values are equal
    return (score.value, -score.loss) > (best.value, -best.loss)
