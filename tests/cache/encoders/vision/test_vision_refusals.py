"""What cannot be read as a picture encoder, or not as asked, is refused by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from gaam_cache.common.errors import ConfigError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._forward import Unusable
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.encoders.vision import (
    VisionEncoder,
    _VisionForward,
    find_layout,
)
from tests.cache.encoders.vision.models import FAMILIES, SMALL, SQUARE, save_model
from tests.conftest import ARCHITECTURES


def load(encoder: Any, folder: Path, **options: Any) -> Any:
    config = ExtractConfig(encoder=str(folder), device="cpu", **options)
    opened_encoder = encoder.open(config)
    opened_encoder.load()
    return opened_encoder


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_encoder_of_texts_is_refused_by_its_type(
    name: str, encoders: dict[str, Path]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(VisionEncoder, encoders[name])
    assert caught.value.details["found"] == f"model_type: {name}"


def test_an_encoder_of_pictures_is_refused_for_texts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model_type: vit"):
        load(TextEncoder, FAMILIES["vit"].save(tmp_path / "vit"))


def test_a_masked_autoencoder_is_refused_and_its_weights_are_not(
    tmp_path: Path,
) -> None:
    save_model(transformers.ViTMAEConfig(**SMALL), tmp_path)
    transformers.ViTImageProcessorPil(size=SQUARE).save_pretrained(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load(VisionEncoder, tmp_path)
    assert "ViTMAEModel" in caught.value.details["found"]
    config = transformers.ViTConfig(**SMALL)
    transformers.ViTModel.from_pretrained(tmp_path, config=config).save_pretrained(
        tmp_path
    )
    assert load(VisionEncoder, tmp_path)._forward.layout == range(1, 17)


class Embedding(nn.Module):
    """Four patches of 2 x 2 pixels, in an order, between positions of no patch.

    Those positions are the same for every picture. ``seen`` is what a patch also sees
    of the whole picture; ``between`` puts another such position behind the first patch.
    """

    def __init__(
        self,
        order: Sequence[int] = (0, 1, 2, 3),
        *,
        seen: float = 0.0,
        before: int = 2,
        between: bool = False,
        size: int = 2,
    ) -> None:
        super().__init__()
        self.order = list(order)
        self.seen = seen
        self.before = before
        self.between = between
        self.size = size
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, pixel_values: Any, output_hidden_states: bool = False) -> Any:
        patches = nn.functional.unfold(pixel_values, self.size, stride=self.size)
        patches = patches.transpose(1, 2)[:, self.order]
        whole = patches.mean((1, 2), keepdim=True)
        patches = self.scale * (patches + self.seen * whole)
        same = torch.ones(len(patches), 1, patches.shape[2])
        if self.between:
            patches = torch.cat([patches[:, :1], same, patches[:, 1:]], 1)
        same = same.expand(-1, self.before, -1)
        states = torch.cat([same, patches, same], 1)
        return transformers.modeling_outputs.BaseModelOutput(
            last_hidden_state=states, hidden_states=(states, states)
        )


@pytest.mark.parametrize(
    "size",
    [{"shortest_edge": 32}, {"longest_edge": 64, "shortest_edge": 32}],
    ids=["shortest edge", "both edges"],
)
def test_sizes_that_vary_are_refused(size: dict[str, int], tmp_path: Path) -> None:
    FAMILIES["vit"].save(tmp_path)
    processor = transformers.CLIPImageProcessorPil(size=size, do_center_crop=False)
    processor.save_pretrained(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load(VisionEncoder, tmp_path)
    shapes = re.findall(r"\(3, \d+, \d+\)", caught.value.details["found"])
    assert len(set(shapes)) > 1


def measure_layout(model: nn.Module) -> range:
    forward = _VisionForward(model, device=torch.device("cpu"), pooling=["mean"])
    return find_layout(forward, (3, 4, 4), "float32")


@pytest.mark.parametrize("before", range(4))
def test_patches_are_found_wherever_they_stand(before: int) -> None:
    assert measure_layout(Embedding(before=before)) == range(before, before + 4)


def test_a_single_patch_is_found() -> None:
    assert measure_layout(Embedding([0], size=4)) == range(2, 3)


ELSEWHERE: dict[str, dict[str, Any]] = {
    "reversed": {"order": [3, 2, 1, 0]},
    "swapped": {"order": [1, 0, 2, 3]},
    "of the whole picture": {"seen": 0.1},
    "something between": {"between": True},
    "not finite": {"seen": float("nan")},
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_patches_that_stand_elsewhere_are_refused(case: str) -> None:
    with pytest.raises(Unusable):
        measure_layout(Embedding(**ELSEWHERE[case]))
