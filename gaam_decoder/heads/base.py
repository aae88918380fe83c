"""What a head is: the base classes of all heads.

B batch, L layers (as the mechanism leaves them), D hidden size, C classes, K random
numbers of a row, E features before a mechanism's final map; N rows, F = L D features.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from torch import Tensor, nn

from gaam_cache.common.own_code import RemembersCode


class Head(RemembersCode, nn.Module, ABC):
    """Maps what a mechanism leaves, (B, L, D), to logits (B, C).

    A head draws no random numbers while it trains. It says in ``num_noise`` how many it
    needs for every row, and receives them. So every seed has a random stream of its
    own, alone or in a seed batch.

    Options are the keyword-only arguments of the constructor.

    Args:
        num_layers: L of the mechanism's output.
        hidden_size: D of the mechanism's output.
        num_classes: C; of other tasks the number of columns, or of labels.
    """

    trained_by: ClassVar[Literal["steps", "fit"]] = "steps"
    """steps: by gradients, over epochs, each seed by itself; fit: a ``FittedHead``."""
    num_tried_values: ClassVar[int] = 0
    """Number of values of its setting, such as penalties, that a fit compares."""
    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression", "multi-label")
    """Names of the tasks that it serves."""
    stackable: bool = True
    """Whether ``torch.func.vmap`` can run several seeds at once; else a loop does."""
    num_noise: int = 0
    """K, uniform random numbers in [0, 1) that one row needs in training."""

    def __init__(self, num_layers: int, hidden_size: int, num_classes: int) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.hidden_size = hidden_size
        self.num_classes = num_classes

    @abstractmethod
    def forward(self, x_BLD: Tensor, noise_BK: Tensor | None = None) -> Tensor:
        """(B, L, D) -> logits (B, C).

        ``noise_BK`` are K random numbers for each row, of which a head makes its
        dropout; None in evaluation, or where it draws none.
        """

    def resize(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the sizes of these tensors, by name, before their values are loaded.

        A head that keeps its training rows has buffers with as many rows.
        """

    @property
    def joins_final_map(self) -> bool:
        """Whether ``after_final_map`` takes the place of a mechanism's final map."""
        return False

    def after_final_map(self, final_map: nn.Linear, y_BLE: Tensor) -> Tensor:
        """Logits of ``final_map(y)``, (B, L, E) -> (B, C)."""
        raise NotImplementedError


class Examples(NamedTuple):
    """Rows with their targets, on one device."""

    x_NF: Tensor
    """float32."""
    label_N: Tensor
    """Classes (N,) int64, numbers (N, K), or labels (N, K) of 0 and 1."""
    task: str = "classification"

    def __len__(self) -> int:
        return len(self.label_N)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """The outcome of a fit, whose weights the head has."""

    setting: str  # the setting that validation chose, such as 'C'
    value: float  # the value that it chose
    lowest: float  # of the values that were tried
    highest: float
    tried: int  # number of values
    kept: int  # position of the chosen value in the log, from 1
    unconverged: tuple[float, ...] = ()  # values whose fit did not converge
    log: tuple[dict[str, Any], ...] = field(repr=False)
    """An entry for every value. It has epoch (its position, from 1), loss and
    train_accuracy on training rows, accuracy and selection_loss on validation rows, and
    more."""

    @classmethod
    def from_values(
        cls,
        setting: str,
        values: Sequence[float],
        best_index: int,
        log: Sequence[dict[str, Any]],
        *,
        unconverged: Sequence[float] = (),
    ) -> "Fit":
        """The outcome of a fit that tried values of one setting, in rising order.

        Args:
            setting: name of the setting.
            values: that were tried.
            best_index: index of the best value.
            log: an entry for every value.
            unconverged: values whose fit did not converge.
        """
        return cls(
            setting=setting,
            value=values[best_index],
            lowest=values[0],
            highest=values[-1],
            tried=len(values),
            kept=best_index + 1,
            unconverged=tuple(unconverged),
            log=tuple(log),
        )

    @property
    def edge(self) -> Literal["lowest", "highest"] | None:
        """Which end of the values that were tried was chosen, if one was."""
        if self.tried == 1 or self.lowest < self.value < self.highest:
            return None
        return "lowest" if self.value == self.lowest else "highest"

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without the log, which has a file of its own."""
        values = asdict(self)
        del values["log"]
        return values | {"edge": self.edge, "unconverged": list(self.unconverged)}


class FittedHead(Head):
    """A head that is fitted at once, to the output of a mechanism without parameters.

    A fit has no initialisation and no order of rows, so one seed is enough. Learning
    rate, epochs, batch size, loss and dtype are no part of its recipe.
    """

    trained_by: ClassVar[Literal["steps", "fit"]] = "fit"
    num_tried_values: ClassVar[int] = 1
    """Number of values of its setting, such as penalties, that a fit compares."""
    tasks: ClassVar[tuple[str, ...]] = ("classification",)

    @abstractmethod
    def fit(
        self,
        training: Examples,
        validation: Examples,
        on_value: Callable[[int, str], None],
    ) -> Fit:
        """Set the parameters.

        Args:
            training: rows that are learned from; a fit may write over their features.
            validation: rows that choose among the values of the setting.
            on_value: called after every value, with the number of values so far and
                the outcome of this one.
        """

    @classmethod
    @abstractmethod
    def cost(cls, rows: int, features: int, classes: int) -> tuple[float, float]:
        """Estimate a fit: its floating-point operations, and its bytes of memory.

        The arguments are numbers: of training and validation rows, features, outputs.
        """
