"""Promise 9: no file is unpickled, no code comes from a model, no name leads astray."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gaam_cache
from tests.contract.conftest import Outcome, read_files, run


class Payload:
    """Makes the folder ``run`` for whoever unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("run",)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def check_refused(outcome: Outcome, *codes: int) -> None:
    assert outcome.code in codes, outcome
    assert outcome.err.startswith("error: "), outcome
    assert not Path("run").exists(), "the payload ran"
    assert not list(Path("out").rglob("*.*[!n]")), "all there may be is a plan, in JSON"


def write_numpy_objects(name: str) -> None:
    objects = np.array([[Payload()] * 3] * 4, dtype=object)
    if name == "objects.npy":
        np.save(name, objects)
    elif name == "objects.npz":
        np.savez(name, embeddings=objects, labels=np.array([0, 1, 0, 1]))
    else:
        states = np.ones((4, 2, 3), "f4")
        np.savez(name, embeddings=states, labels=objects[:, 0])


def write_torch_pickle(name: str) -> None:
    torch.save({"embeddings": Payload(), "labels": [0, 1, 0, 1]}, name)


def write_pickle(name: str) -> None:
    Path(name).write_bytes(pickle.dumps({"embeddings": Payload(), "labels": [0, 1]}))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("objects.npy", write_numpy_objects),
        ("objects.npz", write_numpy_objects),
        ("labels.npz", write_numpy_objects),
        ("states.pt", write_torch_pickle),
        ("states.pkl", write_pickle),
        ("states.safetensors", write_pickle),
        ("states.npy", write_pickle),
        ("states.npz", write_pickle),
        ("states.h5", write_pickle),
    ],
)
def test_states_are_never_unpickled(name: str, write: Callable[[str], None]) -> None:
    write(name)
    check_refused(run("import", f"train={name}", "--out", "out"), 1, 2, 3)


def test_the_payload_would_be_seen() -> None:
    pickle.loads(pickle.dumps(Payload()))
    assert Path("run").is_dir()


def test_weights_of_an_encoder_are_never_unpickled(encoder: Path, texts: Path) -> None:
    shutil.copytree(encoder, "model")
    pickled_weights = {"embeddings.word_embeddings.weight": Payload()}
    torch.save(pickled_weights, "model/pytorch_model.bin")
    command = ("extract", "--encoder", "model", "--dataset", texts, "--limit", 4)
    assert run(*command, "--out", "whole").code == 0, "safetensors lie beside it"
    Path("model/model.safetensors").unlink()
    check_refused(run(*command, "--out", "out"), 2)
    shutil.copy("model/pytorch_model.bin", "model/model.safetensors")
    check_refused(run(*command, "--out", "out"), 3)


def test_weights_of_a_run_are_never_unpickled(runs: Path) -> None:
    shutil.copytree(next(runs.glob("mha*")), "trained")
    for weights in Path("trained").glob("*.safetensors"):
        weights.write_bytes(pickle.dumps(Payload()))
    check_refused(run("predict", "trained", "goal"), 3)


@pytest.mark.parametrize("kind", ["bert", "evil"])
def test_no_code_comes_from_a_model(kind: str, encoder: Path, texts: Path) -> None:
    shutil.copytree(encoder, "model")
    for code in (Path("model/evil.py"), Path("evil.py")):
        code.write_text("import os\nos.mkdir('run')\nEvil = None\n")
    classes = dict.fromkeys(("AutoConfig", "AutoModel", "AutoTokenizer"), "evil.Evil")
    remote = {"auto_map": classes, "trust_remote_code": True, "model_type": kind}
    for file in (Path("model/config.json"), Path("model/tokenizer_config.json")):
        file.write_text(json.dumps(json.loads(file.read_text()) | remote))
    command = ("extract", "--encoder", "model", "--dataset", texts, "--out", "out")
    check_refused(run(*command), 2)
    check_refused(run(*command, "--pool", "evil"), 2)


def reseal(file: Path, old: str, new: str) -> None:
    """Put another name into a file, with the digest that docs/reference/cache-format.md describes."""
    content = json.loads(file.read_text().replace(f'"{old}"', json.dumps(new)))
    del content["sha256_of_this"]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    content["sha256_of_this"] = hashlib.sha256(canonical).hexdigest()
    file.write_text(json.dumps(content))


NAMES = ["../x", "/tmp/x", "x/../../x", "..", "", "a\0b"]


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_split_is_no_path(name: str, texts: Path) -> None:
    states = np.ones((4, 2, 3), "f4")
    with pytest.raises(gaam_cache.GaamError):
        gaam_cache.write("out/a", {name: (states, [0, 1, 0, 1])})
    command = ("extract", "--dataset", texts, "--split", name, "--out", "out/a")
    check_refused(run(*command), 2)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_a_file_is_no_path(name: str, cache: Path, runs: Path) -> None:
    shutil.copytree(cache, "sub/cache")
    receipt = Path("sub/cache/shards/test-00000.json")
    shard = json.loads(receipt.read_text())["file"]
    # the very bytes, elsewhere
    shutil.copy(receipt.with_name(shard), "sub/cache/x")
    shutil.copytree(next(runs.glob("mha*")), "sub/run")
    before = read_files(Path())
    for file, old, command in (
        ("sub/cache/cache.json", "test", ("verify", "sub/cache")),
        ("sub/run/run.json", "test.safetensors", ("report", "sub/run")),
        (str(receipt), shard, ("verify", "sub/cache")),
    ):
        reseal(Path(file), old, name)
        assert run(*command).code == 3, file
        Path(file).write_bytes(before[file])
    assert read_files(Path()) == before
