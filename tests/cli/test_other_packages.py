"""Parts of other installed packages: listed, trained, reported, or refused."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import gaam_cache
import gaam_decoder
from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError
from gaam_decoder.analysis.learned import has_learned_curve
from gaam_decoder.attention import Attention
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]
PAGE = Path(__file__).parents[2] / "docs/contributing/parts.md"
TRAIN = ("train", "--seeds", 2, "--epochs", 2, "--lr", 0.01, "--no-probe")


class Sixth(Attention):
    """A sixth of every state."""

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD / 6


class Centred(Attention):
    """Every state without the mean of its batch."""

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD - x_BLD.mean(0)


class DeclaredCentred(Centred):
    """The same, and it declares that it reads other rows."""

    depends_on_batch = True


@pytest.fixture(scope="module")
def sech() -> str:
    """The code of the mechanism that the page on parts shows."""
    page = PAGE.read_text("utf-8")
    example = re.search(r"^`sech\.py`:\n\n```python\n(.*?)```", page, re.M | re.S)
    assert example is not None
    return example.group(1)


@pytest.fixture
def site_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Packages of one test are installed here; its imports are forgotten afterwards."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    modules_before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - modules_before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(folder):
            del sys.modules[name]


@pytest.fixture
def sech_package(site_packages: Path, sech: str) -> None:
    """Install a distribution with a mechanism, as an installer leaves it."""
    metadata = site_packages / "gaam_sech-1.2.dist-info"
    metadata.mkdir()
    text = "Metadata-Version: 2.1\nName: gaam-sech\nVersion: 1.2\n"
    (metadata / "METADATA").write_text(text)
    entry_points = "[gaam.attention]\nsech = sech_gate:Sech\n"
    (metadata / "entry_points.txt").write_text(entry_points)
    (site_packages / "sech_gate.py").write_text(sech)


@pytest.fixture
def no_registered_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes that a test names are forgotten after it."""
    monkeypatch.setattr(plugins, "_REGISTERED", {})


def forget_registered_classes() -> None:
    """As in another process: no code runs that only a run names."""
    plugins._REGISTERED.clear()


def num_compared(runs: Path) -> int:
    """How many decoders of a report are compared with another."""
    [table] = gaam_decoder.report(runs).tables
    return sum(entry.comparison is not None for entry in table.entries)


@pytest.mark.usefixtures("sech_package")
def test_a_mechanism_of_another_package_is_listed_and_described(gaam: Gaam) -> None:
    assert "sech" in plugins.names("gaam_decoder.attention")
    sizes = ("--layers", 6, "--hidden-size", 32)
    listed = gaam("describe", *sizes).out
    assert "gaam-sech 1.2" in " ".join(listed.split())
    described = gaam("describe", "--attn", "sech:heads=2", *sizes).out
    for part in (
        "gaam-sech 1.2",
        "1 / cosh(r / s)",
        "s 2 x 32",
        "location=mean|median",
    ):
        assert part in described


@pytest.mark.usefixtures("sech_package")
def test_a_mechanism_of_another_package_is_trained_and_reported(
    gaam: Gaam, tiny_cache: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    mechanisms = ("--attn", "sech:location=median", "--attn", "none")
    trained = gaam(*TRAIN, "--cache", tiny_cache, "--runs", runs, *mechanisms)
    assert trained.code == 0, trained.err
    report = gaam("report", runs)
    assert report.code == 0
    assert "location=median" in report.out
    assert num_compared(runs) == 1
    [run] = [
        run for run in gaam_decoder.load_runs(runs) if run.attention.startswith("sech")
    ]
    assert set(run.learned) == {"offset", "s"}


class OwnFile:
    """A mechanism in a file of one's own, and a folder of its runs."""

    def __init__(self, gaam: Gaam, cache: Path, folder: Path, code: str) -> None:
        self.gaam = gaam
        self.code = code
        self.file = folder / "my_gate.py"
        self.file.write_text(code)
        self.spec = f"{self.file}:Sech"
        self.runs = folder / "runs"
        self.train_command = (*TRAIN, "--cache", cache, "--runs", self.runs)

    def train(self, *options: object) -> None:
        mechanism = ("--attn", f"{self.spec}:heads=1")
        outcome = self.gaam(*self.train_command, *mechanism, *options)
        assert outcome.code == 0, outcome.err

    def load_runs(self) -> list[gaam_decoder.RunResult]:
        return list(gaam_decoder.load_runs(self.runs, attn="Sech"))


@pytest.fixture
def own_file(
    no_registered_classes: None,
    gaam: Gaam,
    tiny_cache: Path,
    tmp_path: Path,
    sech: str,
) -> OwnFile:
    return OwnFile(gaam, tiny_cache, tmp_path, sech)


def test_a_file_is_described(own_file: OwnFile) -> None:
    described = own_file.gaam("describe", "--attn", own_file.spec, "--layers", 6)
    assert "1 / cosh(r / s)" in described.out


def test_the_code_of_a_file_is_part_of_the_key(own_file: OwnFile) -> None:
    own_file.train("--attn", "none", "--devices", 2)
    assert len(own_file.load_runs()) == 1
    own_file.file.write_text(f"# a remark\n{own_file.code}")
    own_file.train()
    assert len(own_file.load_runs()) == 1, "a remark is no code"
    own_file.file.write_text(own_file.code.replace("2 * torch", "2.0 * torch"))
    own_file.train()
    assert len(own_file.load_runs()) == 2
    report = own_file.gaam("report", own_file.runs).out
    names = set(re.findall(r"my_gate.py [0-9a-f]{8}", report))
    assert len(names) == 2
    assert num_compared(own_file.runs) == 2


@pytest.mark.parametrize("spelling", ["Sech", "FILE", "FILE:heads=1", "Sech:heads=1"])
def test_a_report_takes_the_spelling_of_the_training(
    spelling: str, own_file: OwnFile
) -> None:
    own_file.train("--attn", "none")
    forget_registered_classes()
    name = spelling.replace("FILE", own_file.spec)
    filtered = own_file.gaam("report", own_file.runs, "--attn", name)
    assert filtered.code == 0, filtered.err
    assert "of 1 of 2 runs" in filtered.out
    assert "no control" not in filtered.out
    # code runs if a person names its file, and draws what the code of the run learned
    [run] = own_file.load_runs()
    assert has_learned_curve(run) == ("FILE" in spelling)
    compared = own_file.gaam("report", own_file.runs, "--baseline", name)
    assert "differences to Sech:heads=1" in compared.out, compared.err


def test_a_run_predicts_with_the_file_that_it_was_trained_with(
    own_file: OwnFile, tiny_cache: Path, tmp_path: Path
) -> None:
    own_file.train()
    [run] = own_file.load_runs()
    predict = ("predict", run.path, "--cache", tiny_cache, "--out", tmp_path / "o.csv")
    forget_registered_classes()
    refused = own_file.gaam("predict", run.path, "a text")
    assert refused.code == 2
    assert "--attn my_gate.py:Sech" in refused.err
    own_file.file.write_text(own_file.code.replace("2 * torch", "2.0 * torch"))
    changed = own_file.gaam("predict", run.path, "a text", "--attn", own_file.spec)
    assert changed.code == 2
    own_file.file.write_text(own_file.code)
    forget_registered_classes()
    predicted = own_file.gaam(*predict, "--attn", own_file.spec)
    assert predicted.code == 0, predicted.err


@pytest.mark.parametrize(
    "spec", ["my_gate.py:Tensor", "my_gate.py:Nothing", "my_gate.py", "none.py:A"]
)
def test_a_file_without_such_a_mechanism_is_refused(
    spec: str, own_file: OwnFile
) -> None:
    path = own_file.file.parent / spec
    assert own_file.gaam(*own_file.train_command, "--attn", path).code == 2


def train_class(mechanism: type, cache: Path, runs: Path) -> Any:
    """The one run of a class."""
    # other types than those of the fields, as people write them
    settings: dict[str, Any] = {"attn": mechanism, "seeds": 2, "lr": 0.01}
    config = gaam_decoder.TrainConfig(
        cache=cache, runs=runs, epochs=2, probe=False, **settings
    )
    [run] = gaam_decoder.train(config)
    return run


@pytest.mark.usefixtures("no_registered_classes")
def test_a_class_is_taken_as_it_is(tiny_cache: Path, tmp_path: Path) -> None:
    run = train_class(Sixth, tiny_cache, tmp_path)
    assert run.attention == "Sixth"
    states = gaam_cache.open_cache(tiny_cache)["test"].embeddings[:]
    logits = gaam_decoder.load(run.path).predict_states(states)
    assert len(logits) == len(run.labels)


@pytest.mark.usefixtures("no_registered_classes")
def test_a_mechanism_that_mixes_rows_is_refused(
    tiny_cache: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refusal:
        train_class(Centred, tiny_cache, tmp_path)
    assert "depends_on_batch = True" in str(refusal.value)


@pytest.mark.usefixtures("no_registered_classes")
def test_a_mechanism_that_declares_that_it_mixes_rows_is_trained(
    tiny_cache: Path, tmp_path: Path
) -> None:
    train_class(DeclaredCentred, tiny_cache, tmp_path)
