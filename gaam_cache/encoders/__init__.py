"""Frozen encoders; a file in this folder is a kind of encoder."""

from gaam_cache.encoders.base import Encoder, Inputs
from gaam_cache.store.rounding import ROUNDING, recompute_limit, relative_deviation

__all__ = ["ROUNDING", "Encoder", "Inputs", "recompute_limit", "relative_deviation"]
