"""Laplace gate."""

import torch
from torch import Tensor

from gaam_decoder.attention.frames.density import DensityGate, Learned

ALIASES = ("laplacian", "double-exponential")


class Laplace(DensityGate):
    """A Laplace gate with learned mean offset and diversity.

    Formula: ``w = exp(-|r| / b)``, with r as in ``DensityGate``.

    ``b``, the diversity, is (heads, hidden_size), starts at 1 (variance 2, as the
    Gaussian gate does) and is clamped to at least 1e-3 where it is used. The default
    standardises by mean and standard deviation, so that ``laplace`` and ``gaam`` differ
    in the density alone; ``location=median`` is the maximum-likelihood form.

    Source: a student proposal of 2024 that extends arXiv 2401.11143; it writes the
    density with its constant ``1 / (2 b)``, which is ``normalize=density`` here.
    """

    learns = (Learned("b", start=1.0),)

    @staticmethod
    def density(r: Tensor, b: Tensor) -> Tensor:
        """``exp(-|r| / b)``."""
        return torch.exp(r.abs() * (-1 / b))

    @staticmethod
    def constant(b: Tensor) -> Tensor:
        """``1 / (2 b)``."""
        return 0.5 / b
