"""Promise 9: nothing is unpickled, no code comes from a model, names become paths by a pattern."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gaam_cache
from tests.contract.conftest import Outcome, files_of, run


class Payload:
    """Makes the folder ``run`` for whoever unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("run",)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(outcome: Outcome, *codes: int) -> None:
    assert (outcome.code in codes, outcome.err[:7]) == (True, "error: "), outcome
    assert not Path("run").exists(), "the payload ran"
    assert not list(Path("out").rglob("*.*[!n]")), "all there may be is a plan, in JSON"


def test_states_are_never_unpickled() -> None:
    payload = np.array([[Payload()] * 3] * 4, dtype=object)
    np.save("objects.npy", payload)
    np.savez("objects.npz", embeddings=payload, labels=np.array([0, 1, 0, 1]))
    np.savez("labels.npz", embeddings=np.ones((4, 2, 3), "f4"), labels=payload[:, 0])
    torch.save({"embeddings": Payload(), "labels": [0, 1, 0, 1]}, "states.pt")
    for name in (
        "states.pkl",
        "states.safetensors",
        "states.npy",
        "states.npz",
        "states.h5",
    ):
        Path(name).write_bytes(
            pickle.dumps({"embeddings": Payload(), "labels": [0, 1]})
        )
    for file in sorted(Path().iterdir()):
        refused(run("import", f"train={file}", "--out", "out"), 1, 2, 3)
    pickle.loads(pickle.dumps(Payload()))
    assert Path("run").is_dir()


def test_weights_are_never_unpickled(encoder: Path, texts: Path, runs: Path) -> None:
    shutil.copytree(encoder, "model")
    torch.save(
        {"embeddings.word_embeddings.weight": Payload()}, "model/pytorch_model.bin"
    )
    extract = (
        "extract",
        "--encoder",
        "model",
        "--dataset",
        texts,
        "--limit",
        4,
        "--out",
    )
    assert run(*extract, "whole").code == 0, "safetensors lie beside it"
    Path("model/model.safetensors").unlink()
    refused(run(*extract, "out"), 2)
    shutil.copy("model/pytorch_model.bin", "model/model.safetensors")
    refused(run(*extract, "out"), 3)
    shutil.copytree(next(runs.glob("mha*")), "trained")
    for weights in Path("trained").glob("*.safetensors"):
        weights.write_bytes(pickle.dumps(Payload()))
    refused(run("predict", "trained", "goal"), 3)


@pytest.mark.parametrize("kind", ["bert", "evil"])
def test_no_code_comes_from_a_model(kind: str, encoder: Path, texts: Path) -> None:
    shutil.copytree(encoder, "model")
    for file in ("model/evil.py", "evil.py"):
        Path(file).write_text("import os\nos.mkdir('run')\nEvil = None\n")
    auto = dict.fromkeys(("AutoConfig", "AutoModel", "AutoTokenizer"), "evil.Evil")
    for file in (Path("model/config.json"), Path("model/tokenizer_config.json")):
        remote = {"auto_map": auto, "trust_remote_code": True, "model_type": kind}
        file.write_text(json.dumps(json.loads(file.read_text()) | remote))
    extract = ("extract", "--encoder", "model", "--dataset", texts, "--out", "out")
    refused(run(*extract), 2)
    refused(run(*extract, "--pool", "evil"), 2)


def reseal(file: Path, old: str, new: str) -> None:
    """Put another name into a file, with a digest that is right, as FORMAT.md says it is made."""
    content = json.loads(file.read_text().replace(f'"{old}"', json.dumps(new)))
    del content["sha256_of_this"]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    file.write_text(
        json.dumps(content | {"sha256_of_this": hashlib.sha256(canonical).hexdigest()})
    )


@pytest.mark.parametrize("up", ["../x", "/tmp/x", "x/../../x", "..", "", "a\0b"])
def test_names_are_no_paths(up: str, cache: Path, runs: Path, texts: Path) -> None:
    with pytest.raises(gaam_cache.GaamError):
        gaam_cache.write("out/a", {up: (np.ones((4, 2, 3), "f4"), [0, 1, 0, 1])})
    refused(run("extract", "--dataset", texts, "--split", up, "--out", "out/a"), 2)
    shutil.copytree(cache, "sub/cache")
    receipt = Path("sub/cache/shards/test-00000.json")
    named = json.loads(receipt.read_text())["file"]
    shutil.copy(receipt.with_name(named), "sub/cache/x")  # the very bytes, elsewhere
    shutil.copytree(next(runs.glob("mha*")), "sub/run")
    before = files_of(Path())
    places = {"cache/cache.json": "test", "run/run.json": "test.safetensors"}
    for file, old in (places | {f"cache/shards/{receipt.name}": named}).items():
        reseal(Path("sub", file), old, up)
        command = ("report", "sub/run") if "run" in file else ("verify", "sub/cache")
        assert run(*command).code == 3, file
        Path("sub", file).write_bytes(before[f"sub/{file}"])
    assert files_of(Path()) == before
