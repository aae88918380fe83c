"""Plug-ins: the names of interchangeable parts, and the classes that they stand for.

A module of a folder is a plug-in: ``student_t.py`` is called ``student-t``. It defines
one public class; its ``ALIASES`` are names that other people use. Other distributions
add plug-ins to the folder ``a.b.attention`` by entry points of the group
``gaam.attention``. A list of names imports no plug-in.
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
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import did_you_mean, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from importlib.metadata import EntryPoint

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""Names that another distribution may use; other entry points are ignored."""
OF_A_FILE = re.compile(r"(.+\.py(?::\w+)?)(:.*)?")
"""``FILE.py:CLASS``, and what follows: options, after another colon."""
FRAME = "base"
"""Module with the base class of a folder's plug-ins; it is not a plug-in."""


@dataclass(frozen=True, slots=True)
class RegisteredClass:
    """A plug-in that a person defined in a file or in a session of Python."""

    cls: type
    file_name: str
    code_hash: str
    source: Path


_REGISTERED: dict[tuple[str, str], RegisteredClass] = {}
"""Package and name -> the class that a person registered in this process."""


def names(package: str) -> list[str]:
    """Names of all plug-ins of ``package`` (dotted), sorted."""
    return sorted({*_own_names(package), *_offered(package)})


def load(package: str, name: str, *, kind: str, **details: str | None) -> Any:
    """The class of a plug-in.

    Args:
        package: dotted name of the folder.
        name: of the plug-in.
        kind: what people call such a plug-in, for messages.
        details: of the error, such as ``where`` the name was written.

    Raises:
        ConfigError: the name is unknown.
        TypeError: a class of another distribution does not extend our base class.
    """
    registered = _REGISTERED.get((package, name))
    # the class of a person comes first: its name differs from all of ours
    if registered is not None:
        return registered.cls
    own_names = _own_names(package)
    if name in own_names:
        return _public_class(_module(package, name))
    entry_point = _offered(package).get(name)
    if entry_point is not None:
        return _check_class(package, entry_point.load(), kind)

    # only an unknown name is worth the import of every plug-in
    aliases: dict[str, str] = {}
    for own_name in own_names:
        for alias in getattr(_module(package, own_name), "ALIASES", ()):
            aliases[alias] = own_name
    raise unknown(kind, name, names(package), aliases=aliases, **details)


def _public_class(module: ModuleType) -> Any:
    """The one public class that a module defines, not imports."""
    classes = []
    for name, value in vars(module).items():
        is_own = inspect.isclass(value) and value.__module__ == module.__name__
        if is_own and not name.startswith("_"):
            classes.append(value)
    # two public classes in a plug-in are a bug
    [cls] = classes
    return cls


def register_class(package: str, cls: str | type, *, kind: str) -> tuple[str, str]:
    """Make a class of a person's own a plug-in in this process, under its name.

    Call this only with what a person wrote on the command line or in Python: the code
    that a run or a model names is never executed.

    Args:
        package: dotted name of the folder.
        cls: the class, or ``FILE.py:CLASS``.
        kind: what people call such a plug-in, for messages.

    Returns:
        The name, and the path of the file; the path is empty for a class of a session.

    Raises:
        ConfigError: no such file or class, another base class, or a name of ours.
    """
    own_class: Any = _class_of_file(cls) if isinstance(cls, str) else cls
    try:
        _check_class(package, own_class, kind)
    except TypeError as error:
        raise ConfigError(f"no {kind}", found=str(error)) from error

    # a class that was typed into a session has no file
    source = Path(inspect.getsourcefile(own_class) or "")
    is_file = source.is_file()
    name = str(own_class.__name__)
    earlier = _REGISTERED.get((package, name))
    is_another = earlier is not None and is_file and earlier.source != source
    if name in names(package) or is_another:
        raise ConfigError(
            f"'{name}' is the name of another {kind}", expected="another name"
        )

    text = source.read_bytes() if is_file else inspect.getsource(own_class).encode()
    _REGISTERED[package, name] = RegisteredClass(
        cls=own_class,
        file_name=source.name if is_file else "a session",
        code_hash=_short_hash(_code(text)),
        source=source,
    )
    return name, str(source) if is_file else ""


def split_file_class(text: str) -> tuple[str, str]:
    """Split ``FILE.py:CLASS:OPTIONS`` into the class and ``:OPTIONS``.

    The class is empty where the text names no file: it is the name of a plug-in then.
    """
    match = OF_A_FILE.fullmatch(text.strip())
    if match is None:
        return "", ""
    return match[1], match[2] or ""


def _class_of_file(text: str) -> type:
    """The class of ``FILE.py:CLASS``; the file is executed."""
    stem, _, class_name = text.rpartition(".py")
    class_name = class_name[1:]
    path = Path(f"{stem}.py").expanduser()
    if not path.is_file():
        raise ConfigError(f"no file '{shortened(str(path))}'", expected="FILE.py:CLASS")
    spec: Any = importlib.util.spec_from_file_location(f"gaam_given_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    # dataclasses look up their module while it is executed
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, ImportError) as error:
        message = f"{type(error).__name__}: {error}"
        raise ConfigError(f"'{path}' cannot be imported", found=message) from error
    cls = getattr(module, class_name, None)
    if not inspect.isclass(cls):
        found = f"no class '{shortened(class_name)}' in '{path}'"
        raise ConfigError("no class of yours", expected="FILE.py:CLASS", found=found)
    return cls


def _check_class(package: str, cls: Any, kind: str) -> Any:
    """The class, if it extends the base class of the folder's plug-ins.

    Raises:
        TypeError: it extends another class, or lacks a method.
    """
    first_name = _own_names(package)[0]
    first_class: type = load(package, first_name, kind=kind)
    # the base class of all plug-ins is the one that extends ABC itself
    base_classes = [base for base in first_class.__mro__ if ABC in base.__bases__]
    frame = base_classes[-1]
    if not issubclass(cls, frame):
        raise TypeError(f"{cls!r} is no {frame.__module__}.{frame.__name__}")
    missing_methods = ", ".join(sorted(cls.__abstractmethods__))
    if missing_methods:
        raise TypeError(f"{cls!r} lacks {missing_methods}")
    return cls


def origin(package: str, name: str) -> str | None:
    """The file or the distribution, with its version, of a plug-in; None for ours."""
    registered = _REGISTERED.get((package, name))
    if registered is not None:
        return registered.file_name
    if name in _own_names(package):
        return None
    entry_point = _offered(package).get(name)
    if entry_point is None or not entry_point.dist:
        return None
    return f"{entry_point.dist.name} {entry_point.dist.version}"


def code(package: str, name: str, *, kind: str) -> str:
    """A hash of the code of a plug-in, after its ``origin`` if it is not ours.

    Comments and docstrings do not change the hash. The hash of a plug-in of another
    distribution covers the whole package.
    """
    registered = _REGISTERED.get((package, name))
    if registered is not None:
        return f"{registered.file_name} {registered.code_hash}"
    module_name = load(package, name, kind=kind).__module__
    distribution = origin(package, name)
    folders = getattr(sys.modules[module_name.partition(".")[0]], "__path__", None)
    files = [Path(str(sys.modules[module_name].__file__))]
    # a plug-in of another distribution may use any module of its package
    if distribution and folders:
        files = sorted(
            file for folder in folders for file in Path(folder).rglob("*.py")
        )
    text = "".join(_code(file.read_bytes()) for file in files)
    return f"{distribution or ''} {_short_hash(text)}".strip()


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@functools.cache
def _code(text: bytes) -> str:
    """Python code in one spelling, without comments and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        # the body of a lambda is an expression, not a list of statements
        if isinstance(body, list):
            statements = [statement for statement in body if not _is_text(statement)]
            node.body = statements  # type: ignore[attr-defined]
    return ast.unparse(tree)


def _is_text(statement: ast.AST) -> bool:
    """Whether a statement is nothing but a string, such as a docstring."""
    if not isinstance(statement, ast.Expr):
        return False
    return isinstance(getattr(statement.value, "value", None), str)


def _own_names(package: str) -> list[str]:
    return _names_in_folders(*_folders(package))


@functools.cache
def _names_in_folders(*folders: Path) -> list[str]:
    files = [file for folder in folders for file in folder.glob("[!_]*.py")]
    stems = {file.stem for file in files if file.stem != FRAME}
    return sorted(stem.replace("_", "-") for stem in stems)


def _folders(package: str) -> list[Path]:
    """The folders with the modules of a package, which is not imported for this."""
    # an imported package may have folders of several distributions
    if package in sys.modules:
        return [Path(folder) for folder in sys.modules[package].__path__]
    return [Path(__file__).parents[2].joinpath(*package.split("."))]


def _offered(package: str) -> dict[str, EntryPoint]:
    """The entry points of other distributions for a package, by name."""
    group = f"gaam.{package.rpartition('.')[2]}"
    offered = {}
    for point in _entry_points(tuple(sys.path)):
        if point.group == group and NAME.fullmatch(point.name):
            offered[point.name] = point
    return offered


@functools.cache
def _entry_points(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001
    """All entry points for us; ``path`` is the search path that they depend on."""
    from importlib.metadata import entry_points

    installed = entry_points()
    groups = [group for group in installed.groups if group.startswith("gaam.")]
    return tuple(point for group in groups for point in installed.select(group=group))


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
    """The error for an unknown name; it lists the valid names and suggests one."""
    valid_names = list(valid)
    hint = details.pop("hint", None) or did_you_mean(word, valid_names, aliases)
    expected = "none: there are none"
    if valid_names:
        expected = f"one of: {', '.join(valid_names)}"
    return ConfigError(
        f"unknown {kind} '{shortened(word)}'", expected=expected, hint=hint, **details
    )
