"""Classifier heads; a file in this folder is a head."""

from gaam_decoder.heads._base import Head

__all__ = ["Head"]
