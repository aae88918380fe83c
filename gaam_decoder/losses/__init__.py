"""Losses; a file in this folder is a loss."""

from gaam_decoder.losses._base import Loss
from gaam_decoder.losses._weighted import balanced, weighted_mean

__all__ = ["Loss", "balanced", "weighted_mean"]
