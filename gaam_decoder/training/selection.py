"""Which epoch of a seed is kept, at which rate it goes on, and when it has failed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from gaam_decoder.recipe import Recipe

FACTOR = 0.1
PATIENCE = 10
THRESHOLD = 1e-4
SMALLEST_CHANGE = 1e-8
SMALLEST_SCALE = 1.0
"""Of a loss, at the end of an epoch: below it gradients overflow as they are."""


@dataclass(frozen=True, slots=True)
class Score:
    """Accuracy and loss of one epoch on the rows that select it."""

    accuracy: float
    loss: float

    def beats(self, other: Score | None, ties: Literal["loss", "first"] = "loss") -> bool:
        """Whether it is to be kept and not an earlier one: it has the higher accuracy.

        Of two with the same accuracy that with the lower loss is kept, or the first.
        """
        if other is None:
            return True
        if ties == "first":
            return self.accuracy > other.accuracy
        return (self.accuracy, -self.loss) > (other.accuracy, -other.loss)


class Scaled(NamedTuple):
    """What the scaling of its losses came to for a seed after an epoch."""

    scale: float
    skipped: int
    """Steps of the epoch that were not taken."""
    steps: int
    """Steps that were taken since the beginning."""


@dataclass(kw_only=True, slots=True)
class Plateau:
    """Divides the rate by 10 when what is watched has not risen for more than 10 epochs.

    The same numbers as ``torch.optim.lr_scheduler.ReduceLROnPlateau(mode='max', factor=0.1,
    patience=10)``, without an optimiser: the seeds of a group share one and have a rate each.
    """

    rate: float
    best: float = float("-inf")
    waited: int = 0

    def watch(self, value: float) -> None:
        """Take notice of an epoch's value, such as an accuracy."""
        if value > self.best * (1 + THRESHOLD):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        if self.waited > PATIENCE:
            self.waited = 0
            lower = self.rate * FACTOR
            if self.rate - lower > SMALLEST_CHANGE:
                self.rate = lower


@dataclass(kw_only=True, slots=True)
class Member:
    """What is known of one seed of a group beside its tensors: rate, best epoch, log."""

    seed: int
    schedule: Plateau
    best: Score | None = None
    best_epoch: int
    failed: str | None = None
    log: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, seed: int, recipe: Recipe) -> Member:
        """A seed before its first epoch."""
        return cls(seed=seed, schedule=Plateau(rate=recipe.lr), best_epoch=recipe.epochs)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Member:
        """The inverse of ``to_dict``."""
        best = None if values["best"] is None else Score(**values["best"])
        return cls(**(values | {"schedule": Plateau(**values["schedule"]), "best": best}))

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def note(
        self,
        recipe: Recipe,
        epoch: int,
        loss: float,
        accuracy: float,
        score: Score | None,
        scaled: Scaled | None = None,
    ) -> bool:
        """Take notice of an epoch: whether the weights as they are now are to be kept.

        A seed fails, and is trained no more, where its loss is not finite. Where losses are scaled,
        steps whose gradients are not finite are skipped and rows without a finite loss are in no
        mean, as in torch; then a seed fails where no row had one, where its scale fell below 1, and
        where no step was taken to the end.

        ``loss`` and ``accuracy`` are means over the training rows as they were seen, ``score`` is
        of the rows that select the epoch, if there are any.
        """
        entry: dict[str, Any] = {"seed": self.seed, "epoch": epoch, "loss": loss}
        entry |= {"train_accuracy": accuracy, "lr": self.schedule.rate}
        self.log.append(entry)
        if scaled is not None:
            entry |= {"loss_scale": scaled.scale, "skipped": scaled.skipped}
        if not np.isfinite(loss):
            entry["loss"] = None
            self.failed = f"the loss became {loss} in epoch {epoch}"
        elif scaled is not None and scaled.scale < SMALLEST_SCALE:
            why = f"gradients overflow in epoch {epoch} even at a loss scale of {scaled.scale:g}"
            self.failed = why
        elif scaled is not None and epoch == recipe.epochs and not scaled.steps:
            self.failed = f"no step was taken in {epoch} epochs: gradients overflowed in all"
        if self.failed is not None:
            return True
        keeps = score is None and epoch == recipe.epochs
        if score is not None:
            entry |= {"accuracy": score.accuracy, "selection_loss": score.loss}
            if score.beats(self.best, recipe.ties):
                self.best, self.best_epoch, keeps = score, epoch, True
        if recipe.schedule == "plateau":
            self.schedule.watch(accuracy if score is None else score.accuracy)
        return keeps
