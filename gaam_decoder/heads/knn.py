"""The nearest training rows vote.

B batch, N training rows, M neighbours of a row, K outputs.
"""

import warnings
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from gaam_cache.common.errors import GaamWarning, check_option
from gaam_decoder.heads.frames.kept_rows import KeptRows, SettingValues

ALIASES = ("nearest-neighbours", "nearest-neighbors", "k-nearest-neighbours")


class KNNHead(KeptRows):
    """The mean target of the k nearest training rows; nothing is trained.

    Formula: ``p = 1/k sum_i y_i`` over the k training rows i with the smallest
    ``|z - z_i|``; y is 1 for the class or labels of a row and else 0, or its numbers.

    z are the features, standardised on the training rows. Logits are ``log(p + 0.001)``
    of classes, and ``log(p + 0.001) - log(1 - p + 0.001)`` of labels. The head keeps
    every training row: 4 bytes a feature, in memory and in the run.

    Args:
        k: number of rows that vote; of fewer training rows, all.

    Source: Cover and Hart 1967, "Nearest neighbor pattern classification"; 20 rows:
    Caron et al. 2021, arXiv 2104.14294 (DINO), with votes of equal weight.
    """

    setting: ClassVar[str] = "k"

    def __init__(
        self, num_layers: int, hidden_size: int, num_classes: int, *, k: int = 20
    ) -> None:
        super().__init__(num_layers, hidden_size, num_classes)
        check_option(k >= 1, "k", k, ">= 1")
        self.k = k

    @property
    def candidates(self) -> Sequence[float]:
        """The number that was asked for."""
        return (float(self.k),)

    @property
    def chosen_values(self) -> SettingValues:
        """The number that was asked for."""
        return (float(self.k),)

    def choose(self, value: float) -> None:
        """There is one value; warn if more than half of the training rows vote."""
        num_rows = len(self.key_NF)
        if value > num_rows / 2:
            warnings.warn(
                f"knn: {min(self.k, num_rows)} of {num_rows} training rows vote on "
                "every row, so that all get nearly the same answer; use fewer, such as "
                "--head knn:k=3",
                GaamWarning,
                stacklevel=6,
            )

    def means(self, square_distance_BN: Tensor, values: SettingValues) -> list[Tensor]:
        """Mean target of the k nearest training rows, (B, K), for each k of ``values``.

        Args:
            square_distance_BN: squared distances of B rows to the N training rows.
            values: numbers of neighbours; the largest is M below.
        """
        num_training_rows = square_distance_BN.shape[1]
        means = []
        for value in values:
            k = min(int(value), num_training_rows)
            nearest_BM = square_distance_BN.topk(k, largest=False).indices
            means.append(self.value_NK[nearest_BM].mean(1))
        return means
