"""What other installed packages offer: listed, trained, reported, and refused where it must be."""

from __future__ import annotations

import importlib
import linecache
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import gaam_cache
import gaam_decoder
from gaam_cache import plugin_code, plugins
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_cache.sources._base import find_source
from gaam_decoder.config import TrainConfig
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]
Install = Callable[..., None]
ROOT = Path(__file__).parents[2]
PACKAGE = "gaam_decoder.attention"
README = (ROOT / "README.md").read_text("utf-8")
SECH = textwrap.dedent(README[README.index("    import torch\n") : README.index("What is no gate")])
"""The mechanism that the README shows."""
ODD = (
    SECH
    + """

class Unfinished(DensityGate):
    pass


mistaken = "not a class"
"""
)


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
    plugins._entry_points.cache_clear()
    plugins._warn_once.cache_clear()


@pytest.fixture
def install(folder: Path) -> Install:
    """Make a distribution as an installer leaves it."""

    def make(name: str, version: str, offers: dict[str, dict[str, str]], **modules: str) -> None:
        about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        lines = []
        for group, points in offers.items():
            lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
        (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text)
        plugins._entry_points.cache_clear()

    return make


@pytest.fixture
def sech(install: Install) -> None:
    install("gaam-sech", "1.2", {"gaam.attention": {"sech": "sech_gate:Sech"}}, sech_gate=SECH)


@pytest.mark.usefixtures("sech")
def test_a_mechanism_of_another_package_is_listed_described_trained_and_reported(
    gaam: Gaam, tiny_cache: Path, tmp_path: Path
) -> None:
    assert "sech" in plugins.names(PACKAGE)
    listed = gaam("describe", "--layers", 6, "--hidden-size", 32).out
    assert "From gaam-sech 1.2." in " ".join(listed.split())
    described = gaam("describe", "--attn", "sech:heads=2", "--layers", 6, "--hidden-size", 32).out
    for text in ("gaam-sech 1.2", "1 / cosh(r / s)", "s 2 x 32", "location=mean|median"):
        assert text in described
    runs = tmp_path / "runs"
    options = ["--cache", tiny_cache, "--runs", runs, "--seeds", 2, "--epochs", 2, "--lr", 0.01]
    trained = gaam("train", "--attn", "sech:location=median", "--attn", "none", *options)
    assert trained.code == 0, trained.err
    report = gaam("report", runs)
    assert report.code == 0
    assert "sech:location=median" in report.out
    (run,) = [run for run in gaam_decoder.load_runs(runs) if run.attention.startswith("sech")]
    assert set(run.learned) == {"offset", "s"}


@pytest.fixture
def replaced(install: Install, folder: Path) -> Callable[[str, str], None]:
    """Installs a version of the package in the place of the one before, for this process too."""

    def by(version: str, code: str) -> None:
        for old in folder.glob("gaam_sech-*"):
            shutil.rmtree(old)
        sys.modules.pop("sech_gate", None)
        plugin_code.code.cache_clear()
        install(
            "gaam-sech", version, {"gaam.attention": {"sech": "sech_gate:Sech"}}, sech_gate=code
        )
        importlib.invalidate_caches()
        linecache.clearcache()

    return by


def test_a_new_version_or_other_code_of_a_mechanism_is_another_run(
    gaam: Gaam, replaced: Callable[[str, str], None], tiny_cache: Path, tmp_path: Path
) -> None:
    def trained(version: str, code: str) -> int:
        replaced(version, code)
        assert gaam("train", "--attn", "sech", "--attn", "none", *options).code == 0
        return len(list(runs.glob("sech-*")))

    runs = tmp_path / "runs"
    options = ["--cache", tiny_cache, "--runs", runs, "--seeds", 1, "--epochs", 1]
    assert trained("1.2", SECH) == 1
    found = {run.attention: run for run in gaam_decoder.load_runs(runs)}
    (of_sech,) = found["sech"].recipe["plugins"].values()
    assert re.fullmatch("gaam-sech 1.2 [0-9a-f]{8}", of_sech)
    assert found["sech"].environment["code"]["mechanism sech"] == of_sech
    assert "plugins" not in found["none"].recipe
    assert trained("1.2", SECH + "# a comment") == 1
    assert trained("1.3", SECH) == 2
    assert trained("1.3", SECH.replace("start=1.0", "start=3.0")) == 3
    for name in plugins.names(PACKAGE):
        assert (plugins.origin(PACKAGE, name) is None) == (name != "sech")


def test_a_run_predicts_by_the_code_that_it_was_trained_with_alone(
    replaced: Callable[[str, str], None], folder: Path, tiny_cache: Path, tmp_path: Path
) -> None:
    replaced("1.2", SECH)
    config = TrainConfig(
        cache=tiny_cache, runs=tmp_path, attn=("sech",), seeds=(0, 1), epochs=1, device="cpu"
    )
    [run] = gaam_decoder.train(config)
    states = gaam_cache.open_cache(tiny_cache)["test"].embeddings
    found = gaam_decoder.load(run.path, device="cpu").predict_states(states)
    z_SNC = run.logits.astype(np.float64)
    exp_SNC = np.exp(z_SNC - z_SNC.max(-1, keepdims=True))
    held_NC = (exp_SNC / exp_SNC.sum(-1, keepdims=True)).mean(0)
    np.testing.assert_allclose(found.probabilities_NC, held_NC, atol=1e-5, rtol=0)
    for version, code in (("1.3", SECH), ("1.2", SECH.replace("start=1.0", "start=3.0"))):
        replaced(version, code)
        with pytest.raises(ConfigError, match="not the code that the run was trained with"):
            gaam_decoder.load(run.path)
    replaced("1.2", SECH + "# a comment")
    gaam_decoder.load(run.path)
    for old in folder.glob("gaam_sech-*"):
        shutil.rmtree(old)
    plugins._entry_points.cache_clear()
    with pytest.raises(ConfigError, match="unknown mechanism 'sech'"):
        gaam_decoder.load(run.path)


@pytest.mark.filterwarnings("ignore::gaam_cache.errors.GaamWarning")
def test_seeds_of_other_code_are_kept_and_said(
    gaam: Gaam, tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--cache", tiny_cache, "--runs", tmp_path, "--epochs", 1, "--attn", "gaam"]
    assert "other code" not in gaam("train", "--seeds", "0-1", *options).err
    code = plugin_code.code
    monkeypatch.setattr(plugin_code, "code", lambda *of, kind: code(*of, kind=kind)[::-1])
    found = gaam("train", "--seeds", "0-2", *options)
    assert found.code == 0
    assert "seeds 0-1 were trained by other code than there is now of mechanism gaam" in found.err
    assert "seeds were trained by different code" in gaam("report", tmp_path).out


def test_listing_imports_nothing_of_it(install: Install, folder: Path) -> None:
    install(
        *("gaam-loud", "3"),
        {"gaam.attention": {"loud": "loud_gate:Gate"}, "gaam.formats": {"loud": "loud_gate:F"}},
        loud_gate="raise SystemExit('imported')",
    )
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\nimport cli\ntry:\n cli.main()\n"
    code += "except SystemExit as stop: assert not stop.code, stop.code\n"
    code += "assert not {'torch', 'transformers', 'loud_gate'} & set(sys.modules)"
    for command in ("train", "report"):
        shown = subprocess.run(
            [sys.executable, "-c", code, command, "--help"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "loud" in shown.stdout


def test_a_name_of_ours_stays_ours(install: Install, gaam: Gaam) -> None:
    install("gaam-thief", "0.1", {"gaam.attention": {"laplace": "sech_gate:Sech"}}, sech_gate=SECH)
    assert plugins.names(PACKAGE).count("laplace") == 1
    with pytest.warns(GaamWarning, match=r"its own mechanism 'laplace'; that of gaam-thief 0\.1"):
        cls = plugins.load(PACKAGE, "laplace", kind="mechanism")
    assert cls.__module__ == f"{PACKAGE}.laplace"
    assert plugins.origin(PACKAGE, "laplace") is None
    plugins._warn_once.cache_clear()
    outcome = gaam("describe", "--attn", "laplace")
    assert "b 8 x 5120" in outcome.out
    assert outcome.err.count("gaam-thief 0.1 is not used") == 1
    assert "gaam-thief" not in gaam("describe", "--attn", "gaam").err


def test_a_name_that_several_packages_claim_is_refused(install: Install) -> None:
    for name in ("gaam-one", "gaam-two"):
        install(name, "1", {"gaam.attention": {"sech": "sech_gate:Sech"}}, sech_gate=SECH)
    assert plugins.names(PACKAGE).count("sech") == 1
    with pytest.raises(ConfigError, match=r"several packages offer(.|\n)*gaam-one 1 and gaam-two"):
        plugins.load(PACKAGE, "sech", kind="mechanism")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("nowhere:Gate", "ModuleNotFoundError: No module named 'nowhere'"),
        ("sech_gate:Nothing", "AttributeError"),
        ("broken_gate:Gate", "SyntaxError"),
        ("sech_gate:mistaken", "'not a class'"),
        ("sech_gate:Unfinished", "Unfinished"),
        ("sech_gate:torch.nn.Linear", "torch.nn.modules.linear.Linear"),
        ("sech_gate", "module"),
    ],
)
def test_what_cannot_be_used_is_refused_where_it_is_chosen(
    value: str, said: str, install: Install, gaam: Gaam, tmp_path: Path
) -> None:
    offers = {"gaam.attention": {"gate": value}}
    install("gaam-broken", "2", offers, sech_gate=ODD, broken_gate="def")
    listed = gaam("describe")
    assert listed.code == 0
    assert "does not load" in listed.out
    for command in (["describe"], ["train", "--cache", str(tmp_path)]):
        outcome = gaam(*command, "--attn", "gate")
        assert outcome.code == 2
        assert "mechanism 'gate' of gaam-broken 2" in outcome.err
        assert said in outcome.err
        assert "Traceback" not in outcome.err
    assert gaam("describe", "--attn", "gaam").code == 0


def test_names_that_no_command_could_say_are_not_listed(install: Install) -> None:
    odd = ("Gate", "a_b", "a:b", "a,b", "-a", "ä")
    install("gaam-odd", "1", {"gaam.attention": dict.fromkeys(odd, "x:X")})
    assert not set(odd) & set(plugins.names(PACKAGE))


def test_sources_of_other_packages_are_asked_too(install: Install) -> None:
    source = '''from gaam_cache.sources._base import Source


class Queue(Source):
    """Rows of a queue."""

    priority = 0

    @classmethod
    def claims(cls, dataset):
        return dataset.startswith("queue:")

    def read(self, config, split, report=None):
        raise NotImplementedError
'''
    offers = {"gaam.sources": {"queue": "queue_source:Queue", "gone": "nowhere:Gone"}}
    install("gaam-queue", "1", offers, queue_source=source)
    with pytest.warns(GaamWarning, match=r"source 'gone' of gaam-queue 1 does not work"):
        assert type(find_source("queue:a")).__name__ == "Queue"
    assert type(find_source("news-sample")).__name__ != "Queue"


def test_a_list_of_entry_points_that_cannot_be_read_stops_nothing(
    install: Install, folder: Path
) -> None:
    install("gaam-torn", "1", {})
    (folder / "gaam_torn-1.dist-info" / "entry_points.txt").write_text("[gaam.attention]\nsech\n")
    with pytest.warns(GaamWarning, match="cannot be read"):
        assert "gaam" in plugins.names(PACKAGE)


GATE = """
import torch
from torch import Tensor, nn
from gaam_decoder.attention import Attention, DensityGate, Learned

class Gate(DensityGate):
    learns = (Learned("s", start=1.0),)
    @staticmethod
    def density(r, s):
        return torch.exp(-r.abs() / s)
    @staticmethod
    def constant(s):
        return 0.5 / s
"""
LEARNS = 'learns = (Learned("s", start=1.0),)'
DENSITY = "return torch.exp(-r.abs() / s)"
PLAIN = """
import torch
from torch import nn
from gaam_decoder.attention import Attention

class Gate(Attention):
    def __init__(self, num_layers, hidden_size):
        super().__init__(num_layers, hidden_size)
        self.w = nn.Parameter(torch.ones(hidden_size))
    def forward(self, x):
        return x * self.w
"""
MISTAKES = {
    "a tuple without its comma": GATE.replace("1.0),)", "1.0))"),
    "nothing learned": GATE.replace(LEARNS, ""),
    "names alone": GATE.replace(LEARNS, 'learns = ("s",)'),
    "another name": GATE.replace("density(r, s)", "density(r, t)").replace("/ s)", "/ t)"),
    "no static method": GATE.replace("@staticmethod", ""),
    "no density": GATE.replace(DENSITY, "pass"),
    "numpy": GATE.replace(DENSITY, "return __import__('numpy').exp(r.detach().numpy())"),
    "complex": GATE.replace(DENSITY, "return torch.exp(1j * r) * s"),
    "not finite": GATE.replace(DENSITY, "return s / (r * 0)"),
    "a start that is none": GATE.replace("start=1.0", "start=float('nan')"),
    **{
        f"called {name}": GATE.replace('"s"', f'"{name}"')
        for name in (
            "offset",
            "location",
            "normalize",
            "gate",
            "density",
            "training",
            "heads",
            "a.b",
        )
    },
    "twice": GATE.replace("1.0),)", '1.0), Learned("s", start=2.0))'),
    "an option without a type": PLAIN.replace("hidden_size):", "hidden_size, *, t=1):", 1),
    "an option of no type": PLAIN.replace("hidden_size):", "hidden_size, *, t: Gone=1):", 1),
    "raises when made": PLAIN.replace("super().", "raise OSError('no'); super()."),
    "raises when used": PLAIN.replace("return x", "raise ZeroDivisionError; return x"),
    "ends the program": PLAIN.replace("return x", "raise SystemExit(0); return x"),
    "ends at import": "raise SystemExit(0)",
    "another shape": PLAIN.replace("x * self.w", "x[:, :1] * self.w"),
    "no tensor": PLAIN.replace("x * self.w", "3"),
    "dropout": PLAIN.replace("x * self.w", "nn.functional.dropout(x * self.w)"),
    "a map of another shape": PLAIN + "    def attention_map(self, x): return x[:, :2]\n",
    "a map that is not finite": PLAIN + "    def attention_map(self, x): return x / 0\n",
    "learned that is no number": PLAIN + "    def learned(self): return {'w': self.w > 0}\n",
    "learned that is no tensor": PLAIN + "    def learned(self): return {'w': 3}\n",
    "learned without a name": PLAIN + "    def learned(self): return 3\n",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_mechanism_is_one_message_that_says_whose_it_is(
    mistake: str, gaam: Gaam, install: Install, tiny_cache: Path, tmp_path: Path
) -> None:
    offers = {"gaam.attention": {"gate": "gate_of:Gate"}}
    install("gaam-odd", "1", offers, gate_of=MISTAKES[mistake])
    options = ["--cache", tiny_cache, "--runs", tmp_path / "runs", "--seeds", 2, "--epochs", 1]
    trained = gaam("train", "--attn", "gate", *options)
    assert trained.code in (1, 2), trained
    assert trained.err.count("error: ") == 1, trained.err
    if not mistake.startswith(("called", "twice", "dropout")):
        assert "gaam-odd 1" in trained.err
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").glob("[!.]*"))
    listed = gaam("describe", "--layers", 6, "--hidden-size", 32)
    assert listed.code == 0, listed.err
    assert "laplace" in listed.out


def test_the_two_frames_of_the_mistakes_are_none(
    gaam: Gaam, install: Install, tiny_cache: Path, tmp_path: Path
) -> None:
    offers = {"gaam.attention": {"gate": "gate_of:Gate", "plain": "plain_of:Gate"}}
    install("gaam-fine", "1", offers, gate_of=GATE, plain_of=PLAIN)
    options = ["--cache", tiny_cache, "--runs", tmp_path / "runs", "--seeds", 2, "--epochs", 1]
    assert gaam("train", "--attn", "gate", "--attn", "plain", *options).code == 0
    (run,) = (tmp_path / "runs").glob("gate-*")
    ablated = gaam("ablate", run, "--num-layers", 2)
    assert ablated.code == 0, ablated.err


def test_a_change_anywhere_in_a_package_is_another_run(
    gaam: Gaam, install: Install, folder: Path, tiny_cache: Path, tmp_path: Path
) -> None:
    package = folder / "of_many"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "gate.py").write_text(GATE + "from of_many.helper import FACTOR\n")
    install("gaam-many", "1", {"gaam.attention": {"gate": "of_many.gate:Gate"}})
    options = ["--cache", tiny_cache, "--runs", tmp_path, "--seeds", 1, "--epochs", 1]
    for count, text in enumerate(("FACTOR = 1\n", "FACTOR = 1  # one\n", "FACTOR = 2\n")):
        (package / "helper.py").write_text(text)
        plugin_code.code.cache_clear()
        assert gaam("train", "--attn", "gate", *options).code == 0
        assert len(list(tmp_path.glob("gate-*"))) == (1, 1, 2)[count]


def test_a_loss_of_another_package_is_weighted_or_refused(
    gaam: Gaam, install: Install, tiny_cache: Path, tmp_path: Path
) -> None:
    code = """
        from torch.nn import functional
        from gaam_decoder.losses._base import Loss

        class Brier(Loss):
            def __call__(self, logits_BC, label_B):
                target_BC = functional.one_hot(label_B, logits_BC.shape[1])
                return (logits_BC.softmax(-1) - target_BC).square().sum(-1).mean()

        class Worst(Loss):
            def __call__(self, logits_BC, label_B):
                return functional.cross_entropy(logits_BC, label_B, reduction="none").max()
    """
    points = {"brier": "gaam_others:Brier", "worst": "gaam_others:Worst"}
    offers = {"gaam.losses": points}
    install("gaam-others", "1.0", offers, gaam_others=textwrap.dedent(code))
    options = ["--cache", tiny_cache, "--runs", tmp_path, "--seeds", 1, "--epochs", 1]
    options += ["--attn", "none", "--loss"]
    for loss in ("brier", "worst"):
        assert gaam("train", *options, loss).code == 0
    assert gaam("train", *options, "brier", "--class-weights", "balanced").code == 0
    refused = gaam("train", *options, "worst", "--class-weights", "balanced")
    assert refused.code == 2
    assert "the loss 'worst' takes no weights" in refused.err
