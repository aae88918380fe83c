"""Heads that keep the training rows and average the targets of those near a row.

B batch, L layers, D hidden size, N training rows, F = L D features, K outputs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from gaam_decoder.heads.base import Examples, Fit, FittedHead
from gaam_decoder.heads.frames.scale import Scale
from gaam_decoder.heads.frames.targets import (
    FitScore,
    evenly_spaced,
    fit_score,
    log_entry,
    target_matrix,
)

SMALL_SHARE = 1e-3
"""Added to shares of votes before their logarithm, so that no logit is infinite."""
TASKS = ("classification", "regression", "multi-label")
BATCH_ROWS = 256
"""Rows of which a fit holds the distances at once."""
Values = Sequence[float] | Tensor
"""Values of the setting of a head, such as the number of neighbours."""


class KeptRows(FittedHead):
    """A head whose output is a weighted mean of the targets of the training rows.

    Shares of classes become logits, ``log(p + 0.001)``, shares of labels log-odds,
    ``log(p + 0.001) - log(1 - p + 0.001)``; means of numbers stay as they are.

    Distances are Euclidean, between features that are standardised on the training rows
    and divided by sqrt F: two rows at random are about 1.4 apart, whatever the encoder.

    The buffers keep every training row: 4 N (F + K) bytes in memory and in the run.
    """

    tasks: ClassVar[tuple[str, ...]] = TASKS
    setting: ClassVar[str]
    """Name of the setting in the log and in the report."""

    key_NF: Tensor  # standardised features of the kept rows
    value_NK: Tensor  # their targets
    mean_F: Tensor  # of the features, and the factor after subtracting it
    factor_F: Tensor
    task_number: Tensor  # position in ``TASKS``, a scalar

    def __init__(self, num_layers: int, hidden_size: int, num_classes: int) -> None:
        super().__init__(num_layers, hidden_size, num_classes)
        features = num_layers * hidden_size
        self.register_buffer("key_NF", torch.zeros(0, features))
        self.register_buffer("value_NK", torch.zeros(0, num_classes))
        self.register_buffer("mean_F", torch.zeros(features))
        self.register_buffer("factor_F", torch.ones(features))
        self.register_buffer("task_number", torch.zeros(()))

    @property
    @abstractmethod
    def candidates(self) -> Sequence[float]:
        """Values of the setting that validation rows compare."""

    @abstractmethod
    def means(self, square_BN: Tensor, values: Values) -> list[Tensor]:
        """Weighted means of the kept targets, (B, K), for each value of the setting.

        Args:
            square_BN: squared distances of B rows to the kept rows.
            values: the values of the setting.
        """

    @abstractmethod
    def choose(self, value: float) -> None:
        """Use this value of the setting from now on."""

    @property
    @abstractmethod
    def chosen_values(self) -> Values:
        """The value of the setting in use, as a sequence or a tensor of one number."""

    def forward(self, x_BLD: Tensor, noise_BK: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """(B, L, D) -> (B, K); takes no noise."""
        [mean_BK] = self.means(self._squares(x_BLD.flatten(1)), self.chosen_values)
        return self._outputs(mean_BK)

    def resize(self, tensors: Mapping[str, Tensor]) -> None:
        """Make room for as many kept rows as these tensors of a run have."""
        for name in ("key_NF", "value_NK"):
            if name in tensors and tensors[name].ndim == 2:
                buffer = getattr(self, name)
                num_rows = len(tensors[name])
                setattr(self, name, buffer.new_zeros(num_rows, buffer.shape[1]))

    @torch.inference_mode()
    def fit(
        self,
        training: Examples,
        validation: Examples,
        on_value: Callable[[int, str], None],
    ) -> Fit:
        """Keep the training rows, and choose the setting on validation rows.

        See ``FittedHead.fit``.
        """
        self._keep(training)
        values = self.candidates
        training_scores = self._scores(evenly_spaced(training), values)
        validation_scores = self._scores(validation, values)
        log = []
        for number, value in enumerate(values, start=1):
            validation_score = validation_scores[number - 1]
            log.append(
                log_entry(
                    number,
                    self.setting,
                    value,
                    training_scores[number - 1],
                    validation_score,
                    training.task,
                )
            )
            text = f"{self.setting} {value:.3g} validation {validation_score.value:.3f}"
            on_value(number, text)

        # of equal scores, the first wins
        indices = range(len(values))
        best = max(indices, key=lambda index: validation_scores[index].rank)
        self.choose(values[best])
        return Fit(
            setting=self.setting,
            value=values[best],
            lowest=values[0],
            highest=values[-1],
            tried=len(values),
            kept=best + 1,
            log=tuple(log),
        )

    @classmethod
    def cost(cls, rows: int, features: int, classes: int) -> tuple[float, float]:
        """Floating-point operations and bytes of memory.

        A tenth of the rows is taken for validation. The kept rows are float32, for a
        while float64; a batch has the distances to all of them, for every value.
        """
        operations = 0.2 * rows**2 * (features + cls.num_tried_values * classes)
        memory = 16.0 * rows * (features + classes) + 16.0 * BATCH_ROWS * rows
        return operations, memory

    def _keep(self, training: Examples) -> None:
        """Store features, targets, scale and task of the training rows in buffers."""
        device = self.mean_F.device
        scale = Scale.of_rows(training.x_NF)
        self.mean_F.copy_(scale.mean_F)
        self.factor_F.copy_(scale.factor_F)
        target_NK = target_matrix(training, self.num_classes)
        self.key_NF = scale.standardised_in_float32(training.x_NF).to(device)
        self.value_NK = target_NK.float().to(device)
        self.task_number.fill_(TASKS.index(training.task))

    def _squares(self, x_BF: Tensor) -> Tensor:
        """Squared distances of rows to the kept rows, (B, N)."""
        z_BF = (x_BF - self.mean_F) * self.factor_F
        # |z - k|^2 = |z|^2 - 2 z.k + |k|^2, without a tensor of shape (B, N, F)
        square_B1 = z_BF.square().sum(1, keepdim=True)
        square_N = self.key_NF.square().sum(1)
        square_BN = square_B1 - 2 * z_BF @ self.key_NF.T + square_N
        return square_BN.clamp_min(0)

    def _outputs(self, mean_BK: Tensor) -> Tensor:
        """Outputs of the head from means of targets.

        Shares of classes become logarithms, shares of labels log-odds; means of numbers
        stay as they are.
        """
        log_p_BK = (mean_BK.clamp_min(0) + SMALL_SHARE).log()
        log_rest_BK = ((1 - mean_BK).clamp_min(0) + SMALL_SHARE).log()
        is_number = self.task_number == TASKS.index("regression")
        is_label = self.task_number == TASKS.index("multi-label")
        logits_BK = torch.where(is_label, log_p_BK - log_rest_BK, log_p_BK)
        return torch.where(is_number, mean_BK, logits_BK)

    def _scores(self, rows: Examples, values: Values) -> list[FitScore]:
        """The score of the outputs for some rows, for every value of the setting."""
        # for every batch, the outputs by each value
        batches: list[list[Tensor]] = []
        for x_BF in torch.split(rows.x_NF.to(self.mean_F.device), BATCH_ROWS):
            means = self.means(self._squares(x_BF), values)
            batches.append([self._outputs(mean_BK) for mean_BK in means])
        scores = []
        for parts in zip(*batches, strict=True):
            output_NK = torch.cat(parts).to(rows.label_N.device)
            scores.append(fit_score(output_NK, rows))
        return scores
