"""Promise 1: pooled states are ``hidden_states[1:]`` of transformers, of every row alone.

They are held to a model that is loaded anew for every row and reads that row alone, unpadded; and
stored to 1%, or refused. N rows, T positions, L layers, D hidden size.
"""

from __future__ import annotations

import copy
import shutil
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers.models.bert.modeling_bert import BertEmbeddings

import gaam_cache
from tests.contract.conftest import Outcome, extract, run
from tests.tiny import WORDS, build_encoder, random_rows, write_csv

POOLINGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": lambda x_LTD: x_LTD.mean(1),
    "first": lambda x_LTD: x_LTD[:, 0],
    "last": lambda x_LTD: x_LTD[:, -1],
    "max": lambda x_LTD: x_LTD.amax(1),
}
TYPES = ("float16", "bfloat16", "float32")
RIGHT = 1e-5  # of the norm of a layer
LENGTHS = (1, 1, 2, 40, 3, 5, 5, 8, 30, 12, 17, 17, 24, 36, 90)
MAX_LENGTH = 48

SIZES = {"vocab_size": 20, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
         "num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0,
         "bos_token_id": 2, "eos_token_id": 3}  # fmt: skip
T5 = {
    "vocab_size": 20,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 3,
    "num_heads": 4,
}
XLM = {
    "vocab_size": 20,
    "emb_dim": 32,
    "n_layers": 3,
    "n_heads": 4,
    "max_position_embeddings": 64,
}
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
NO_STATES: dict[str, tuple[str, dict[str, Any]]] = {
    # texts of more than 112 tokens are filled up to blocks, which have states too; the model reads
    # as any other does after its first short text
    "big-bird": ("BigBirdModel", SIZES | {"block_size": 16, "num_random_blocks": 1,
                                          "max_position_embeddings": 128}),
    "layers of two sizes": ("OPTModel", {
        "vocab_size": 20, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "word_embed_proj_dim": 16, "do_layer_norm_before": False}),
}  # fmt: skip
"""Not every token has one in every layer."""


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
    return draw(name, settings, build_encoder(folder, "bert"))


RNG = np.random.default_rng(0)
ROWS = [" ".join(RNG.choice(WORDS, size=length)) for length in LENGTHS]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [("ab"[number % 2], row) for number, row in enumerate(ROWS)]
    return write_csv(
        tmp_path_factory.mktemp("states") / "texts" / "train.csv", rows
    ).parent


def pooled(runs: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Of (L, T, D) of every row: pooling -> (N, L, D)."""
    return {
        name: torch.stack([pool(x_LTD.double()) for x_LTD in runs])
        for name, pool in POOLINGS.items()
    }


def loaded(cls: str, folder: Path) -> Any:
    model = (
        getattr(transformers, cls).from_pretrained(folder, dtype=torch.float32).eval()
    )
    return model.get_encoder() if hasattr(model, "decoder") else model


def states_of(model: Any, **inputs: Any) -> torch.Tensor:
    """What transformers makes of one row, (L, T, D), by a copy of a model that has read nothing."""
    with torch.no_grad():
        output = copy.deepcopy(model)(**inputs, output_hidden_states=True)
    return torch.stack(output.hidden_states[1:])[:, 0]


def alone(
    cls: str, folder: Path, rows: Sequence[str], longest: int
) -> dict[str, torch.Tensor]:
    """Every text alone."""
    tokenizer, model = (
        transformers.AutoTokenizer.from_pretrained(folder),
        loaded(cls, folder),
    )
    ids = (
        tokenizer(row, truncation=True, max_length=longest).input_ids for row in rows
    )
    return pooled([states_of(model, input_ids=torch.tensor([one])) for one in ids])


def extracted(encoder: Path, dataset: Path, out: Path, **options: Any) -> Any:
    """The training split of a new cache with all poolings."""
    config: dict[str, Any] = {"storage_dtype": "float32", "max_length": MAX_LENGTH,
                              "batch_tokens": 200}  # fmt: skip
    config |= {"splits": ("train",), "pool": tuple(POOLINGS), "device": "cpu"} | options
    return gaam_cache.open_cache(extract(encoder, dataset, out, **config))["train"]


def deviation(split: Any, expected: dict[str, torch.Tensor]) -> float:
    """The largest, of the norm of its layer."""
    worst = 0.0
    for name, x_NLD in expected.items():
        stored = torch.from_numpy(split.pooled(name)[:]).double()
        assert stored.shape == x_NLD.shape
        worst = max(
            worst, float(((stored - x_NLD).norm(dim=-1) / x_NLD.norm(dim=-1)).max())
        )
    return worst


def check_refused(
    encoder: Path, dataset: Path, out: Path, longest: int = MAX_LENGTH
) -> None:
    outcome = run("extract", "--encoder", encoder, "--dataset", dataset, "--split", "train",
                  "--out", out, "--max-length", longest, "--device", "cpu")  # fmt: skip
    assert (outcome.code, str(encoder) in outcome.err) == (2, True), outcome.err
    assert not [path for path in out.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", TEXTS)
def test_states_of_texts(name: str, dataset: Path, tmp_path: Path) -> None:
    cls, settings = TEXTS[name]
    longest = 28 if name == "big-bird" else MAX_LENGTH
    encoder = draw_text(cls, settings, tmp_path / "encoder")
    expected = alone(cls, encoder, ROWS, longest)
    for tokens in (
        (1, 60, 5000) if name in {"bert", "llama", "convbert", "phi3"} else (200,)
    ):
        out = tmp_path / f"cache {tokens}"
        split = extracted(
            encoder, dataset, out, max_length=longest, batch_tokens=tokens
        )
        assert deviation(split, expected) < RIGHT


@pytest.mark.parametrize("name", NO_STATES)
def test_what_has_no_state_for_every_token_is_refused(
    name: str, tmp_path: Path
) -> None:
    encoder = draw_text(*NO_STATES[name], tmp_path / "encoder")
    rows = [
        ("a", " ".join(WORDS * 8)),
        *zip("abab", ROWS, strict=False),
    ]  # 128 words and fewer
    data = write_csv(tmp_path / "texts" / "train.csv", rows).parent
    check_refused(encoder, data, tmp_path / "cache", 128)


def test_storage_types_round_to_nearest(dataset: Path, tmp_path: Path) -> None:
    encoder = draw_text(*TEXTS["bert"], tmp_path / "encoder")
    exact = extracted(encoder, dataset, tmp_path / "float32")
    assert deviation(exact, alone("BertModel", encoder, ROWS, MAX_LENGTH)) < RIGHT
    for dtype in ("float16", "bfloat16"):
        split = extracted(encoder, dataset, tmp_path / dtype, storage_dtype=dtype)
        for name in POOLINGS:
            x_NLD = (
                torch.from_numpy(exact.pooled(name)[:])
                .to(getattr(torch, dtype))
                .float()
            )
            stored = split.pooled(name)[:].astype(np.float32)
            np.testing.assert_array_equal(stored, x_NLD.numpy())
    for dtype in TYPES:
        assert run("verify", tmp_path / dtype, "--recompute", 5).code == 0


def count(owner: Any) -> int:
    owner.count = getattr(owner, "count", -1) + 1
    return int(owner.count)


HISTORIES: dict[str, Callable[[Any, int], float | None]] = {
    "an attribute": lambda model, length: count(model),
    "a list": lambda model, length: model.read.append(length) or len(model.read) - 1,
    "the configuration": lambda model, length: count(model.config),
    # no row is as long
    "a buffer": lambda model, length: model.token_type_ids[0, -1:].add_(1).item() - 1,
    "a new parameter": lambda model, length: setattr(
        model.token_type_embeddings, "weight",
        torch.nn.Parameter(model.token_type_embeddings.weight * 1.5, requires_grad=False)),
    "a short row": lambda model, length: model.read.append(length) or min(model.read) <= 5,
    "a long row": lambda model, length: (
        model.read.append(length) or max(model.read[:-1], default=0) > 17),
    # these cannot begin anew
    "the weights": lambda model, length: (
        0 * model.token_type_embeddings.weight.data.mul_(1.1).numel()),
    "the class": lambda model, length: count(type(model)),
    "luck": lambda model, length: torch.randint(9, ()).item(),
}  # fmt: skip
"""What states depend on, beside the row: how often a model has read before, and what."""


@pytest.mark.parametrize("name", [*HISTORIES, "the other rows"])
def test_what_depends_on_more_than_its_row_begins_anew_or_is_refused(
    name: str, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, forward = BertEmbeddings.__init__, BertEmbeddings.forward

    def built(self: Any, config: Any) -> None:
        build(self, config)
        self.config, self.read = config, []

    def read(self: Any, *args: Any, **options: Any) -> torch.Tensor:
        x_BTD = forward(self, *args, **options)
        if name in HISTORIES:
            return x_BTD + 0.1 * (
                HISTORIES[name](self, x_BTD.shape[1]) or 0
            ) * x_BTD.roll(1, -1)
        return x_BTD + 0.3 * (
            x_BTD.mean(1, keepdim=True) - x_BTD.mean((0, 1), keepdim=True)
        )

    monkeypatch.setattr(BertEmbeddings, "__init__", built)
    monkeypatch.setattr(BertEmbeddings, "forward", read)
    monkeypatch.setattr(BertEmbeddings, "count", 0, raising=False)
    encoder, out = draw_text(*TEXTS["bert"], tmp_path / "encoder"), tmp_path / "cache"
    if name in ("the weights", "the class", "luck"):
        check_refused(encoder, dataset, out)
    else:
        split = extracted(encoder, dataset, out)
        assert deviation(split, alone("BertModel", encoder, ROWS, MAX_LENGTH)) < RIGHT
        assert run("verify", out, "--recompute", 5).code == 0


CONVOLUTIONS = {"conv_dim": (16,) * 7, "num_conv_pos_embeddings": 16,
                "num_conv_pos_embedding_groups": 4}  # fmt: skip
SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
         "intermediate_size": 48}  # fmt: skip
OF_LAYERS = {
    "feat_extract_norm": "layer",
    "do_stable_layer_norm": True,
    "conv_bias": True,
}
SOUNDS: dict[str, tuple[str, dict[str, Any]]] = {
    "over time": (
        "Wav2Vec2Model",
        {"feat_extract_norm": "group"},
    ),  # normalised with padding
    "over features": ("Wav2Vec2Model", OF_LAYERS),
    "wavlm": ("WavLMModel", OF_LAYERS),
}


@pytest.mark.parametrize("name", SOUNDS)
def test_states_of_sounds(name: str, tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")  # the rest of the file needs none
    cls, settings = SOUNDS[name]
    encoder = draw(cls, SMALL | CONVOLUTIONS | settings, tmp_path / "encoder")
    extractor = transformers.Wav2Vec2FeatureExtractor(
        do_normalize=True, return_attention_mask=settings is OF_LAYERS
    )
    extractor.save_pretrained(encoder)
    folder = tmp_path / "sounds" / "train" / "a"
    folder.mkdir(parents=True)
    rng, runs, model = np.random.default_rng(0), [], loaded(cls, encoder)
    for number, count in enumerate((800, 16000, 3200, 3200, 9000, 24000, 3300, 9000)):
        wave = rng.normal(scale=0.02, size=count) + 0.3 * np.sin(
            0.1 * number * np.arange(count)
        )
        soundfile.write(folder / f"{number}.wav", wave, 16000)
        samples, _ = soundfile.read(folder / f"{number}.wav", dtype="float32")
        inputs = extractor(samples, sampling_rate=16000, return_tensors="pt")
        runs.append(states_of(model, input_values=inputs["input_values"]))
    split = extracted(encoder, tmp_path / "sounds", tmp_path / "cache", max_length=None)
    assert deviation(split, pooled(runs)) < RIGHT


@pytest.mark.parametrize("kind", ["ViT", "Beit"])
def test_states_of_pictures(kind: str, tmp_path: Path) -> None:
    encoder = draw(
        f"{kind}Model", SMALL | {"image_size": 32, "patch_size": 8}, tmp_path / "e"
    )
    name = f"{kind}ImageProcessorPil"
    if not hasattr(transformers, name):
        pytest.skip("pictures need transformers 5.4: earlier ones lack " + name)
    processor = getattr(transformers, name)(size={"height": 32, "width": 32})
    processor.save_pretrained(encoder)
    folder = tmp_path / "pictures" / "train" / "a"
    folder.mkdir(parents=True)
    rng, runs, model = np.random.default_rng(0), [], loaded(f"{kind}Model", encoder)
    for number, shape in enumerate([(32, 32), (50, 40), (20, 64), (32, 32), (200, 31)]):
        picture = Image.fromarray(rng.integers(0, 256, (*shape, 3), dtype=np.uint8))
        picture.save(folder / f"{number}.png")
        inputs = processor(images=picture, return_tensors="pt")
        runs.append(states_of(model, pixel_values=inputs["pixel_values"]))
    of_patches = pooled([x_LTD[:, 1:] for x_LTD in runs])
    expected = of_patches | {"first": pooled(runs)["first"]}  # of the class token
    split = extracted(
        encoder, tmp_path / "pictures", tmp_path / "cache", max_length=None
    )
    assert deviation(split, expected) < RIGHT


NUMBERS = (1e-9, 1e-7, 1e-6, 1e-4, 1.0, 7e4)
LEAST_ROUNDINGS, MOST_LOST = 3.0, 0.5
"""By how many roundings rows must differ in every layer, and which share of the features that tell
them apart rounding may take away: one that it moves by half of its spread is gone."""


def is_held(exact_NLD: np.ndarray, stored: str) -> bool:
    """Whether a storage type keeps what tells rows apart, in every layer."""
    exact = torch.tensor(exact_NLD, dtype=torch.float64)
    kept = exact.float().to(getattr(torch, stored)).double()
    if not bool(torch.isfinite(kept).all()):
        return False
    spread_LD = exact.std(0, correction=0)
    rounding_LD = (kept - exact).std(0, correction=0)
    for spread_D, rounding_D in zip(spread_LD, rounding_LD, strict=True):
        if spread_D.norm() < LEAST_ROUNDINGS * rounding_D.norm():
            return False
        telling_D = spread_D >= 0.1 * spread_D[spread_D > 0].median()
        lost_D = telling_D & (rounding_D > 0.5 * spread_D)
        if lost_D.sum() > MOST_LOST * telling_D.sum():
            return False
    return True


def check_outcome(
    outcome: Outcome, out: Path, exact_NLD: np.ndarray, *, held: bool
) -> None:
    assert outcome.code == (0 if held else 1), outcome.err
    if held:
        assert gaam_cache.open_cache(out)["train"].embeddings.shape == exact_NLD.shape
    else:
        assert all(
            text in outcome.err for text in ("layer 2", "row ", "--storage-dtype")
        )
        assert not list(out.glob("shards/*"))


def check_written(
    out: Path, stored: Any, states: Any, exact_NLD: np.ndarray, *, held: bool
) -> None:
    splits = {"train": (np.ones_like(exact_NLD), np.arange(len(exact_NLD)) % 2)}
    with nullcontext() if held else pytest.raises(gaam_cache.GaamError):
        gaam_cache.write(out, splits | {"test": (states, None)}, storage_dtype=stored)


@pytest.mark.parametrize("size", NUMBERS)
@pytest.mark.parametrize("stored", TYPES)
def test_imported_and_written_states_are_held_or_refused(
    stored: Any, size: float, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    exact_NLD = rng.normal(
        size=(40, 3, 16)
    )  # the second layer: half to all of a size, and zeros
    exact_NLD[:, 1] = (
        size * rng.uniform(0.5, 1, size=(40, 16)) * rng.choice([-1, 0, 1], (40, 16))
    )
    held = is_held(exact_NLD, stored)
    assert held or stored == "float16"
    for given in ("float32", "float64"):
        file, out = tmp_path / f"{given}.npz", tmp_path / given
        np.savez(
            file, train_states=exact_NLD.astype(given), train_labels=np.arange(40) % 2
        )
        outcome = run("import", file, "--out", out, "--storage-dtype", stored)
        check_outcome(outcome, out, exact_NLD, held=held)
    layers = [np.ascontiguousarray(exact_NLD[:, layer]) for layer in range(3)]
    check_written(
        tmp_path / "tensor", stored, torch.tensor(exact_NLD), exact_NLD, held=held
    )
    check_written(tmp_path / "layers", stored, layers, exact_NLD, held=held)


@pytest.mark.parametrize("spread", [0.0, 0.4], ids=["constant", "differs"])
def test_a_large_feature_that_rounding_takes_away_is_told(
    spread: float, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(80, 2, 16)).astype(np.float32)
    states[:, 1, 3] = 3000 + spread * rng.choice([-1, 1], 80)
    splits = {"train": (states, np.arange(80) % 2)}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gaam_cache.write(tmp_path / "cache", splits, storage_dtype="float16")
    messages = [str(one.message) for one in told if "float16" in str(one.message)]
    assert bool(messages) == bool(spread)
    assert all("layer 2" in message for message in messages)


@pytest.mark.parametrize("size", NUMBERS)
def test_extracted_states_are_held_or_refused(
    size: float, encoder: Path, tmp_path: Path
) -> None:
    rows = [("a", "goal"), ("b", "bank"), *random_rows(22, 1)]
    data = write_csv(tmp_path / "few" / "train.csv", rows).parent
    folder = Path(shutil.copytree(encoder, tmp_path / "encoder"))
    tensors = load_file(file := folder / "model.safetensors")
    norm, sign_D = (
        "encoder.layer.1.output.LayerNorm",
        torch.tensor([1.0, -1.0]).repeat(16),
    )
    tensors[f"{norm}.weight"] = torch.full((32,), 0.5 * size)
    tensors[f"{norm}.bias"] = size * torch.linspace(0.5, 1, 32) * sign_D
    save_file(tensors, file, {"format": "pt"})
    exact_NLD = alone("BertModel", folder, [text for _, text in rows], 64)[
        "mean"
    ].numpy()[:, :2]
    for stored in TYPES:
        out = tmp_path / stored
        outcome = run("extract", "--encoder", folder, "--dataset", data, "--split", "train",
                      "--layers", "1-2", "--storage-dtype", stored, "--out", out)  # fmt: skip
        check_outcome(outcome, out, exact_NLD, held=is_held(exact_NLD, stored))
