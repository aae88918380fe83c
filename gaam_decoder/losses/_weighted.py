"""A loss in which rows of some classes count more than those of others.

S seeds, N rows, B batch, C classes.
"""

import torch
from torch import Tensor
from torch.func import vmap

from gaam_decoder.losses.base import Loss


def balanced(label_SN: Tensor, num_classes: int, dtype: torch.dtype) -> Tensor:
    """Weights that make all classes count alike, (S, C).

    Formula: ``w_c = n / (k n_c)``, n_c the rows of class c among all n, k the classes that have a
    row; a class without one weighs 0. The mean over the rows is 1.

    ``label_SN`` are the classes of the rows that learn, as every seed is told them.
    """
    count_SC = torch.stack(
        [torch.bincount(of, minlength=num_classes) for of in label_SN.cpu()]
    )
    present_SC = count_SC > 0
    share_SC = count_SC.double() / label_SN.shape[1] * present_SC.sum(1, keepdim=True)
    weight_SC = torch.where(present_SC, 1 / share_SC, 0.0)
    return weight_SC.to(dtype).to(label_SN.device)


def weighted_mean(
    loss_of: Loss, logits_BC: Tensor, label_B: Tensor, weight_B: Tensor | None
) -> Tensor:
    """The loss of a batch in which rows count by their weight, a scalar.

    Formula: ``1/B sum_b w_b l_b``, l_b the loss of row b as a batch of its own. It is divided by
    the number of rows and not, as torch's ``CrossEntropyLoss(weight=...)`` has it, by the sum of
    the batch's weights: there a batch without rare rows counts as much as one with them, and small
    batches would balance nothing.

    ``loss_of`` is a mean over rows; no weights: all count alike.
    """
    if weight_B is None:
        return loss_of(logits_BC, label_B)
    return (weight_B * row_losses(loss_of, logits_BC, label_B)).mean()


def row_losses(loss_of: Loss, logits_BC: Tensor, label_B: Tensor) -> Tensor:
    """The loss of every row as a batch of its own, (B,)."""
    loss_B: Tensor = vmap(lambda logits_C, label: loss_of(logits_C[None], label[None]))(
        logits_BC, label_B
    )
    return loss_B
