"""Whatever is loaded is hashed; what lies outside the encoder's folder is refused."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._located import INDEX, WEIGHTS
from gaam_cache.encoders._model import encoder as module
from gaam_cache.encoders._model import weights
from gaam_cache.encoders._text.tokens import Tokens
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.errors import ConfigError, GaamError
from tests.conftest import build_encoder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_encoder(tmp_path / "encoder", "bert")


def split(folder: Path) -> dict[str, str]:
    """Weights in two files with an index; returns its map."""
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    weight_map = {}
    for part in (0, 1):
        name = f"model-{part + 1:05d}-of-00002.safetensors"
        some = {key: weights[key] for key in sorted(weights)[part::2]}
        save_file(some, folder / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(some, name)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return weight_map


def opened(folder: Path) -> TextEncoder:
    return TextEncoder.open(ExtractConfig(encoder=str(folder), device="cpu"))


def test_split_weights_are_loaded_and_hashed(folder: Path, tmp_path: Path) -> None:
    whole = transformers.AutoModel.from_pretrained(folder).state_dict()
    save_file({"x": torch.zeros(1)}, folder / "model-other.safetensors")
    weight_map = split(folder)
    encoder = opened(folder)
    files = encoder.identity()["files"]
    assert {INDEX, *weight_map.values()} <= set(files)
    assert "model-other.safetensors" not in files
    encoder.load()
    loaded = encoder._forward.model.state_dict()
    assert loaded.keys() == whole.keys()
    assert all(torch.equal(loaded[key], whole[key]) for key in whole)


@pytest.mark.parametrize(
    "name",
    [
        "../elsewhere/w.safetensors",
        "{}/elsewhere/w.safetensors",
        "../elsewhere/model.safetensors",
        "sub/model.safetensors",
        "w.safetensors",
        "model-gone.safetensors",
        "model.bin",
        "",
        "..",
        "model\n.safetensors",
        7,
    ],
)
def test_an_index_names_weight_files_of_its_own_folder_only(
    name: str | int, folder: Path, tmp_path: Path
) -> None:
    weight_map = split(folder)
    for place in (tmp_path / "elsewhere", folder / "sub", folder):
        place.mkdir(exist_ok=True)
        shutil.copy(folder / next(iter(weight_map.values())), place / "w.safetensors")
        if place != folder:
            shutil.copy(place / "w.safetensors", place / "model.safetensors")
    first = next(iter(weight_map))
    named = name.format(tmp_path) if isinstance(name, str) else name
    content = {"metadata": {}, "weight_map": weight_map | {first: named}}
    (folder / INDEX).write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="names a file that is none of this encoder's"):
        opened(folder).identity()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"weight_map": []}', "[" * 99999])
def test_an_index_that_is_none_is_refused(content: str, folder: Path) -> None:
    split(folder)
    (folder / INDEX).write_text(content)
    with pytest.raises(GaamError, match="holds no weights that can be found"):
        opened(folder).identity()


def to_link(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    path.rename(elsewhere / path.name)
    path.symlink_to(elsewhere / path.name)


def to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("gone")


def to_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def to_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("change", [to_link, to_nothing, to_device, to_pipe, to_folder])
def test_every_file_of_an_encoder_is_a_regular_one_of_its_folder(
    change: Callable[[Path], None], folder: Path, tmp_path: Path
) -> None:
    split(folder)
    names = sorted(file.name for file in folder.iterdir())
    assert len(names) == 6
    for name in names:
        copy = tmp_path / "copies" / name / "encoder"
        shutil.copytree(folder, copy)
        change(copy / name)
        with pytest.raises(ConfigError, match="is no file of the encoder's folder"):
            opened(copy)


def test_links_within_the_folder_and_to_the_blobs_of_a_snapshot_are_followed(
    folder: Path, tmp_path: Path
) -> None:
    plain = opened(folder).identity()
    (folder / WEIGHTS).rename(folder / "model-a.safetensors")
    (folder / WEIGHTS).symlink_to("model-a.safetensors")
    assert opened(folder).identity() == plain
    snapshot = tmp_path / "models--a--b" / "snapshots" / ("0" * 40)
    blobs = snapshot.parent.parent / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(sorted(folder.iterdir())):
        shutil.copy(file, blobs / f"blob{number}")
        (snapshot / file.name).symlink_to(f"../../blobs/blob{number}")
    encoder = opened(snapshot)
    assert encoder.identity() == plain
    encoder.load()
    (blobs / "blob0").unlink()
    (blobs / "blob0").symlink_to(folder / "config.json")
    with pytest.raises(ConfigError, match="is no file of the encoder's folder"):
        opened(snapshot)


@pytest.mark.parametrize(
    ("file", "key"),
    [("config.json", "configuration_files"), ("tokenizer_config.json", "fast_tokenizer_files")],
)
def test_lists_of_versions_name_no_other_folder(file: str, key: str, folder: Path) -> None:
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(content | {key: ["../elsewhere/config.5.0.0.json"]}))
    with pytest.raises(ConfigError, match="names files outside"):
        opened(folder)


@pytest.mark.parametrize("name", ["other.safetensors", "../w.safetensors", "gone", "", 7])
def test_a_configuration_cannot_choose_other_weights(name: Any, folder: Path) -> None:
    weights = {key: x + 1 for key, x in load_file(folder / WEIGHTS).items()}
    save_file(weights, folder / "other.safetensors", metadata={"format": "pt"})
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | {"transformers_weights": name}))
    with pytest.raises(ConfigError, match="names weights of its own"):
        opened(folder)
    (folder / "config.json").write_text(json.dumps(content | {"transformers_weights": WEIGHTS}))
    opened(folder).load()


def test_a_tokenizer_that_draws_its_tokens_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = opened(folder)
    ids_of = Tokens.ids
    count = itertools.count()

    def drawn(self: Tokens, rows: Any, max_length: int | None = None) -> list[list[int]]:
        ids = ids_of(self, rows, max_length)
        return [[*one, next(count) % 3] for one in ids]

    monkeypatch.setattr(Tokens, "ids", drawn)
    with pytest.raises(ConfigError, match="tokens at random"):
        encoder.prepare(["goal", "bank"])


@pytest.mark.parametrize("dropout", [0.5, 0.01])
def test_dropout_of_a_tokenizer_is_refused_and_none_is_not(dropout: float, folder: Path) -> None:
    vocabulary = {word: place for place, word in enumerate(["[UNK]", "a", "b", "ab"])}
    for share in (dropout, 0.0, None):
        model = models.BPE(vocabulary, [("a", "b")], dropout=share, unk_token="[UNK]")
        Tokenizer(model).save(str(folder / "tokenizer.json"))
        if share:
            with pytest.raises(ConfigError, match=f"dropout {dropout:g}"):
                opened(folder)
        else:
            assert opened(folder)


def test_an_encoder_without_a_tokenizer_is_none(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"holds no tokenizer|cannot read the encoder"):
        opened(folder)
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(ConfigError, match=r"holds no tokenizer|cannot read the encoder"):
        opened(folder)


def test_a_text_that_the_tokenizer_cannot_read_is_one_message(folder: Path) -> None:
    model = models.WordLevel({"goal": 0, "bank": 1}, unk_token="[UNK]")
    Tokenizer(model).save(str(folder / "tokenizer.json"))
    encoder = opened(folder)
    encoder.load()
    assert encoder.prepare(["goal"]).lengths == [1]
    with pytest.raises(ConfigError, match="cannot read a text"):
        encoder.prepare(["goal", "zzz"])


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("hidden_size", 64, "are not those of its configuration"),
        ("vocab_size", 7, "are not those of its configuration"),
        ("intermediate_size", 3, "are not those of its configuration"),
        ("num_hidden_layers", 1_000_000, "too many layers"),
    ],
)
def test_weights_of_another_size_are_named(
    setting: str, value: int, message: str, folder: Path
) -> None:
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | {setting: value}))
    with pytest.raises(ConfigError, match=message):
        opened(folder).load()


def test_an_index_without_weights_is_refused(folder: Path) -> None:
    split(folder)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": {}}))
    with pytest.raises(ConfigError, match="is empty"):
        opened(folder).load()


def test_damaged_weights_are_one_message(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"\x08" + b"\0" * 7 + b"garbage!")
    config = replace(ExtractConfig(), encoder=str(folder))
    with pytest.raises(ConfigError, match="cannot load the weights"):
        TextEncoder.open(config).load()


def rewrite(file: Path) -> None:
    """Other content, in place."""
    file.write_bytes(file.read_bytes()[::-1])


def replace_file(file: Path) -> None:
    """The same content, as another file."""
    shutil.copy(file, file.with_name("copy"))
    file.with_name("copy").replace(file)


@pytest.mark.parametrize("change", [rewrite, replace_file, Path.unlink])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", INDEX, "model-00002-of-00002"])
@pytest.mark.parametrize("moment", ["before hashing", "before loading", "while loading"])
def test_an_encoder_that_changes_while_it_is_read_is_refused(
    change: Callable[[Path], None],
    name: str,
    moment: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    split(folder)
    file = next(folder.glob(f"{name}*"))
    load_trained = module.load_trained

    def changing(*arguments: Any) -> Any:
        model = load_trained(*arguments)
        change(file)
        return model

    def read() -> None:
        encoder.identity()
        assert moment != "before hashing"
        if moment == "before loading":
            change(file)
        encoder.load()

    encoder = opened(folder)
    if moment == "before hashing":
        change(file)
    if moment == "while loading":
        monkeypatch.setattr(module, "load_trained", changing)
    with pytest.raises(ConfigError):
        read()


def test_weights_that_appear_beside_those_that_were_hashed_are_refused(folder: Path) -> None:
    whole = load_file(folder / WEIGHTS)
    split(folder)
    encoder = opened(folder)
    encoder.identity()
    save_file(whole, folder / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=f"found:    {WEIGHTS}"):
        encoder.load()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_loaded_weights_are_no_view_of_their_file(dtype: str, folder: Path) -> None:
    config = ExtractConfig(encoder=str(folder), device="cpu", dtype=dtype)
    encoder = TextEncoder.open(config)
    encoder.load()
    before = {key: x.clone() for key, x in encoder._forward.model.state_dict().items()}
    with (folder / WEIGHTS).open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(size // 4)
        file.write(os.urandom(size // 2))
    after = encoder._forward.model.state_dict()
    assert all(torch.equal(after[key], before[key]) for key in before)


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize(
    "value", ["someone/kernels", "someone/kernels@main:attention", {"text_config": "a/b"}]
)
@pytest.mark.parametrize("nested", [False, True])
def test_attention_that_is_fetched_from_elsewhere_is_code(
    key: str, value: Any, nested: bool, folder: Path
) -> None:
    content = json.loads((folder / "config.json").read_text())
    content |= {"text_config": {key: value}} if nested else {key: value}
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="brings its own code"):
        opened(folder)


@pytest.mark.parametrize("wrapped", ["plain", "with a prefix", "partly on disk", "in a sequence"])
def test_weights_that_wait_on_the_cpu_are_copies_of_the_file(wrapped: str) -> None:
    """What accelerate keeps until a layer is run: views of a file would change with it."""
    file = torch.arange(4.0)
    held = {"weight": file[:2], "bias": file[2:]}
    waiting: Any = {
        "with a prefix": SimpleNamespace(dataset=SimpleNamespace(state_dict=held)),
        "partly on disk": SimpleNamespace(state_dict=held),
    }.get(wrapped, held)
    hook = SimpleNamespace(weights_map=waiting)
    model = torch.nn.Sequential(torch.nn.Linear(2, 1, device="meta"), torch.nn.ReLU())
    model[0]._hf_hook = SimpleNamespace(hooks=(hook,)) if wrapped == "in a sequence" else hook  # type: ignore[assignment]
    weights._own(model)
    file.zero_()
    assert held["weight"].tolist() == [0, 1]
    assert held["bias"].tolist() == [2, 3]
    assert weights.entry_device(model).type == "meta"
    hook.execution_device = "cpu"
    assert weights.entry_device(model).type == "cpu"
