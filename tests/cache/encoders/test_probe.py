"""How a model must be run is measured, and a shard proves itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._deviation import STORAGE_TOLERANCE, proof_limit, relative
from gaam_cache.encoders._text.probe_texts import probe_lengths
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.errors import CacheError, ConfigError, NumericsError
from gaam_cache.extraction.batching import BATCHINGS, strictest, token_budget_batches
from gaam_cache.extraction.proof import choose_rows
from gaam_cache.extraction.states import StateMaker
from gaam_cache.extraction.tally import Tally
from gaam_cache.extraction.worker import ShardWorker
from gaam_cache.store.plan import read_plan
from tests.cache.encoders import architectures
from tests.conftest import Outcome

SIZES = {
    "vocab_size": 24,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 130,
    "pad_token_id": 0,
}


def phi3_long_rope(switch: int = 32) -> Any:
    scaling = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "original_max_position_embeddings": switch,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
    }
    return transformers.Phi3Config(
        **SIZES,
        num_key_value_heads=2,
        rope_parameters=scaling,
        original_max_position_embeddings=switch,
    )


def big_bird() -> Any:
    """Its sparse attention pads states to whole blocks."""
    return transformers.BigBirdConfig(**SIZES, block_size=4, num_random_blocks=1)


def opt_with_projection() -> Any:
    return transformers.OPTConfig(
        vocab_size=24, hidden_size=32, ffn_dim=48, num_hidden_layers=3, num_attention_heads=4,
        max_position_embeddings=130, word_embed_proj_dim=16, do_layer_norm_before=False,
        pad_token_id=0, bos_token_id=2, eos_token_id=3,
    )  # fmt: skip


def saved(config: Any, folder: Path) -> Path:
    architectures.save(architectures.draw(config), folder)
    return folder


def test_positions_that_switch_with_the_longest_text_keep_lengths_apart(tmp_path: Path) -> None:
    folder = saved(phi3_long_rope(), tmp_path / "encoder")
    config = architectures.extract(folder, tmp_path)
    assert read_plan(config.out).batching == "equal lengths"
    expected = architectures.reference(folder, architectures.texts())
    assert architectures.compare(config, expected) < 1e-5


@pytest.mark.parametrize("switch", [2, 16, 63, 64, 65, 100, 128])
def test_wherever_positions_switch_it_is_seen(switch: int, tmp_path: Path) -> None:
    folder = saved(phi3_long_rope(switch), tmp_path / "encoder")
    encoder = TextEncoder.open(ExtractConfig(encoder=str(folder), max_length=130))
    encoder.load()
    assert encoder.batching == "equal lengths"


@pytest.mark.parametrize("pad", [0, 2, 3], ids=["padding", "first of a text", "last of a text"])
@pytest.mark.parametrize("kind", ["flaubert", "xlm"])
def test_a_token_that_the_model_takes_for_padding_may_be_in_a_text(
    kind: str, pad: int, tmp_path: Path
) -> None:
    sizes = {"vocab_size": 24, "emb_dim": 32, "n_layers": 2, "n_heads": 4}
    options = sizes | {"max_position_embeddings": 130, "pad_index": pad, "pad_token_id": pad}
    config = transformers.AutoConfig.for_model(kind, **options)
    folder = saved(config, tmp_path / "encoder")
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


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (big_bird, "not one for every token"),
        (opt_with_projection, "differ in hidden size"),
    ],
)
def test_what_has_no_states_of_its_own_is_refused_before_anything_is_written(
    build: Callable[[], Any], reason: str, tmp_path: Path
) -> None:
    folder = saved(build(), tmp_path / "encoder")
    with pytest.raises(ConfigError, match=reason):
        architectures.extract(folder, tmp_path)
    assert not list((tmp_path / "cache").rglob("*.*"))


def test_a_model_that_remembers_what_it_read_is_refused(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.bert.modeling_bert import BertEmbeddings

    forward = BertEmbeddings.forward
    calls = iter(range(10**6))

    def remember(self: Any, *args: Any, **options: Any) -> Any:
        out = forward(self, *args, **options)
        return out + 0.1 * next(calls) * out.roll(1, -1)

    monkeypatch.setattr(BertEmbeddings, "forward", remember)
    with pytest.raises(ConfigError, match="other states the second time"):
        TextEncoder.open(tiny_config).load()


@pytest.mark.parametrize("named", [True, False])
def test_a_tokenizer_may_name_no_maximum_and_no_pad_token(named: bool, tmp_path: Path) -> None:
    sizes = SIZES | {"max_position_embeddings": 66, "pad_token_id": 1}
    folder = saved(transformers.RobertaConfig(**sizes), tmp_path / "roberta")
    if not named:
        path = folder / "tokenizer_config.json"
        content = json.loads(path.read_text())
        content.pop("pad_token")
        path.write_text(json.dumps(content))
    encoder = TextEncoder.open(ExtractConfig(encoder=str(folder)))
    assert encoder.max_length == 64  # positions begin behind that of padding
    encoder.load()
    with pytest.raises(ConfigError, match="at most 64"):
        TextEncoder.open(ExtractConfig(encoder=str(folder), max_length=65))
    longest = [[5] * 64, [6, 7]]
    together = encoder.encode(longest)["mean"]
    for row, ids in enumerate(longest):
        torch.testing.assert_close(together[row], encoder.encode([ids])["mean"][0])


def test_a_text_beyond_the_vocabulary_is_refused_by_token(
    encoders: dict[str, Path], tmp_path: Path
) -> None:
    folder = saved(transformers.BertConfig(**SIZES | {"vocab_size": 9}), tmp_path / "small")
    encoder = TextEncoder.open(ExtractConfig(encoder=str(folder)))
    encoder.load()
    with pytest.raises(ConfigError, match=r"token 19(.|\n)*embeddings for 9"):
        encoder.encode([[2, 19, 3]])


@pytest.fixture
def neighbourly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A BERT whose rows know each other, whatever their lengths."""
    from transformers.models.bert.modeling_bert import BertLayer

    forward = BertLayer.forward

    def mixed(self: Any, x_BTD: Any, *args: Any, **options: Any) -> Any:
        out = forward(self, x_BTD, *args, **options)
        first = out if isinstance(out, torch.Tensor) else out[0]
        first = first + 0.3 * (first[:, :1] - first[:, :1].mean(0, keepdim=True))
        return first if isinstance(out, torch.Tensor) else (first, *out[1:])

    monkeypatch.setattr(BertLayer, "forward", mixed)


@pytest.mark.usefixtures("neighbourly")
def test_where_neighbours_leak_every_text_is_alone_and_that_is_said(
    tiny_config: ExtractConfig, gaam: Callable[..., Outcome]
) -> None:
    options = ["--encoder", tiny_config.encoder, "--dataset", tiny_config.dataset]
    options += ["--out", tiny_config.out]
    said = gaam("extract", *options)
    assert "of one text: neighbours move this encoder's states; about" in said.out
    assert read_plan(tiny_config.out).batching == "alone"
    encoder = TextEncoder.open(tiny_config)
    encoder.load()
    states = gaam_cache.open_cache(tiny_config.out)["train"].embeddings[0]
    alone = encoder.encode(encoder.prepare(["goal"]).items)["mean"][0].numpy()
    assert relative(states, alone, "float16").max() < STORAGE_TOLERANCE["float16"] + 1e-5


def test_padded_batches_and_the_proof_are_said(
    tiny_config: ExtractConfig, gaam: Callable[..., Outcome]
) -> None:
    summary = gaam_cache.extract(tiny_config)
    assert (summary.batching, summary.batching_cost, summary.leak) == ("padded", 1.0, None)
    assert summary.proven == 2 * 9
    assert 0 < summary.deviation < proof_limit("float32")
    assert "18 rows encoded again alone" in summary.in_words()


def test_whoever_joins_takes_the_stricter_way(tiny_config: ExtractConfig) -> None:
    gaam_cache.extract(tiny_config)
    plan = read_plan(tiny_config.out)
    encoder = TextEncoder.open(tiny_config)
    encoder.load()
    for theirs in BATCHINGS:
        for encoder.batching in BATCHINGS:
            joined = replace(plan, encoder=plan.encoder | {"batching": theirs})
            worker = ShardWorker(tiny_config, joined, encoder, {}, Tally())
            assert BATCHINGS.index(worker.batching) == max(
                BATCHINGS.index(theirs), BATCHINGS.index(encoder.batching)
            )


def test_an_unknown_batching_in_a_plan_is_refused(tiny_config: ExtractConfig) -> None:
    gaam_cache.extract(tiny_config)
    plan = read_plan(tiny_config.out)
    other = replace(plan, encoder=plan.encoder | {"batching": "any"})
    (tiny_config.out / "cache.json").write_text(other.to_json())
    with pytest.raises(CacheError, match="batching must be one of"):
        read_plan(tiny_config.out)


@pytest.mark.parametrize("storage_dtype", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_state_that_is_not_that_of_the_text_alone_stops_the_extraction(
    dtype: str,
    storage_dtype: str,
    tiny_config: ExtractConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encode = TextEncoder.encode
    limit = proof_limit(dtype)

    def spoiled(self: TextEncoder, items: Sequence[list[int]]) -> dict[str, torch.Tensor]:
        pooled = {name: states.clone() for name, states in encode(self, items).items()}
        if len(items) > 1:
            pooled["mean"][:, 1] *= 1 + 3 * limit
        return pooled

    monkeypatch.setattr(TextEncoder, "encode", spoiled)
    config = replace(tiny_config, dtype=dtype, storage_dtype=storage_dtype)
    with pytest.raises(NumericsError, match="another state in its batch than alone") as caught:
        gaam_cache.extract(config)
    assert "in layer 2" in str(caught.value)
    assert "train.csv, row" in str(caught.value)
    assert "--set batch-tokens=1" in str(caught.value)
    assert not list((config.out / "shards").glob("*.json"))


def test_rows_that_changed_places_on_their_way_stop_the_extraction(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assemble = StateMaker._assemble
    monkeypatch.setattr(
        StateMaker, "_assemble", lambda *arguments: np.roll(assemble(*arguments), 1, axis=0)
    )
    with pytest.raises(NumericsError, match="was not published"):
        gaam_cache.extract(tiny_config)
    assert not list((tiny_config.out / "shards").glob("*.json"))


@given(
    count=st.integers(1, 1500),
    seed=st.integers(0, 99),
    budget=st.integers(1, 4096),
    batching=st.sampled_from(BATCHINGS),
)
@settings(deadline=None)
def test_the_rows_of_a_proof(count: int, seed: int, budget: int, batching: Any) -> None:
    lengths = np.random.default_rng(seed).integers(1, 300, size=count).tolist()
    batches = token_budget_batches(lengths, budget, batching)
    rows = choose_rows(lengths, batches)
    assert rows == choose_rows(lengths, batches)
    assert len(rows) == len(set(rows)) == min(len(lengths), max(2, -(-len(lengths) // 500)))
    padding = [max(lengths[i] for i in b) - min(lengths[i] for i in b) for b in batches]
    most = batches[int(np.argmax(padding))]
    assert lengths[rows[0]] == min(lengths[i] for i in most)


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=200), budget=st.integers(1, 512))
def test_stricter_batches_hold_every_row_once(lengths: list[int], budget: int) -> None:
    equal = token_budget_batches(lengths, budget, "equal lengths")
    alone = token_budget_batches(lengths, budget, "alone")
    for batches in (equal, alone):
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert all(len({lengths[i] for i in batch}) == 1 for batch in equal)
    assert all(len(batch) == 1 or len(batch) * lengths[batch[0]] <= budget for batch in equal)
    assert {len(batch) for batch in alone} == {1}


def test_the_strictest_is_the_last() -> None:
    assert strictest("padded", "alone", "equal lengths") == "alone"


def test_lengths_reach_beyond_every_window_that_a_configuration_names() -> None:
    named = {
        "sliding_window": 100,
        "num_hidden_layers": 96,
        "rope_parameters": {"original_max_position_embeddings": 200},
        "attention_window": [300, 300],
        "block_size": 5000,
    }
    lengths = probe_lengths(named, 1, 512)
    assert {101, 201, 301, 512} <= set(lengths)
    assert 97 not in lengths
    assert max(lengths) == 512
    assert probe_lengths(named, 3, 2) == [2]


def test_very_small_states_are_not_blamed_for_the_steps_of_float16() -> None:
    alone = np.random.default_rng(0).normal(scale=1e-7, size=(3, 64)).astype(np.float32)
    stored = alone.astype(np.float16)
    assert relative(stored, alone).min() > 0.01
    assert relative(stored, alone, "float16").max() == 0


@pytest.mark.parametrize("kind", [0, 1])
def test_token_types_that_would_not_reach_the_model_are_refused(
    kind: int, tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(tiny_config.encoder, folder)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_bytes())
    for part in tokenizer["post_processor"]["single"]:
        if "Sequence" in part:
            part["Sequence"]["type_id"] = kind
    file.write_text(json.dumps(tokenizer))
    config = replace(tiny_config, encoder=str(folder))
    if kind == 0:
        gaam_cache.extract(config)
        return
    with pytest.raises(ConfigError, match="token_type_ids"):
        gaam_cache.extract(config)
    assert not (tiny_config.out / "cache.json").exists()
