"""How much the states of rows differ, and how much of that a storage type rounds away.

A decoder reads differences between rows. Rounding a large feature that is the same in
all rows costs nothing. A feature whose differences are smaller than its rounding is
lost, however many of its digits are right. So gaam compares the rounding of every
feature with its spread over rows.

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
"""Fewest distinct rows whose equal states mean something."""
FLOOR = {"float32": 1e-6, "float16": 2e-4, "bfloat16": 1e-3}
"""Least error of a state by arithmetic, relative to its size."""
NOISE = 3.0
"""Rows are all the same if their spread is below this multiple of the noise, by which a
row differs from itself in another batch."""

# A feature is lost if its rounding is above this share of its spread.
LOST = 0.5
# A feature counts as constant below this share of the median spread of its layer.
VARYING = 0.1
# A layer's spread, in roundings, should exceed the first and must exceed the second.
COARSE = 10.0
TOO_COARSE = 3.0
# Largest share of a layer's varying features that may be lost.
MOST_LOST = 0.5

SKETCH = 8
"""K: random projections by which rows are compared."""
TWIN = 1e-3
LARGEST_TWIN = 0.05
"""Distance below which two rows are twins, relative to that of two usual rows: without
rounding, and at most with it."""


class SpreadSums:
    """Sums over rows, (4, L, D), from which ``Spread`` is computed.

    The four are: states, squared states, rounding errors and squared rounding errors.
    States are relative to the mean of the first rows, so that squares keep digits.
    """

    def __init__(self) -> None:
        self._rows = 0
        self._reference_LD: Floats | None = None
        self._sums_4LD: Floats | None = None

    def add(self, exact_NLD: NDArray[Any], kept_NLD: NDArray[Any]) -> None:
        """Add rows: their exact states, and the states as stored."""
        if self._reference_LD is None or self._sums_4LD is None:
            self._reference_LD = exact_NLD.mean(0, dtype=np.float64)
            self._sums_4LD = np.zeros((4, *self._reference_LD.shape))
        self._rows += len(exact_NLD)

        # Layer by layer, to save memory.
        for layer, reference_D in enumerate(self._reference_LD):
            exact_ND = exact_NLD[:, layer].astype(np.float64)
            moved_ND = exact_ND - reference_D
            error_ND = kept_NLD[:, layer] - exact_ND
            self._sums_4LD[0, layer] += moved_ND.sum(0)
            self._sums_4LD[1, layer] += (moved_ND**2).sum(0)
            self._sums_4LD[2, layer] += error_ND.sum(0)
            self._sums_4LD[3, layer] += (error_ND**2).sum(0)

    def spread(self) -> Spread:
        """The spread of all added rows."""
        assert self._sums_4LD is not None
        assert self._reference_LD is not None
        return Spread.from_sums(self._sums_4LD, self._reference_LD, self._rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Mean, standard deviation and rounding of every feature in every layer, over rows.

    Formula: ``sd² = mean (x - mean x)²`` and, with ``e = rounded(x) - x``,
    ``rounding² = mean (e - mean e)²``. The mean of ``e`` moves all rows alike and
    changes no difference. A single row has no others to differ from: ``sd`` is ``|x|``.
    """

    rows: int
    mean_LD: Floats
    sd_LD: Floats
    rounding_LD: Floats

    @classmethod
    def from_sums(cls, sums_4LD: Floats, reference_LD: NDArray[Any], rows: int) -> Self:
        """Compute the spread from the sums over rows that ``SpreadSums`` describes."""
        moved_LD, square_LD, error_LD, error_square_LD = sums_4LD / max(rows, 1)
        mean_LD = reference_LD + moved_LD
        if rows == 1:
            variance_LD = mean_LD**2
            error_variance_LD = error_square_LD
        else:
            variance_LD = square_LD - moved_LD**2
            error_variance_LD = error_square_LD - error_LD**2

        # Rounding may make a difference of squares slightly negative.
        return cls(
            rows=rows,
            mean_LD=mean_LD,
            sd_LD=np.sqrt(np.maximum(variance_LD, 0.0)),
            rounding_LD=np.sqrt(np.maximum(error_variance_LD, 0.0)),
        )

    def flat_layers(
        self, noise_LD: Floats | float, compute_dtype: str
    ) -> NDArray[np.bool_]:
        """Which layers, (L,), are the same in all rows, up to the error of arithmetic.

        ``noise_LD`` is the difference of a row from itself in another batch.
        """
        size_L = np.sqrt((self.mean_LD**2 + self.sd_LD**2).sum(-1))
        noise_L = NOISE * _norm(noise_LD * np.ones_like(self.sd_LD))
        limit_L = np.maximum(noise_L, FLOOR[compute_dtype] * size_L)
        flat_L: NDArray[np.bool_] = _norm(self.sd_LD) <= limit_L
        return flat_L

    @property
    def roundings(self) -> Floats:
        """Spread of every layer, (L,), in roundings; infinite if nothing is rounded."""
        rounding_L = _norm(self.rounding_LD)
        return np.divide(
            _norm(self.sd_LD),
            rounding_L,
            out=np.full_like(rounding_L, np.inf),
            where=rounding_L > 0,
        )

    @property
    def varying_features(self) -> NDArray[np.bool_]:
        """Which features, (L, D), differ between rows about as much as their layer."""
        varying_LD = self.sd_LD > 0
        for varying_D, sd_D in zip(varying_LD, self.sd_LD, strict=True):
            if varying_D.any():
                varying_D &= sd_D >= VARYING * np.median(sd_D[varying_D])
        return varying_LD

    @property
    def lost_features(self) -> NDArray[np.bool_]:
        """Which varying features, (L, D), lose their differences to rounding."""
        return self.varying_features & (self.rounding_LD > LOST * self.sd_LD)

    def check_storage_precision(
        self,
        storage_dtype: str,
        flat_L: NDArray[np.bool_],
        *,
        first_layer: int,
        where: str,
    ) -> dict[int, str]:
        """Refuse a layer that rounding destroys; say by layer what others lose.

        Layers that are ``flat_L`` have nothing to lose.

        Raises:
            NumericsError: rounding takes away too much of a layer.
        """
        roundings_L = self.roundings
        lost_L = self.lost_features.sum(-1)
        lost_share_L = lost_L / np.maximum(self.varying_features.sum(-1), 1)

        losses = {}
        for layer in np.flatnonzero(~flat_L).tolist():
            lost = int(lost_L[layer])
            roundings = float(roundings_L[layer])
            loss = (
                f"{lost:,} of {self.sd_LD.shape[1]:,} features lost, rows spread by "
                f"{roundings:.3g} roundings"
            )
            if lost_share_L[layer] > MOST_LOST or roundings < TOO_COARSE:
                raise NumericsError(
                    f"{storage_dtype} rounds away what tells rows apart in layer "
                    f"{layer + first_layer}",
                    expected=f"rows that spread by at least {TOO_COARSE:g} roundings, "
                    f"and {1 - MOST_LOST:.0%} of the features kept",
                    found=loss,
                    where=where,
                    hint="use --storage-dtype float32 and a new --out",
                )
            if lost or roundings < COARSE:
                losses[layer + first_layer] = loss
        return losses


def count_twins(
    states_NLD: NDArray[Any],
    spread: Spread,
    flat_L: NDArray[np.bool_],
    noise_LD: Floats,
) -> int:
    """Count the rows that have the state of another row, up to rounding.

    ``spread`` is that of these rows, which differ in content. Features are in units of
    their standard deviation. Rows are compared by K random projections.
    """
    from scipy.spatial import cKDTree

    if len(states_NLD) < 2:
        return 0

    # Use only features whose spread is above their error.
    error_LD = np.hypot(spread.rounding_LD, noise_LD)
    used_LD = (spread.sd_LD > 2 * error_LD) & ~flat_L[:, None]
    num_used = int(used_LD.sum())
    if not num_used:
        return len(states_NLD)
    scale_LD = np.zeros_like(spread.sd_LD)
    np.divide(1.0, spread.sd_LD, out=scale_LD, where=used_LD)
    sketch_NK = _project(states_NLD, spread.mean_LD, scale_LD)

    # The squared distance of two usual rows is 2 for each used feature and projection.
    usual_distance = np.sqrt(2 * num_used * SKETCH)
    noise = np.sqrt(np.mean((error_LD * scale_LD)[used_LD] ** 2))
    limit = usual_distance * min(TWIN + NOISE * float(noise), LARGEST_TWIN)

    # The nearest row of a row is the row itself; the second may be its twin.
    distance_N2, _ = cKDTree(sketch_NK).query(sketch_NK, k=2)
    return int((distance_N2[:, 1] <= limit).sum())


def _project(
    states_NLD: NDArray[Any], mean_LD: Floats, scale_LD: Floats
) -> NDArray[np.float32]:
    """Fixed random projections of scaled states, (N, K)."""
    sketch_NK = np.zeros((len(states_NLD), SKETCH), np.float32)
    generator = np.random.default_rng(0)
    for layer, scale_D in enumerate(scale_LD):
        normal_DK = generator.standard_normal((len(scale_D), SKETCH))
        direction_DK = normal_DK * scale_D[:, None]
        # Centred first: a large common mean would cost the projection its digits.
        moved_ND = states_NLD[:, layer].astype(np.float32)
        moved_ND -= mean_LD[layer].astype(np.float32)
        sketch_NK += moved_ND @ direction_DK.astype(np.float32)
    return sketch_NK


def _norm(x_LD: Floats) -> Floats:
    norm_L: Floats = np.linalg.norm(x_LD, axis=-1)
    return norm_L
