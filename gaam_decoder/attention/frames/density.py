"""The base class of all gates by a density, and the parameters that they learn.

B batch, L layers, D hidden size, H heads, G = L / H layers of one head.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.own_code import source_file
from gaam_decoder.attention.base import Attention
from gaam_decoder.attention.frames.num_heads import heads_over_layers

VARIANCE_FLOOR = 1e-8
EPSILON = 1e-5
PARAMETER_FLOOR = 1e-3
"""Least value of a shape parameter where it is used; the stored value moves freely."""
Location = Literal["mean", "median"]
Normalize = Literal["peak", "density"]


def positive(parameter: Tensor, floor: float = PARAMETER_FLOOR) -> Tensor:
    """A shape parameter in its domain: its value, or ``floor`` where it is less.

    The gradient passes as if there were no floor. So a parameter that a step pushed out
    of its domain can come back.
    """
    # parameter - parameter.detach() is 0, but has the gradient of the parameter
    at_floor = parameter - parameter.detach() + floor
    return torch.where(parameter >= floor, parameter, at_floor)


@dataclass(frozen=True, slots=True)
class Learned:
    """A parameter of a density: one number for every head and feature."""

    name: str
    """Argument of ``density`` and ``constant``, and name of the stored weights."""
    _: KW_ONLY
    start: float
    """Value before training."""
    floor: float | None = PARAMETER_FLOOR
    """Least value where it is used; None where it may be any number."""

    def clamped(self, stored: Tensor) -> Tensor:
        """The stored parameter, but at least ``floor``."""
        return stored if self.floor is None else positive(stored, self.floor)


def split_into_groups(x_BLD: Tensor, heads: int) -> Tensor:
    """Split the layers into H groups, and subtract from each the first of its group.

    The result is (B, H, G, D), in float32 or wider.

    In language models, layers may differ by a thousandth of the values that they share.
    The difference of two close numbers is exact, while their mean is rounded. So this
    subtracts the shared part before anything computes a mean or a spread.
    """
    wide_BLD = x_BLD.to(torch.promote_types(x_BLD.dtype, torch.float32))
    x_BHGD = torch.unflatten(wide_BLD, 1, (heads, x_BLD.shape[1] // heads))
    return x_BHGD - x_BHGD[:, :, :1]


def expand_over_rows(parameter_HD: Tensor, rows: int) -> Tensor:
    """A parameter with an axis for rows, (B, H, 1, D); compiled for a GPU (1, H, 1, D).

    With a copy for every row, the gradient is summed over layers first and over rows
    second. A CPU needs a sixth of the time that one sum over both axes takes, and a
    compiled step is a tenth faster. A compiler for a GPU finds the fast order by
    itself.
    """
    is_for_gpu = parameter_HD.device.type != "cpu" and torch.compiler.is_compiling()
    num_copies = 1 if is_for_gpu else rows
    return parameter_HD[:, None].expand(num_copies, -1, -1, -1)


def centred(x_BHGD: Tensor, location: Location) -> tuple[Tensor, Tensor]:
    """Distances from the location, (B, H, G, D), and squared spread, (B, H, 1, D).

    Both are over the G layers of a group, whose location is their mean or median.
    """
    if location == "median":
        return _centred_by_median(x_BHGD)
    # compiled gates spend their time on divisions, so multiply by the reciprocal
    inverse_size = 1 / x_BHGD.shape[2]
    centred_BHGD = x_BHGD - x_BHGD.sum(2, keepdim=True) * inverse_size
    variance_BH1D = centred_BHGD.square().sum(2, keepdim=True) * inverse_size
    return centred_BHGD, variance_BH1D + VARIANCE_FLOOR


def _centred_by_median(x_BHGD: Tensor) -> tuple[Tensor, Tensor]:
    """Distances from the median over a group, and the square of their mean size.

    The shapes are (B, H, G, D) and (B, H, 1, D).
    """
    size = x_BHGD.shape[2]
    ordered_BHGD = x_BHGD.sort(dim=2).values
    # torch.median takes the lower of two middle values; the median is their mean
    middle_BHGD = ordered_BHGD[:, :, (size - 1) // 2 : size // 2 + 1]
    centred_BHGD = x_BHGD - middle_BHGD.mean(2, keepdim=True)
    spread_BH1D = centred_BHGD.abs().mean(2, keepdim=True)
    return centred_BHGD, spread_BH1D.square() + VARIANCE_FLOOR


def _check_arguments(gate: DensityGate, method: str, names: Sequence[str]) -> None:
    """Refuse a density or a constant that cannot be called with its arguments.

    ``forward`` calls it by the gate, and ``curve`` by the class.
    """
    for owner in (gate, type(gate)):
        try:
            signature = inspect.signature(getattr(owner, method))
            signature.bind(**dict.fromkeys(names))
        except TypeError as error:
            arguments = ", ".join(names)
            source = source_file(type(gate))
            raise ConfigError(
                f"'{method}' of the mechanism '{type(gate).__name__}' cannot be called",
                expected=f"@staticmethod def {method}({arguments})",
                found=str(error),
                where=str(source) if source.is_file() else None,
                hint="name its arguments as the parameters in 'learns'",
            ) from error


class DensityGate(Attention):
    """Multiplies every feature by a density of its standardised value.

    The layers fall into H groups of G neighbours. Over the layers of a group, per
    feature::

        loc    = mean(x)            spread^2 = mean((x - loc)^2) + 1e-8
        r      = (x - (loc + offset)) / sqrt(spread^2 + 1e-5)
        y      = x * density(r)

    With ``location='median'`` loc is the median, and the spread is the mean absolute
    deviation from it: the maximum-likelihood pair of the Laplace distribution.

    ``offset`` is (heads, hidden_size) and starts at 0. A mechanism adds ``learns``,
    ``density`` and ``constant``.

    Args:
        heads: H; must divide L and leave groups of two or more layers. In a group of
            two the standardised values are nearly always 1 and -1, and the shape of a
            density hardly matters. Densities differ from three layers on.
        location: statistics of the standardisation, mean or median.
        normalize: 'peak' gives the density the peak 1, as published. 'density'
            multiplies it by its own constant, so that it integrates to 1 over r.

    Numerics:
        Statistics and density are computed in float32 or wider, whatever the dtype of
        x. They are computed from the distances to the first layer of the group. The
        published ``|mean(x^2) - mean(x)^2|`` is the same number, but it loses all its
        digits where layers share much more than they differ in.

    Source: Ioannides, Chadha, Elkins 2024, arXiv 2401.11143, section 3 (multi-head
    form).
    """

    learns: ClassVar[tuple[Learned, ...]]
    """The parameters of the density, in the order in which weights are stored; () if it
    has none."""
    expands_parameters: ClassVar[bool] = True
    """Whether ``density`` gets the parameters once for each row. False is faster where
    ``density`` computes much from the parameters alone."""

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
        names = [parameter.name for parameter in self.learns]
        _check_arguments(self, "density", ["r", *names])
        _check_arguments(self, "constant", names)
        self.heads = heads_over_layers(num_layers, heads)
        self.location: Location = location
        self.normalize = normalize
        # how far the peak of the density lies above the location
        self.offset = self._parameter(0.0)
        # the parameters of the density, such as xi of a Gaussian
        for parameter in self.learns:
            setattr(self, parameter.name, self._parameter(parameter.start))

    def _parameter(self, start: float) -> nn.Parameter:
        """One number for every head and feature, (H, D), all equal at the start."""
        return nn.Parameter(torch.full((self.heads, self.hidden_size), float(start)))

    @staticmethod
    @abstractmethod
    def density(r: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The density at r, with peak 1.

        A function of r and of the parameters of ``learns``, by name; all of them
        broadcast. The result has the shape of r.
        """

    @staticmethod
    @abstractmethod
    def constant(*args: Any, **kwargs: Any) -> Tensor | float:
        """The factor with which ``density`` integrates to 1 over r.

        A function of the parameters of ``learns``, by name, with their shape; one
        number where it depends on none of them.
        """

    @classmethod
    def curve(cls, r: Tensor, learned: Mapping[str, Tensor]) -> Tensor:
        """The density at r, with peak 1.

        Args:
            r: standardised values.
            learned: the parameters as ``learned()`` names them; all broadcast with r.
        """
        parameters = {
            parameter.name: learned[parameter.name] for parameter in cls.learns
        }
        return cls.density(r, **parameters)

    def gate(self, r_BHGD: Tensor) -> Tensor:
        """The density of every standardised value r, (B, H, G, D).

        H heads each read G layers. The peak of the density is 1, or its integral with
        ``normalize='density'``.
        """
        num_rows = len(r_BHGD)
        parameters_HD = self._clamped_parameters()
        # A copy of the parameters for every row makes the gradient fast, see
        # ``expand_over_rows``. A density that computes much from the parameters alone
        # is faster with one copy: it would compute the same for every row.
        num_copies = num_rows if self.expands_parameters else 1
        expanded = {
            name: expand_over_rows(parameter_HD, num_copies)
            for name, parameter_HD in parameters_HD.items()
        }
        w_BHGD = self.density(r_BHGD, **expanded)
        if self.normalize == "density":
            constant = self.constant(**parameters_HD)
            # one number where it depends on no parameter
            if isinstance(constant, Tensor) and constant.ndim == 2:
                constant = expand_over_rows(constant, num_rows)
            w_BHGD = w_BHGD * constant
        return w_BHGD

    def _clamped_parameters(self) -> dict[str, Tensor]:
        """The parameters of the density by name, at least their floors, (H, D)."""
        return {
            parameter.name: parameter.clamped(getattr(self, parameter.name))
            for parameter in self.learns
        }

    def learned(self) -> dict[str, Tensor]:
        """``offset`` and the parameters that the density uses, each (H, D)."""
        return {"offset": self.offset, **self._clamped_parameters()}

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD * self.attention_map(x_BLD).to(x_BLD.dtype)

    def attention_map(self, x_BLD: Tensor) -> Tensor:
        """The gate of every layer and feature, (B, L, D).

        Layers are standardised within their group: H groups of G layers.
        """
        x_BHGD = split_into_groups(x_BLD, self.heads)
        centred_BHGD, variance_BH1D = centred(x_BHGD, self.location)
        # x - (location + offset); a subtraction would negate a gradient of the size of
        # x, this negates one of the size of the offset
        minus_offset_BH1D = expand_over_rows(-self.offset, len(x_BLD))
        from_peak_BHGD = centred_BHGD + minus_offset_BH1D
        r_BHGD = from_peak_BHGD * torch.rsqrt(variance_BH1D + EPSILON)
        return self.gate(r_BHGD).flatten(1, 2)
