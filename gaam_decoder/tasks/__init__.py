"""What decoders predict, and how good a prediction is; one file for each kind."""

from gaam_decoder.tasks.classification import CLASSIFICATION, Classification

__all__ = ["CLASSIFICATION", "Classification"]
