"""Frozen encoders; a file in this folder is a kind of encoder."""

from gaam_cache.encoders._base import Encoder, Inputs

__all__ = ["Encoder", "Inputs"]
