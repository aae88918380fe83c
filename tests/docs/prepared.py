"""Small stand-ins for what the pages use: data sets, encoders and trainings."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import transformers
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing

from gaam_cache.encoders import _located
from gaam_decoder.config import TrainConfig
from tests.cache.encoders.audio import sounds
from tests.cache.encoders.vision import models
from tests.tiny import SPECIAL_TOKENS, WORDS, write_csv

CLASSES = ("card", "top-up", "transfer")
NUM_ROWS = 60
NUM_LAYERS = 6
COMMIT = "0" * 40
BYTES = [*SPECIAL_TOKENS, *sorted(ByteLevel.alphabet())]
SMALL: dict[str, Any] = {
    "vocab_size": len(BYTES),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": 4,
}
TEMPLATE = (
    "{% for m in messages %}[CLS] {{ m['role'] }} {{ m['content'] }} [SEP]{% endfor %}"
)


def _texts(count: int, seed: int) -> list[str]:
    """Different texts of known words."""
    draw = random.Random(seed)
    # keys keep their order, which that of a set does not: it differs between processes
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts[" ".join(draw.choices(WORDS, k=draw.randint(3, 9)))] = None
    return list(texts)


def write_messages(folder: Path) -> None:
    # every text begins with the name of its class, three times: a page takes what the
    # report recommends, and of noise nothing may be recommended
    rows = []
    for number, text in enumerate(_texts(NUM_ROWS, 0)):
        name = CLASSES[number % 3]
        rows.append((f"{name} {name} {name} {text}", name))
    write_csv(folder / "messages.csv", rows, "text,label")


def write_reviews(folder: Path) -> None:
    texts = _texts(102, 1)
    labels = ("negative", "positive")
    rows = [(text, labels[i % 2], f"a{i % 9}") for i, text in enumerate(texts)]
    write_csv(folder / "reviews" / "train.csv", rows[:60], "text,label,author")
    write_csv(folder / "reviews" / "test.csv", rows[60:90], "text,label,author")
    write_csv(folder / "reviews" / "validation.csv", rows[90:], "text,label,author")


def write_sounds(folder: Path) -> None:
    rng = np.random.default_rng(2)
    rows = []
    for number in range(NUM_ROWS):
        label, speaker = ("no", "stop", "yes")[number % 3], f"s{number % 10}"
        name = f"sounds/{label}/{speaker}-{number}.wav"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / name, 0.1 * rng.normal(size=2000), 16000)
        rows.append((name, label, speaker))
    write_csv(folder / "sounds.csv", rows, "file,label,speaker")


def write_pictures(folder: Path) -> None:
    rng = np.random.default_rng(3)
    for number in range(NUM_ROWS):
        file = folder / "pictures" / ("bird", "car", "ship")[number % 3]
        file.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file / f"{number}.png")


def write_arrays(folder: Path) -> None:
    rng = np.random.default_rng(4)
    for name, rows in (("train", 60), ("test", 30)):
        states = rng.normal(size=(rows, NUM_LAYERS, 16)).astype(np.float32)
        labels = np.arange(rows) % 3
        np.savez(folder / f"{name}.npz", embeddings=states, labels=labels)


def write_ratings(folder: Path) -> None:
    rows = [(text, f"{len(text) / 7:.2f}") for text in _texts(NUM_ROWS, 5)]
    write_csv(folder / "ratings.csv", rows, "text,score")


def write_intents(folder: Path) -> None:
    names = ("deny", "greet", "refund")
    lines = []
    for number, text in enumerate(_texts(NUM_ROWS, 6)):
        intents = [name for bit, name in enumerate(names) if number >> bit & 1]
        lines.append(json.dumps({"text": text, "intents": intents}))
    (folder / "intents.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


WRITERS = {
    "messages": write_messages,
    "reviews": write_reviews,
    "sounds": write_sounds,
    "pictures": write_pictures,
    "npz": write_arrays,
    "ratings": write_ratings,
    "intents": write_intents,
}
"""Word that a page names a file by -> the function that writes the file."""


@dataclass(frozen=True)
class TinyEncoders:
    """Random encoders that stand in for those that the pages name."""

    texts: Path
    chats: Path
    sounds: Path
    pictures: Path

    def find(self, name: str) -> Path:
        """The folder of the encoder that stands in for an id on the hub."""
        name = name.lower()
        if any(word in name for word in ("whisper", "wavlm", "hubert", "wav2vec")):
            return self.sounds
        if any(word in name for word in ("vit", "dino", "clip", "deit")):
            return self.pictures
        if any(word in name for word in ("llama", "lm", "qwen", "mistral")):
            return self.chats
        return self.texts


def _build_text_encoder(folder: Path, config: Any) -> Path:
    """Save a random encoder that reads texts byte by byte: it knows every word."""
    models.save_model(config, folder)
    vocabulary = {token: i for i, token in enumerate(BYTES)}
    tokenizer = Tokenizer(BPE(vocabulary, [], unk_token="[UNK]"))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        chat_template=TEMPLATE,
    ).save_pretrained(folder)
    return folder


def build_encoders(folder: Path) -> TinyEncoders:
    bert = transformers.BertConfig(max_position_embeddings=64, **SMALL)
    llama = transformers.LlamaConfig(max_position_embeddings=64, **SMALL)
    return TinyEncoders(
        texts=_build_text_encoder(folder / "texts", bert),
        chats=_build_text_encoder(folder / "chats", llama),
        sounds=sounds.save("wavlm-layer", folder / "sounds"),
        pictures=models.FAMILIES["vit"].save(folder / "pictures"),
    )


def use_tiny_encoders(patch: pytest.MonkeyPatch, encoders: TinyEncoders) -> None:
    """Let a tiny encoder stand in for the default one, and for every id on the hub."""

    def fetch(name: str, revision: str | None, **_: Any) -> tuple[Path, str]:
        return encoders.find(name), COMMIT

    patch.setattr(_located, "fetch_model", fetch)
    patch.setattr(_located, "_find_package", lambda: encoders.texts)


def use_short_trainings(patch: pytest.MonkeyPatch) -> None:
    """Train one epoch, six seeds and two learning rates, whatever a page asks for."""
    parse = TrainConfig.__post_init__
    usual_rates = vars(TrainConfig)["rates"].fget

    def shortened(config: TrainConfig) -> None:
        parse(config)
        object.__setattr__(config, "epochs", 1)
        object.__setattr__(config, "seeds", config.seeds[:6])
        if config.tune_seeds:
            object.__setattr__(config, "tune_seeds", config.tune_seeds[:2])

    patch.setattr(TrainConfig, "__post_init__", shortened)
    patch.setattr(
        TrainConfig, "rates", property(lambda config: usual_rates(config)[:2])
    )
