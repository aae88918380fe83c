"""What a loss is, and how rows of some classes count more than those of others.

S seeds, N rows, B batch, C classes, numbers or labels.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import vmap

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.own_code import RemembersCode


class Loss(RemembersCode, ABC):
    """A number to minimise: the mean over rows of a loss that each row has by itself.

    The loss of a row with several numbers or labels is the mean over them of a loss
    that each has by itself.

    Options are the keyword-only arguments of the constructor.
    """

    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    """Names of the tasks that it trains."""

    @abstractmethod
    def __call__(self, logits_BC: Tensor, label_B: Tensor) -> Tensor:
        """Mean loss of a batch, a scalar.

        Args:
            logits_BC: outputs of the decoder.
            label_B: classes (B,) int64, numbers (B, C), or labels (B, C) of 0 and 1.
        """


def balanced(label_SN: Tensor, num_classes: int, dtype: torch.dtype) -> Tensor:
    """Class weights with which all classes count alike, (S, C).

    Formula: ``w_c = n / (k n_c)``, n the number of rows, n_c those of class c, k the
    number of classes that have a row. A class without rows has weight 0. The mean of
    the weights over the rows is 1.

    Args:
        label_SN: classes of the training rows, as every seed sees them.
        num_classes: C.
        dtype: of the weights.
    """
    counts = [
        torch.bincount(label_N, minlength=num_classes) for label_N in label_SN.cpu()
    ]
    count_SC = torch.stack(counts)
    present_SC = count_SC > 0
    num_rows = label_SN.shape[1]
    # the inverse of the weights: k n_c / n
    inverse_SC = count_SC.double() / num_rows * present_SC.sum(1, keepdim=True)
    weight_SC = torch.where(present_SC, 1 / inverse_SC, 0.0)
    return weight_SC.to(dtype).to(label_SN.device)


def balanced_labels(label_SNC: Tensor, dtype: torch.dtype) -> Tensor:
    """Weights of the labels, (S, C): rows with a label count as much as those without.

    Formula: ``w_c = max(n - n_c, 1) / max(n_c, 1)``, n the number of rows, n_c those
    with label c. A row with the label weighs w_c, a row without it 1, so that both
    sides have the same sum. A label that no row has, or every row, still has a finite
    weight above 0. There is no upper limit: a label that one of 2,000 rows has weighs
    1,999.

    ``class_weight="balanced"`` of scikit-learn's one-vs-rest classifiers has the same
    ratio of the two weights.

    Args:
        label_SNC: labels of the training rows, of 0 and 1, as every seed sees them.
        dtype: of the weights.
    """
    num_rows = label_SNC.shape[1]
    with_SC = label_SNC.bool().sum(1)
    without_SC = num_rows - with_SC
    # float64 is not on every device, so divide on the CPU
    ratio_SC = without_SC.clamp_min(1).cpu().double() / with_SC.clamp_min(1).cpu()
    return ratio_SC.to(dtype).to(label_SNC.device)


def weighted_label_mean(
    loss: Loss, logits_BC: Tensor, label_BC: Tensor, weight_C: Tensor | None
) -> Tensor:
    """The mean loss over all labels of a batch of label sets, a scalar.

    Formula: ``1/(B C) sum_bc w_bc l_bc``, l_bc the loss of label c of row b alone;
    ``w_bc = w_c`` where row b has label c, else 1.

    It equals ``BCEWithLogitsLoss(pos_weight=...)`` of torch for binary cross-entropy.

    Args:
        loss: the loss, whose ``tasks`` include multi-label.
        logits_BC: logits.
        label_BC: labels of 0 and 1.
        weight_C: weight of each label where a row has it; None: all count alike.
    """
    if weight_C is None:
        return _batch_loss(loss, logits_BC, label_BC)
    weight_BC = torch.where(label_BC.bool(), weight_C, 1.0)
    # M = B C labels, every one a row with a single label
    label_loss_M = _row_losses(loss, logits_BC.reshape(-1, 1), label_BC.reshape(-1, 1))
    return (weight_BC.reshape(-1) * label_loss_M).mean()


def weighted_mean(
    loss: Loss, logits_BC: Tensor, label_B: Tensor, weight_B: Tensor | None
) -> Tensor:
    """The loss of a batch whose rows have weights, a scalar.

    Formula: ``1/B sum_b w_b l_b``, l_b the loss of row b as a batch of its own.

    The sum is divided by the number of rows. ``CrossEntropyLoss(weight=...)`` of torch
    divides it by the sum of the weights. Then a batch without rare rows counts as much
    as a batch with them, and small batches balance nothing.

    Args:
        loss: the loss.
        logits_BC: logits.
        label_B: classes.
        weight_B: weights of the rows; None: all count alike.
    """
    if weight_B is None:
        return _batch_loss(loss, logits_BC, label_B)
    return (weight_B * _row_losses(loss, logits_BC, label_B)).mean()


def _batch_loss(loss: Loss, logits_BC: Tensor, label_B: Tensor) -> Tensor:
    """The mean loss of a batch, a scalar.

    Raises:
        ConfigError: the loss is no scalar, such as one number for each row.
    """
    mean_loss = loss(logits_BC, label_B)
    is_tensor = torch.is_tensor(mean_loss)
    if not is_tensor or mean_loss.ndim > 0:
        shape = f"the shape {tuple(mean_loss.shape)}" if is_tensor else repr(mean_loss)
        raise ConfigError(
            f"the loss '{type(loss).__name__}' does not give the mean of a batch",
            expected="a tensor of shape ()",
            found=shape,
            hint="end __call__ with .mean()",
        )
    return mean_loss


def _row_losses(loss: Loss, logits_BC: Tensor, label_B: Tensor) -> Tensor:
    """The loss of every row, as the loss of a batch of this row alone, (B,)."""

    def loss_of_row(logits_C: Tensor, label: Tensor) -> Tensor:
        return _batch_loss(loss, logits_C[None], label[None])

    loss_B: Tensor = vmap(loss_of_row)(logits_BC, label_B)
    return loss_B
