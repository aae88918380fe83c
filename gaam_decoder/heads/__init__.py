"""Classifier heads; a file in this folder is a head."""

from gaam_decoder.heads._base import Head
from gaam_decoder.heads._fitted import Examples, Fit, FittedHead

__all__ = ["Examples", "Fit", "FittedHead", "Head"]
