"""Optimizers of parameters that are stacked over seeds; one file each."""

from gaam_decoder.optimizers.base import Optimizer

__all__ = ["Optimizer"]
