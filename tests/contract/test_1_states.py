"""Promise 1: pooled states are ``hidden_states[1:]`` of transformers, of every row alone.

What they are held to is computed here by transformers alone: a model that is loaded anew for every
row reads that row and nothing else, unpadded.

N rows, T positions, L layers, D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import gaam_cache
from tests.tiny import WORDS, write_csv

POOLINGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": lambda x_LTD: x_LTD.mean(1),
    "first": lambda x_LTD: x_LTD[:, 0],
    "last": lambda x_LTD: x_LTD[:, -1],
    "max": lambda x_LTD: x_LTD.amax(1),
}
RIGHT = 1e-5
"""Of the norm of a layer."""
LENGTHS = (1, 1, 2, 40, 3, 5, 5, 8, 30, 12, 17, 17, 24, 36, 90)
MAX_LENGTH = 48
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]

SIZES = {"vocab_size": 20, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
         "num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0,
         "bos_token_id": 2, "eos_token_id": 3}  # fmt: skip
T5 = {"vocab_size": 20, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 3, "num_heads": 4}
XLM = {"vocab_size": 20, "emb_dim": 32, "n_layers": 3, "n_heads": 4, "max_position_embeddings": 64}
LONG_ROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4,
             "long_factor": [4.0] * 4, "original_max_position_embeddings": 16}  # fmt: skip
BART = {"vocab_size": 20, "d_model": 32, "encoder_layers": 3, "decoder_layers": 1,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48, "max_position_embeddings": 64, "pad_token_id": 0}  # fmt: skip

TEXTS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", SIZES),
    "roberta": ("RobertaModel", SIZES),  # positions begin behind that of padding
    "albert": ("AlbertModel", SIZES | {"embedding_size": 16}),  # one layer for all
    "convbert": ("ConvBertModel", SIZES | {"embedding_size": 32}),  # no mask for convolutions
    "mobilebert": ("MobileBertModel", SIZES | {"embedding_size": 32, "intra_bottleneck_size": 16}),
    "xlm": ("XLMModel", XLM | {"pad_index": 0}),  # makes masks of its own
    "xlnet": ("XLNetModel", {"vocab_size": 20, "d_model": 32, "n_layer": 3, "n_head": 4}),
    "longformer": ("LongformerModel", SIZES | {"attention_window": 8}),  # fills up to windows
    "llama": ("LlamaModel", SIZES | {"num_key_value_heads": 2}),
    "gpt2": ("GPT2Model", {"vocab_size": 20, "n_embd": 32, "n_layer": 3, "n_head": 4}),
    "phi3": ("Phi3Model", SIZES | {"rope_parameters": LONG_ROPE,  # switches with the longest
                                   "original_max_position_embeddings": 16}),
    "mamba": ("MambaModel", {"vocab_size": 20, "hidden_size": 32, "num_hidden_layers": 3}),
    "t5": ("T5Model", T5),
    "mt5": ("MT5Model", T5),
    "umt5": ("UMT5Model", T5),
    "bart": ("BartModel", BART),
    "t5-encoder": ("T5EncoderModel", T5),
    "mt5-encoder": ("MT5EncoderModel", T5),
    "umt5-encoder": ("UMT5EncoderModel", T5),
    # leaves its sparse attention for good at a text of 28 tokens or fewer
    "big-bird": ("BigBirdModel", SIZES | {"block_size": 4, "num_random_blocks": 1}),
}  # fmt: skip


def draw(name: str, settings: dict[str, Any], folder: Path) -> Path:
    """Save a random model, its weights larger than usual: errors have room to show."""
    cls = getattr(transformers, name)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = cls(cls.config_class(**settings)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.15 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return folder


def draw_text(name: str, settings: dict[str, Any], folder: Path) -> Path:
    """The same with a tokenizer of words."""
    vocabulary = {word: place for place, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", special_tokens=[("[CLS]", 2)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]"
    ).save_pretrained(folder)
    return draw(name, settings, folder)


@pytest.fixture(scope="module")
def rows() -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, size=length)) for length in LENGTHS]


@pytest.fixture(scope="module")
def dataset(rows: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("states") / "texts"
    write_csv(root / "train.csv", [("ab"[number % 2], row) for number, row in enumerate(rows)])
    return root


def pooled(runs: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Of (L, T, D) of every row: pooling -> (N, L, D)."""
    return {
        name: torch.stack([pool(x_LTD.double()) for x_LTD in runs])
        for name, pool in POOLINGS.items()
    }


def alone(cls: str, folder: Path, rows: Sequence[str], longest: int) -> dict[str, torch.Tensor]:
    """What transformers makes of every row alone, each with a model that is loaded for it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    runs = []
    for row in rows:
        inputs = tokenizer(row, truncation=True, max_length=longest, return_tensors="pt")
        model = getattr(transformers, cls).from_pretrained(folder, dtype=torch.float32).eval()
        if hasattr(model, "decoder"):
            model = model.get_encoder()
        with torch.no_grad():
            output = model(inputs["input_ids"], output_hidden_states=True)
        runs.append(torch.stack(output.hidden_states[1:])[:, 0])
    return pooled(runs)


def extracted(encoder: Path, dataset: Path, out: Path, **options: Any) -> Any:
    """The training split of a new cache with all poolings."""
    config: dict[str, Any] = {
        "storage_dtype": "float32",
        "max_length": MAX_LENGTH,
        "batch_tokens": 200,
    } | options
    gaam_cache.extract(
        gaam_cache.ExtractConfig(
            encoder=str(encoder), dataset=str(dataset), out=out, splits=("train",),
            pool=tuple(POOLINGS), device="cpu", **config,
        )
    )  # fmt: skip
    return gaam_cache.open_cache(out)["train"]


def deviation(split: Any, expected: dict[str, torch.Tensor]) -> float:
    """The largest, of the norm of its layer."""
    worst = 0.0
    for name, x_NLD in expected.items():
        stored = torch.from_numpy(split.pooled(name)[:]).double()
        assert stored.shape == x_NLD.shape
        worst = max(worst, float(((stored - x_NLD).norm(dim=-1) / x_NLD.norm(dim=-1)).max()))
    return worst


@pytest.mark.parametrize("name", TEXTS)
def test_states_of_texts(name: str, rows: list[str], dataset: Path, tmp_path: Path) -> None:
    cls, settings = TEXTS[name]
    longest = 28 if name == "big-bird" else MAX_LENGTH
    encoder = draw_text(cls, settings, tmp_path / "encoder")
    expected = alone(cls, encoder, rows, longest)
    for tokens in (1, 60, 5000) if name in {"bert", "llama", "convbert", "phi3"} else (200,):
        out = tmp_path / f"cache {tokens}"
        split = extracted(encoder, dataset, out, max_length=longest, batch_tokens=tokens)
        assert deviation(split, expected) < RIGHT


def test_storage_types_round_to_nearest(
    rows: list[str], dataset: Path, gaam: Callable[..., Any], tmp_path: Path
) -> None:
    encoder = draw_text(*TEXTS["bert"], tmp_path / "encoder")
    exact = extracted(encoder, dataset, tmp_path / "float32")
    assert deviation(exact, alone("BertModel", encoder, rows, MAX_LENGTH)) < RIGHT
    for dtype in ("float16", "bfloat16"):
        split = extracted(encoder, dataset, tmp_path / dtype, storage_dtype=dtype)
        for name in POOLINGS:
            x_NLD = torch.from_numpy(exact.pooled(name)[:]).to(getattr(torch, dtype)).float()
            stored = split.pooled(name)[:].astype(np.float32)
            np.testing.assert_array_equal(stored, x_NLD.numpy())
    for dtype in ("float32", "float16", "bfloat16"):
        assert gaam("verify", tmp_path / dtype, "--recompute", 5).code == 0


def test_an_encoder_whose_rows_know_each_other_reads_each_alone(
    rows: list[str], dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.bert.modeling_bert import BertEmbeddings

    forward = BertEmbeddings.forward

    def mixed(self: Any, *args: Any, **options: Any) -> torch.Tensor:
        x_BTD = forward(self, *args, **options)
        return x_BTD + 0.3 * (x_BTD.mean(1, keepdim=True) - x_BTD.mean((0, 1), keepdim=True))

    monkeypatch.setattr(BertEmbeddings, "forward", mixed)
    encoder = draw_text(*TEXTS["bert"], tmp_path / "encoder")
    split = extracted(encoder, dataset, tmp_path / "cache")
    assert deviation(split, alone("BertModel", encoder, rows, MAX_LENGTH)) < RIGHT


# How often a model has read before; each kind keeps it in another place.


def in_an_attribute(module: Any, length: int) -> int:
    module.count = getattr(module, "count", -1) + 1
    return int(module.count)


def in_a_list(module: Any, length: int) -> int:
    module.__dict__.setdefault("lengths", []).append(length)
    return len(module.lengths) - 1


def in_a_configuration(module: Any, length: int) -> int:
    module.config.count = getattr(module.config, "count", -1) + 1
    return int(module.config.count)


def in_a_buffer(module: Any, length: int) -> int:
    module.token_type_ids[0, -1] += 1  # no row is as long
    return int(module.token_type_ids[0, -1]) - 1


def in_a_new_parameter(module: Any, length: int) -> int:
    weight = module.token_type_embeddings.weight
    module.token_type_embeddings.weight = torch.nn.Parameter(weight * 1.5, requires_grad=False)
    return 0


def since_a_short_row(module: Any, length: int) -> int:
    module.short = getattr(module, "short", False) or length <= 5
    return int(module.short)


def since_a_long_row(module: Any, length: int) -> int:
    before = getattr(module, "longest", 0)
    module.longest = max(before, length)
    return int(before > 17)


def in_the_weights(module: Any, length: int) -> int:
    module.token_type_embeddings.weight.data *= 1.1
    return 0


def in_the_class(module: Any, length: int) -> int:
    type(module).total += 1
    return int(type(module).total)


def nowhere(module: Any, length: int) -> int:
    return int(torch.randint(9, ()))


RENEWED = [in_an_attribute, in_a_list, in_a_configuration, in_a_buffer, in_a_new_parameter,
           since_a_short_row, since_a_long_row]  # fmt: skip
REFUSED = [in_the_weights, in_the_class, nowhere]


@pytest.fixture
def history(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A BERT whose states depend on what it read before."""
    from transformers.models.bert.modeling_bert import BertEmbeddings

    build, forward = BertEmbeddings.__init__, BertEmbeddings.forward

    def built(self: Any, config: Any) -> None:
        build(self, config)
        self.config = config

    def remembering(self: Any, *args: Any, **options: Any) -> torch.Tensor:
        x_BTD = forward(self, *args, **options)
        return x_BTD + 0.1 * request.param(self, x_BTD.shape[1]) * x_BTD.roll(1, -1)

    monkeypatch.setattr(BertEmbeddings, "__init__", built)
    monkeypatch.setattr(BertEmbeddings, "forward", remembering)
    monkeypatch.setattr(BertEmbeddings, "total", 0, raising=False)


@pytest.mark.parametrize("history", RENEWED, indirect=True)
def test_a_model_that_changes_while_it_reads_begins_anew(
    history: None, rows: list[str], dataset: Path, gaam: Callable[..., Any], tmp_path: Path
) -> None:
    encoder = draw_text(*TEXTS["bert"], tmp_path / "encoder")
    split = extracted(encoder, dataset, tmp_path / "cache")
    assert deviation(split, alone("BertModel", encoder, rows, MAX_LENGTH)) < RIGHT
    assert gaam("verify", tmp_path / "cache", "--recompute", 5).code == 0


def is_refused(
    encoder: Path, dataset: Path, out: Path, gaam: Callable[..., Any], longest: int = MAX_LENGTH
) -> bool:
    outcome = gaam("extract", "--encoder", encoder, "--dataset", dataset, "--split", "train",
                   "--out", out, "--max-length", longest, "--device", "cpu")  # fmt: skip
    assert not [path for path in out.rglob("*") if path.is_file()]
    return bool(outcome.code == 2 and str(encoder) in outcome.err)


@pytest.mark.parametrize("history", REFUSED, indirect=True)
def test_a_model_that_cannot_begin_anew_is_refused(
    history: None, dataset: Path, gaam: Callable[..., Any], tmp_path: Path
) -> None:
    encoder = draw_text(*TEXTS["bert"], tmp_path / "encoder")
    assert is_refused(encoder, dataset, tmp_path / "cache", gaam)


NO_STATES: dict[str, tuple[str, dict[str, Any], int]] = {
    # texts of more than 112 tokens are filled up to blocks, which have states too; the model reads
    # as any other does after its first short text
    "big-bird": ("BigBirdModel", SIZES | {"block_size": 16, "num_random_blocks": 1,
                                          "max_position_embeddings": 128}, 128),
    "layers of two sizes": (
        "OPTModel", {"vocab_size": 20, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 3,
                     "num_attention_heads": 4, "word_embed_proj_dim": 16,
                     "do_layer_norm_before": False, "max_position_embeddings": 64}, MAX_LENGTH),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_STATES)
def test_what_has_no_state_for_every_token_is_refused(
    name: str, dataset: Path, gaam: Callable[..., Any], tmp_path: Path
) -> None:
    cls, settings, longest = NO_STATES[name]
    encoder = draw_text(cls, settings, tmp_path / "encoder")
    assert is_refused(encoder, dataset, tmp_path / "cache", gaam, longest)


CONVOLUTIONS = {"conv_dim": (16,) * 7, "num_conv_pos_embeddings": 16,
                "num_conv_pos_embedding_groups": 4}  # fmt: skip
SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
         "intermediate_size": 48}  # fmt: skip
OF_LAYERS = {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True}
SOUNDS: dict[str, tuple[str, dict[str, Any]]] = {
    "over time": ("Wav2Vec2Model", {"feat_extract_norm": "group"}),  # normalised with padding
    "over features": ("Wav2Vec2Model", OF_LAYERS),
    "wavlm": ("WavLMModel", OF_LAYERS),
}


@pytest.mark.parametrize("name", SOUNDS)
def test_states_of_sounds(name: str, tmp_path: Path) -> None:
    cls, settings = SOUNDS[name]
    encoder = draw(cls, SMALL | CONVOLUTIONS | settings, tmp_path / "encoder")
    extractor = transformers.Wav2Vec2FeatureExtractor(
        do_normalize=True, return_attention_mask=settings is OF_LAYERS
    )
    extractor.save_pretrained(encoder)
    folder = tmp_path / "sounds" / "train" / "a"
    folder.mkdir(parents=True)
    rng, runs = np.random.default_rng(0), []
    for number, count in enumerate((800, 16000, 3200, 3200, 9000, 24000, 3300, 9000)):
        wave = rng.normal(scale=0.02, size=count) + 0.3 * np.sin(0.1 * number * np.arange(count))
        soundfile.write(folder / f"{number}.wav", wave, 16000)
        samples, _ = soundfile.read(folder / f"{number}.wav", dtype="float32")
        model = getattr(transformers, cls).from_pretrained(encoder).eval()
        inputs = extractor(samples, sampling_rate=16000, return_tensors="pt")
        with torch.no_grad():
            output = model(inputs["input_values"], output_hidden_states=True)
        runs.append(torch.stack(output.hidden_states[1:])[:, 0])
    split = extracted(encoder, tmp_path / "sounds", tmp_path / "cache", max_length=None)
    assert deviation(split, pooled(runs)) < RIGHT


@pytest.mark.parametrize("kind", ["ViT", "Beit"])
def test_states_of_pictures(kind: str, tmp_path: Path) -> None:
    encoder = draw(f"{kind}Model", SMALL | {"image_size": 32, "patch_size": 8}, tmp_path / "e")
    processor = getattr(transformers, f"{kind}ImageProcessorPil")(size={"height": 32, "width": 32})
    processor.save_pretrained(encoder)
    folder = tmp_path / "pictures" / "train" / "a"
    folder.mkdir(parents=True)
    rng, runs = np.random.default_rng(0), []
    for number, shape in enumerate([(32, 32), (50, 40), (20, 64), (32, 32), (200, 31)]):
        picture = Image.fromarray(rng.integers(0, 256, (*shape, 3), dtype=np.uint8))
        picture.save(folder / f"{number}.png")
        model = getattr(transformers, f"{kind}Model").from_pretrained(encoder).eval()
        with torch.no_grad():
            pixels = processor(images=picture, return_tensors="pt")["pixel_values"]
            output = model(pixel_values=pixels, output_hidden_states=True)
        runs.append(torch.stack(output.hidden_states[1:])[:, 0])
    of_patches = pooled([x_LTD[:, 1:] for x_LTD in runs])
    expected = of_patches | {"first": pooled(runs)["first"]}  # of the class token
    split = extracted(encoder, tmp_path / "pictures", tmp_path / "cache", max_length=None)
    assert deviation(split, expected) < RIGHT
