"""Classifier heads; a file in this folder is a head."""

from gaam_decoder.heads._fitted import Examples, Fit, FittedHead
from gaam_decoder.heads.base import Head

__all__ = ["Examples", "Fit", "FittedHead", "Head"]
