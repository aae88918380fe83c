"""What a head is that is fitted at once, without steps, epochs or seeds.

N rows, F features: what the attention leaves, flattened, C classes.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from torch import Tensor

from gaam_decoder.heads.base import Head


class Examples(NamedTuple):
    """Rows with their classes, on one device."""

    x_NF: Tensor
    """float32."""
    label_N: Tensor

    def __len__(self) -> int:
        return len(self.label_N)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """How a fit went; the head has the weights."""

    setting: str  # what was chosen, such as 'C'
    value: float
    lowest: float
    highest: float  # of the values that were tried
    tried: int
    kept: int  # place of the value that was chosen in the log, from 1
    unconverged: tuple[float, ...] = ()  # values whose fit did not converge
    log: tuple[dict[str, Any], ...] = field(repr=False)
    """One entry per value: epoch (its place, from 1), loss and train_accuracy on the rows that
    learn, accuracy and selection_loss on those that choose, and more."""

    @property
    def edge(self) -> Literal["lowest", "highest"] | None:
        """Whether the value that was chosen is at an end of those that were tried."""
        if self.tried == 1 or self.lowest < self.value < self.highest:
            return None
        return "lowest" if self.value == self.lowest else "highest"

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without the log, which has a file of its own."""
        values = asdict(self)
        del values["log"]
        return values | {"edge": self.edge, "unconverged": list(self.unconverged)}


class FittedHead(Head):
    """A head that is fitted at once to what an attention without parameters leaves.

    There is nothing to initialise and no order of rows: it has one seed, and what steps need
    (rate, epochs, size of a batch, loss, type of products) is no part of its recipe.
    """

    trained_by: ClassVar[Literal["steps", "fit"]] = "fit"
    tries: ClassVar[int] = (
        1  # values of its setting that are compared on the rows that choose
    )

    @abstractmethod
    def fit(
        self, learn: Examples, choose: Examples, tell: Callable[[int, str], None]
    ) -> Fit:
        """Set the parameters.

        Args:
            learn: rows that are learned from.
            choose: rows that choose between fits, and are not learned from.
            tell: called with (values that are done, what came of the last).
        """

    @classmethod
    @abstractmethod
    def cost(cls, rows: int, features: int, classes: int) -> tuple[float, float]:
        """Floating-point operations of a fit, roughly, and bytes of memory that it takes."""
