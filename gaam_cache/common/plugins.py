"""What names on the command line stand for.

A module in a folder is a name: ``student_t.py`` <-> ``student-t``. It defines one public class, and
may say in ``ALIASES`` what else people call it. Other installed distributions add to the folder
``a.b.attention`` by entry points of the group ``gaam.attention``. Listing imports nothing.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from abc import ABC
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import did_you_mean, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from importlib.metadata import EntryPoint

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""What a distribution may call what it offers; an entry point with another name is not listed."""


FRAME = "base"
"""The module of a folder that defines what its classes extend; it is no name."""
_GIVEN: dict[tuple[str, str], tuple[type, str, str, Path]] = {}
"""Classes of a person's own by folder and name: the class, its file's name, its code's hash."""


def names(package: str) -> list[str]:
    """Names of all plug-ins of ``package`` (dotted), ours and others', sorted."""
    return sorted({*_own(package), *_offered(package)})


def load(package: str, name: str, *, kind: str, **details: str | None) -> Any:
    """The public class that ``name`` of a folder stands for; ``kind`` is what people call it.

    ``details`` are of the error, such as where the name was written.

    Raises:
        ConfigError: no plug-in of that name.
        TypeError: one of another distribution that extends another class.
    """
    own, point = _own(package), _offered(package).get(name)
    if (package, name) in _GIVEN:
        return _GIVEN[package, name][0]
    if name in own:
        module = _module(package, name)
        [cls] = [
            value
            for key, value in vars(module).items()
            if inspect.isclass(value)
            and value.__module__ == module.__name__
            and key[0] != "_"
        ]
        return cls
    if point is None:
        aliases = {
            w: one for one in own for w in getattr(_module(package, one), "ALIASES", ())
        }
        raise unknown(kind, name, names(package), aliases=aliases, **details)
    return _checked(package, point.load(), kind)


def register_class(package: str, what: str | type, *, kind: str) -> tuple[str, str]:
    """Let a class of a person's own be known by its name in this process: ``FILE.py:CLASS``, or it.

    Only who was asked by a person may call this: what a run or a model names is never run. Returns
    the name, and the file, which is empty where the class was typed into a session.

    Raises:
        ConfigError: no such file or class, one that extends another, or a name that is ours.
    """
    cls: Any = what
    if isinstance(what, str):
        stem, _, name = what.rpartition(".py")
        if not (path := Path(f"{stem}.py").expanduser()).is_file():
            raise ConfigError(
                f"no file '{shortened(str(path))}'", expected="FILE.py:CLASS"
            )
        spec: Any = importlib.util.spec_from_file_location(
            f"gaam_given_{path.stem}", path
        )
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except (SyntaxError, ImportError) as error:
            found = f"{type(error).__name__}: {error}"
            raise ConfigError(f"'{path}' cannot be imported", found=found) from error
        if not inspect.isclass(cls := getattr(module, name[1:], None)):
            found = f"no class '{shortened(name[1:])}' in '{path}'"
            raise ConfigError(
                "no class of yours", expected="FILE.py:CLASS", found=found
            )
    try:
        _checked(package, cls, kind)
    except TypeError as error:
        raise ConfigError(f"no {kind}", found=str(error)) from error
    source = Path(inspect.getsourcefile(cls) or "")
    other = _GIVEN.get((package, name := cls.__name__))
    if name in names(package) or (other and source.is_file() and other[3] != source):
        raise ConfigError(
            f"'{name}' is the name of another {kind}", expected="another name"
        )
    text = source.read_bytes() if source.is_file() else inspect.getsource(cls).encode()
    file = str(source) if source.is_file() else ""
    digest = hashlib.sha256(_code(text).encode()).hexdigest()[:8]
    _GIVEN[package, name] = cls, source.name if file else "a session", digest, source
    return name, file


def _checked(package: str, cls: Any, kind: str) -> Any:
    """Refuse what does not extend what all classes of the folder do."""
    first: type = load(package, _own(package)[0], kind=kind)
    frame = [base for base in first.__mro__ if ABC in base.__bases__][-1]
    if not issubclass(cls, frame):
        raise TypeError(f"{cls!r} is no {frame.__module__}.{frame.__name__}")
    if lacks := ", ".join(sorted(cls.__abstractmethods__)):
        raise TypeError(f"{cls!r} lacks {lacks}")
    return cls


def origin(package: str, name: str) -> str | None:
    """The distribution that ``name`` comes from, with its version, or file; None: it is ours."""
    if (package, name) in _GIVEN:
        return _GIVEN[package, name][1]
    point = None if name in _own(package) else _offered(package).get(name)
    return f"{point.dist.name} {point.dist.version}" if point and point.dist else None


def code(package: str, name: str, *, kind: str) -> str:
    """Eight digits that change with the code of a plug-in's module, though not with its words.

    Where it is not ours, with that of its whole package, and after its ``origin``.
    """
    if (package, name) in _GIVEN:
        return " ".join(_GIVEN[package, name][1:3])
    home, where = load(package, name, kind=kind).__module__, origin(package, name)
    folders = getattr(sys.modules[home.partition(".")[0]], "__path__", None)
    files = [Path(str(sys.modules[home].__file__))]
    if where and folders:
        files = sorted(
            file for folder in folders for file in Path(folder).rglob("*.py")
        )
    text = "".join(_code(file.read_bytes()) for file in files)
    return f"{where or ''} {hashlib.sha256(text.encode()).hexdigest()[:8]}".strip()


@functools.cache
def _code(text: bytes) -> str:
    """What a file does, in one spelling: without comments and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def _is_text(line: ast.AST) -> bool:
    return isinstance(line, ast.Expr) and isinstance(
        getattr(line.value, "value", None), str
    )


def _own(package: str) -> list[str]:
    return _in_folders(*_folders(package))


@functools.cache
def _in_folders(*folders: Path) -> list[str]:
    files = [file for folder in folders for file in folder.glob("[!_]*.py")]
    stems = {file.stem for file in files if file.stem != FRAME}
    return sorted(stem.replace("_", "-") for stem in stems)


def _folders(package: str) -> list[Path]:
    """Where its modules lie; importing it to ask would import what lies around it."""
    if package in sys.modules:
        return [Path(folder) for folder in sys.modules[package].__path__]
    return [Path(__file__).parents[2].joinpath(*package.split("."))]


def _offered(package: str) -> dict[str, EntryPoint]:
    group, points = f"gaam.{package.rpartition('.')[2]}", _entry_points(tuple(sys.path))
    return {p.name: p for p in points if p.group == group and NAME.fullmatch(p.name)}


@functools.cache
def _entry_points(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001
    from importlib.metadata import entry_points

    found = entry_points()
    ours = [group for group in found.groups if group.startswith("gaam.")]
    return tuple(point for group in ours for point in found.select(group=group))


def _module(package: str, name: str) -> ModuleType:
    return importlib.import_module(f"{package}.{name.replace('-', '_')}")


def unknown(
    kind: str,
    word: str,
    valid: Iterable[str],
    *,
    aliases: Mapping[str, str] | None = None,
    **details: str | None,
) -> ConfigError:
    """The refusal of a name that there is not, with those there are and the one that was meant."""
    listed = list(valid)
    hint = details.pop("hint", None) or did_you_mean(word, listed, aliases)
    expected = f"one of: {', '.join(listed)}" if listed else "none: there are none"
    return ConfigError(
        f"unknown {kind} '{shortened(word)}'", expected=expected, hint=hint, **details
    )
