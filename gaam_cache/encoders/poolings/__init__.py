"""Poolings: each file turns a layer's token states into one state a row."""

from gaam_cache.encoders.poolings.base import Pooling, load_poolings

__all__ = ["Pooling", "load_poolings"]
