"""How a model must be run is measured, and a shard proves itself."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import gaam_cache
from gaam_cache.common import devices
from gaam_cache.common.errors import ConfigError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder, _TextForward
from tests.benchmarks import architectures

SIZES: dict[str, Any] = {
    "vocab_size": 24,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 130,
    "pad_token_id": 0,
}


def save_model(config: Any, folder: Path) -> Path:
    return architectures.save(architectures.draw(config), folder)


@pytest.mark.parametrize("pad", [0, 3], ids=["padding", "last of a text"])
def test_a_token_that_the_model_takes_for_padding_may_be_in_a_text(
    pad: int, tmp_path: Path
) -> None:
    sizes: dict[str, Any] = {
        "vocab_size": 24,
        "emb_dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "max_position_embeddings": 130,
        "pad_index": pad,
        "pad_token_id": pad,
    }
    config = transformers.XLMConfig(**sizes)
    folder = save_model(config, tmp_path / "encoder")
    encoder = TextEncoder.open(ExtractConfig(encoder=str(folder)))
    encoder.load()
    model = transformers.AutoModel.from_pretrained(folder).eval()
    for ids in ([2, 5, 6, 7, 3], [2, 5, 0, 0, 7, 3]):
        with torch.no_grad():
            output = model(
                input_ids=torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                output_hidden_states=True,
            )
        expected = torch.stack(output.hidden_states[1:])[:, 0].mean(1)
        for batch in ([ids], [ids, [2, 8, 9, 10, 11, 12, 3]]):
            torch.testing.assert_close(encoder.encode(batch)["mean"][0], expected)


@dataclass(frozen=True)
class Shift:
    """What a model of a test adds to the states of rows that share a batch."""

    dtype: Any
    times: float
    # gone in higher precision, as rounding is, and as a wrong mask is not
    rounding: bool
    # for a copy of the model in higher precision
    memory: bool = True
    # also beside copies of the same row
    of_copies: bool = True

    @property
    def case(self) -> str:
        cause = "rounding" if self.rounding else "mask"
        others = "copies" if self.of_copies else "others"
        memory = "memory" if self.memory else "no memory"
        return f"{self.dtype} {self.times} {cause} {others} {memory}"


SHIFTS = {
    Shift("bfloat16", 1.04, rounding=True): "padded",
    Shift("bfloat16", 1.04, rounding=False): "alone",
    Shift("bfloat16", 1.4, rounding=True): "alone",  # more than rounding can be
    Shift("float16", 1.01, rounding=True): "padded",
    Shift("float16", 1.01, rounding=False): "alone",
    Shift("float32", 1.00003, rounding=True): "padded",
    Shift("float32", 1.00003, rounding=False): "alone",
    Shift("float32", 1.0001, rounding=True): "alone",
    Shift("bfloat16", 1.04, rounding=True, memory=False): "padded",
    Shift("bfloat16", 1.04, rounding=True, memory=False, of_copies=False): "alone",
    Shift("float32", 1.00003, rounding=True, memory=False): "padded",
    Shift("float32", 1.00003, rounding=True, memory=False, of_copies=False): "alone",
}


@pytest.mark.parametrize("shift", SHIFTS, ids=lambda shift: shift.case)
def test_a_shift_that_rounding_explains_keeps_no_text_alone(
    shift: Shift, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_model(transformers.LlamaConfig(**SIZES), tmp_path / "encoder")
    encoder = TextEncoder.open(ExtractConfig(encoder=str(folder), dtype=shift.dtype))
    forward = _TextForward.__call__

    def shift_batches(self: Any, items: Any) -> Any:
        states = forward(self, items)
        different_rows = {tuple(ids) for ids in items}
        num_rows = len(items) if shift.of_copies else len(different_rows)
        is_higher_precision = self.dtype != getattr(torch, shift.dtype)
        if num_rows == 1 or (shift.rounding and is_higher_precision):
            return states
        return {name: x_BLD * shift.times for name, x_BLD in states.items()}

    monkeypatch.setattr(_TextForward, "__call__", shift_batches)
    if not shift.memory:
        monkeypatch.setattr(devices, "free_memory", lambda: 0)
    encoder.load()
    assert encoder.batching == SHIFTS[shift]


def test_a_tokenizer_may_name_no_maximum_and_no_pad_token(tmp_path: Path) -> None:
    sizes = SIZES | {"max_position_embeddings": 66, "pad_token_id": 1}
    folder = save_model(transformers.RobertaConfig(**sizes), tmp_path / "roberta")
    path = folder / "tokenizer_config.json"
    content = json.loads(path.read_text())
    content.pop("pad_token")
    path.write_text(json.dumps(content))
    encoder = TextEncoder.open(ExtractConfig(encoder=str(folder)))
    assert encoder.max_length == 64  # positions begin behind that of padding
    encoder.load()
    with pytest.raises(ConfigError, match=r"\b64\b"):
        TextEncoder.open(ExtractConfig(encoder=str(folder), max_length=65))
    longest = [[5] * 64, [6, 7]]
    together = encoder.encode(longest)["mean"]
    for row, ids in enumerate(longest):
        torch.testing.assert_close(together[row], encoder.encode([ids])["mean"][0])


def test_token_types_that_would_not_reach_the_model_are_refused(
    tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_config.encoder, tmp_path / "encoder"))
    tokenizer = json.loads((folder / "tokenizer.json").read_bytes())
    for part in tokenizer["post_processor"]["single"]:
        if "Sequence" in part:
            part["Sequence"]["type_id"] = 1
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ConfigError, match="token_type_ids"):
        gaam_cache.extract(replace(tiny_config, encoder=str(folder)))
    assert not (tiny_config.out / "cache.json").exists()
