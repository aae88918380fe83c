"""Every loss with every task that it trains, and a batch of that task."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gaam_cache.common import plugins
from gaam_decoder.losses import Loss
from gaam_decoder.specs import build, parse_spec

PACKAGE = "gaam_decoder.losses"


@dataclass(frozen=True)
class Example:
    """A loss with its options as text, and a task."""

    text: str
    task: str

    def __str__(self) -> str:
        return f"{self.text}, {self.task}"

    def loss(self) -> Loss:
        """The loss itself."""
        loss: Loss = build(parse_spec(self.text, "loss"), "loss")
        return loss

    def batch(self, rows: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of four classes, numbers or labels, and the targets."""
        generator = torch.Generator().manual_seed(rows)
        shape = (rows, 4)
        logits = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
        if self.task == "classification":
            return logits, torch.randint(4, (rows,), generator=generator)
        number = torch.randn(shape, generator=generator, dtype=torch.float64)
        if self.task == "regression":
            return logits, number
        return logits, number > 0


EXAMPLES = [
    Example(name, task)
    for name in plugins.names(PACKAGE)
    for task in plugins.load(PACKAGE, name, kind="loss").tasks
]
