from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gaam_cache.store.dtypes import first_not_finite

SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, max_side=9)


@given(array=hnp.arrays(np.float16, SHAPES) | hnp.arrays(np.float32, SHAPES))
def test_equals_isfinite(array: np.ndarray) -> None:
    bad = np.argwhere(~np.isfinite(array))
    expected = tuple(bad[0].tolist()) if len(bad) else None
    assert first_not_finite(array, str(array.dtype)) == expected


@given(bits=hnp.arrays(np.uint16, SHAPES))
def test_bfloat16_bits_equal_isfinite_of_their_float32(bits: np.ndarray) -> None:
    wide = (bits.astype(np.uint32) << 16).view(np.float32)
    bad = np.argwhere(~np.isfinite(wide))
    expected = tuple(bad[0].tolist()) if len(bad) else None
    assert first_not_finite(bits, "bfloat16") == expected


@pytest.mark.parametrize("row", [0, 63, 64, 130])
@given(value=st.sampled_from([np.inf, -np.inf, np.nan]))
def test_finds_the_row_beyond_a_chunk(row: int, value: float) -> None:
    array = np.full((131, 2, 3), 65504, dtype=np.float16)
    array[row, 1, 2] = value
    assert first_not_finite(array, "float16") == (row, 1, 2)
