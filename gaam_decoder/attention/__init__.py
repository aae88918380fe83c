"""Attention over encoder layers; a file in this folder is a mechanism.

What a mechanism is made of is offered here to those that live in other packages.
"""

from gaam_decoder.attention.base import Attention
from gaam_decoder.attention.frames.density import DensityGate, Learned
from gaam_decoder.attention.frames.pooling import LayerPooling

__all__ = ["Attention", "DensityGate", "LayerPooling", "Learned"]
