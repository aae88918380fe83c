"""Shape and cost without weights, against torch's count of the real model at work."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from gaam_cache.encoders._text.forward import text_part
from gaam_cache.encoders._text.outline import outline_of_text
from gaam_cache.errors import ConfigError
from tests.cache.encoders import architectures
from tests.conftest import ARCHITECTURES

MODULE = importlib.import_module("gaam_cache.encoders._model.outline")
OTHERS = (
    "albert", "bart", "deberta-v2", "distilbert", "electra", "falcon", "gemma2", "gpt_neox",
    "mistral", "modernbert", "mpnet", "opt", "qwen3", "roberta", "t5", "xlm-roberta",
)  # fmt: skip
"""Shared layers, encoder-decoders, windows, relative positions, grouped queries, gated inners."""
MIXTURES = ("mixtral", "qwen3_moe")


def count(model: Any, length: int) -> tuple[int, int, int]:
    """L, D and operations of one text, by attention that torch's counter knows."""
    part = text_part(model)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        output = part(
            input_ids=torch.randint(4, 20, (1, length)),
            output_hidden_states=True,
            **architectures.without_cache(part),
        )
    states = output.hidden_states[1:]
    return len(states), states[-1].shape[-1], counter.get_total_flops()


def compare(model: Any, within: float, *, counted: bool = True) -> None:
    layers, size, found = outline_of_text(model.config, 60, "any")
    assert found.counted == counted
    assert found.parameters == sum(p.numel() for p in text_part(model).parameters())
    model.set_attn_implementation("eager")
    for length in (16, 30, 60):  # of a shorter one the pooler, which is one token's, is a part
        real = count(model, length)
        assert (layers, size) == real[:2]
        cost = found.linear * length + found.quadratic * length**2
        assert cost == pytest.approx(real[2], rel=within)


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


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_cost_and_shape_are_those_of_the_model(
    architecture: str, encoders: dict[str, Path]
) -> None:
    compare(transformers.AutoModel.from_pretrained(encoders[architecture]), 0.02)


@pytest.mark.parametrize("name", [*OTHERS, *MIXTURES])
def test_cost_and_shape_of_other_architectures(name: str) -> None:
    compare(shrunken(name), 0.02)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_formula_is_near_where_nothing_can_be_counted(
    architecture: str, encoders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norms, biases and poolers are more of a tiny model than of a real one."""
    monkeypatch.setattr(MODULE, "_run", lambda *_, **__: None)
    compare(transformers.AutoModel.from_pretrained(encoders[architecture]), 0.15, counted=False)


def test_a_shape_that_nobody_tells_is_refused(
    encoders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = transformers.AutoConfig.from_pretrained(encoders["bert"])
    monkeypatch.setattr(MODULE, "_run", lambda *_, **__: None)
    monkeypatch.setattr(type(config), "get_text_config", lambda self, **_: object())
    with pytest.raises(ConfigError, match="cannot be told without its weights"):
        outline_of_text(config, 60, "any")
