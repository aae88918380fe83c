"""Mechanisms: attention over encoder layers; a file in this folder is a mechanism.

The names here are for mechanisms of other packages too.
"""

from gaam_decoder.attention.base import Attention
from gaam_decoder.attention.frames.density import DensityGate, Learned
from gaam_decoder.attention.frames.pooling import LayerPooling

__all__ = ["Attention", "DensityGate", "LayerPooling", "Learned"]
