"""Encoders in other files: adapters of peft, GGUF files, towers of larger models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import gaam_cache
from gaam_cache.common.errors import GaamError
from gaam_cache.config import ExtractConfig
from tests.cache.encoders.folders import change_json, opened, pooled, states, states_of
from tests.cache.encoders.vision.models import SMALL, TEXT
from tests.tiny import build_encoder, random_rows, write_csv

Q_AND_V = ["q_proj", "v_proj"]


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return build_encoder(tmp_path / "llama", "llama")


class Case:
    """An adapter: its configuration, and the class of the model it was trained in."""

    def __init__(self, config: str, task: str = "AutoModel", **settings: Any) -> None:
        self.config = config
        self.task = task
        self.settings = settings

    def save(self, base: Path, folder: Path) -> Any:
        """With random weights; returns the adapted model."""
        peft = pytest.importorskip("peft")
        model = getattr(transformers, self.task).from_pretrained(base)
        adapted = peft.get_peft_model(
            model, getattr(peft, self.config)(**self.settings)
        )
        for name, parameter in adapted.named_parameters():
            if parameter.requires_grad or "lora" in name:
                torch.nn.init.normal_(parameter, std=0.3)
        adapted.save_pretrained(folder)
        return adapted


LORA = Case("LoraConfig", r=4, target_modules=Q_AND_V)
ADAPTERS = {
    "lora": LORA,
    "of a language model": Case(
        "LoraConfig",
        "AutoModelForCausalLM",
        r=4,
        target_modules=Q_AND_V,
        task_type="CAUSAL_LM",
        modules_to_save=["lm_head", "embed_tokens"],
    ),
    "of a classifier": Case(
        "LoraConfig",
        "AutoModelForSequenceClassification",
        target_modules=Q_AND_V,
        task_type="SEQ_CLS",
    ),
    "of some layers": Case(
        "LoraConfig",
        "AutoModelForCausalLM",
        target_modules=Q_AND_V,
        layers_to_transform=[0, 1],
    ),
    "magnitudes": Case("LoraConfig", use_dora=True, target_modules=Q_AND_V),
    "shared": Case("VeraConfig", r=4, target_modules=["q_proj", "o_proj"]),
    "scaled": Case(
        "IA3Config",
        target_modules=["k_proj", "down_proj"],
        feedforward_modules=["down_proj"],
    ),
}


@pytest.mark.parametrize("case", ADAPTERS)
def test_an_adapter_alone_is_applied_to_the_base_model_that_it_names(
    llama: Path, tmp_path: Path, case: str
) -> None:
    adapted = ADAPTERS[case].save(llama, tmp_path / "adapter")
    expected = states_of(adapted, llama)
    np.testing.assert_allclose(
        states(tmp_path / "adapter"), expected, atol=1e-5, rtol=1e-4
    )
    assert np.abs(states(llama) - expected).max() > 0.01


def test_an_adapter_is_on_record_and_its_base_may_move(
    llama: Path, tmp_path: Path
) -> None:
    adapter = tmp_path / "adapter"
    LORA.save(llama, adapter)
    rows = write_csv(tmp_path / "rows.csv", random_rows(6, 0))
    config = ExtractConfig(
        encoder=str(adapter),
        dataset=str(rows),
        splits=("train",),
        out=tmp_path / "cache",
    )
    gaam_cache.extract(config)
    cache = gaam_cache.open_cache(tmp_path / "cache")
    assert cache.plan.encoder_label == f"{adapter} (adapter of llama)"
    files = cache.plan.identity["files"]
    assert {
        "adapter_model.safetensors",
        "base/model.safetensors",
        "base/tokenizer.json",
    } <= set(files)
    moved = llama.rename(tmp_path / "moved")
    change_json(adapter / "adapter_config.json", base_model_name_or_path=str(moved))
    assert opened(adapter).identity()["files"] == files
    assert gaam_cache.verify(tmp_path / "cache", recompute_rows=3).good
    change_json(adapter / "adapter_config.json", lora_alpha=99)
    assert opened(adapter).identity()["files"] != files


def test_an_adapter_beside_weights_is_applied_to_them_once(
    llama: Path, tmp_path: Path
) -> None:
    adapted = LORA.save(llama, tmp_path / "adapter")
    expected = states_of(adapted, llama)
    beside = Path(shutil.copytree(llama, tmp_path / "beside"))
    shutil.copytree(tmp_path / "adapter", beside, dirs_exist_ok=True)
    np.testing.assert_allclose(states(beside), expected, atol=1e-5, rtol=1e-4)
    adapted.merge_and_unload().save_pretrained(beside)
    with pytest.raises(GaamError, match="merged"):
        states(beside)


def name_no_base(config: Path) -> None:
    change_json(config, base_model_name_or_path="/nowhere/at/all")


def change_the_rank(config: Path) -> None:
    change_json(config, r=2)


def name_fewer_places(config: Path) -> None:
    change_json(config, target_modules=["q_proj"])


def name_more_places(config: Path) -> None:
    change_json(config, target_modules=[*Q_AND_V, "o_proj"])


def pickle_the_adapter(config: Path) -> None:
    weights = config.with_name("adapter_model.safetensors")
    weights.rename(config.with_name("adapter_model.bin"))


WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "no base": (name_no_base, "nowhere"),
    "another rank": (change_the_rank, "size mismatch"),
    "fewer places": (name_fewer_places, "no place"),
    "more places": (name_more_places, "is missing"),
    "pickled": (pickle_the_adapter, "never read"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_adapter_that_does_not_fit_is_refused(
    llama: Path, tmp_path: Path, case: str
) -> None:
    LORA.save(llama, tmp_path / "adapter")
    change, message = WRONG[case]
    change(tmp_path / "adapter" / "adapter_config.json")
    with pytest.raises(GaamError, match=message):
        opened(tmp_path / "adapter").load()


CHARACTERS = ["<pad>", "<s>", *"aeotrsnlgkbcmpid", "Ġ", "ar"]
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}


def add_nothing(writer: Any) -> None:
    """Leave a GGUF file as it is."""


def write_gguf(
    file: Path, folder: Path, add: Callable[[Any], None] = add_nothing
) -> Path:
    """Write the weights of a Llama as llama.cpp does, with a tokenizer of characters."""
    gguf = pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    model = transformers.AutoModel.from_pretrained(folder)
    writer = gguf.GGUFWriter(file, "llama")
    add_configuration(writer, model.config)
    add_tokenizer(writer)
    add_weights(writer, model)
    add(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def add_configuration(writer: Any, config: Any) -> None:
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.head_dim)


def add_tokenizer(writer: Any) -> None:
    writer.add_vocab_size(len(CHARACTERS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(CHARACTERS)
    writer.add_token_types([3, 3, *[1] * (len(CHARACTERS) - 2)])
    writer.add_token_merges(["a r"])
    writer.add_bos_token_id(1)


def add_weights(writer: Any, model: Any) -> None:
    config = model.config
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        array = tensor.numpy()
        module = name.split(".")[-2]
        # llama.cpp rotates pairs of neighbours
        if module in heads:
            halves = array.reshape(heads[module], 2, -1, array.shape[1])
            array = halves.swapaxes(1, 2).reshape(array.shape)
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(array))


def gguf_name(name: str) -> str:
    if not name.startswith("layers."):
        return {
            "embed_tokens.weight": "token_embd.weight",
            "norm.weight": "output_norm.weight",
        }[name]
    _, layer, module = name.removesuffix(".weight").split(".", 2)
    return f"blk.{layer}.{NAMES[module]}.weight"


def test_a_gguf_file_is_read_with_its_tokenizer_and_nothing_beside_it(
    llama: Path, tmp_path: Path
) -> None:
    file = write_gguf(tmp_path / "any name.gguf", llama)
    change_json(tmp_path / "tokenizer_config.json", tokenizer_class="BertTokenizer")
    change_json(tmp_path / "adapter_config.json", base_model_name_or_path="/nowhere")
    encoder = opened(file)
    encoder.load()
    ids = encoder.prepare(["star in"]).items[0]
    assert [CHARACTERS[i] for i in ids] == ["s", "t", "ar", "Ġ", "i", "n"]
    expected = pooled(transformers.AutoModel.from_pretrained(llama), list(ids))
    np.testing.assert_allclose(
        encoder.encode([ids])["mean"][0], expected, atol=1e-5, rtol=1e-4
    )
    files = encoder.identity()["files"]
    assert len(files) == 1
    assert opened(file.rename(tmp_path / "other.gguf")).identity()["files"] == files


def add_tensor(name: str, writer: Any) -> None:
    writer.add_tensor(name, np.ones(32, np.float32))


def add_scaled_positions(writer: Any) -> None:
    writer.add_float32("llama.rope.scaling.factor", 4.0)


def add_a_window(writer: Any) -> None:
    writer.add_sliding_window(8)


def add_both_directions(writer: Any) -> None:
    writer.add_causal_attention(False)


def add_a_split(writer: Any) -> None:
    writer.add_uint16("split.count", 2)


GGUF_REFUSED: dict[str, tuple[Callable[[Any], None], str]] = {
    "tensor": (partial(add_tensor, "rope_freqs.weight"), "rope_freqs"),
    "layer more": (partial(add_tensor, "blk.3.attn_norm.weight"), "blk.3"),
    "scaled positions": (add_scaled_positions, "scaling.factor = 4.0"),
    "window": (add_a_window, "sliding_window"),
    "both directions": (add_both_directions, "causal"),
    "one of several": (add_a_split, "one part of"),
}


@pytest.mark.parametrize("case", GGUF_REFUSED)
def test_a_gguf_file_of_which_a_part_would_be_dropped_is_refused(
    llama: Path, tmp_path: Path, case: str
) -> None:
    add, message = GGUF_REFUSED[case]
    file = write_gguf(tmp_path / "model.gguf", llama, add)
    with pytest.raises(GaamError, match=message):
        opened(file).load()


def test_a_gguf_file_that_ends_too_soon_is_damaged(llama: Path, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "model.gguf", llama)
    file.write_bytes(file.read_bytes()[:-3000])
    with pytest.raises(GaamError, match="cut off") as refused:
        opened(file).load()
    assert refused.value.exit_code == 3


TOWERS: dict[str, Callable[[], Any]] = {
    "CLIP": partial(
        transformers.CLIPConfig,
        text_config={**TEXT, "eos_token_id": 3},
        vision_config=SMALL,
    ),
    "SigLIP": partial(transformers.SiglipConfig, text_config=TEXT, vision_config=SMALL),
    "SigLIP2": partial(
        transformers.Siglip2Config, text_config=TEXT, vision_config=SMALL
    ),
    "text model of SigLIP": partial(transformers.SiglipTextConfig, **TEXT),
}


@pytest.mark.parametrize("case", TOWERS)
def test_of_a_model_of_texts_and_pictures_the_tower_of_texts_is_run(
    tmp_path: Path, case: str
) -> None:
    build_encoder(tmp_path, "bert")
    config = TOWERS[case]()
    kind: Any = transformers.MODEL_MAPPING.get(
        type(config), transformers.SiglipTextModel
    )
    kind._from_config(config).save_pretrained(tmp_path)
    model = kind.from_pretrained(tmp_path)
    tower = getattr(model, "text_model", model)
    np.testing.assert_allclose(
        states(tmp_path), states_of(tower, tmp_path), atol=1e-5, rtol=1e-4
    )
    content = json.loads((tmp_path / "config.json").read_text())
    assert (
        opened(tmp_path).max_length
        == content.get("text_config", content)["max_position_embeddings"]
    )
