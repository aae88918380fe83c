"""How a layer's token states become one vector; a file in this folder is a pooling."""

from gaam_cache.encoders.poolings._base import Pooling

__all__ = ["Pooling"]
