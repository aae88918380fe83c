"""The frame of all density gates; a mechanism adds what it learns and its density.

B batch, L layers, D hidden size, H heads, G = L / H layers of one head.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from gaam_decoder.attention.base import Attention
from gaam_decoder.attention.frames.num_heads import heads_over_layers

VARIANCE_FLOOR = 1e-8
EPSILON = 1e-5
PARAMETER_FLOOR = 1e-3
"""Least value of a shape parameter where it is used; the stored value is free to move."""
Location = Literal["mean", "median"]
Normalize = Literal["peak", "density"]


def positive(parameter: Tensor, floor: float = PARAMETER_FLOOR) -> Tensor:
    """A shape parameter inside its domain: clamped, so that a published value stays what it is.

    Below the floor the gradient passes as if there were none: a parameter that a step pushed out
    of its domain can come back.
    """
    return torch.where(
        parameter >= floor, parameter, parameter - parameter.detach() + floor
    )


@dataclass(frozen=True, slots=True)
class Learned:
    """A parameter of a density: one number for every head and feature."""

    name: str  # what ``density`` and ``constant`` call it, and stored weights
    _: KW_ONLY
    start: float  # its value before training
    floor: float | None = PARAMETER_FLOOR
    """Least value where it is used; None where it may be any number."""

    def inside(self, stored: Tensor) -> Tensor:
        """The parameter in its domain."""
        return stored if self.floor is None else positive(stored, self.floor)


def grouped(x_BLD: Tensor, heads: int) -> Tensor:
    """Layers minus the first layer of their group, (B, H, G, D), in float32 or wider.

    In language models, layers may differ by a thousandth of the values that they share.
    The difference of two close numbers is exact, while their mean is rounded. So this
    subtracts the shared part before anything computes a mean or a spread.
    """
    wide_BLD = x_BLD.to(torch.promote_types(x_BLD.dtype, torch.float32))
    x_BHGD = wide_BLD.unflatten(1, (heads, x_BLD.shape[1] // heads))
    return x_BHGD - x_BHGD[:, :, :1]


def expand_over_rows(parameter_HD: Tensor, rows: int) -> Tensor:
    """A parameter with an axis for rows: (B, H, 1, D), or (1, H, 1, D) when compiled.

    With a copy for every row, the gradient is summed over layers first and over rows
    second. A CPU needs a sixth of the time that one sum over both axes takes. A compiler
    finds the fast order by itself.
    """
    num_copies = 1 if torch.compiler.is_compiling() else rows
    return parameter_HD[:, None].expand(num_copies, -1, -1, -1)


def centred(x_BHGD: Tensor, location: Location) -> tuple[Tensor, Tensor]:
    """Distances from the location, (B, H, G, D), and the squared spread, (B, H, 1, D)."""
    if location == "median":
        size = x_BHGD.shape[2]
        ordered_BHGD = x_BHGD.sort(dim=2).values
        # torch.median takes the lower of two middle values; the median is their mean
        middle_BHGD = ordered_BHGD[:, :, (size - 1) // 2 : size // 2 + 1]
        centred_BHGD = x_BHGD - middle_BHGD.mean(2, keepdim=True)
        spread_BH1D = centred_BHGD.abs().mean(2, keepdim=True)
        return centred_BHGD, spread_BH1D.square() + VARIANCE_FLOOR
    # products with reciprocals: divisions are what a compiled gate otherwise spends its time on
    share = 1 / x_BHGD.shape[2]
    centred_BHGD = x_BHGD - x_BHGD.sum(2, keepdim=True) * share
    variance_BH1D = centred_BHGD.square().sum(2, keepdim=True) * share
    return centred_BHGD, variance_BH1D + VARIANCE_FLOOR


class DensityGate(Attention):
    """Multiplies every feature by a density of its standardised value.

    The layers fall into H groups of G neighbours. Over the layers of a group, per feature::

        loc    = mean(x)            spread^2 = mean((x - loc)^2) + 1e-8
        r      = (x - (loc + offset)) / sqrt(spread^2 + 1e-5)
        y      = x * density(r)

    With ``location='median'`` loc is the median and the spread is the mean absolute deviation from
    it, the maximum-likelihood pair of the Laplace distribution.

    Args:
        heads: H; must divide L and leave groups of two or more layers. Of two layers
            standardised values are 1 or -1 but where both are nearly equal, so that the shape of a
            density can hardly matter: only three or more let densities differ.
        location: statistics of the standardisation.
        normalize: 'peak' leaves the density with peak 1, as published; 'density' multiplies it by
            its own constant, so that it integrates to 1 over r.

    Numerics:
        Statistics and density are computed in float32 at least, whatever the type of x, of the
        distances to the first layer of the group: the published ``|mean(x^2) - mean(x)^2|`` is the
        same number, but loses all its digits where layers share much more than they differ in.

    Source: Ioannides, Chadha, Elkins 2024, arXiv 2401.11143, section 3 (multi-head form).
    """

    learns: ClassVar[tuple[Learned, ...]]
    """The parameters of the density, in the order in which weights are stored."""
    handed_by_row: ClassVar[bool] = True
    """Whether ``density`` gets them once for each row; not where it computes much of them alone."""

    def __init__(
        self,
        num_layers: int,
        hidden_size: int,
        *,
        heads: int | None = None,
        location: Location = "mean",
        normalize: Normalize = "peak",
    ) -> None:
        super().__init__(num_layers, hidden_size)
        self.heads = heads_over_layers(num_layers, heads)
        self.location: Location = location
        self.normalize = normalize
        self.offset = self._parameter(0.0)
        for parameter in self.learns:
            setattr(self, parameter.name, self._parameter(parameter.start))

    def _parameter(self, start: float) -> nn.Parameter:
        return nn.Parameter(torch.full((self.heads, self.hidden_size), float(start)))

    @staticmethod
    @abstractmethod
    def density(r: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The density at r, peak 1: a function of r and of ``learns`` by name, which broadcast."""

    @staticmethod
    @abstractmethod
    def constant(*args: Any, **kwargs: Any) -> Tensor:
        """What makes ``density`` integrate to 1 over r: a function of ``learns`` by name."""

    @classmethod
    def curve(cls, r: Tensor, learned: Mapping[str, Tensor]) -> Tensor:
        """The density at r, peak 1, of parameters as ``learned`` names them, which broadcast."""
        return cls.density(r, **{one.name: learned[one.name] for one in cls.learns})

    def gate(self, r_BHGD: Tensor) -> Tensor:
        """The density of every residual, normalised as asked for, (B, H, G, D)."""
        learned_HD, rows = self._inside(), len(r_BHGD) if self.handed_by_row else 1
        w_BHGD = self.density(
            r_BHGD, **{k: expand_over_rows(v, rows) for k, v in learned_HD.items()}
        )
        if self.normalize == "density":
            w_BHGD = w_BHGD * expand_over_rows(self.constant(**learned_HD), len(r_BHGD))
        return w_BHGD

    def _inside(self) -> dict[str, Tensor]:
        return {one.name: one.inside(getattr(self, one.name)) for one in self.learns}

    def learned(self) -> dict[str, Tensor]:
        """``offset`` and what the density learns, as it uses them, each (H, D)."""
        return {"offset": self.offset, **self._inside()}

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD * self.attention_map(x_BLD).to(x_BLD.dtype)

    def attention_map(self, x_BLD: Tensor) -> Tensor:
        """The gate of every layer and feature, (B, L, D)."""
        x_BHGD = grouped(x_BLD, self.heads)
        centred_BHGD, variance_BH1D = centred(x_BHGD, self.location)
        offset_BH1D = expand_over_rows(-self.offset, len(x_BLD))
        r_BHGD = (centred_BHGD + offset_BH1D) * torch.rsqrt(variance_BH1D + EPSILON)
        return self.gate(r_BHGD).flatten(1, 2)
