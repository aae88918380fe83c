"""The hub for real: ``gaam extract`` as a process of its own against a server on this machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import gaam_cache
from gaam_cache.config import DEFAULT_ENCODER, ExtractConfig
from gaam_cache.encoders import _located
from gaam_cache.encoders._located import locate
from gaam_cache.errors import HubError
from gaam_cache.messages import install
from gaam_cache.sources.hub import HubSource
from tests.cache.hub.hub_server import Hub, Repository, Request, folder_content
from tests.conftest import Outcome, needs_minilm

ROOT = Path(__file__).parents[3]
MODEL, NEWS = "someone/tiny", "someone/news"
NOWHERE = "http://127.0.0.1:9"
CARD = b"---\nlicense: mit\n---\n"


class World(NamedTuple):
    """A hub with a model and a data set, and the first commit of each; and this machine."""

    hub: Hub
    model: str
    news: str
    folder: Path
    encoder: Path
    dataset: Path

    def extract(
        self, *more: str, home: str = "home", out: str = "cache", env: Any = (), **given: str
    ) -> Outcome:
        """``gaam extract``, with a hub folder; what is not given is on this disk."""
        local = {"encoder": str(self.encoder), "dataset": str(self.dataset), "out": out}
        arguments = [part for key, value in (local | given).items() for part in (f"--{key}", value)]
        variables = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "HOME": str(self.folder),
            "HF_ENDPOINT": self.hub.endpoint,
            "HF_HOME": str(self.folder / home),
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        process = subprocess.run(
            [sys.executable, str(ROOT / "cli.py"), "extract", *arguments, "--quiet", *more],
            cwd=self.folder,
            env=variables | dict(env),
            input="y\n" * 50,
            capture_output=True,
            text=True,
            timeout=1200,
        )
        return Outcome(process.returncode, process.stdout, process.stderr)

    def all(self, *runs: dict[str, Any]) -> list[Outcome]:
        """Independent runs, side by side: much of each is waiting."""
        with ThreadPoolExecutor(3) as pool:
            numbered = [{"home": f"h{i}", "out": f"c{i}"} | run for i, run in enumerate(runs)]
            return list(pool.map(lambda run: self.extract(*run.pop("more", ()), **run), numbered))

    def plan(self, out: str = "cache") -> dict[str, Any]:
        return json.loads((self.folder / out / "cache.json").read_bytes())


@pytest.fixture
def world(encoders: dict[str, Path], dataset: Path, tmp_path: Path) -> Iterator[World]:
    with Hub() as hub:
        model, news = Repository(), Repository()
        hub.models[MODEL], hub.datasets[NEWS] = model, news
        files = folder_content(encoders["bert"])
        files |= {"pytorch_model.bin": b"\x80", "modeling_evil.py": b"1 / 0", "README.md": CARD}
        files |= {"onnx/config.json": b"{}", "onnx/model.safetensors": b"\0"}
        commits = model.commit(files), news.commit(folder_content(dataset) | {"README.md": CARD})
        yield World(hub, *commits, tmp_path, encoders["bert"], dataset)


def check_failed(outcome: Outcome, code: int, *said: str) -> None:
    """One message, the right exit code, no traceback, nothing on stdout."""
    assert outcome.code == code, outcome.err
    assert sum(line.startswith("error: ") for line in outcome.err.splitlines()) == 1
    assert "Traceback" not in outcome.err
    assert outcome.out == ""
    for words in said:
        assert words in outcome.err


def test_what_comes_from_the_hub_is_on_record_and_what_is_served(world: World) -> None:
    outcome = world.extract(encoder=MODEL, dataset=NEWS)
    assert (outcome.code, outcome.err) == (0, "")
    plan = world.plan()
    about = {"kind": "text", "name": MODEL, "revision": world.model, "path": None}
    assert plan["encoder"] == about | {"batching": "padded"}
    assert plan["dataset"]["origin"] == {
        split: f"{NEWS}@{world.news}, {split}" for split in ("train", "test")
    }
    safe = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}
    assert world.hub.asked(MODEL) == safe
    assert not [r for r in world.hub.requests if "authorization" in r.headers]
    # the same rows through the same files from this disk: the same fingerprint, the same states
    local = world.folder / "local"
    config = ExtractConfig(encoder=str(world.encoder), dataset=str(world.dataset), out=local)
    gaam_cache.extract(config)
    here, there = gaam_cache.open_cache(local), gaam_cache.open_cache(world.folder / "cache")
    assert here.fingerprint == there.fingerprint
    np.testing.assert_array_equal(here["test"].embeddings[:], there["test"].embeddings[:])
    # and the copies serve when the hub is gone or must not be asked
    requests, offline = len(world.hub.requests), {"HF_HUB_OFFLINE": "1"}
    both = {"encoder": MODEL, "dataset": NEWS, "home": "home"}
    gone, silent, other, bare = world.all(
        both | {"env": {"HF_ENDPOINT": NOWHERE}, "out": "gone"},
        both | {"env": offline, "out": "silent", "more": ("--set", "dataset-revision=main")},
        both | {"env": offline, "out": "other", "more": ("--set", "dataset-revision=dev")},
        both | {"env": offline, "out": "bare", "home": "empty"},
    )
    assert len(world.hub.requests) == requests
    for outcome, out in ((gone, "gone"), (silent, "silent")):
        assert outcome.code == 0, outcome.err
        assert world.plan(out)["fingerprint"] == plan["fingerprint"]
    check_failed(other, 1, NEWS)
    check_failed(bare, 1, "HF_HUB_OFFLINE", NEWS)


@pytest.mark.slow
def test_rows_are_of_the_commit_asked_for_alone(world: World) -> None:
    repository = world.hub.datasets[NEWS]
    other = {"train.csv": b"label,text\na,goal\n", "test.csv": b"label,text\nb,bank\n"}

    def move(request: Request) -> None:  # the branch, while splits are being read
        if request.path.endswith("test.csv") and len(repository.commits) == 1:
            repository.commit(other)

    world.hub.fault = move
    assert world.extract(dataset=NEWS).code == 0
    plan = world.plan()
    assert {one.split(",")[0] for one in plan["dataset"]["origin"].values()} == {
        f"{NEWS}@{world.news}"
    }
    assert (len(repository.commits), plan["rows"]) == (2, {"train": 60, "test": 24})
    # the hub still names commits, but hands out no file: datasets then takes what it has
    world.hub.fault = lambda request: 403 if re.search("/resolve/.*csv", request.path) else None
    check_failed(world.extract(dataset=NEWS, out="new"), 1, NEWS)
    assert not (world.folder / "new").exists()
    copy = world.extract("--set", f"dataset-revision={world.news}", dataset=NEWS, out="new")
    assert (copy.code, world.plan("new")) == (0, plan)


@pytest.mark.slow
def test_what_the_hub_does_not_have_or_give_is_told(world: World) -> None:
    hub = world.hub
    hub.models["someone/gated"] = Repository(gated=401)
    hub.models["someone/gated"].commit(hub.models[MODEL].commits[world.model])
    hub.datasets["someone/gated"] = Repository(gated=403)
    hub.datasets["someone/gated"].commit(hub.datasets[NEWS].commits[world.news])
    hub.fault = lambda request: 500 if request.path == "/api/datasets/someone/ill" else None
    outcomes = world.all(
        {"encoder": "someone/absent"},
        {"encoder": MODEL, "more": ("--set", "revision=absent")},
        {"dataset": NEWS, "more": ("--set", "dataset-revision=absent")},
        {"encoder": "someone/gated"},
        {"dataset": "someone/gated"},
        {"dataset": "someone/ill"},
    )
    for outcome in outcomes[:3]:
        check_failed(outcome, 2, "absent")
    for outcome in outcomes[3:5]:
        check_failed(outcome, 1, "gated", "HF_TOKEN", f"{hub.endpoint}/")
    check_failed(outcomes[5], 1, "someone/ill", "500")


def test_of_a_model_that_could_do_harm_neither_weights_nor_code_are_fetched(world: World) -> None:
    marker = world.folder / "code-has-run"
    code = f"import pathlib; pathlib.Path({str(marker)!r}).touch()\n"
    files = folder_content(world.encoder) | {"modeling_x.py": code.encode()}
    config = json.loads(files["config.json"]) | {"auto_map": {"AutoModel": "modeling_x.X"}}
    pickled = files | {"pytorch_model.bin": b"\x80"}
    del pickled["model.safetensors"]
    contents = {"known": files | {"config.json": json.dumps(config).encode()}, "pickled": pickled}
    for name, content in contents.items():
        world.hub.models[f"someone/{name}"] = Repository()
        world.hub.models[f"someone/{name}"].commit(content)
    known, bare = world.all(*({"encoder": f"someone/{name}"} for name in contents))
    check_failed(known, 2, "brings its own code, which is never run", "auto_map")
    check_failed(bare, 2, "no safetensors", "save_pretrained")
    assert not marker.exists()
    for name in contents:
        small = {"config.json", "tokenizer.json", "tokenizer_config.json"}
        assert world.hub.asked(f"someone/{name}") == small


def test_declared_class_names_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    label = datasets.ClassLabel(names=["World", "Arts"])
    features = datasets.Features({"text": datasets.Value("string"), "label": label})
    data = datasets.Dataset.from_dict({"text": ["x", "y", "z"], "label": [1, 0, 1]}, features)
    monkeypatch.setattr("gaam_cache.sources.hub.fetch", lambda *a, **k: (tmp_path / "c", None))
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: data)
    read = HubSource().read(ExtractConfig(dataset="someone/news"), "train")
    assert read.class_names == ("World", "Arts")
    assert read.labels == ["Arts", "World", "Arts"]


@needs_minilm
def test_the_packaged_encoder_is_trusted_by_its_digest_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _located.PACKAGE in str(locate(DEFAULT_ENCODER, None).path)
    for name, value in (("PACKAGE_SHA256", "0" * 64), ("PACKAGE", "no_such_package")):
        monkeypatch.setattr(_located, name, value)
        with pytest.raises(HubError, match=re.escape(install("demo"))):
            locate(DEFAULT_ENCODER, None)
