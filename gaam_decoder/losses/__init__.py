"""Losses; a file in this folder is a loss."""

from gaam_decoder.losses._weighted import balanced, weighted_mean
from gaam_decoder.losses.base import Loss

__all__ = ["Loss", "balanced", "weighted_mean"]
