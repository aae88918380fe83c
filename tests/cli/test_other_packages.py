"""What other installed packages offer: listed, trained, reported, and refused where it must be."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch import Tensor

import gaam_cache
import gaam_decoder
from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError
from gaam_decoder.attention import Attention
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]
Install = Callable[..., None]
ROOT = Path(__file__).parents[2]
PACKAGE = "gaam_decoder.attention"
README = (ROOT / "README.md").read_text("utf-8")
SECH = textwrap.dedent(
    README[README.index("    import torch\n") : README.index("What is no gate")]
)
"""The mechanism that the README shows."""


class Sixth(Attention):
    """A sixth of every state."""

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD / 6


class Centred(Attention):
    """Every state without the mean of its batch."""

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD - x_BLD.mean(0)


class SaysSo(Centred):
    """The same, and it says that it reads other rows."""

    depends_on_batch = True


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where packages are installed for one test; what it imports of them is forgotten."""
    there = tmp_path / "site-packages"
    there.mkdir()
    monkeypatch.syspath_prepend(there)
    before = set(sys.modules)
    yield there
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(there)):
            del sys.modules[name]


@pytest.fixture
def install(folder: Path) -> Install:
    """Make a distribution as an installer leaves it."""

    def make(
        name: str, version: str, offers: dict[str, dict[str, str]], **modules: str
    ) -> None:
        about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        lines = []
        for group, points in offers.items():
            lines += [
                f"[{group}]",
                *(f"{key} = {value}" for key, value in points.items()),
            ]
        (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text)

    return make


@pytest.fixture
def sech(install: Install) -> None:
    install(
        "gaam-sech",
        "1.2",
        {"gaam.attention": {"sech": "sech_gate:Sech"}},
        sech_gate=SECH,
    )


@pytest.mark.usefixtures("sech")
def test_a_mechanism_of_another_package_is_listed_described_trained_and_reported(
    gaam: Gaam, tiny_cache: Path, tmp_path: Path
) -> None:
    assert "sech" in plugins.names(PACKAGE)
    listed = gaam("describe", "--layers", 6, "--hidden-size", 32).out
    assert "gaam-sech 1.2" in " ".join(listed.split())
    described = gaam(
        "describe", "--attn", "sech:heads=2", "--layers", 6, "--hidden-size", 32
    ).out
    for text in (
        "gaam-sech 1.2",
        "1 / cosh(r / s)",
        "s 2 x 32",
        "location=mean|median",
    ):
        assert text in described
    runs = tmp_path / "runs"
    options = [
        "--cache",
        tiny_cache,
        "--runs",
        runs,
        "--seeds",
        2,
        "--epochs",
        2,
        "--lr",
        0.01,
    ]
    trained = gaam(
        "train",
        "--attn",
        "sech:location=median",
        "--attn",
        "none",
        "--no-probe",
        *options,
    )
    assert trained.code == 0, trained.err
    report = gaam("report", runs)
    assert report.code == 0
    assert "location=median" in report.out
    (table,) = gaam_decoder.report(runs).tables
    assert sum(row.compared is not None for row in table.entries) == 1
    (run,) = [
        run for run in gaam_decoder.load_runs(runs) if run.attention.startswith("sech")
    ]
    assert set(run.learned) == {"offset", "s"}


def test_a_mechanism_of_ones_own_file_is_trained_and_its_code_is_part_of_the_key(
    gaam: Gaam, tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    file, runs = tmp_path / "my_gate.py", tmp_path / "runs"
    file.write_text(SECH)
    assert (
        "1 / cosh(r / s)"
        in gaam("describe", "--attn", f"{file}:Sech", "--layers", 6).out
    )
    options = [
        "--cache",
        tiny_cache,
        "--runs",
        runs,
        "--seeds",
        2,
        "--epochs",
        2,
        "--lr",
        0.01,
    ]
    options += ["--no-probe", "--attn", f"{file}:Sech:heads=1"]
    assert gaam("train", "--attn", "none", *options, "--devices", 2).code == 0
    (run,) = gaam_decoder.load_runs(runs, attn="Sech")
    file.write_text(f"# a remark\n{SECH}")
    assert gaam("train", *options).code == 0
    assert len(gaam_decoder.load_runs(runs, attn="Sech")) == 1
    file.write_text(SECH.replace("2 * torch", "2.0 * torch"))
    assert gaam("train", *options).code == 0
    assert len(gaam_decoder.load_runs(runs, attn="Sech")) == 2
    assert (
        len(set(re.findall(r"my_gate.py [0-9a-f]{8}", gaam("report", runs).out))) == 2
    )
    (table,) = gaam_decoder.report(runs).tables
    assert sum(row.compared is not None for row in table.entries) == 2
    plugins._REGISTERED.clear()  # as in another process: no code is run that only a run names
    refused = gaam("predict", run.path, "a text")
    assert refused.code == 2
    assert f"gaam predict RUN --attn {file.name}:Sech" in refused.err
    # its code has changed since
    assert gaam("predict", run.path, "a text", "--attn", f"{file}:Sech").code == 2
    file.write_text(SECH)
    plugins._REGISTERED.clear()
    rows = ("--cache", tiny_cache, "--out", tmp_path / "out.csv")
    predicted = gaam("predict", run.path, *rows, "--attn", f"{file}:Sech")
    assert predicted.code == 0, predicted.err
    for wrong in (
        f"{file}:Tensor",
        f"{file}:Nothing",
        f"{file}",
        tmp_path / "none.py:A",
    ):
        assert gaam("train", *options[:-2], "--attn", wrong).code == 2


def test_a_class_is_taken_as_it_is(
    tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    config = gaam_decoder.TrainConfig(
        attn=Sixth,
        cache=tiny_cache,
        runs=tmp_path,
        seeds=2,
        epochs=2,
        lr=0.01,
        probe=False,
    )
    (run,) = gaam_decoder.train(config)
    logits = gaam_decoder.load(run.path).predict_states(
        gaam_cache.open_cache(tiny_cache)["test"].embeddings[:]
    )
    assert len(logits) == len(run.labels)
    assert run.attention == "Sixth"


@pytest.mark.parametrize("mechanism", [Centred, SaysSo], ids=lambda it: it.__name__)
def test_a_mechanism_that_mixes_rows_says_so_or_is_refused(
    mechanism: type, tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    config = gaam_decoder.TrainConfig(
        attn=mechanism,
        cache=tiny_cache,
        runs=tmp_path,
        seeds=1,
        epochs=1,
        lr=0.01,
        probe=False,
    )
    if mechanism is SaysSo:
        assert len(gaam_decoder.train(config)) == 1
        return
    with pytest.raises(ConfigError) as refusal:
        gaam_decoder.train(config)
    assert "depends_on_batch = True" in str(refusal.value)
