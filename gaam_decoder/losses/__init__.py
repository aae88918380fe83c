"""Losses; a file in this folder is a loss."""

from gaam_decoder.losses.base import Loss, balanced, weighted_mean

__all__ = ["Loss", "balanced", "weighted_mean"]
