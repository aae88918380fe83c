"""Layer 0, what the first layer reads: its states, its number, and caches without it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._model.forward import Unusable, hooks
from gaam_cache.encoders._text.forward import TextForward
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.errors import ConfigError, NumericsError
from gaam_cache.format.plan import read_plan
from tests.cache.encoders.test_states import TEXTS, config_for
from tests.cache.verification.test_verify import only_reason, spoil
from tests.conftest import ARCHITECTURES, Outcome

POOLS = ("mean", "last", "first", "max")
ZERO = [False, True]


def reference(folder: Path, texts: list[str]) -> dict[str, np.ndarray]:
    """All pooled ``hidden_states`` of one text at a time: (N, L + 1, D) for every pooling."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    pooled: dict[str, list[torch.Tensor]] = {pool: [] for pool in POOLS}
    for text in texts:
        ids = tokenizer(text, truncation=True, max_length=60)["input_ids"]
        with torch.no_grad():
            output = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        x_LTD = torch.stack(output.hidden_states)[:, 0].double()
        for pool, of in (
            ("mean", x_LTD.mean(1)),
            ("last", x_LTD[:, -1]),
            ("first", x_LTD[:, 0]),
            ("max", x_LTD.amax(1)),
        ):
            pooled[pool].append(of)
    return {pool: torch.stack(states).numpy() for pool, states in pooled.items()}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_all_hidden_states_are_there_and_the_others_keep_their_bits(
    architecture: str, encoders: dict[str, Path], tmp_path: Path
) -> None:
    config = replace(config_for(encoders[architecture], tmp_path), pool=POOLS)
    gaam_cache.extract(config)
    zero = replace(config, layer_zero=True, out=tmp_path / "zero")
    assert gaam_cache.extract(zero).padding_share > 0
    plain, cache = gaam_cache.open_cache(config.out), gaam_cache.open_cache(zero.out)
    assert (plain.num_layers, plain.first_layer) == (3, 1)
    assert (cache.num_layers, cache.first_layer) == (4, 0)
    expected = reference(encoders[architecture], TEXTS)
    for pool in POOLS:
        states = cache["train"].pooled(pool)[:]
        np.testing.assert_allclose(states, expected[pool], atol=1e-5, rtol=1e-5)
        np.testing.assert_array_equal(states[:, 1:], plain["train"].pooled(pool)[:])
    assert gaam_cache.verify(zero.out, recompute_rows=8).good
    layers = [read_plan(one.out).fingerprint_fields["encoder"]["layers"] for one in (config, zero)]
    assert layers == ["transformers.hidden_states[1:]", "transformers.hidden_states"]
    encoder = TextEncoder.open(zero)
    encoder.load()
    assert encoder._forward.stack is not None, "hooks were not taken"


def test_a_cache_with_layer_zero_is_another_cache(tiny_config: ExtractConfig) -> None:
    gaam_cache.extract(tiny_config)
    with pytest.raises(ConfigError, match=r"encoder\.layers"):
        gaam_cache.extract(replace(tiny_config, layer_zero=True))


@pytest.mark.parametrize("layer_zero", ZERO)
def test_a_dry_run_counts_it(layer_zero: bool, tiny_config: ExtractConfig) -> None:
    config = replace(tiny_config, layer_zero=layer_zero)
    timed = gaam_cache.estimate(config)
    named = gaam_cache.estimate(replace(config, tokens_per_second=1000.0))
    rows = sum(timed.rows.values())
    assert timed.bytes == named.bytes == rows * (3 + layer_zero) * 32 * 2


@pytest.mark.parametrize("layer_zero", ZERO)
@pytest.mark.parametrize("place", [0, 2])
def test_messages_call_layers_by_their_numbers(
    place: int,
    layer_zero: bool,
    tiny_config: ExtractConfig,
    monkeypatch: pytest.MonkeyPatch,
    gaam: Callable[..., Outcome],
) -> None:
    config = replace(tiny_config, layer_zero=layer_zero)
    number = place + 1 - layer_zero
    encode = TextEncoder.encode

    def spoiled(factor: float) -> None:
        def patched(self: TextEncoder, items: Sequence[Any]) -> dict[str, torch.Tensor]:
            pooled = {name: states.clone() for name, states in encode(self, items).items()}
            pooled["mean"][:, place] *= factor
            return pooled

        monkeypatch.setattr(TextEncoder, "encode", patched)

    spoiled(1.01)
    with pytest.raises(NumericsError, match=rf"in layer {number}\b"):
        gaam_cache.extract(config)
    spoiled(1e9)
    with pytest.raises(NumericsError, match=rf"a state of layer {number} cannot be stored"):
        gaam_cache.extract(config)
    spoiled(float("nan"))
    with pytest.raises(NumericsError, match=rf"the encoder's layer {number} yields nan"):
        gaam_cache.extract(config)
    monkeypatch.undo()
    gaam_cache.extract(config)
    said = gaam("verify", config.out, "--recompute", 3)
    assert said.code == 0, said.err
    assert f"layer {1 - layer_zero}: " in said.out
    inspected = gaam("inspect", config.out).out
    assert ("4 layers (0 to 3) x 32" in inspected) == layer_zero
    about = json.loads(gaam("inspect", config.out, "--json").out)
    assert about["first_layer"] == 1 - layer_zero


class Layered(nn.Module):
    """A model whose first layer may read fewer numbers than it writes, by whatever name."""

    def __init__(self, size: int, *, named: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, size)
        self.layers = nn.ModuleList([Layer(size), Layer(8)])
        self.named = named

    def forward(self, input_ids: torch.Tensor, output_hidden_states: bool = False) -> Any:
        x = self.embedding(input_ids)
        states = [x]
        for layer in self.layers:
            x = layer(hidden_states=x) if self.named else layer(x)
            states.append(x)
        shown = tuple(states) if output_hidden_states else None
        return transformers.modeling_outputs.BaseModelOutput(x, shown)


class Layer(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, 8)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.linear(hidden_states)


def forward_of(size: int, *, named: bool = False) -> TextForward:
    forward = TextForward(
        Layered(size, named=named).eval(), device=torch.device("cpu"), pooling=("mean",),
        pad_id=0, vocabulary=30,
    )  # fmt: skip
    forward.first_layer = 0
    return forward


@pytest.mark.parametrize("named", [False, True])
@torch.no_grad()
def test_what_the_first_layer_reads_is_seen_however_it_is_handed_over(named: bool) -> None:
    forward = forward_of(8, named=named)
    asked = forward([[1, 2, 3], [4, 5, 6]])["mean"]
    forward.stack = "layers"
    assert torch.equal(forward([[1, 2, 3], [4, 5, 6]])["mean"], asked)
    assert asked.shape == (2, 3, 8)


def test_an_input_of_another_size_is_refused_and_the_layers_are_not() -> None:
    forward = forward_of(6)
    with torch.no_grad():
        with pytest.raises(Unusable, match=r"layer-zero cannot be kept.*6\), its output.*8\)"):
            forward.reference([1, 2, 3])
        forward.first_layer = 1
        assert forward.reference([1, 2, 3])["mean"].shape == (1, 2, 8)


def test_an_input_that_is_no_tensor_is_no_layer() -> None:
    stack = nn.ModuleList([nn.Identity()])
    with (
        hooks(stack, lambda layer, x_BTD: None, first_layer=0),
        pytest.raises(Unusable, match="no tensor"),
    ):
        stack[0]((1, 2))


@pytest.mark.parametrize("layer_zero", ZERO)
@pytest.mark.parametrize("place", [0, 2])
def test_damage_is_said_with_the_number_of_the_layer(
    place: int, layer_zero: bool, tiny_config: ExtractConfig
) -> None:
    config = replace(tiny_config, layer_zero=layer_zero)
    gaam_cache.extract(config)
    spoil(config.out, "embeddings", (4, place, 7), np.nan)
    assert f"layer {place + 1 - layer_zero}, feature 7" in only_reason(config.out)
