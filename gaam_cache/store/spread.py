"""How much the states of rows differ, and how much of that a storage type rounds away.

A decoder reads differences between rows. A large feature that is the same in all rows costs nothing
where it is rounded; one that differs by less than a rounding is lost, however many of its digits
are right. So rounding is held against the spread over rows, feature by feature.

N rows, L layers, D features, K numbers of a sketch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import NumericsError

Floats = NDArray[np.float64]
FEWEST_ROWS = 5
"""Distinct rows at least of which it means something that all have one state."""
FLOOR = {"float32": 1e-6, "float16": 2e-4, "bfloat16": 1e-3}
"""What arithmetic moves a state by at least, as a share of its size."""
NOISE = 3.0  # times what another batch adds: rows that spread by no more are all one
LOST = 0.5  # of the spread of a feature: one that rounding moves by more is lost
CARRYING = 0.1  # of the median spread of a layer's features: below it one is as good as constant
COARSE, TOO_COARSE = (
    10.0,
    3.0,
)  # roundings that the spread of a layer should have, and must have
MOST_LOST = 0.5  # of the features of a layer that differ between rows
SKETCH = 8  # K
TWIN, LARGEST_TWIN = 1e-3, 0.05
"""Of the distance of two usual rows: how far apart rows are that are one, without rounding and
with it."""


class SpreadSums:
    """Sums over rows, (4, L, D): of states and their squares, of their rounding and its squares.

    States are counted from the mean of the first rows, so that squares keep their digits.
    """

    def __init__(self) -> None:
        self._rows = 0
        self._reference_LD: Floats | None = None
        self._sums_4LD: Floats | None = None

    def add(self, exact_NLD: NDArray[Any], kept_NLD: NDArray[Any]) -> None:
        """Add rows, and what is stored of them."""
        if self._reference_LD is None or self._sums_4LD is None:
            self._reference_LD = exact_NLD.mean(0, dtype=np.float64)
            self._sums_4LD = np.zeros((4, *self._reference_LD.shape))
        self._rows += len(exact_NLD)
        for layer, reference_D in enumerate(self._reference_LD):
            exact_ND = exact_NLD[:, layer].astype(np.float64)
            moved_ND, error_ND = exact_ND - reference_D, kept_NLD[:, layer] - exact_ND
            for place, x_ND in enumerate(
                (moved_ND, moved_ND**2, error_ND, error_ND**2)
            ):
                self._sums_4LD[place, layer] += x_ND.sum(0)

    def spread(self) -> Spread:
        """Of all rows that were added."""
        assert self._sums_4LD is not None
        assert self._reference_LD is not None
        return Spread.from_sums(self._sums_4LD, self._reference_LD, self._rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Of some rows in every layer: means, standard deviations, and what rounding adds to those.

    Formula: ``sd² = mean (x - mean x)²`` and, with ``e = rounded(x) - x``, ``rounding² =
    mean (e - mean e)²``: what moves all rows alike changes no difference. Of a single row, for want
    of others, ``sd`` is ``|x|``.
    """

    rows: int
    mean_LD: Floats
    sd_LD: Floats
    rounding_LD: Floats

    @classmethod
    def from_sums(cls, sums_4LD: Floats, reference_LD: NDArray[Any], rows: int) -> Self:
        """Of the sums over so many rows, which ``SpreadSums`` describes."""
        moved_LD, square_LD, error_LD, error_square_LD = sums_4LD / max(rows, 1)
        mean_LD = reference_LD + moved_LD
        variance_LD = square_LD - moved_LD**2
        error_variance_LD = error_square_LD - error_LD**2
        if rows == 1:
            variance_LD, error_variance_LD = mean_LD**2, error_square_LD
        return cls(
            rows=rows,
            mean_LD=mean_LD,
            sd_LD=np.sqrt(np.maximum(variance_LD, 0.0)),
            rounding_LD=np.sqrt(np.maximum(error_variance_LD, 0.0)),
        )

    def flat_layers(
        self, noise_LD: Floats | float, compute_dtype: str
    ) -> NDArray[np.bool_]:
        """Which layers, (L,), are the same in all rows, up to what the arithmetic adds.

        ``noise_LD`` is by how much a row differs from itself in another batch.
        """
        size_L = np.sqrt((self.mean_LD**2 + self.sd_LD**2).sum(-1))
        noise_L = NOISE * _norm(noise_LD * np.ones_like(self.sd_LD))
        flat_L: NDArray[np.bool_] = _norm(self.sd_LD) <= np.maximum(
            noise_L, FLOOR[compute_dtype] * size_L
        )
        return flat_L

    @property
    def roundings(self) -> Floats:
        """The spread of every layer, (L,), in roundings; infinite where nothing is rounded."""
        rounding_L = _norm(self.rounding_LD)
        return np.divide(
            _norm(self.sd_LD),
            rounding_L,
            out=np.full_like(rounding_L, np.inf),
            where=rounding_L > 0,
        )

    @property
    def carrying(self) -> NDArray[np.bool_]:
        """Which features, (L, D), differ between rows about as much as others of their layer."""
        carrying_LD = self.sd_LD > 0
        for carrying_D, sd_D in zip(carrying_LD, self.sd_LD, strict=True):
            if carrying_D.any():
                carrying_D &= sd_D >= CARRYING * np.median(sd_D[carrying_D])
        return carrying_LD

    @property
    def lost(self) -> NDArray[np.bool_]:
        """Which of those, (L, D), are gone when they are stored."""
        return self.carrying & (self.rounding_LD > LOST * self.sd_LD)

    def check_storage_precision(
        self,
        storage_dtype: str,
        flat_L: NDArray[np.bool_],
        *,
        first_layer: int,
        where: str,
    ) -> dict[int, str]:
        """Refuse a layer that rounding takes away; what is lost of others, by layer.

        Layers that are ``flat_L`` have nothing to lose.
        """
        roundings_L, lost_L = self.roundings, self.lost.sum(-1)
        share_L = lost_L / np.maximum(self.carrying.sum(-1), 1)
        coarse = {}
        for layer in np.flatnonzero(~flat_L).tolist():
            lost, roundings = int(lost_L[layer]), float(roundings_L[layer])
            told = f"{lost:,} of {self.sd_LD.shape[1]:,} features lost, rows spread by "
            told += f"{roundings:.3g} roundings"
            if share_L[layer] > MOST_LOST or roundings < TOO_COARSE:
                raise NumericsError(
                    f"{storage_dtype} rounds away what tells rows apart in layer "
                    f"{layer + first_layer}",
                    expected=f"rows that spread by {TOO_COARSE:g} roundings at least, and "
                    f"{1 - MOST_LOST:.0%} of the features kept",
                    found=told,
                    where=where,
                    hint="--storage-dtype float32 and a new --out",
                )
            if lost or roundings < COARSE:
                coarse[layer + first_layer] = told
        return coarse


def count_twins(
    states_NLD: NDArray[Any],
    spread: Spread,
    flat_L: NDArray[np.bool_],
    noise_LD: Floats,
) -> int:
    """How many of the distinct rows of a ``spread`` have the state of another, up to rounding.

    Every feature counts in units of its standard deviation. Rows are compared by K random
    projections, in which two usual rows are about the square root of two apart.
    """
    from scipy.spatial import cKDTree

    if len(states_NLD) < 2:
        return 0
    error_LD = np.hypot(spread.rounding_LD, noise_LD)
    used_LD = (spread.sd_LD > 2 * error_LD) & ~flat_L[:, None]
    count = int(used_LD.sum())
    if not count:
        return len(states_NLD)
    scale_LD = np.divide(
        1.0, spread.sd_LD, out=np.zeros_like(spread.sd_LD), where=used_LD
    )
    sketch_NK = np.zeros((len(states_NLD), SKETCH), np.float32)
    generator = np.random.default_rng(0)
    for layer, scale_D in enumerate(scale_LD):
        direction_DK = (
            generator.standard_normal((len(scale_D), SKETCH)) * scale_D[:, None]
        )
        moved_ND = states_NLD[:, layer].astype(np.float32)
        moved_ND -= spread.mean_LD[layer].astype(np.float32)
        sketch_NK += moved_ND @ direction_DK.astype(np.float32)
    usual = np.sqrt(2 * count * SKETCH)
    noise = np.sqrt(np.mean((error_LD * scale_LD)[used_LD] ** 2))
    limit = usual * min(TWIN + NOISE * float(noise), LARGEST_TWIN)
    distance_N2, _ = cKDTree(sketch_NK).query(sketch_NK, k=2)
    return int((distance_N2[:, 1] <= limit).sum())


def _norm(x_LD: Floats) -> Floats:
    norm_L: Floats = np.linalg.norm(x_LD, axis=-1)
    return norm_L
