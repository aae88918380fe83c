from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gaam_cache.store import dtypes
from gaam_cache.store.dtypes import first_not_finite, packed, unpacked, width_of

SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, max_side=9)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@given(
    bits=hnp.arrays(np.uint16, SHAPES) | hnp.arrays(np.uint32, SHAPES),
    chunk=st.sampled_from([2**20, 16]),
)
def test_the_first_number_that_is_not_finite_is_that_of_numpy(bits: np.ndarray, chunk: int) -> None:
    wide = (bits.astype(np.uint32) << 16).view(np.float32)
    stored = {"float16": bits.view(np.float16)} if bits.itemsize == 2 else {}
    stored |= {"bfloat16": wide} if bits.itemsize == 2 else {"float32": bits.view(np.float32)}
    whole, dtypes.CHUNK_BYTES = dtypes.CHUNK_BYTES, chunk
    try:
        for dtype, numbers in stored.items():
            bad = np.argwhere(~np.isfinite(numbers))
            found = first_not_finite(bits if dtype == "bfloat16" else numbers, dtype)
            assert found == (tuple(bad[0].tolist()) if len(bad) else None)
    finally:
        dtypes.CHUNK_BYTES = whole


@given(st.lists(TEXTS, min_size=1))
def test_texts_come_back_from_their_bytes(values: list[str]) -> None:
    width = width_of(values)
    assert width == max(1, *(len(value.encode()) for value in values))
    for wider in (width, width + 3):
        assert packed(values, wider).shape == (len(values), wider)
        assert unpacked(packed(values, wider)) == values
