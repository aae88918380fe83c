"""How much the states of rows differ, and how much of this a storage type rounds away.

A decoder reads differences between rows. Rounding a large feature that is the same in
all rows costs nothing. A feature whose differences are smaller than its rounding is
lost, however many of its digits are right. So gaam compares the rounding errors of
every feature with the spread of the feature over rows.

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
ARITHMETIC_ERROR = {"float32": 1e-6, "float16": 2e-4, "bfloat16": 1e-3}
"""Least error of a state by arithmetic of this type, as a share of its size."""
NOISE_FACTOR = 3.0
"""Rows count as all the same if their spread is below this multiple of the noise. Noise
is the difference of a row from itself in another batch."""

# A feature is lost if its rounding is above this share of its spread.
LOST_SHARE = 0.5
# A feature counts as constant below this share of the median spread of its layer.
VARYING_SHARE = 0.1
# gaam warns of a layer whose spread is below so many roundings.
WARN_ROUNDINGS = 10.0
# gaam refuses a layer whose spread is below so many roundings.
MIN_ROUNDINGS = 3.0
# Largest share of a layer's varying features that may be lost.
MAX_LOST_SHARE = 0.5

SKETCH_SIZE = 8
"""K: number of random projections by which rows are compared."""
TWIN_DISTANCE = 1e-3
"""Two rows without any rounding are twins below this distance, as a share of the
distance of two usual rows."""
MAX_TWIN_DISTANCE = 0.05
"""Rounding raises this limit, at most to this share."""


class SpreadSums:
    """Adds up sums over rows, (4, L, D), from which ``Spread`` is computed.

    The four sums are those of offsets, squared offsets, rounding errors and squared
    rounding errors. The offset of a state is its difference from a reference state, the
    mean of the rows that were added first: squares of small offsets keep their digits.
    """

    def __init__(self) -> None:
        self._num_rows = 0
        # both are None until rows are added
        self._reference_LD: Floats | None = None
        self._sums_4LD: Floats | None = None

    def add(self, unrounded_NLD: NDArray[Any], stored_NLD: NDArray[Any]) -> None:
        """Add the sums over some rows.

        Shape:
            unrounded_NLD: states before they are rounded, (N, L, D).
            stored_NLD: the same states, rounded to the storage type, (N, L, D). They
                are numbers, and not the bits of bfloat16.
        """
        # the first rows set the reference and the shapes
        if self._reference_LD is None or self._sums_4LD is None:
            self._reference_LD = unrounded_NLD.mean(0, dtype=np.float64)
            self._sums_4LD = np.zeros((4, *self._reference_LD.shape))
        self._num_rows += len(unrounded_NLD)

        # Layer by layer, to save memory.
        for layer, reference_D in enumerate(self._reference_LD):
            unrounded_ND = unrounded_NLD[:, layer].astype(np.float64)
            offset_ND = unrounded_ND - reference_D
            error_ND = stored_NLD[:, layer] - unrounded_ND
            self._sums_4LD[0, layer] += offset_ND.sum(0)
            self._sums_4LD[1, layer] += (offset_ND**2).sum(0)
            self._sums_4LD[2, layer] += error_ND.sum(0)
            self._sums_4LD[3, layer] += (error_ND**2).sum(0)

    def spread(self) -> Spread:
        """The spread of all rows that were added; there must be at least one."""
        assert self._sums_4LD is not None
        assert self._reference_LD is not None
        return Spread.from_sums(self._sums_4LD, self._reference_LD, self._num_rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Mean, standard deviation and rounding of every feature in every layer, over rows.

    Formulas, with ``e = rounded(x) - x`` and means over rows:
    ``sd² = mean (x - mean x)²``,
    ``rounding² = mean (e - mean e)²``.
    The mean of ``e`` moves all rows alike and changes no difference between rows, so it
    does not count. A single row differs from no other row: its size takes the place of
    the differences, ``sd = |x|`` and ``rounding = |e|``.
    """

    rows: int
    """Number of the rows."""
    mean_LD: Floats
    sd_LD: Floats
    """Standard deviation of the states."""
    rounding_LD: Floats
    """Standard deviation of the rounding errors."""

    @classmethod
    def from_sums(cls, sums_4LD: Floats, reference_LD: NDArray[Any], rows: int) -> Self:
        """Compute the spread from sums over rows.

        Args:
            sums_4LD: the four sums over rows that ``SpreadSums`` adds up.
            reference_LD: the state that was subtracted from every state beforehand.
            rows: number of the rows.
        """
        # an offset is a state minus the reference; an error is made by rounding
        mean_offset_LD, mean_square_LD, mean_error_LD, mean_square_error_LD = (
            sums_4LD / max(rows, 1)
        )
        mean_LD = reference_LD + mean_offset_LD
        if rows == 1:
            # A single row has no variance. Its rounding is judged by its own size.
            variance_LD = mean_LD**2
            error_variance_LD = mean_square_error_LD
        else:
            variance_LD = mean_square_LD - mean_offset_LD**2
            error_variance_LD = mean_square_error_LD - mean_error_LD**2

        # Rounding may make the difference of two squares slightly negative.
        return cls(
            rows=rows,
            mean_LD=mean_LD,
            sd_LD=np.sqrt(np.maximum(variance_LD, 0.0)),
            rounding_LD=np.sqrt(np.maximum(error_variance_LD, 0.0)),
        )

    def flat_layers(
        self, noise_LD: Floats | float, compute_dtype: str
    ) -> NDArray[np.bool_]:
        """Find the flat layers: those that are the same in all rows, up to rounding.

        Formula, with norms over the features: a layer is flat if
        ``|sd| <= max(NOISE_FACTOR |noise|, ARITHMETIC_ERROR size)``, where
        ``size² = |mean|² + |sd|²`` is the mean square of the states.

        Args:
            noise_LD: difference of a row from itself in another batch; a number stands
                for every feature of every layer.
            compute_dtype: type of the encoder's arithmetic.

        Returns:
            Whether each layer is flat, (L,).
        """
        size_L = np.sqrt((self.mean_LD**2 + self.sd_LD**2).sum(-1))
        # the ones make an array of a noise that is a number
        noise_L = NOISE_FACTOR * _norm(noise_LD * np.ones_like(self.sd_LD))
        limit_L = np.maximum(noise_L, ARITHMETIC_ERROR[compute_dtype] * size_L)
        flat_L: NDArray[np.bool_] = _norm(self.sd_LD) <= limit_L
        return flat_L

    @property
    def roundings(self) -> Floats:
        """Spread of every layer as a multiple of its rounding, (L,): |sd| / |rounding|.

        It is infinite where nothing is rounded.
        """
        rounding_L = _norm(self.rounding_LD)
        return np.divide(
            _norm(self.sd_LD),
            rounding_L,
            out=np.full_like(rounding_L, np.inf),
            where=rounding_L > 0,
        )

    @property
    def varying_features(self) -> NDArray[np.bool_]:
        """Which features, (L, D), differ between rows about as much as others do.

        Formula: ``sd > 0`` and ``sd >= VARYING_SHARE median(sd)``, where the median is
        over the features of the layer with ``sd > 0``.
        """
        varying_LD = self.sd_LD > 0
        # varying_D is a view: what changes it changes varying_LD
        for varying_D, sd_D in zip(varying_LD, self.sd_LD, strict=True):
            if varying_D.any():
                varying_D &= sd_D >= VARYING_SHARE * np.median(sd_D[varying_D])
        return varying_LD

    @property
    def lost_features(self) -> NDArray[np.bool_]:
        """Which of the varying features, (L, D), lose their differences by rounding."""
        return self.varying_features & (self.rounding_LD > LOST_SHARE * self.sd_LD)

    def check_storage_precision(
        self,
        storage_dtype: str,
        flat_L: NDArray[np.bool_],
        *,
        first_layer: int,
        where: str,
    ) -> dict[int, str]:
        """Refuse a layer in which rounding makes rows alike; say what others lose.

        There are two measures of the loss in a layer: the share of the features that
        differed between rows and are equal after rounding; and how many rounding steps
        the rows lie apart.

        Args:
            storage_dtype: type to which the states are rounded.
            flat_L: whether a layer is the same in all rows, so that it has nothing to
                lose.
            first_layer: number that people give the first of the L layers.
            where: location of the rows, for the error.

        Returns:
            Number of each layer with a loss -> its loss in words. Other layers are
            missing.

        Raises:
            NumericsError: rounding takes away too much of a layer.
        """
        roundings_L = self.roundings
        lost_L = self.lost_features.sum(-1)
        lost_share_L = lost_L / np.maximum(self.varying_features.sum(-1), 1)

        num_features = self.sd_LD.shape[1]
        losses = {}
        for layer_index in np.flatnonzero(~flat_L).tolist():
            layer = layer_index + first_layer
            num_lost = int(lost_L[layer_index])
            roundings = float(roundings_L[layer_index])
            loss = (
                f"{num_lost:,} of {num_features:,} features lost, rows spread by "
                f"{roundings:.3g} roundings"
            )
            if lost_share_L[layer_index] > MAX_LOST_SHARE or roundings < MIN_ROUNDINGS:
                raise NumericsError(
                    f"{storage_dtype} rounds away what tells rows apart in layer "
                    f"{layer}",
                    expected=f"rows that spread by at least {MIN_ROUNDINGS:g} "
                    f"roundings, and {1 - MAX_LOST_SHARE:.0%} of the features kept",
                    found=loss,
                    where=where,
                    hint="use --storage-dtype float32 and a new --out",
                )
            if num_lost or roundings < WARN_ROUNDINGS:
                losses[layer] = loss
        return losses


def count_twins(
    states_NLD: NDArray[Any],
    spread: Spread,
    flat_L: NDArray[np.bool_],
    noise_LD: Floats,
) -> int:
    """Count the rows that have the state of another row, up to rounding.

    Rows are compared by K random projections of their features, in units of the
    standard deviation of each feature. A feature is used if its standard deviation is
    more than twice its error, which rounding and noise make. If no feature can be used,
    nothing tells the rows apart, and all of them count.

    Args:
        states_NLD: states of rows of different content, as stored, but not as bits.
        spread: of these rows.
        flat_L: which layers are the same in all rows; their features are not used.
        noise_LD: difference of a row from itself in another batch.
    """
    from scipy.spatial import cKDTree

    if len(states_NLD) < 2:
        return 0

    # errors of two causes add up as squares
    error_LD = np.hypot(spread.rounding_LD, noise_LD)
    is_used_LD = (spread.sd_LD > 2 * error_LD) & ~flat_L[:, None]
    num_used = int(is_used_LD.sum())
    if not num_used:
        return len(states_NLD)
    scale_LD = np.zeros_like(spread.sd_LD)
    np.divide(1.0, spread.sd_LD, out=scale_LD, where=is_used_LD)
    sketch_NK = _project(states_NLD, spread.mean_LD, scale_LD)

    # The expected squared distance of two rows: in each of K projections every used
    # feature adds 2, the variance of a difference of two numbers of variance 1.
    usual_distance = np.sqrt(2 * num_used * SKETCH_SIZE)
    # Twins are apart by their errors alone: a share of the usual distance.
    error_share = np.sqrt(np.mean((error_LD * scale_LD)[is_used_LD] ** 2))
    twin_share = min(
        TWIN_DISTANCE + NOISE_FACTOR * float(error_share), MAX_TWIN_DISTANCE
    )
    limit = usual_distance * twin_share

    # The nearest row of a row is the row itself; the second may be its twin.
    distance_N2, _ = cKDTree(sketch_NK).query(sketch_NK, k=2)
    return int((distance_N2[:, 1] <= limit).sum())


def _project(
    states_NLD: NDArray[Any], mean_LD: Floats, scale_LD: Floats
) -> NDArray[np.float32]:
    """Fixed random projections of states, (N, K).

    Formula: ``sketch_k = sum over l, d of (state_ld - mean_ld) scale_ld normal_ldk``,
    with the same normal random numbers in every call.
    """
    sketch_NK = np.zeros((len(states_NLD), SKETCH_SIZE), np.float32)
    generator = np.random.default_rng(0)
    for layer, scale_D in enumerate(scale_LD):
        normal_DK = generator.standard_normal((len(scale_D), SKETCH_SIZE))
        direction_DK = normal_DK * scale_D[:, None]
        # The mean goes first: a large one would cost the projection its digits.
        moved_ND = states_NLD[:, layer].astype(np.float32)
        moved_ND -= mean_LD[layer].astype(np.float32)
        sketch_NK += moved_ND @ direction_DK.astype(np.float32)
    return sketch_NK


def _norm(x_LD: Floats) -> Floats:
    """Euclidean norm over the features of every layer, (L,)."""
    norm_L: Floats = np.linalg.norm(x_LD, axis=-1)
    return norm_L
