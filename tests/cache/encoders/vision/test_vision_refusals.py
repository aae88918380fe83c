"""What cannot be read as a picture encoder, or not as asked, is refused in words that say why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from gaam_cache.common.errors import ConfigError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.encoders.vision import (
    Unusable,
    VisionEncoder,
    _VisionForward,
    find_layout,
)
from tests.cache.encoders.vision.models import FAMILIES, SMALL, SQUARE, save_model


def load(encoder: type, folder: Path, **options: Any) -> Any:
    opened = encoder.open(ExtractConfig(encoder=str(folder), device="cpu", **options))
    opened.load()
    return opened


def test_an_encoder_for_other_rows_is_named(
    encoders: dict[str, Path], tmp_path: Path
) -> None:
    for name, folder in encoders.items():
        with pytest.raises(ConfigError) as caught:
            load(VisionEncoder, folder)
        assert caught.value.details["found"] == f"model_type: {name}"
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
    """Four patches of 2 x 2 pixels, in an order, between positions that every picture has alike.

    ``seen`` is what a patch also sees of the whole picture; ``between`` puts another such position
    behind the first patch.
    """

    def __init__(self, order: Any = (0, 1, 2, 3), *, seen: float = 0.0, before: int = 2,
                 between: bool = False, size: int = 2) -> None:  # fmt: skip
        super().__init__()
        self.size, self.order = size, list(order)
        self.seen, self.before, self.between = seen, before, between
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, pixel_values: Any, output_hidden_states: bool = False) -> Any:
        patches = nn.functional.unfold(pixel_values, self.size, stride=self.size)
        patches = patches.transpose(1, 2)[:, self.order]
        patches = self.scale * (
            patches + self.seen * patches.mean((1, 2), keepdim=True)
        )
        same = torch.ones(len(patches), 1, patches.shape[2])
        if self.between:
            patches = torch.cat([patches[:, :1], same, patches[:, 1:]], 1)
        same = same.expand(-1, self.before, -1)
        states = torch.cat([same, patches, same], 1)
        return transformers.modeling_outputs.BaseModelOutput(
            last_hidden_state=states, hidden_states=(states, states)
        )


def test_sizes_that_vary_are_refused(tmp_path: Path) -> None:
    FAMILIES["vit"].save(tmp_path)
    for size in ({"shortest_edge": 32}, {"longest_edge": 64, "shortest_edge": 32}):
        processor = transformers.CLIPImageProcessorPil(size=size, do_center_crop=False)
        processor.save_pretrained(tmp_path)
        with pytest.raises(ConfigError) as caught:
            load(VisionEncoder, tmp_path)
        assert (
            len(set(re.findall(r"\(3, \d+, \d+\)", caught.value.details["found"]))) > 1
        )


def measured(model: nn.Module) -> range:
    forward = _VisionForward(model, device=torch.device("cpu"), pooling=["mean"])
    return find_layout(forward, (3, 4, 4), "float32")


def test_patches_are_found_wherever_they_stand() -> None:
    for before in range(4):
        assert measured(Embedding(before=before)) == range(before, before + 4)
    assert measured(Embedding([0], size=4)) == range(2, 3)


@pytest.mark.parametrize(
    "model",
    [
        Embedding([3, 2, 1, 0]),
        Embedding([1, 0, 2, 3]),
        Embedding(seen=0.1),
        Embedding(between=True),
        Embedding(seen=float("nan")),
    ],
    ids=[
        "reversed",
        "swapped",
        "of the whole picture",
        "something between",
        "not finite",
    ],
)
def test_patches_that_stand_elsewhere_are_refused(model: nn.Module) -> None:
    with pytest.raises(Unusable):
        measured(model)
