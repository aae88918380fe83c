"""The way of a picture into a model: every image processor that transformers has on Pillow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import transformers
from PIL import Image

from gaam_cache.encoders._forward import Unusable
from gaam_cache.encoders.vision import _ImageProcessor as ImageProcessor
from gaam_cache.errors import DataError
from gaam_cache.store.plan import fingerprint
from tests.cache.encoders.vision.models import FAMILIES
from tests.cache.encoders.vision.pictures import noise

USUAL = sorted({family.processor for family in FAMILIES.values()})


@pytest.mark.parametrize("name", USUAL)
def test_usual_image_processors_are_right(name: str, tmp_path: Path) -> None:
    theirs = getattr(transformers, name)()
    theirs.save_pretrained(tmp_path)
    ours = ImageProcessor(tmp_path)
    fingerprint(ours.settings())
    for row in noise():
        try:
            found = ours(row)
        except DataError as error:
            assert "a picture of" in str(error)  # noqa: PT017
            continue
        expected = theirs(images=Image.fromarray(row.array), return_tensors="np")["pixel_values"]
        np.testing.assert_array_equal(found, expected[0], err_msg=f"{row.array.shape}")
        assert (found.shape, found.dtype, len(expected)) == (ours.shape, np.float32, 1)


@pytest.mark.parametrize("size", [{"shortest_edge": 32}, {"longest_edge": 64, "shortest_edge": 32}])
def test_sizes_that_vary_are_refused(size: dict[str, int], tmp_path: Path) -> None:
    transformers.CLIPImageProcessorPil(size=size, do_center_crop=False).save_pretrained(tmp_path)
    with pytest.raises(Unusable, match="other sizes"):
        ImageProcessor(tmp_path)
