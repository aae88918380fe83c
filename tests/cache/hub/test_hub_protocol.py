"""The hub for real: ``gaam extract`` as a process of its own against a server on this machine."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import huggingface_hub
import numpy as np
import pytest
import safetensors.numpy

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import HubError, StorageError
from gaam_cache.hub.errors import TRIES, hub_errors
from tests.cache.hub.hub_server import Fault, Hub, Repository, Request, folder_content
from tests.conftest import Outcome, build_encoder, write_csv

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
            [Path(sys.executable).parent / "gaam", "extract", *arguments, "--quiet", *more],
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


def on(pattern: str, **fault: Any) -> Callable[[Request], Fault | None]:
    """The fault for every request whose path has the pattern in it."""
    return lambda request: Fault(**fault) if re.search(pattern, request.path) else None


def other_encoder(folder: Path) -> dict[str, bytes]:
    return folder_content(build_encoder(folder, "bert", seed=7))


def heavy(files: dict[str, bytes]) -> dict[str, bytes]:
    """With 12 MB more of weights, that nobody uses: the client keeps pieces of 10 MB."""
    tensors = safetensors.numpy.load(files["model.safetensors"])
    tensors["unused"] = np.zeros(3_000_000, np.float32)
    return files | {"model.safetensors": safetensors.numpy.save(tensors, {"format": "pt"})}


def test_a_branch_is_a_commit_on_record_and_the_rows_are_those_served(
    world: World,
    extract: Command,
    encoders: dict[str, Path],
    dataset: Path,
    gaam: Callable[..., Outcome],
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
    assert world.model[:12] in gaam("inspect", extract.folder / "cache").out

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
    with (dataset / "test.csv").open(encoding="utf-8", newline="") as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    assert [there.class_names[i] for i in there["test"].labels] == labels


@pytest.mark.slow
def test_a_moved_branch_is_refused_and_its_old_commit_goes_on(
    world: World, extract: Command, tmp_path: Path
) -> None:
    assert extract(encoder=MODEL).code == 0
    world.hub.models[MODEL].commit(other_encoder(tmp_path / "other"))
    check_failed(
        extract(encoder=MODEL), 2, "another cache", "encoder.files.model.safetensors", "--out"
    )
    assert extract.plan()["encoder"]["revision"] == world.model
    again = extract(encoder=MODEL, revision=world.model)
    assert (again.code, "nothing to do" in again.out) == (0, True)


@pytest.mark.slow
def test_copies_serve_when_the_hub_is_gone_or_must_not_be_asked(
    world: World, extract: Command
) -> None:
    both = {"encoder": MODEL, "dataset": NEWS, "home": "home"}
    assert extract(**both).code == 0
    requests = len(world.hub.requests)
    offline = {"HF_HUB_OFFLINE": "1"}
    gone, silent, other, bare = extract.all(
        both | {"env": {"HF_ENDPOINT": NOWHERE}, "out": "gone"},
        both | {"env": offline, "out": "silent", "more": ("--set", "dataset-revision=main")},
        both | {"env": offline, "out": "other", "more": ("--set", "dataset-revision=dev")},
        both | {"env": offline, "out": "bare", "home": "empty"},
    )
    assert len(world.hub.requests) == requests
    for outcome, out in ((gone, "gone"), (silent, "silent")):
        assert outcome.code == 0, outcome.err
        assert extract.plan(out) == extract.plan()
    check_failed(other, 1, "dev", f"--set dataset-revision={world.news}")
    check_failed(bare, 1, "HF_HUB_OFFLINE", NEWS)


@pytest.mark.slow
def test_an_older_copy_never_stands_in_for_the_commit_asked_for(
    world: World, extract: Command
) -> None:
    assert extract(dataset=NEWS).code == 0
    rows = {"train.csv": b"label,text\na,goal\n", "test.csv": b"label,text\na,goal\n"}
    moved = world.hub.datasets[NEWS].commit(rows | {"README.md": CARD})
    # the hub still names commits, but hands out no file: datasets then takes what it has
    world.hub.fault = on("/resolve/", status=403)
    check_failed(extract(dataset=NEWS, out="new"), 1, moved, f"--set dataset-revision={world.news}")
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
def test_a_download_that_stumbles_once_goes_on_where_it_stopped(
    world: World, extract: Command
) -> None:
    def once(request: Request) -> Fault | None:
        seen = [r for r in world.hub.requests if r.path == request.path]
        stumbles = request.path.startswith("/store/") and len(seen) == 1
        return Fault(cut_at=11_000_000) if stumbles else None

    content = heavy(world.hub.models[MODEL].commits[world.model])
    world.hub.models[MODEL].commit(content)
    world.hub.fault = once
    assert extract(encoder=MODEL).code == 0
    ranges = [r.headers.get("Range") for r in world.hub.requests if r.path.startswith("/store/")]
    assert ranges == [None, f"bytes={10 * 2**20}-"]
    digest = extract.plan()["fingerprint_fields"]["encoder"]["files"]["model.safetensors"]
    assert digest == hashlib.sha256(content["model.safetensors"]).hexdigest()


@pytest.mark.slow
def test_a_broken_download_is_told_and_the_rerun_completes(world: World, extract: Command) -> None:
    names = [f"someone/{fault}" for fault in ("cut", "endless", "short", "flipped", "failing")]
    cut, endless, short, flipped, failing = names
    for name in names:
        world.hub.models[name] = world.hub.models[MODEL]
    world.hub.models[endless] = Repository()
    world.hub.models[endless].commit(heavy(world.hub.models[MODEL].commits[world.model]))
    faults = [
        on(f"/store/{cut}", cut_at=50_000),
        on(f"/store/{endless}", cut_at=11_000_000, ignore_range=True),
        on(f"/store/{short}", drop=100),
        on(f"/store/{flipped}", flip=True),
        on(f"/{failing}/resolve/", status=500),
    ]
    world.hub.fault = lambda request: next((f for on in faults if (f := on(request))), None)
    outcomes = extract.all(*({"encoder": name} for name in names))
    check_failed(outcomes[0], 1, cut, "breaks off")
    check_failed(outcomes[1], 1, endless, "breaks off")
    check_failed(outcomes[2], 1, short, "broke off")
    check_failed(outcomes[3], 3, "model.safetensors", "SHA-256", "rm '")
    check_failed(outcomes[4], 1, failing, f"failed {TRIES} times", "500")
    sent = [r.headers.get("Range") for r in world.hub.requests if f"/store/{endless}/" in r.path]
    assert sent == [None] + [f"bytes={10 * 2**20}-"] * TRIES, "progress, then the same for ever"
    assert not list(extract.folder.glob("c?/cache.json"))

    world.hub.fault = lambda request: None
    blob = Path(re.search(r"rm '([^']+)'", outcomes[3].err)[1])  # type: ignore[index]
    blob.unlink()
    again = extract.all(
        *({"encoder": name, "home": f"h{i}"} for i, name in ((0, cut), (3, flipped)))
    )
    assert [outcome.code for outcome in again] == [0, 0], [outcome.err for outcome in again]
    assert extract.plan("c0")["fingerprint"] == extract.plan("c1")["fingerprint"]


@pytest.mark.slow
def test_what_the_hub_does_not_have_or_give_is_told(world: World, extract: Command) -> None:
    hub = world.hub
    hub.models["someone/gated"] = Repository(gated=401)
    hub.models["someone/gated"].commit(hub.models[MODEL].commits[world.model])
    for status in (401, 403):
        hub.datasets[f"someone/gated{status}"] = Repository(gated=status)
        hub.datasets[f"someone/gated{status}"].commit(hub.datasets[NEWS].commits[world.news])
    hub.fault = on("/api/(models|datasets)/someone/ill$", status=500)
    outcomes = extract.all(
        {"encoder": "someone/absent"},
        {"encoder": MODEL, "revision": "absent"},
        {"dataset": "someone/absent"},
        {"dataset": NEWS, "more": ("--set", "dataset-revision=absent")},
        {"encoder": "someone/gated"},
        {"dataset": "someone/gated401"},
        {"dataset": "someone/gated403"},
        {"dataset": "someone/ill"},
    )
    for outcome in outcomes[:4]:
        check_failed(outcome, 2, "absent")
    check_failed(outcomes[0], 2, "no model 'someone/absent'", "HF_TOKEN")
    check_failed(outcomes[1], 2, f"the model '{MODEL}' has no such revision")
    check_failed(outcomes[2], 2, "no data set 'someone/absent'")
    check_failed(outcomes[3], 2, f"the data set '{NEWS}' has no such revision")
    for outcome in outcomes[4:7]:
        check_failed(outcome, 1, "is gated", "hf auth login", "HF_TOKEN", f"{hub.endpoint}/")
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
    check_failed(outcomes[2], 2, "no safetensors", "pytorch_model.bin", "save_pretrained")
    assert not marker.exists()
    asked = [world.hub.asked(f"someone/{name}") for name in contents]
    small = {"config.json", "tokenizer.json", "tokenizer_config.json"}
    assert asked == [small, small, set()], "neither weights nor code were fetched"

    (tmp_path / "modeling_x.py").write_text(code)
    runpy.run_path(str(tmp_path / "modeling_x.py"))
    assert marker.exists(), "the code does leave a mark where it runs"


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


def test_no_wait_is_longer_than_the_user_said() -> None:
    constants = huggingface_hub.constants
    longest = max(constants.HF_HUB_ETAG_TIMEOUT, constants.HF_HUB_DOWNLOAD_TIMEOUT)
    session = huggingface_hub.get_session()
    for asked in (60.0, None, 3.0):
        request = session.build_request("HEAD", NOWHERE, timeout=asked)
        with hub_errors(MODEL, kind="model"):
            for hook in session.event_hooks["request"]:
                hook(request)
        waits = request.extensions["timeout"].values()
        assert set(waits) == {min(asked or longest, longest)}


def test_a_hub_folder_that_cannot_be_written_is_no_fault_of_the_network(tmp_path: Path) -> None:
    blocked = tmp_path / "file" / "below"
    blocked.parent.write_text("")
    with (
        pytest.raises(StorageError, match="cannot be written"),
        hub_errors(MODEL, kind="model", downloading=True),
    ):
        blocked.mkdir()
    with (
        pytest.raises(HubError, match="could not be reached"),
        hub_errors(MODEL, kind="model"),
    ):
        raise ConnectionRefusedError(111, "Connection refused")


def test_the_server_keeps_the_protocol(world: World, tmp_path: Path) -> None:
    """What the client's own calls make of the server, so that the tests above mean something."""
    write_csv(tmp_path / "x.csv", [])
    api = huggingface_hub.HfApi(endpoint=world.hub.endpoint)
    content = world.hub.models[MODEL].commits[world.model]
    assert set(api.list_repo_files(MODEL, revision="main")) == set(content)
    info = api.get_paths_info(MODEL, ["model.safetensors", "onnx", "absent"])
    assert [entry.path for entry in info] == ["model.safetensors", "onnx"]
    assert info[0].lfs.size == len(content["model.safetensors"])
    path = api.hf_hub_download(MODEL, "model.safetensors", cache_dir=tmp_path, revision="main")
    assert Path(path).read_bytes() == content["model.safetensors"]
    assert Path(path).parent.name == world.model
    with pytest.raises(huggingface_hub.errors.EntryNotFoundError):
        api.hf_hub_download(MODEL, "absent", cache_dir=tmp_path)
