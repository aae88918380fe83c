"""The way of a picture into a model: every image processor that transformers has on Pillow."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import transformers
from PIL import Image
from transformers.models.auto import image_processing_auto

from gaam_cache.encoders._model.weights import foreign
from gaam_cache.encoders._vision.processor import MOST_PIXELS, ImageProcessor
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.store.plan import fingerprint
from tests.cache.encoders.vision.models import FAMILIES
from tests.cache.encoders.vision.pictures import noise

USUAL = sorted({family.processor for family in FAMILIES.values()})


def names() -> list[str]:
    mapped = image_processing_auto.IMAGE_PROCESSOR_MAPPING_NAMES.values()
    return sorted({found for one in mapped if one and (found := one.get("pil"))})


@pytest.mark.slow
def test_every_image_processor_is_right_or_refused(tmp_path: Path) -> None:
    check_all(names(), tmp_path, at_least=30)


def test_usual_image_processors_are_right(tmp_path: Path) -> None:
    check_all(USUAL, tmp_path, at_least=len(USUAL))


def check_all(chosen: list[str], tmp_path: Path, at_least: int) -> None:
    rows, right = noise(), []
    for name in chosen:
        try:
            theirs = getattr(transformers, name)()
        except ImportError:
            continue  # needs a package that is not here
        folder = tmp_path / name
        theirs.save_pretrained(folder)
        try:
            with foreign("cannot be read", folder):
                ours = ImageProcessor(folder, name)
        except ConfigError:
            continue
        fingerprint(ours.settings())
        for row in rows:
            try:
                found = ours(row.array, "here")
            except DataError as error:
                assert error.details["where"] == "here"  # noqa: PT017
                continue
            image = Image.fromarray(row.array)
            expected = theirs(images=image, return_tensors="np")["pixel_values"]
            np.testing.assert_array_equal(found, expected[0], err_msg=f"{name} {row.array.shape}")
            assert (found.shape, found.dtype, len(expected)) == (ours.shape, np.float32, 1)
        right.append(name)
    assert set(USUAL) <= set(right)
    assert len(right) >= at_least, right


@pytest.mark.parametrize("name", USUAL)
def test_pillow_resizes_whatever_is_installed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    getattr(transformers, name)().save_pretrained(tmp_path)
    before = ImageProcessor(tmp_path, "e")
    monkeypatch.setattr(image_processing_auto, "is_torchvision_available", lambda: True)
    after = ImageProcessor(tmp_path, "e")
    assert type(after._processor) is type(before._processor) is getattr(transformers, name)
    assert after.settings() == before.settings()
    assert after.settings()["backend"] == "pil"


@pytest.mark.parametrize(
    ("changed", "value"),
    [("resample", 0), ("image_mean", [0.1, 0.2, 0.3]), ("do_normalize", False),
     ("size", {"height": 16, "width": 16}), ("rescale_factor", 0.5)],
)  # fmt: skip
def test_settings_say_what_is_in_force(changed: str, value: object, tmp_path: Path) -> None:
    transformers.ViTImageProcessorPil().save_pretrained(tmp_path)
    before = ImageProcessor(tmp_path, "e").settings()
    file = tmp_path / "preprocessor_config.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps(told | {changed: value}))
    after = ImageProcessor(tmp_path, "e").settings()
    assert {key for key in before if before[key] != after[key]} == {changed}
    del told["image_std"]  # the library's own default, which another version may change
    file.write_text(json.dumps(told))
    assert ImageProcessor(tmp_path, "e").settings()["image_std"] == ["0.5"] * 3


def test_an_image_processor_may_be_part_of_a_processor(tmp_path: Path) -> None:
    transformers.CLIPImageProcessorPil().save_pretrained(tmp_path)
    alone = ImageProcessor(tmp_path, "e").settings()
    file = tmp_path / "preprocessor_config.json"
    nested = {"image_processor": json.loads(file.read_text()), "processor_class": "CLIPProcessor"}
    (tmp_path / "processor_config.json").write_text(json.dumps(nested))
    file.unlink()
    assert ImageProcessor(tmp_path, "e").settings() == alone


def test_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no image processor") as caught:
        ImageProcessor(tmp_path, "e")
    assert caught.value.details["expected"] == "preprocessor_config.json"


def test_one_without_pillow_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers.ViTImageProcessorPil().save_pretrained(tmp_path)
    other = SimpleNamespace(backend="torchvision")
    monkeypatch.setattr(transformers.AutoImageProcessor, "from_pretrained", lambda *_, **__: other)
    with pytest.raises(ConfigError, match="does not run on Pillow"):
        ImageProcessor(tmp_path, "e")


@pytest.mark.parametrize("size", [{"shortest_edge": 32}, {"longest_edge": 64, "shortest_edge": 32}])
def test_sizes_that_vary_are_refused(size: dict[str, int], tmp_path: Path) -> None:
    transformers.CLIPImageProcessorPil(size=size, do_center_crop=False).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="does not bring pictures to one size"):
        ImageProcessor(tmp_path, "e")


def test_a_thin_picture_is_refused_before_it_takes_the_memory(tmp_path: Path) -> None:
    transformers.CLIPImageProcessorPil().save_pretrained(tmp_path / "crops")
    transformers.ViTImageProcessorPil().save_pretrained(tmp_path / "squeezes")
    crops = ImageProcessor(tmp_path / "crops", "e")
    longest = MOST_PIXELS // 224**2
    for width, height in ((longest, 1), (1, longest), (10 * longest, 10), (1, 1)):
        crops.check(width, height, "here")
    for width, height in ((longest + 1, 1), (1, longest + 1), (60_000, 20)):
        with pytest.raises(DataError, match="too long and thin"):
            crops.check(width, height, "here")
        ImageProcessor(tmp_path / "squeezes", "e").check(width, height, "here")
