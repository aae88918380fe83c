"""The examples of the page on mechanisms, heads and losses run as they stand there."""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import pickle
import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import gaam_cache
import gaam_decoder
from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError, GaamWarning
from gaam_cache.common.own_code import hash_of_class
from gaam_decoder.attention import Attention
from gaam_decoder.decoder import (
    DecoderSpec,
    build_attention,
    build_decoder,
    canonical_spec,
    with_derived_options,
)
from gaam_decoder.runs.files import WEIGHTS_FILE
from gaam_decoder.specs import parse_plugin
from tests.decoder.configs import loose_config

PAGE = Path(__file__).parents[2] / "docs/contributing/parts.md"
EXAMPLE = re.compile(r"^`(\w+\.py)`[^\n]*:\n\n```python\n(.*?)```", re.M | re.S)


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write the examples into the current folder; the names of their files."""
    monkeypatch.chdir(tmp_path)
    examples = EXAMPLE.findall(PAGE.read_text("utf-8"))
    for name, code in examples:
        Path(name).write_text(code, "utf-8")
    return [name for name, _ in examples]


def test_mechanisms_and_the_head_of_the_page_train_and_are_exported(
    examples: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    assert examples == [
        "sech.py",
        "alike.py",
        "nearest.py",
        "cosine.py",
        "brier.py",
        "top_two.py",
        "signed.py",
    ]
    states = np.random.default_rng(0).normal(size=(40, 6, 8)).astype(np.float32)
    labels = np.arange(40) % 2
    splits = {"train": (states, labels), "test": (states + 1, labels)}
    gaam_cache.write("cache", splits)
    settings: dict[str, Any] = {
        "attn": ("sech.py:Sech", "nearest.py:Nearest", "alike.py:Alike:scale=5"),
        "head": "cosine.py:Cosine",
        "cache": "cache",
        "seeds": 2,
        "epochs": 1,
        "lr": 1e-3,
        "probe": False,
    }
    sech, nearest, alike = gaam_decoder.train(loose_config(**settings))
    assert [run.failed for run in (sech, nearest, alike)] == [{}, {}, {}]
    assert "s" in sech.learned
    assert "scale" in alike.learned

    # a run names its classes, but only a person may have their code executed
    plugins._REGISTERED.clear()
    own_parts: dict[str, Any] = {"attn": "alike.py:Alike", "head": "cosine.py:Cosine"}
    with pytest.raises(ConfigError, match=r"Alike(.|\n)*--attn(.|\n)*gaam export"):
        gaam_decoder.export_run(alike.path, "exported")
    with pytest.raises(ConfigError, match=r"Cosine(.|\n)*--head(.|\n)*gaam export"):
        gaam_decoder.export_run(alike.path, "exported", attn=own_parts["attn"])
    gaam_decoder.export_run(alike.path, "exported", **own_parts)
    with pytest.raises(ConfigError, match=r"not trained with the head 'linear'"):
        gaam_decoder.load("exported", attn=own_parts["attn"], head="linear")
    loaded = gaam_decoder.load("exported", **own_parts)
    own = gaam_decoder.load(alike.path, **own_parts)
    assert (loaded.predict_proba(states) == own.predict_proba(states)).all()


@pytest.mark.parametrize("has_cell", [True, False], ids=["a notebook", "a session"])
def test_a_class_without_a_file_needs_the_text_of_its_cell(
    has_cell: bool, examples: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    code = Path(examples[0]).read_text("utf-8")
    name = f"<cell of {has_cell}>"
    # a notebook keeps the text of its cells here
    if has_cell:
        lines = code.splitlines(keepends=True)
        linecache.cache[name] = (len(code), None, lines, name)
    cell: dict[str, Any] = {"__name__": "no_module_of_this_name"}
    exec(compile(code, name, "exec"), cell)
    # functions of other files say nothing about the cell
    cell["Sech"].helper = staticmethod(torch.nn.functional.softmax)
    if has_cell:
        assert str(parse_plugin(cell["Sech"], "mechanism")) == "Sech"
        package = "gaam_decoder.attention"
        code_hash = plugins._REGISTERED[package, "Sech"].code_hash
        linecache.cache[name] = (0, None, ["# other\n", *lines, "K = 2\n"], name)
        assert code_hash != hash_of_class(cell["Sech"], "mechanism")
        return
    with pytest.raises(ConfigError, match="typed into a session"):
        parse_plugin(cell["Sech"], "mechanism")


def test_a_loss_an_optimizer_and_a_score_may_be_from_a_file(
    examples: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    states = np.random.default_rng(0).normal(size=(40, 6, 8)).astype(np.float32)
    labels = np.arange(40) % 2
    splits = {"train": (states, labels), "test": (states + 1, labels)}
    gaam_cache.write("cache", splits)
    config = loose_config(
        attn="none",
        loss="brier.py:BrierLoss",
        optimizer="signed.py:SignedMomentum:momentum=0.5",
        cache="cache",
        seeds=2,
        epochs=1,
        tune_seeds="7,8",
        probe=False,
    )
    assert config.rates == (1e-3, 1e-2)
    run = gaam_decoder.train(config)[-1]
    assert str(run.recipe.loss) == "BrierLoss"
    assert str(run.recipe.optimizer) == "SignedMomentum:momentum=0.5"
    (table,) = gaam_decoder.report(run, score="top_two.py:TopTwo").tables
    assert table.score_name == "TopTwo"
    # there are two classes
    assert table.entries[0].compared_score.mean == 1
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    monkeypatch.syspath_prepend(".")
    given: Any = importlib.import_module("top_two").TopTwo
    (table,) = gaam_decoder.report(run, score=given).tables
    assert table.score_name == "TopTwo"


VECTOR_LOSS = """
from torch.nn import functional
from gaam_decoder.losses import Loss

class Vector(Loss):
    def __call__(self, logits_BC, label_B):
        return functional.cross_entropy(logits_BC, label_B, reduction="none")
"""


@pytest.mark.parametrize("class_weights", ["none", "balanced"])
def test_a_loss_that_gives_a_number_for_every_row_is_refused_and_leaves_no_run(
    class_weights: str,
    small_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    file = tmp_path / "vector.py"
    file.write_text(VECTOR_LOSS, "utf-8")
    config = loose_config(
        attn="none",
        loss=f"{file}:Vector",
        class_weights=class_weights,
        cache=small_cache,
        runs=tmp_path / "runs",
        seeds=2,
        epochs=1,
        lr=1e-3,
        probe=False,
    )
    with pytest.raises(ConfigError, match="'Vector' does not give the mean"):
        gaam_decoder.train(config)
    assert list((tmp_path / "runs").glob(".*.partial")) == []


GATE = """
import torch
from torch import nn
from gaam_decoder.attention import Attention, DensityGate, Learned

class Gate(DensityGate):
    learns = (Learned("s", start=1.0),)

    @staticmethod
    def constant(s):
        return 1 / s

"""
PLAIN = """
import torch
from torch import nn
from gaam_decoder.attention import Attention

class Own(Attention):
    def __init__(self, num_layers, hidden_size):
        super().__init__(num_layers, hidden_size)
        self.w = nn.Parameter(torch.ones(hidden_size))

"""
FORWARD = "    def forward(self, x_BLD): return "
INIT = "    def __init__(self, num_layers, hidden_size"
SUPER = "super().__init__(num_layers, hidden_size)"
STATIC = "    @staticmethod\n    def density"
IDENTITY = f"{FORWARD}x_BLD * self.w\n"
SCALED = """
from gaam_decoder.attention import Attention
from own_scale import SCALE

class Own(Attention):
    def forward(self, x_BLD):
        return x_BLD * SCALE
"""
WRONG_MECHANISMS = {
    "density of other arguments": (f"{GATE}{STATIC}(r): return r", "density(r, s)"),
    "density of other names": (f"{GATE}{STATIC}(r, b): return r", "density(r, s)"),
    "density not static": (
        f"{GATE}    def density(self, r, s): return r",
        "@staticmethod",
    ),
    "density a number": (f"{GATE}    density = 3.0", "density(r, s)"),
    "density of nothing": (f"{GATE}{STATIC}(r, s): pass", "NoneType"),
    "density that broadcasts": (
        f"{GATE}{STATIC}(r, s): return (r / s).mean(-1, True)",
        "the shape of r",
    ),
    "density without features": (
        f"{GATE}{STATIC}(r, s): return (r / s).mean(-1)",
        "the shape of r",
    ),
    "density of nan": (f"{GATE}{STATIC}(r, s): return r / 0", "nan"),
    "density raises": (f"{GATE}{STATIC}(r, s): 1 / 0", "line 14, in density"),
    "constant of other names": (
        f"{GATE}{STATIC}(r, s): return r / s\n"
        "    @staticmethod\n    def constant(b): return b",
        "constant(s)",
    ),
    "no density": (GATE, "density"),
    "wrong shape": (f"{PLAIN}{FORWARD}x_BLD.mean(1)", "(3, 6, 8)"),
    "axes swapped": (f"{PLAIN}{FORWARD}x_BLD.mT * self.w[:6]", "(3, 8, 6)"),
    "wrong type": (f"{PLAIN}{FORWARD}x_BLD.double() * self.w", "float64"),
    "nothing": (f"{PLAIN}{FORWARD}None", "NoneType"),
    "in place": (f"{PLAIN}{FORWARD}x_BLD.mul_(2) * self.w", "in place"),
    "raises": (f"{PLAIN}{FORWARD}x_BLD * self.b", "line 11, in forward"),
    "raises in training": (
        f"{PLAIN}{FORWARD}x_BLD * self.w if not self.training else 1 / 0",
        "ZeroDivisionError",
    ),
    "argument beside": (f"{PLAIN}{IDENTITY}{INIT}, b): {SUPER}", "missing 1"),
    "option without type": (f"{PLAIN}{IDENTITY}{INIT}, *, b=3): {SUPER}", "b: TYPE"),
    "output_shape a number": (f"{PLAIN}{IDENTITY}    output_shape = 3", "TypeError"),
    "no parameter": (
        f"{PLAIN}{IDENTITY}{INIT}): {SUPER}; self.w = torch.ones(8).requires_grad_()",
        "nn.Parameter",
    ),
    "map of a wrong shape": (
        f"{PLAIN}{IDENTITY}    def attention_map(self, x_BLD): return x_BLD.sum()",
        "attention_map",
    ),
    "learned is a list": (
        f"{PLAIN}{IDENTITY}    def learned(self): return [self.w]",
        "a dictionary",
    ),
    "tied weights": (
        f"{PLAIN}{IDENTITY}{INIT}): {SUPER}; self.a = nn.Linear(8, 8); "
        "self.b = self.a; self.w = nn.Parameter(torch.ones(8))",
        "attention.b.bias, which is the tensor of another name",
    ),
    "file ends the process": (f"{PLAIN}{IDENTITY}exit(1)", "SystemExit"),
}


SAVED = f"{PLAIN}{INIT}): {SUPER}; self.w = nn.Parameter(torch.ones(1)); "
UNSAVED_STATES = {
    "plain tensor": (
        f"{SAVED}self.p = torch.randn(8)\n{FORWARD}x_BLD * self.p * self.w\n",
        "in evaluation",
    ),
    "buffer that is not saved": (
        f"{SAVED}self.register_buffer('p', torch.randn(8), persistent=False)\n"
        f"{FORWARD}x_BLD * self.p * self.w\n",
        "in evaluation",
    ),
    "modules in a list": (
        f"{SAVED}self.maps = [nn.Linear(8, 8).requires_grad_(False)]\n"
        f"{FORWARD}self.maps[0](x_BLD) * self.w\n",
        "in evaluation",
    ),
    "count": (
        f"{SAVED}self.n = 0\n"
        "    def forward(self, x_BLD):\n"
        "        self.n += self.training\n"
        "        return x_BLD * self.w * min(1, self.n / 9)\n",
        "in evaluation",
    ),
    "count that only training reads": (
        f"{SAVED}self.n = 0\n"
        "    def forward(self, x_BLD):\n"
        "        self.n += self.training\n"
        "        return x_BLD * self.w * (self.n if self.training else 1)\n",
        "in training",
    ),
    "start value of the first batch": (
        f"{SAVED}self.start = None\n"
        "    def forward(self, x_BLD):\n"
        "        if self.training and self.start is None: self.start = x_BLD.std()\n"
        "        return x_BLD * self.w * (self.start or 1)\n",
        "in evaluation",
    ),
    "generator of its own": (
        f"{SAVED}self.g = torch.Generator().manual_seed(0)\n"
        "    def forward(self, x_BLD):\n"
        "        if not self.training: return x_BLD * self.w\n"
        "        return x_BLD * self.w * torch.rand(1, generator=self.g)\n",
        "in training",
    ),
    "kept batch": (
        f"{SAVED}self.kept = torch.ones(1)\n"
        "    def forward(self, x_BLD):\n"
        "        if self.training: self.kept = x_BLD[0, 0].detach()\n"
        "        return x_BLD * self.w * self.kept\n",
        "in evaluation",
    ),
    "rows mixed in larger batches only": (
        f"{SAVED}\n"
        "    def forward(self, x_BLD):\n"
        "        if len(x_BLD) <= 3: return x_BLD * self.w\n"
        "        return x_BLD * self.w - x_BLD.roll(1, 0)\n",
        "seed 0, after the training",
    ),
    "count of more steps than a trial": (
        f"{SAVED}self.n = 0\n"
        "    def forward(self, x_BLD):\n"
        "        self.n += self.training\n"
        "        return x_BLD * self.w * (1 + (self.n > 4))\n",
        "seed 0, after the training",
    ),
}


@pytest.mark.parametrize("name", UNSAVED_STATES)
def test_a_mechanism_that_keeps_more_than_its_weights_is_refused(
    name: str, small_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    code, where = UNSAVED_STATES[name]
    with pytest.raises(ConfigError, match="parameter or a persistent") as refusal:
        train_own(code, small_cache, tmp_path, epochs=5)
    assert refusal.value.details["where"].endswith(where)


TAU = """
import torch
from torch import nn
from gaam_decoder.attention import Attention

class Own(Attention):
    def __init__(self, num_layers, hidden_size, *, tau: float | None = None):
        super().__init__(num_layers, hidden_size)
        self.tau = 1 / (DEFAULT if tau is None else tau)
        self.w = nn.Parameter(torch.ones(1))
    def forward(self, x_BLD):
        return x_BLD * self.w * self.tau
"""


@pytest.mark.parametrize("tau", [None, 2.0, 0.125])
def test_an_option_is_trained_as_given_whatever_the_class_stores(
    tau: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    file = tmp_path / "own.py"
    name = "Own" if tau is None else f"Own:tau={tau}"
    # an edit changes the default
    for default in (4.0, 16.0):
        file.write_text(TAU.replace("DEFAULT", str(default)), "utf-8")
        spec = parse_plugin(f"{tmp_path}/own.py:{name}", "mechanism")
        for named in (with_derived_options, canonical_spec):
            assert str(named(spec, 12, 8)) == name
            attention = build_attention(named(spec, 12, 8), 12, 8)
            assert attention.tau == 1 / (tau or default)


def own_gate(scale: float) -> type[Attention]:
    class Own(Attention):
        def __init__(self, num_layers: int, hidden_size: int) -> None:
            super().__init__(num_layers, hidden_size)
            self.w = torch.nn.Parameter(torch.ones(1))

        def forward(self, x_BLD: Tensor) -> Tensor:
            return x_BLD * self.w * scale

    return Own


@pytest.mark.parametrize("at_once", [True, False])
def test_of_two_classes_of_one_name_none_is_trained_in_place_of_the_other(
    at_once: bool, small_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    settings: dict[str, Any] = {
        "cache": small_cache,
        "runs": tmp_path,
        "seeds": 1,
        "epochs": 1,
        "lr": 1e-3,
        "probe": False,
    }
    classes = [own_gate(1.0), own_gate(9.0)]
    configs: list[Any] = [loose_config(attn=tuple(classes), **settings)]
    if not at_once:
        configs = [loose_config(attn=cls, **settings) for cls in classes]
    with pytest.raises(ConfigError, match="'Own' is not the one that was given"):
        gaam_decoder.train(configs[0])
    # the last class is the one that its name stands for
    [run] = gaam_decoder.train(loose_config(attn=classes[1], **settings))
    assert run.attention == "Own"
    assert pickle.loads(pickle.dumps(configs[0].attn)) == configs[0].attn


def test_an_own_gate_names_its_number_of_heads_after_an_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    file = tmp_path / "own.py"
    heads = []
    for init in ("", f"{INIT}, **more: int): super().__init__(2 * num_layers, 8)"):
        file.write_text(f"{GATE}{STATIC}(r, s): return r / s\n{init}\n", "utf-8")
        spec = parse_plugin(f"{file}:Gate", "mechanism")
        heads.append(str(with_derived_options(spec, 6, 8)))
    assert heads == ["Gate:heads=2", "Gate:heads=4"]


DRAWS = {
    "torch": "torch.rand(())",
    "NumPy": "float(numpy.random.rand())",
    "Python": "random.random()",
}


@pytest.mark.parametrize("package", DRAWS)
def test_a_seed_decides_what_a_constructor_draws(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    code = (
        f"import numpy, random\n{PLAIN}{IDENTITY}{INIT}): {SUPER}; "
        f"self.w = nn.Parameter(torch.ones(8) * {DRAWS[package]})\n"
    )
    (tmp_path / "own.py").write_text(code, "utf-8")
    spec = DecoderSpec(
        attention=parse_plugin(f"{tmp_path}/own.py:Own", "mechanism"),
        head=parse_plugin("linear", "head"),
        num_layers=6,
        hidden_size=8,
        num_classes=2,
    )
    states = pickle.dumps(np.random.get_state()), random.getstate()  # noqa: NPY002
    drawn = [
        build_decoder(spec, seed).get_parameter("attention.w")[0].item()
        for seed in (0, 1, 0)
    ]
    assert drawn[0] == drawn[2] != drawn[1]
    assert states == (pickle.dumps(np.random.get_state()), random.getstate())  # noqa: NPY002


@pytest.mark.parametrize("package", DRAWS)
def test_random_numbers_that_a_mechanism_or_a_loss_draws_in_training_are_noticed(
    package: str, small_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    code = (
        f"import numpy, random\n{PLAIN}    def forward(self, x_BLD):\n"
        f"        noise = {DRAWS[package]} if self.training else 0.0\n"
        "        return x_BLD * self.w + noise\n"
    )
    with pytest.raises(ConfigError, match="random numbers of its own"):
        train_own(code, small_cache, tmp_path)
    code = (
        "import numpy, random, torch\nfrom gaam_decoder.losses import Loss\n"
        "class Noisy(Loss):\n"
        "    def __call__(self, logits_BC, label_B):\n"
        f"        noise = 1 + {DRAWS[package]}\n"
        "        return torch.nn.functional.cross_entropy(logits_BC, label_B) * noise\n"
    )
    (tmp_path / "noisy.py").write_text(code, "utf-8")
    config = loose_config(
        attn="none",
        loss=f"{tmp_path}/noisy.py:Noisy",
        cache=small_cache,
        runs=tmp_path / "losses",
        seeds=1,
        epochs=1,
        lr=1e-3,
        probe=False,
    )
    with pytest.raises(ConfigError, match="random numbers of its own"):
        gaam_decoder.train(config)


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_frozen_parameter_is_not_trained(
    seeds: int, small_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    code = (
        f"{SAVED}self.fc = nn.Linear(8, 8).requires_grad_(False)\n"
        f"{FORWARD}self.fc(x_BLD) * self.w\n"
    )
    [run] = train_own(code, small_cache, tmp_path, seeds=seeds)
    own = parse_plugin(f"{tmp_path}/own.py:Own", "mechanism")
    with run.tensors(WEIGHTS_FILE) as file:
        frozen_SDD = file.get_tensor("attention.fc.weight")
        trained_S1 = file.get_tensor("attention.w")
    for seed in range(seeds):
        decoder_spec = DecoderSpec(
            attention=own,
            head=parse_plugin("linear", "head"),
            num_layers=6,
            hidden_size=8,
            num_classes=2,
        )
        untrained = build_decoder(decoder_spec, seed)
        before_DD = untrained.get_parameter("attention.fc.weight").numpy()
        assert np.array_equal(frozen_SDD[seed], before_DD)
        assert trained_S1[seed] != 1
    assert run.parameters["attention"] == 1


def test_numbers_far_from_zero_hide_no_state_that_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    states = np.random.default_rng(0).normal(size=(40, 6, 8)).astype(np.float32)
    targets = states[:, 0, 0] + 1000
    cache = tmp_path / "cache"
    gaam_cache.write(cache, {"train": (states, targets), "test": (states + 1, targets)})
    code, where = UNSAVED_STATES["count of more steps than a trial"]
    with pytest.raises(ConfigError, match=where):
        train_own(code, cache, tmp_path, epochs=5)


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_buffer_may_be_replaced_or_changed_in_place(
    seeds: int, small_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for change in ("self.m.copy_(new)", "self.m = new"):
        monkeypatch.setattr(plugins, "_REGISTERED", {})
        code = (
            f"{SAVED}self.register_buffer('m', torch.zeros(8))\n"
            "    def forward(self, x_BLD):\n"
            "        new = 0.9 * self.m + 0.1 * x_BLD.mean((0, 1))\n"
            f"        if self.training: {change}\n"
            "        return x_BLD * self.w - self.m\n"
        )
        folder = tmp_path / change
        folder.mkdir()
        runs += train_own(code, small_cache, folder, seeds=seeds)
    in_place, replaced = runs
    assert np.array_equal(in_place.logits, replaced.logits)
    with replaced.tensors(WEIGHTS_FILE) as file:
        assert file.get_tensor("attention.m").any()


@pytest.fixture(scope="module")
def small_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    states = np.random.default_rng(0).normal(size=(40, 6, 8)).astype(np.float32)
    labels = np.arange(40) % 2
    cache = tmp_path_factory.mktemp("own") / "cache"
    gaam_cache.write(cache, {"train": (states, labels), "test": (states + 1, labels)})
    return cache


def train_own(
    code: str, cache: Path, folder: Path, *, seeds: int = 2, epochs: int = 1
) -> list[gaam_decoder.RunResult]:
    file = folder / "own.py"
    file.write_text(code, "utf-8")
    name = "Gate" if "DensityGate" in code else "Own"
    config = loose_config(
        attn=f"{file}:{name}",
        cache=cache,
        runs=folder / "runs",
        seeds=seeds,
        epochs=epochs,
        lr=1e-3,
        probe=False,
    )
    return list(gaam_decoder.train(config))


def test_a_mechanism_is_trained_anew_when_a_module_that_it_imports_has_changed(
    small_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    # Python may take an edit of the same second for the same file
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    scales = ["1", "-20", "1"]
    runs = []
    for scale in scales:
        (tmp_path / "own_scale.py").write_text(f"SCALE = {scale}\n", "utf-8")
        # as in another process
        sys.modules.pop("own_scale", None)
        runs += train_own(SCALED, small_cache, tmp_path)
    sys.modules.pop("own_scale", None)
    first, changed, restored = runs
    assert first.path == restored.path
    assert first.path != changed.path
    assert (first.logits != changed.logits).any()
    other_code = r"not the code(.|\n)*own.py"
    with pytest.raises(ConfigError, match=other_code):
        gaam_decoder.load(changed.path, attn=f"{tmp_path}/own.py:Own")


@pytest.mark.parametrize("name", WRONG_MECHANISMS)
def test_a_wrong_mechanism_is_refused_with_one_message(
    name: str, small_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    code, words = WRONG_MECHANISMS[name]
    with pytest.raises(ConfigError) as refusal:
        train_own(code, small_cache, tmp_path)
    assert words in str(refusal.value)


@pytest.mark.parametrize("constant", ["0.4", "torch.tensor(0.4)"])
def test_a_gate_may_learn_no_parameter(
    constant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    code = (
        "import torch\nfrom gaam_decoder.attention import DensityGate\n"
        "class Gate(DensityGate):\n    learns = ()\n"
        f"{STATIC}(r): return 1 / (1 + r.abs() ** 3)\n"
        f"    @staticmethod\n    def constant(): return {constant}\n"
    )
    file = tmp_path / "own.py"
    file.write_text(code, "utf-8")
    x_BLD = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(0))
    gates = [
        build_attention(parse_plugin(f"{file}:Gate{options}", "mechanism"), 6, 8)
        for options in ("", ":normalize=density")
    ]
    usual, normalised = (gate(x_BLD) for gate in gates)
    torch.testing.assert_close(normalised, 0.4 * usual)


def test_a_parameter_without_a_gradient_is_named(
    small_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    with pytest.warns(GaamWarning, match="never learns w"):
        train_own(f"{PLAIN}{FORWARD}x_BLD * self.w.detach()", small_cache, tmp_path)


def test_the_loss_of_the_page_is_its_formula(examples: list[str]) -> None:
    spec = importlib.util.spec_from_file_location("brier", "brier.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).double()
    label = torch.tensor([0, 1, 2, 1, 0])
    distance = logits.softmax(1) - torch.eye(3)[label]
    expected = distance.square().sum(1).mean()
    torch.testing.assert_close(module.BrierLoss()(logits, label), expected)


def test_a_worker_refuses_a_class_whose_values_were_set_after_the_import(
    examples: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    monkeypatch.syspath_prepend(Path.cwd())
    alike: Any = importlib.import_module("alike").Alike
    spec = pickle.loads(pickle.dumps(parse_plugin(alike, "mechanism")))
    # a worker knows the spec without the class, and imports the file
    plugins._REGISTERED.clear()
    assert parse_plugin(spec, "mechanism") == spec
    build_attention(spec, 6, 8)
    alike.power = 3.0
    spec = pickle.loads(pickle.dumps(parse_plugin(alike, "mechanism")))
    plugins._REGISTERED.clear()
    parse_plugin(spec, "mechanism")
    with pytest.raises(ConfigError, match="'Alike' is not the one that was given"):
        build_attention(spec, 6, 8)
    sys.modules.pop("alike")
