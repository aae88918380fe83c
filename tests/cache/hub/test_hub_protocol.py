"""The hub for real: ``gaam extract`` as a process of its own against a server on this machine."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors.numpy

import gaam_cache
from gaam_cache.config import ExtractConfig
from tests.cache.hub.hub_server import Hub, Repository, Request, folder_content
from tests.conftest import Outcome

ROOT = Path(__file__).parents[3]
MODEL, NEWS = "someone/tiny", "someone/news"
NOWHERE = "http://127.0.0.1:9"
CARD = b"---\nlicense: mit\n---\n"


class World(NamedTuple):
    """A hub with a model and a data set, and the first commit of each."""

    hub: Hub
    model: str
    news: str


@pytest.fixture
def world(encoders: dict[str, Path], dataset: Path) -> Iterator[World]:
    with Hub() as hub:
        model, news = Repository(), Repository()
        hub.models[MODEL], hub.datasets[NEWS] = model, news
        files = folder_content(encoders["bert"])
        files |= {"pytorch_model.bin": b"\x80", "modeling_evil.py": b"1 / 0", "README.md": CARD}
        files |= {"onnx/config.json": b"{}", "onnx/model.safetensors": b"\0"}
        rows = folder_content(dataset) | {"README.md": CARD}
        yield World(hub, model.commit(files), news.commit(rows))


class Command:
    """``gaam extract`` in a process of its own, with a hub folder of its own."""

    def __init__(self, world: World, folder: Path, encoder: Path, dataset: Path) -> None:
        self.endpoint = world.hub.endpoint
        self.folder = folder
        self.local = {"encoder": str(encoder), "dataset": str(dataset)}

    def __call__(
        self, *more: str, home: str = "home", stdin: str = "", env: Any = (), **given: str
    ) -> Outcome:
        """Options as keywords; what is not given of encoder and dataset is on this disk."""
        options = self.local | {"out": "cache"} | given
        arguments = [part for key, value in options.items() for part in (f"--{key}", value)]
        variables = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "HOME": str(self.folder),
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(self.folder / home),
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        process = subprocess.run(
            [sys.executable, str(ROOT / "cli.py"), "extract", *arguments, "--quiet", *more],
            cwd=self.folder,
            env=variables | dict(env),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=1200,
        )
        return Outcome(process.returncode, process.stdout, process.stderr)

    def all(self, *runs: dict[str, Any]) -> list[Outcome]:
        """Independent runs, side by side: much of each is waiting."""
        with ThreadPoolExecutor(3) as pool:
            numbered = [{"home": f"h{i}", "out": f"c{i}"} | run for i, run in enumerate(runs)]
            return list(pool.map(lambda run: self(*run.pop("more", ()), **run), numbered))

    def plan(self, out: str = "cache") -> dict[str, Any]:
        return json.loads((self.folder / out / "cache.json").read_bytes())


@pytest.fixture
def extract(world: World, encoders: dict[str, Path], dataset: Path, tmp_path: Path) -> Command:
    return Command(world, tmp_path, encoders["bert"], dataset)


def check_failed(outcome: Outcome, code: int, *said: str) -> None:
    """One message, the right exit code, no traceback, nothing on stdout."""
    assert outcome.code == code, outcome.err
    assert sum(line.startswith("error: ") for line in outcome.err.splitlines()) == 1
    assert "Traceback" not in outcome.err
    assert outcome.out == ""
    for words in said:
        assert words in outcome.err


def on(pattern: str, fault: Any) -> Callable[[Request], Any]:
    """The fault for every request whose path has the pattern in it."""
    return lambda request: fault if re.search(pattern, request.path) else None


def test_what_comes_from_the_hub_is_on_record_and_what_is_served(
    world: World, extract: Command, encoders: dict[str, Path], dataset: Path
) -> None:
    outcome = extract(encoder=MODEL, dataset=NEWS)
    assert (outcome.code, outcome.err) == (0, "")
    plan = extract.plan()
    assert plan["encoder"].pop("batching") == "padded"
    about = {"kind": "text", "name": MODEL, "revision": world.model, "path": None}
    assert plan["encoder"] == about
    assert plan["dataset"]["origin"] == {
        split: f"{NEWS}@{world.news}, {split}" for split in ("train", "test")
    }
    safe = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}
    assert world.hub.asked(MODEL) == safe
    assert not [r for r in world.hub.requests if "authorization" in r.headers]
    # the same rows through the same files from this disk: the same fingerprint, the same states
    local = extract.folder / "local"
    gaam_cache.extract(
        ExtractConfig(encoder=str(encoders["bert"]), dataset=str(dataset), out=local)
    )
    here, there = gaam_cache.open_cache(local), gaam_cache.open_cache(extract.folder / "cache")
    assert here.fingerprint == there.fingerprint
    np.testing.assert_array_equal(here["test"].embeddings[:], there["test"].embeddings[:])
    # and the copies serve when the hub is gone or must not be asked
    requests, offline = len(world.hub.requests), {"HF_HUB_OFFLINE": "1"}
    both = {"encoder": MODEL, "dataset": NEWS, "home": "home"}
    gone, silent, other, bare = extract.all(
        both | {"env": {"HF_ENDPOINT": NOWHERE}, "out": "gone"},
        both | {"env": offline, "out": "silent", "more": ("--set", "dataset-revision=main")},
        both | {"env": offline, "out": "other", "more": ("--set", "dataset-revision=dev")},
        both | {"env": offline, "out": "bare", "home": "empty"},
    )
    assert len(world.hub.requests) == requests
    for outcome, out in ((gone, "gone"), (silent, "silent")):
        assert outcome.code == 0, outcome.err
        assert extract.plan(out)["fingerprint"] == plan["fingerprint"]
    check_failed(other, 1, NEWS)
    check_failed(bare, 1, "HF_HUB_OFFLINE", NEWS)


@pytest.mark.slow
def test_an_older_copy_never_stands_in_for_the_commit_asked_for(
    world: World, extract: Command
) -> None:
    assert extract(dataset=NEWS).code == 0
    rows = {"train.csv": b"label,text\na,goal\n", "test.csv": b"label,text\na,goal\n"}
    world.hub.datasets[NEWS].commit(rows | {"README.md": CARD})
    # the hub still names commits, but hands out no file: datasets then takes what it has
    world.hub.fault = on("/resolve/.*csv", 403)
    check_failed(extract(dataset=NEWS, out="new"), 1, NEWS)
    assert not (extract.folder / "new").exists()
    copy = extract("--set", f"dataset-revision={world.news}", dataset=NEWS, out="new")
    assert copy.code == 0, copy.err
    assert extract.plan("new") == extract.plan()


@pytest.mark.slow
def test_all_splits_are_of_one_commit_though_the_branch_moves(
    world: World, extract: Command
) -> None:
    repository = world.hub.datasets[NEWS]
    other = {"train.csv": b"label,text\na,goal\n", "test.csv": b"label,text\nb,bank\n"}

    def move(request: Request) -> None:
        if request.path.endswith("test.csv") and len(repository.commits) == 1:
            repository.commit(other)

    world.hub.fault = move
    assert extract(dataset=NEWS).code == 0
    assert len(repository.commits) == 2
    plan = extract.plan()
    assert {origin.split(",")[0] for origin in plan["dataset"]["origin"].values()} == {
        f"{NEWS}@{world.news}"
    }
    assert plan["rows"] == {"train": 60, "test": 24}


@pytest.mark.slow
def test_a_broken_download_is_told_and_the_rerun_completes(world: World, extract: Command) -> None:
    tensors = safetensors.numpy.load(
        world.hub.models[MODEL].commits[world.model]["model.safetensors"]
    )
    tensors["unused"] = np.zeros(6_000_000, np.float32)  # the client keeps pieces of 10 MB
    weights = safetensors.numpy.save(tensors, {"format": "pt"})
    files = world.hub.models[MODEL].commits[world.model] | {"model.safetensors": weights}
    world.hub.models[MODEL].commit(files)
    world.hub.fault = on("model.safetensors", "cut")
    check_failed(extract(encoder=MODEL), 1, MODEL)
    assert not (extract.folder / "cache" / "cache.json").exists()
    world.hub.fault = lambda request: None
    assert extract(encoder=MODEL).code == 0
    assert f"bytes={10 * 2**20}-" in [r.headers.get("Range") for r in world.hub.requests]
    digest = extract.plan()["fingerprint_fields"]["encoder"]["files"]["model.safetensors"]
    assert digest == hashlib.sha256(weights).hexdigest()


@pytest.mark.slow
def test_what_the_hub_does_not_have_or_give_is_told(world: World, extract: Command) -> None:
    hub = world.hub
    hub.models["someone/gated"] = Repository(gated=401)
    hub.models["someone/gated"].commit(hub.models[MODEL].commits[world.model])
    for status in (401, 403):
        hub.datasets[f"someone/gated{status}"] = Repository(gated=status)
        hub.datasets[f"someone/gated{status}"].commit(hub.datasets[NEWS].commits[world.news])
    hub.fault = on("/api/datasets/someone/ill$", 500)
    outcomes = extract.all(
        {"encoder": "someone/absent"},
        {"encoder": MODEL, "more": ("--set", "revision=absent")},
        {"dataset": "someone/absent"},
        {"dataset": NEWS, "more": ("--set", "dataset-revision=absent")},
        {"encoder": "someone/gated"},
        {"dataset": "someone/gated401"},
        {"dataset": "someone/gated403"},
        {"dataset": "someone/ill"},
    )
    for outcome in outcomes[:4]:
        check_failed(outcome, 2, "absent")
    for outcome in outcomes[4:7]:
        check_failed(outcome, 1, "gated", "HF_TOKEN", f"{hub.endpoint}/")
    check_failed(outcomes[7], 1, "someone/ill", "500")


def test_weights_and_code_that_could_do_harm_are_refused(
    world: World, extract: Command, encoders: dict[str, Path], tmp_path: Path
) -> None:
    marker = tmp_path / "code-has-run"
    code = f"import pathlib; pathlib.Path({str(marker)!r}).touch()\n"
    code += "from transformers import BertModel\nclass X(BertModel): pass\n"
    files = folder_content(encoders["bert"]) | {"modeling_x.py": code.encode()}
    config = json.loads(files["config.json"]) | {"auto_map": {"AutoModel": "modeling_x.X"}}
    tokenizer = json.loads(files["tokenizer_config.json"])
    tokenizer |= {"auto_map": {"AutoTokenizer": ["modeling_x.X", None]}}
    pickled = files | {"pytorch_model.bin": b"\x80"}
    del pickled["model.safetensors"]
    contents = {
        "known": files | {"config.json": json.dumps(config).encode()},
        "tokenizer": files | {"tokenizer_config.json": json.dumps(tokenizer).encode()},
        "pickled": pickled,
    }
    for name, content in contents.items():
        world.hub.models[f"someone/{name}"] = Repository()
        world.hub.models[f"someone/{name}"].commit(content)
    yes = "y\n" * 50
    outcomes = extract.all(*({"encoder": f"someone/{name}", "stdin": yes} for name in contents))
    for outcome in outcomes[:2]:
        check_failed(outcome, 2, "brings its own code, which is never run", "auto_map")
    check_failed(outcomes[2], 2, "no safetensors", "save_pretrained")
    assert not marker.exists()
    small = {"config.json", "tokenizer.json", "tokenizer_config.json"}
    for name in contents:
        assert world.hub.asked(f"someone/{name}") == small, "neither weights nor code were fetched"


@pytest.mark.slow
def test_a_data_set_that_cannot_be_read_is_told(world: World, extract: Command) -> None:
    rows = b"label,text\na,goal\n"
    configs = "---\nconfigs:\n- config_name: x\n  data_files: a.csv\n"
    configs += "- config_name: y\n  data_files: b.csv\n---\n"
    contents = {
        "ragged": {"train.csv": rows + b"a,b,c,d\n", "test.csv": rows},
        "empty": {"README.md": CARD},
        "script": {"script.py": b"1 / 0"},
        "lone": {"train.csv": rows},
        "several": {"README.md": configs.encode(), "a.csv": rows, "b.csv": rows},
    }
    for name, content in contents.items():
        world.hub.datasets[f"someone/{name}"] = Repository()
        world.hub.datasets[f"someone/{name}"].commit(content)
    ragged, empty, script, lone, several = extract.all(
        *({"dataset": f"someone/{name}"} for name in contents)
    )
    check_failed(ragged, 3, "someone/ragged", "line 3")
    check_failed(empty, 2, "'someone/empty' holds no data files")
    check_failed(script, 2, "'someone/script' cannot be read", "no script")
    check_failed(lone, 2, "no split 'test'", "train")
    check_failed(several, 2, "'someone/several' cannot be read", "Config name is missing")
