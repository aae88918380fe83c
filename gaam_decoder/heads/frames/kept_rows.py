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
VALIDATION_SHARE = 0.1
"""Share of the rows that an estimate of a fit takes for validation."""
SettingValues = Sequence[float] | Tensor
"""Values of the one setting of a head: of k of ``knn``, or of the width of
``nadaraya-watson``."""


class KeptRows(FittedHead):
    """A head whose output is a weighted mean of the targets of the training rows.

    The weights follow from the distances to the training rows, and from one setting
    whose value validation rows choose: k of ``knn``, the width of ``nadaraya-watson``.

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
    mean_F: Tensor  # features are standardised as (x - mean_F) * factor_F
    factor_F: Tensor
    task_number: Tensor  # position in ``TASKS``: a run stores it with the weights

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
    def means(self, square_distance_BN: Tensor, values: SettingValues) -> list[Tensor]:
        """Weighted means of the kept targets, (B, K), for each value of the setting.

        Args:
            square_distance_BN: squared distances of B rows to the N kept rows.
            values: of the setting, such as the numbers of neighbours to try.
        """

    @abstractmethod
    def choose(self, value: float) -> None:
        """Use this value of the setting from now on."""

    @property
    @abstractmethod
    def chosen_values(self) -> SettingValues:
        """The value of the setting in use, as a sequence or a tensor of one number."""

    def forward(
        self,
        x_BLD: Tensor,
        noise_BK: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """(B, L, D) -> (B, K); takes no noise."""
        square_distance_BN = self._square_distances(x_BLD.flatten(1))
        # there is one chosen value, so there is one mean
        [mean_BK] = self.means(square_distance_BN, self.chosen_values)
        return self._outputs(mean_BK)

    def resize(self, tensors: Mapping[str, Tensor]) -> None:
        """Make room for as many kept rows as these tensors of a run have."""
        for name in ("key_NF", "value_NK"):
            # a tensor of another shape is damaged: loading it says so
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
        # training scores are for the log alone: a sample of the rows is enough
        training_scores = self._scores(evenly_spaced(training), values)
        validation_scores = self._scores(validation, values)
        log = []
        for number, value in enumerate(values, start=1):
            validation_score = validation_scores[number - 1]
            log.append(
                log_entry(
                    number=number,
                    setting=self.setting,
                    value=value,
                    training=training_scores[number - 1],
                    validation=validation_score,
                    task_name=training.task,
                )
            )
            text = f"{self.setting} {value:.3g} validation {validation_score.value:.3f}"
            on_value(number, text)

        # of equal scores, the first wins
        best_index = max(
            range(len(values)), key=lambda index: validation_scores[index].rank
        )
        self.choose(values[best_index])
        return Fit.from_values(self.setting, values, best_index, log)

    @classmethod
    def cost(cls, rows: int, features: int, classes: int) -> tuple[float, float]:
        """Floating-point operations and bytes of memory.

        Distances are a product of the validation rows with all rows. Means are another
        one, of weights with targets, for every value of the setting.

        A number of a row takes 8 bytes: float32 as it is given and as it is kept. A
        distance takes 16 bytes: it and three results of float32 on the way to its
        weight.
        """
        operations = (
            2.0
            * VALIDATION_SHARE
            * rows**2
            * (features + cls.num_tried_values * classes)
        )
        memory = 8.0 * rows * (features + classes) + 16.0 * BATCH_ROWS * rows
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

    def _square_distances(self, x_BF: Tensor) -> Tensor:
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

        The task is a number in a buffer, saved with the kept rows and stacked like
        them. So all three results are computed, and ``torch.where`` selects one.
        """
        log_p_BK = (mean_BK.clamp_min(0) + SMALL_SHARE).log()
        log_rest_BK = ((1 - mean_BK).clamp_min(0) + SMALL_SHARE).log()
        is_number = self.task_number == TASKS.index("regression")
        is_label = self.task_number == TASKS.index("multi-label")
        logits_BK = torch.where(is_label, log_p_BK - log_rest_BK, log_p_BK)
        return torch.where(is_number, mean_BK, logits_BK)

    def _scores(self, rows: Examples, values: SettingValues) -> list[FitScore]:
        """How good the outputs for some rows are with each value of the setting.

        K outputs of a row, from its F features.
        """
        # for each value, the outputs of every batch
        batches_by_value: list[list[Tensor]] = [[] for _ in values]
        for x_BF in torch.split(rows.x_NF.to(self.mean_F.device), BATCH_ROWS):
            means = self.means(self._square_distances(x_BF), values)
            for batches, mean_BK in zip(batches_by_value, means, strict=True):
                batches.append(self._outputs(mean_BK))
        scores = []
        for batches in batches_by_value:
            output_NK = torch.cat(batches).to(rows.label_N.device)
            scores.append(fit_score(output_NK, rows))
        return scores
