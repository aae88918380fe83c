"""Who may import whom, and what a command loads."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import GOLDEN

ROOT = Path(__file__).parents[2]
PACKAGES = ("gaam_cache", "gaam_decoder")
READ_BY_DECODERS = {"common", "config", "store", "targets", "workers", "open_cache"}
"""Rooms of the cache that decoders read, and the function that opens one."""
USED_BY_DECODERS = {
    "use": {"extraction", "hub", "importing", "sources"},
    "analysis": {"importing"},
    "study.py": {"extraction"},
    "grids": {"extraction"},
}
"""A room of decoders that makes the cache work -> the rooms that do this work."""
READ_BY_REPORTS = {
    *("runs", "stats", "reports", "analysis"),
    *("common", "config", "number_lists", "specs", "store", "tasks"),
}
"""Rooms of both packages that reports read."""


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Dotted names that a file imports, anywhere in it."""
    return frozenset(imported_names(ast.walk(parsed(path))))


def imported_names(nodes: Iterator[ast.AST]) -> set[str]:
    """Dotted names that these nodes import: modules, and what they take from them."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def files_of(package: str) -> list[Path]:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    return files


def test_the_decoder_imports_only_the_read_side_of_the_cache() -> None:
    for path in files_of("gaam_decoder"):
        allowed = set(READ_BY_DECODERS)
        for room, used_rooms in USED_BY_DECODERS.items():
            if room in path.parts:
                allowed |= used_rooms
        for name in imports(path):
            package, *parts = name.split(".")
            assert package not in {"transformers", "datasets", "cli"}, path
            if package == "gaam_cache" and parts:
                assert parts[0] in allowed, f"{path} imports {name}"


def test_the_cache_never_imports_the_decoder() -> None:
    for path in files_of("gaam_cache"):
        packages = {name.split(".")[0] for name in imports(path)}
        assert not packages & {"gaam_decoder", "cli"}, path


def test_reports_read_run_results_alone() -> None:
    for path in files_of("gaam_decoder/reports"):
        for name in imports(path):
            package, *parts = name.split(".")
            if package in PACKAGES and parts:
                assert parts[0] in READ_BY_REPORTS, f"{path} imports {name}"


def nodes_that_run(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes except those that only a type checker reads."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting.extend(node.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def imported_modules() -> dict[str, set[str]]:
    """Every module of both packages -> those of them that it imports when it runs."""
    paths: dict[str, Path] = {}
    for path in [*files_of("gaam_cache"), *files_of("gaam_decoder")]:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        paths[name.removesuffix(".__init__")] = path
    modules: dict[str, set[str]] = {}
    for name, path in paths.items():
        imported = imported_names(nodes_that_run(parsed(path)))
        modules[name] = (imported & paths.keys()) - {name, *PACKAGES}
    return modules


def reachable(start: str, arrows: dict[str, set[str]]) -> set[str]:
    """Names that arrows lead to from a name, over any number of others."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        new_names = arrows.get(waiting.pop(), set()) - reached
        reached |= new_names
        waiting.extend(new_names)
    return reached


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """Sets of names each of which leads to each other."""
    reached = {name: reachable(name, arrows) for name in arrows}
    circles: list[set[str]] = []
    for name in arrows:
        if name not in reached[name]:
            continue
        circle = {other for other in reached[name] if name in reached.get(other, ())}
        if circle not in circles:
            circles.append(circle)
    return circles


def test_a_circle_is_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [{"b", "c"}]


def test_no_module_imports_in_a_circle() -> None:
    modules = imported_modules()
    assert len(modules) > 150
    assert circles(modules) == []


def test_nothing_unsafe_is_used() -> None:
    banned = {"pickle", "dill", "joblib", "cloudpickle"}
    for path in [ROOT / "cli.py", *files_of("gaam_cache"), *files_of("gaam_decoder")]:
        assert not imports(path) & banned, path
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
                assert ast.literal_eval(node.value) is False, path
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.load":
                pytest.fail(f"{path} uses torch.load")


RUN_COMMANDS = """
import os
import sys

from gaam_cache.common.terminal import entry

for command in sys.argv[1:]:
    words = command.removesuffix("?").split()
    sys.argv = ["gaam", *words]
    if command.endswith("?"):
        os.environ["COMP_WORDS"] = " ".join(["gaam", *words])
        os.environ["COMP_CWORD"] = str(len(words))
        os.environ["_GAAM_COMPLETE"] = "complete_bash"
    try:
        entry()
    except SystemExit as stop:
        assert not stop.code, command
    assert not set(BANNED) & set(sys.modules), command
"""
"""Runs commands in one process; a shell completes those that end with ``?``."""
ENTRY_POINTS = """
[gaam.attention]
loud = loud_gate:A
[gaam.formats]
loud = loud_gate:F
"""
"""Parts of another package that cannot be imported."""
BANNED_MODULES: dict[str, set[str]] = {
    "help": {
        *("torch", "transformers", "datasets", "h5py", "numpy", "scipy", "rich"),
    },
    "look": {"torch", "transformers", "datasets", "huggingface_hub"},
    "train": {"transformers", "datasets", "huggingface_hub"},
}
"""A kind of commands -> modules that these must not import."""
COMMANDS: dict[str, tuple[str, ...]] = {
    "help": (
        "--help",
        "extract --help",
        "train --help",
        "ablate --help",
        "report --help",
        "inspect --help",
        "verify --help",
        "ex?",
        "train --tr?",
        "train --attn la?",
        "train --preset pa?",
        "study pla?",
        "report --format la?",
    ),
    "look": (
        "runs {old}",
        "inspect {old}",
        "verify {old}",
        "verify {cache}",
    ),
    "train": (
        "train --cache {cache} --runs {new} --seeds 1 --lr 1 --epochs 2",
        "report {new}",
        "inspect {new}",
    ),
}


def install_a_package_that_cannot_be_imported(folder: Path) -> None:
    metadata = folder / "loud-3.dist-info"
    metadata.mkdir()
    text = "Metadata-Version: 2.1\nName: loud\nVersion: 3\n"
    (metadata / "METADATA").write_text(text)
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_command_imports_no_more_than_it_needs(
    kind: str, tiny_cache: Path, tmp_path: Path
) -> None:
    """Nor the parts of other packages, which it only lists."""
    install_a_package_that_cannot_be_imported(tmp_path)
    old = GOLDEN / "v0.1.0" / "runs"
    new = tmp_path / "runs"
    commands = [
        command.format(old=old, cache=tiny_cache, new=new) for command in COMMANDS[kind]
    ]
    program = f"BANNED = {BANNED_MODULES[kind]}\n{RUN_COMMANDS}"
    process = subprocess.run(
        [sys.executable, "-c", program, *commands],
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        cwd=tmp_path,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ("loud" in process.stdout) == (kind == "help")
