"""The learning rate of one seed over its epochs."""

from __future__ import annotations

from dataclasses import dataclass

FACTOR = 0.1
PATIENCE = 10
THRESHOLD = 1e-4
SMALLEST_CHANGE = 1e-8


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
