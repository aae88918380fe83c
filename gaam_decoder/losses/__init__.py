"""Losses; a file in this folder is a loss."""

from gaam_decoder.losses.base import (
    Loss,
    balanced,
    balanced_labels,
    weighted_label_mean,
    weighted_mean,
)

__all__ = [
    "Loss",
    "balanced",
    "balanced_labels",
    "weighted_label_mean",
    "weighted_mean",
]
