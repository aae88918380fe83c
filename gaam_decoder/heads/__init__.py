"""Classifier heads; a file in this folder is a head."""

from gaam_decoder.heads.base import Examples, Fit, FittedHead, Head

__all__ = ["Examples", "Fit", "FittedHead", "Head"]
