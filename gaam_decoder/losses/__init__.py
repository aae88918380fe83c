"""Losses; a file in this folder is a loss."""

from gaam_decoder.losses._base import Loss

__all__ = ["Loss"]
