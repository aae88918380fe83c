"""The shape of a model without weights is that of the model at work."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from gaam_cache.encoders._text.forward import text_part
from gaam_cache.errors import ConfigError
from tests.cache.encoders import architectures
from tests.conftest import ARCHITECTURES

MODULE = importlib.import_module("gaam_cache.encoders._model.outline")
OTHERS = ("albert", "bart", "deberta-v2", "falcon", "modernbert", "opt", "t5", "mixtral")
"""Shared layers, encoder-decoders, windows, relative positions, a mixture."""


def shape_of(model: Any) -> tuple[int, int]:
    inputs = {"input_ids": torch.zeros((1, 60), dtype=torch.long, device="meta")}
    found: tuple[int, int] = MODULE.shape_of(model.config, "any", text_part, inputs)
    return found


def shrunken(name: str) -> Any:
    for recipe in architectures.RECIPES:
        try:
            model = architectures.draw(
                architectures.shrink(transformers.CONFIG_MAPPING[name], recipe)
            )
            architectures._try(model)
        except Exception:  # noqa: BLE001, S112 what a foreign class does not like
            continue
        return model
    raise AssertionError(name)


@pytest.mark.parametrize("name", [*ARCHITECTURES, *OTHERS])
def test_it_is_that_of_the_states(
    name: str, encoders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = encoders.get(name)
    model = transformers.AutoModel.from_pretrained(known) if known else shrunken(name)
    part = text_part(model.eval())
    with torch.no_grad():
        states = part(
            input_ids=torch.full((1, 9), 5),
            output_hidden_states=True,
            **architectures.without_cache(part),
        ).hidden_states[1:]
    assert shape_of(model) == (len(states), states[-1].shape[-1])
    if name in ARCHITECTURES:  # where it cannot run, its configuration says it
        monkeypatch.setattr(MODULE, "_run", lambda *_, **__: None)
        assert shape_of(model) == (len(states), states[-1].shape[-1])
        monkeypatch.setattr(type(model.config), "get_text_config", lambda self, **_: object())
        with pytest.raises(ConfigError):
            shape_of(model)
