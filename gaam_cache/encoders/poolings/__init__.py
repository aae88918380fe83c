"""How a layer's token states become one vector; a file in this folder is a pooling."""

from gaam_cache.encoders.poolings.base import Pooling, load_poolings

__all__ = ["Pooling", "load_poolings"]
