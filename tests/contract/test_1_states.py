"""Promise 1: pooled states are ``hidden_states[1:]`` of transformers, row by row.

They are held to a model that is loaded anew for every row and reads that row alone,
unpadded; and stored to 1%, or refused. N rows, T positions, L layers, D hidden size.
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
TOLERANCE = 1e-5
"""Of the norm of a layer."""
LENGTHS = (1, 1, 2, 40, 3, 5, 5, 8, 30, 12, 17, 17, 24, 36, 90)
MAX_LENGTH = 48

SIZES = {
    "vocab_size": 20,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
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
XLNET = {"vocab_size": 20, "d_model": 32, "n_layer": 3, "n_head": 4}
GPT2 = {"vocab_size": 20, "n_embd": 32, "n_layer": 3, "n_head": 4}
MAMBA = {"vocab_size": 20, "hidden_size": 32, "num_hidden_layers": 3}
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 16,
}
PHI3 = SIZES | {
    "rope_parameters": LONG_ROPE,
    "original_max_position_embeddings": 16,
}
BART = {
    "vocab_size": 20,
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
MOBILEBERT = SIZES | {"embedding_size": 32, "intra_bottleneck_size": 16}

TEXT_ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", SIZES),
    # positions begin behind that of padding
    "roberta": ("RobertaModel", SIZES),
    # one layer for all
    "albert": ("AlbertModel", SIZES | {"embedding_size": 16}),
    # no mask for convolutions
    "convbert": ("ConvBertModel", SIZES | {"embedding_size": 32}),
    "mobilebert": ("MobileBertModel", MOBILEBERT),
    # makes masks of its own
    "xlm": ("XLMModel", XLM | {"pad_index": 0}),
    "xlnet": ("XLNetModel", XLNET),
    # fills up to windows
    "longformer": ("LongformerModel", SIZES | {"attention_window": 8}),
    "llama": ("LlamaModel", SIZES | {"num_key_value_heads": 2}),
    "gpt2": ("GPT2Model", GPT2),
    # switches with the longest
    "phi3": ("Phi3Model", PHI3),
    "mamba": ("MambaModel", MAMBA),
    "t5": ("T5Model", T5),
    "mt5": ("MT5Model", T5),
    "umt5": ("UMT5Model", T5),
    "bart": ("BartModel", BART),
    "t5-encoder": ("T5EncoderModel", T5),
    "mt5-encoder": ("MT5EncoderModel", T5),
    "umt5-encoder": ("UMT5EncoderModel", T5),
    # leaves its sparse attention for good at a text of 28 tokens or fewer
    "big-bird": ("BigBirdModel", SIZES | {"block_size": 4, "num_random_blocks": 1}),
}
BIG_BLOCKS = SIZES | {
    "block_size": 16,
    "num_random_blocks": 1,
    "max_position_embeddings": 128,
}
OPT = {
    "vocab_size": 20,
    "hidden_size": 32,
    "ffn_dim": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "word_embed_proj_dim": 16,
    "do_layer_norm_before": False,
}
NO_STATES: dict[str, tuple[str, dict[str, Any]]] = {
    # Texts of more than 112 tokens are filled up to blocks, which have states too; the
    # model reads as any other does after its first short text.
    "big-bird": ("BigBirdModel", BIG_BLOCKS),
    "layers of two sizes": ("OPTModel", OPT),
}
"""Encoders that have no state in every layer for every token."""


def save_random(name: str, settings: dict[str, Any], folder: Path) -> Path:
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


def save_random_text_encoder(name: str, settings: dict[str, Any], folder: Path) -> Path:
    """The same with a tokenizer of words."""
    return save_random(name, settings, build_encoder(folder, "bert"))


def draw_texts() -> list[str]:
    """Texts of these lengths in words, the same at every call."""
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, size=length)) for length in LENGTHS]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("states") / "texts"
    rows = [("ab"[number % 2], text) for number, text in enumerate(draw_texts())]
    write_csv(folder / "train.csv", rows)
    return folder


Pooled = dict[str, torch.Tensor]
"""Pooling -> states (N, L, D)."""


def pool_rows(states: Sequence[torch.Tensor]) -> Pooled:
    """Every pooling of the states (L, T, D) of every row."""
    return {
        name: torch.stack([pool(x_LTD.double()) for x_LTD in states])
        for name, pool in POOLINGS.items()
    }


def load_model(cls: str, folder: Path) -> Any:
    model_class = getattr(transformers, cls)
    model = model_class.from_pretrained(folder, dtype=torch.float32).eval()
    return model.get_encoder() if hasattr(model, "decoder") else model


def states_by_transformers(model: Any, **inputs: Any) -> torch.Tensor:
    """The states (L, T, D) of one row, by a copy of a model that has read nothing."""
    with torch.no_grad():
        output = copy.deepcopy(model)(**inputs, output_hidden_states=True)
    return torch.stack(output.hidden_states[1:])[:, 0]


def texts_by_transformers(
    cls: str, folder: Path, texts: Sequence[str], longest: int
) -> Pooled:
    """The pooled states of every text alone."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = load_model(cls, folder)
    states: list[torch.Tensor] = []
    for text in texts:
        ids = tokenizer(text, truncation=True, max_length=longest).input_ids
        states.append(states_by_transformers(model, input_ids=torch.tensor([ids])))
    return pool_rows(states)


def extract_split(encoder: Path, dataset: Path, out: Path, **options: Any) -> Any:
    """The training split of a new cache with all poolings."""
    config: dict[str, Any] = {
        "splits": ("train",),
        "pool": tuple(POOLINGS),
        "storage_dtype": "float32",
        "max_length": MAX_LENGTH,
        "batch_tokens": 200,
        "device": "cpu",
    }
    cache = extract(encoder, dataset, out, **(config | options))
    return gaam_cache.open_cache(cache)["train"]


def deviation(split: Any, expected: Pooled) -> float:
    """The largest error of a state, relative to its norm."""
    worst = 0.0
    for name, x_NLD in expected.items():
        stored_NLD = torch.from_numpy(split.pooled(name)[:]).double()
        assert stored_NLD.shape == x_NLD.shape
        error_NL = (stored_NLD - x_NLD).norm(dim=-1) / x_NLD.norm(dim=-1)
        worst = max(worst, float(error_NL.max()))
    return worst


def check_refused(
    encoder: Path, dataset: Path, out: Path, longest: int = MAX_LENGTH
) -> None:
    """Check that an encoder is refused by its name, and that nothing is written."""
    outcome = run(
        *("extract", "--encoder", encoder, "--dataset", dataset, "--split", "train"),
        *("--out", out, "--max-length", longest, "--device", "cpu"),
    )
    assert outcome.code == 2, outcome.err
    assert str(encoder) in outcome.err
    assert not [path for path in out.rglob("*") if path.is_file()]


SEVERAL_BATCH_SIZES = {"bert", "llama", "convbert", "phi3"}


@pytest.mark.parametrize("name", TEXT_ENCODERS)
def test_states_of_texts(name: str, dataset: Path, tmp_path: Path) -> None:
    cls, settings = TEXT_ENCODERS[name]
    longest = 28 if name == "big-bird" else MAX_LENGTH
    encoder = save_random_text_encoder(cls, settings, tmp_path / "encoder")
    expected = texts_by_transformers(cls, encoder, draw_texts(), longest)
    batch_sizes = (1, 60, 5000) if name in SEVERAL_BATCH_SIZES else (200,)
    for batch_tokens in batch_sizes:
        split = extract_split(
            encoder,
            dataset,
            tmp_path / f"cache {batch_tokens}",
            max_length=longest,
            batch_tokens=batch_tokens,
        )
        assert deviation(split, expected) < TOLERANCE, batch_tokens


@pytest.mark.parametrize("name", NO_STATES)
def test_an_encoder_without_a_state_for_every_token_is_refused(
    name: str, tmp_path: Path
) -> None:
    encoder = save_random_text_encoder(*NO_STATES[name], tmp_path / "encoder")
    # one text of 128 words, and four of fewer
    rows = [("a", " ".join(WORDS * 8)), *zip("abab", draw_texts(), strict=False)]
    write_csv(tmp_path / "texts" / "train.csv", rows)
    check_refused(encoder, tmp_path / "texts", tmp_path / "cache", 128)


def save_bert(folder: Path) -> Path:
    return save_random_text_encoder(*TEXT_ENCODERS["bert"], folder)


def check_bert(split: Any, encoder: Path) -> None:
    """Check the states of all texts by those of transformers."""
    expected = texts_by_transformers("BertModel", encoder, draw_texts(), MAX_LENGTH)
    assert deviation(split, expected) < TOLERANCE


def test_storage_types_round_to_nearest(dataset: Path, tmp_path: Path) -> None:
    encoder = save_bert(tmp_path / "encoder")
    exact = extract_split(encoder, dataset, tmp_path / "float32")
    check_bert(exact, encoder)
    for dtype in ("float16", "bfloat16"):
        out = tmp_path / dtype
        split = extract_split(encoder, dataset, out, storage_dtype=dtype)
        for name in POOLINGS:
            exact_NLD = torch.from_numpy(exact.pooled(name)[:])
            rounded_NLD = exact_NLD.to(getattr(torch, dtype)).float()
            stored_NLD = split.pooled(name)[:].astype(np.float32)
            np.testing.assert_array_equal(stored_NLD, rounded_NLD.numpy(), dtype)
    for dtype in TYPES:
        assert run("verify", tmp_path / dtype, "--recompute", 5).code == 0, dtype


History = Callable[[Any, int], float]
"""A share of a state that depends on a model, and on the length of the row it reads"""


def count_calls(owner: Any) -> int:
    owner.count = getattr(owner, "count", -1) + 1
    return int(owner.count)


def calls_in_an_attribute(model: Any, length: int) -> float:
    return count_calls(model)


def calls_in_a_list(model: Any, length: int) -> float:
    model.read.append(length)
    return len(model.read) - 1


def calls_in_the_configuration(model: Any, length: int) -> float:
    return count_calls(model.config)


def calls_in_a_buffer(model: Any, length: int) -> float:
    """In its last place: no row is as long."""
    return float(model.token_type_ids[0, -1:].add_(1).item() - 1)


def a_new_parameter(model: Any, length: int) -> float:
    weight = model.token_type_embeddings.weight * 1.5
    parameter = torch.nn.Parameter(weight, requires_grad=False)
    model.token_type_embeddings.weight = parameter
    return 0


def a_short_row_before(model: Any, length: int) -> float:
    model.read.append(length)
    return min(model.read) <= 5


def a_long_row_before(model: Any, length: int) -> float:
    model.read.append(length)
    return max(model.read[:-1], default=0) > 17


def changed_weights(model: Any, length: int) -> float:
    model.token_type_embeddings.weight.data.mul_(1.1)
    return 0


def calls_in_the_class(model: Any, length: int) -> float:
    return count_calls(type(model))


def luck(model: Any, length: int) -> float:
    return float(torch.randint(9, ()).item())


HISTORIES: dict[str, History] = {
    "an attribute": calls_in_an_attribute,
    "a list": calls_in_a_list,
    "the configuration": calls_in_the_configuration,
    "a buffer": calls_in_a_buffer,
    "a new parameter": a_new_parameter,
    "a short row": a_short_row_before,
    "a long row": a_long_row_before,
}
"""States depend on the row, and on how often and what a model has read before."""
LASTING_HISTORIES: dict[str, History] = {
    "the weights": changed_weights,
    "the class": calls_in_the_class,
    "luck": luck,
}
"""Those that a copy of the model shares: it cannot begin anew."""


def change_bert(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Any, torch.Tensor], torch.Tensor]
) -> None:
    """Change the embeddings (B, T, D) of every BERT by a function."""
    initialise = BertEmbeddings.__init__
    forward = BertEmbeddings.forward

    def initialise_and_remember(self: Any, config: Any) -> None:
        initialise(self, config)
        self.config = config
        self.read = []

    def read(self: Any, *args: Any, **options: Any) -> torch.Tensor:
        return change(self, forward(self, *args, **options))

    monkeypatch.setattr(BertEmbeddings, "__init__", initialise_and_remember)
    monkeypatch.setattr(BertEmbeddings, "forward", read)
    monkeypatch.setattr(BertEmbeddings, "count", 0, raising=False)


def depend_on(
    history: History,
) -> Callable[[Any, torch.Tensor], torch.Tensor]:
    """A change of embeddings by what a model has read before."""

    def change(model: Any, x_BTD: torch.Tensor) -> torch.Tensor:
        share = 0.1 * history(model, x_BTD.shape[1])
        return x_BTD + share * x_BTD.roll(1, -1)

    return change


def depend_on_other_rows(model: Any, x_BTD: torch.Tensor) -> torch.Tensor:
    mean_B1D = x_BTD.mean(1, keepdim=True)
    mean_11D = x_BTD.mean((0, 1), keepdim=True)
    return x_BTD + 0.3 * (mean_B1D - mean_11D)


def check_extracted_bert(dataset: Path, folder: Path) -> None:
    encoder = save_bert(folder / "encoder")
    split = extract_split(encoder, dataset, folder / "cache")
    check_bert(split, encoder)
    assert run("verify", folder / "cache", "--recompute", 5).code == 0


@pytest.mark.parametrize("name", HISTORIES)
def test_a_model_that_depends_on_what_it_has_read_begins_anew(
    name: str, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_bert(monkeypatch, depend_on(HISTORIES[name]))
    check_extracted_bert(dataset, tmp_path)


@pytest.mark.parametrize("name", LASTING_HISTORIES)
def test_a_model_that_depends_on_what_it_has_read_for_good_is_refused(
    name: str, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_bert(monkeypatch, depend_on(LASTING_HISTORIES[name]))
    check_refused(save_bert(tmp_path / "encoder"), dataset, tmp_path / "cache")


def test_rows_of_a_model_that_depends_on_the_other_rows_are_read_alone(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_bert(monkeypatch, depend_on_other_rows)
    check_extracted_bert(dataset, tmp_path)


SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
CONVOLUTIONS = {
    "conv_dim": (16,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
LAYER_NORM = {
    "feat_extract_norm": "layer",
    "do_stable_layer_norm": True,
    "conv_bias": True,
}
SOUND_ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    # normalised with padding
    "over time": ("Wav2Vec2Model", {"feat_extract_norm": "group"}),
    "over features": ("Wav2Vec2Model", LAYER_NORM),
    "wavlm": ("WavLMModel", LAYER_NORM),
}
SAMPLES = (800, 16000, 3200, 3200, 9000, 24000, 3300, 9000)


@pytest.mark.parametrize("name", SOUND_ENCODERS)
def test_states_of_sounds(name: str, tmp_path: Path) -> None:
    # the rest of the file does not need it
    soundfile = pytest.importorskip("soundfile")
    cls, settings = SOUND_ENCODERS[name]
    encoder = save_random(cls, SMALL | CONVOLUTIONS | settings, tmp_path / "encoder")
    extractor = transformers.Wav2Vec2FeatureExtractor(
        do_normalize=True, return_attention_mask=settings is LAYER_NORM
    )
    extractor.save_pretrained(encoder)
    model = load_model(cls, encoder)
    folder = tmp_path / "sounds" / "train" / "a"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    states: list[torch.Tensor] = []
    for number, count in enumerate(SAMPLES):
        noise = rng.normal(scale=0.02, size=count)
        wave = noise + 0.3 * np.sin(0.1 * number * np.arange(count))
        file = folder / f"{number}.wav"
        soundfile.write(file, wave, 16000)
        samples, _ = soundfile.read(file, dtype="float32")
        inputs = extractor(samples, sampling_rate=16000, return_tensors="pt")
        row_states = states_by_transformers(model, input_values=inputs["input_values"])
        states.append(row_states)
    split = extract_split(
        encoder, tmp_path / "sounds", tmp_path / "cache", max_length=None
    )
    assert deviation(split, pool_rows(states)) < TOLERANCE


@pytest.mark.parametrize("kind", ["ViT", "Beit"])
def test_states_of_pictures(kind: str, tmp_path: Path) -> None:
    sizes = SMALL | {"image_size": 32, "patch_size": 8}
    encoder = save_random(f"{kind}Model", sizes, tmp_path / "e")
    name = f"{kind}ImageProcessorPil"
    if not hasattr(transformers, name):
        pytest.skip("pictures need transformers 5.4: earlier ones lack " + name)
    processor = getattr(transformers, name)(size={"height": 32, "width": 32})
    processor.save_pretrained(encoder)
    model = load_model(f"{kind}Model", encoder)
    folder = tmp_path / "pictures" / "train" / "a"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    states: list[torch.Tensor] = []
    for number, shape in enumerate([(32, 32), (50, 40), (20, 64), (32, 32), (200, 31)]):
        picture = Image.fromarray(rng.integers(0, 256, (*shape, 3), dtype=np.uint8))
        picture.save(folder / f"{number}.png")
        inputs = processor(images=picture, return_tensors="pt")
        row_states = states_by_transformers(model, pixel_values=inputs["pixel_values"])
        states.append(row_states)
    # the first state is of the class token, the others are of patches
    expected = pool_rows([x_LTD[:, 1:] for x_LTD in states])
    expected["first"] = pool_rows(states)["first"]
    split = extract_split(
        encoder, tmp_path / "pictures", tmp_path / "cache", max_length=None
    )
    assert deviation(split, expected) < TOLERANCE


SIZES_OF_STATES = (1e-9, 1e-7, 1e-6, 1e-4, 1.0, 7e4)
LEAST_ROUNDINGS = 3.0
"""By how many roundings rows must differ in every layer."""
MOST_LOST = 0.5
"""The share of the features that tell rows apart that rounding may take away.

A feature that rounding moves by half of its spread is gone.
"""


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
    """Check that a command wrote the states where they are held, or refused a layer."""
    if held:
        assert outcome.code == 0, outcome.err
        assert gaam_cache.open_cache(out)["train"].embeddings.shape == exact_NLD.shape
        return
    assert outcome.code == 1, outcome.err
    for text in ("layer 2", "row ", "--storage-dtype"):
        assert text in outcome.err
    assert not list(out.glob("shards/*"))


def draw_states(size: float) -> np.ndarray:
    """States whose second layer has values from half to all of a size, and zeros."""
    rng = np.random.default_rng(0)
    x_NLD = rng.normal(size=(40, 3, 16))
    sizes_ND = size * rng.uniform(0.5, 1, size=(40, 16))
    x_NLD[:, 1] = sizes_ND * rng.choice([-1, 0, 1], (40, 16))
    return x_NLD


@pytest.mark.parametrize("size", SIZES_OF_STATES)
@pytest.mark.parametrize("storage_dtype", TYPES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_imported_states_are_held_or_refused(
    dtype: str, storage_dtype: str, size: float, tmp_path: Path
) -> None:
    exact_NLD = draw_states(size)
    held = is_held(exact_NLD, storage_dtype)
    assert held or storage_dtype == "float16"
    file = tmp_path / "states.npz"
    out = tmp_path / "cache"
    states = exact_NLD.astype(dtype)
    np.savez(file, train_states=states, train_labels=np.arange(40) % 2)
    outcome = run("import", file, "--out", out, "--storage-dtype", storage_dtype)
    check_outcome(outcome, out, exact_NLD, held=held)


@pytest.mark.parametrize("size", SIZES_OF_STATES)
@pytest.mark.parametrize("storage_dtype", TYPES)
@pytest.mark.parametrize("given_as", ["tensor", "layers"])
def test_written_states_are_held_or_refused(
    given_as: str, storage_dtype: Any, size: float, tmp_path: Path
) -> None:
    exact_NLD = draw_states(size)
    states: Any = torch.tensor(exact_NLD)
    if given_as == "layers":
        states = [np.ascontiguousarray(exact_NLD[:, layer]) for layer in range(3)]
    train_split = (np.ones_like(exact_NLD), np.arange(len(exact_NLD)) % 2)
    splits = {"train": train_split, "test": (states, None)}
    held = is_held(exact_NLD, storage_dtype)
    with nullcontext() if held else pytest.raises(gaam_cache.GaamError):
        gaam_cache.write(tmp_path / "cache", splits, storage_dtype=storage_dtype)


@pytest.mark.parametrize("spread", [0.0, 0.4], ids=["constant", "differs"])
def test_a_large_feature_that_rounding_takes_away_is_told(
    spread: float, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(80, 2, 16)).astype(np.float32)
    states[:, 1, 3] = 3000 + spread * rng.choice([-1, 1], 80)
    splits = {"train": (states, np.arange(80) % 2)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gaam_cache.write(tmp_path / "cache", splits, storage_dtype="float16")
    messages = [str(warning.message) for warning in caught]
    about_rounding = [message for message in messages if "float16" in message]
    assert bool(about_rounding) == bool(spread)
    assert all("layer 2" in message for message in about_rounding)


def scale_second_layer(encoder: Path, size: float, folder: Path) -> Path:
    """A copy of an encoder whose second layer has states of about a size."""
    shutil.copytree(encoder, folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    norm = "encoder.layer.1.output.LayerNorm"
    sign_D = torch.tensor([1.0, -1.0]).repeat(16)
    tensors[f"{norm}.weight"] = torch.full((32,), 0.5 * size)
    tensors[f"{norm}.bias"] = size * torch.linspace(0.5, 1, 32) * sign_D
    save_file(tensors, file, {"format": "pt"})
    return folder


@pytest.mark.parametrize("size", SIZES_OF_STATES)
def test_extracted_states_are_held_or_refused(
    size: float, encoder: Path, tmp_path: Path
) -> None:
    rows = [("a", "goal"), ("b", "bank"), *random_rows(22, 1)]
    data = write_csv(tmp_path / "few" / "train.csv", rows).parent
    folder = scale_second_layer(encoder, size, tmp_path / "encoder")
    texts = [text for _, text in rows]
    exact = texts_by_transformers("BertModel", folder, texts, 64)
    exact_NLD = exact["mean"].numpy()[:, :2]
    for storage_dtype in TYPES:
        out = tmp_path / storage_dtype
        outcome = run(
            *("extract", "--encoder", folder, "--dataset", data, "--split", "train"),
            *("--layers", "1-2", "--storage-dtype", storage_dtype, "--out", out),
        )
        held = is_held(exact_NLD, storage_dtype)
        check_outcome(outcome, out, exact_NLD, held=held)
