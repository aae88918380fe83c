"""What a loss is, and how rows of some classes count more than those of others.

S seeds, N rows, B batch, C classes.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.func import vmap


class Loss(ABC):
    """A number to minimise: the mean over rows of a loss that each row has by itself.

    Options are the keyword-only arguments of the constructor.
    """

    @abstractmethod
    def __call__(self, logits_BC: Tensor, label_B: Tensor) -> Tensor:
        """Mean loss of a batch, a scalar: logits (B, C), labels (B,) int64."""


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
    # k n_c / n
    share_SC = count_SC.double() / num_rows * present_SC.sum(1, keepdim=True)
    weight_SC = torch.where(present_SC, 1 / share_SC, 0.0)
    return weight_SC.to(dtype).to(label_SN.device)


def weighted_mean(
    loss_of: Loss, logits_BC: Tensor, label_B: Tensor, weight_B: Tensor | None
) -> Tensor:
    """The loss of a batch whose rows have weights, a scalar.

    Formula: ``1/B sum_b w_b l_b``, l_b the loss of row b as a batch of its own.

    The sum is divided by the number of rows. ``CrossEntropyLoss(weight=...)`` of torch
    divides it by the sum of the weights. Then a batch without rare rows counts as much
    as a batch with them, and small batches balance nothing.

    Args:
        loss_of: the loss.
        logits_BC: logits.
        label_B: classes.
        weight_B: weights of the rows; None: all count alike.
    """
    if weight_B is None:
        return loss_of(logits_BC, label_B)
    return (weight_B * _row_losses(loss_of, logits_BC, label_B)).mean()


def _row_losses(loss_of: Loss, logits_BC: Tensor, label_B: Tensor) -> Tensor:
    """The loss of every row as a batch of its own, (B,)."""

    def loss_of_row(logits_C: Tensor, label: Tensor) -> Tensor:
        return loss_of(logits_C[None], label[None])

    loss_B: Tensor = vmap(loss_of_row)(logits_BC, label_B)
    return loss_B
