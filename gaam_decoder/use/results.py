"""What decoders predict of rows that are no classes: numbers, and sets of labels.

S seeds, N rows, K numbers or labels.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.tasks import Task

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class NumberPredictions:
    """Numbers of N rows, averaged over the seeds."""

    numbers_NK: Floats
    """In the unit of the data."""
    spread_NK: Floats
    """Sample standard deviation over the seeds; 0 of a single seed."""
    names: tuple[str, ...]

    @classmethod
    def from_outputs(cls, output_SNK: NDArray[Any], names: Sequence[str]) -> Self:
        """The mean of the outputs of all seeds, and their spread.

        Args:
            output_SNK: numbers that each seed predicts of each row, in K columns.
            names: of the columns.
        """
        number_SNK = output_SNK.astype(np.float64)
        spread_NK = np.zeros(number_SNK.shape[1:])
        if len(number_SNK) > 1:
            spread_NK = number_SNK.std(0, ddof=1)
        return cls(
            numbers_NK=number_SNK.mean(0),
            spread_NK=spread_NK,
            names=tuple(names),
        )

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.numbers_NK)

    @property
    def labels(self) -> list[list[float]]:
        """The numbers of every row."""
        numbers: list[list[float]] = self.numbers_NK.tolist()
        return numbers

    def rows(self, top: int = 1) -> list[dict[str, Any]]:  # noqa: ARG002
        """The results of every row, by ``result_types``."""
        records = []
        for numbers, spreads in zip(
            self.numbers_NK.tolist(), self.spread_NK.tolist(), strict=True
        ):
            record = {}
            for name, number, spread in zip(self.names, numbers, spreads, strict=True):
                record[f"predicted_{name}"] = number
                record[f"spread_{name}"] = spread
            records.append(record)
        return records


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelSetPredictions:
    """Sets of labels of N rows, by the probabilities averaged over the seeds."""

    probabilities_NC: Floats
    """Of each label by itself, (N, K)."""
    agreement_N: Floats
    """Share of the seeds that predict the same set by themselves."""
    names: tuple[str, ...]

    @classmethod
    def from_outputs(
        cls,
        output_SNK: NDArray[Any],
        names: Sequence[str],
        *,
        temperatures: Sequence[float] = (),
    ) -> Self:
        """``p = 1/S sum_s sigmoid(logit_s / T_s)``; a row has a label where p > 1/2.

        Args:
            output_SNK: logits of every seed, row and label.
            names: of the K labels.
            temperatures: T of every seed; empty: 1.
        """
        logit_SNK = output_SNK.astype(np.float64)
        if temperatures:
            logit_SNK /= np.array(temperatures)[:, None, None]
        # exp of a negative number never overflows
        small_SNK = np.exp(-np.abs(logit_SNK))
        larger_SNK = 1 / (1 + small_SNK)
        probability_SNK = np.where(logit_SNK >= 0, larger_SNK, 1 - larger_SNK)
        mean_NK = probability_SNK.mean(0)
        agrees_SN = ((output_SNK > 0) == (mean_NK > 0.5)).all(-1)
        return cls(
            probabilities_NC=mean_NK,
            agreement_N=agrees_SN.mean(0),
            names=tuple(names),
        )

    def __len__(self) -> int:
        return len(self.agreement_N)

    @property
    def has_label_NK(self) -> NDArray[np.bool_]:
        """Whether each row has each of K labels."""
        has_label_NK: NDArray[np.bool_] = self.probabilities_NC > 0.5
        return has_label_NK

    @property
    def labels(self) -> list[list[str]]:
        """The labels of every row, in the order of their names."""
        return [
            [
                name
                for name, has_label in zip(self.names, has_label_K, strict=True)
                if has_label
            ]
            for has_label_K in self.has_label_NK.tolist()
        ]

    def rows(self, top: int = 1) -> list[dict[str, Any]]:  # noqa: ARG002
        """The results of every row, by ``result_types``; a set is a JSON list."""
        records = []
        for labels, agreement, probabilities in zip(
            self.labels,
            self.agreement_N.tolist(),
            self.probabilities_NC.tolist(),
            strict=True,
        ):
            record: dict[str, Any] = {
                "predicted": json.dumps(labels, ensure_ascii=False),
                "agreement": agreement,
            }
            for name, probability in zip(self.names, probabilities, strict=True):
                record[f"probability_{name}"] = probability
            records.append(record)
        return records


def result_types(task: Task, names: Sequence[str], top: int) -> dict[str, type]:
    """The columns of results of a task in their order, with the type of their values.

    Args:
        task: of the decoders.
        names: of the classes, columns of numbers, or labels.
        top: number of the likeliest classes of a row that get columns.
    """
    if task.has_classes:
        columns = ["predicted", "probability", "agreement"]
        for rank in range(2, top + 1):
            columns += [f"predicted_{rank}", f"probability_{rank}"]
        return {
            column: str if column.startswith("predicted") else float
            for column in columns
        }
    types: dict[str, type] = {}
    if task.has_probabilities:
        types = {"predicted": str, "agreement": float}
        types |= {f"probability_{name}": float for name in names}
        return types
    for name in names:
        types |= {f"predicted_{name}": float, f"spread_{name}": float}
    return types
