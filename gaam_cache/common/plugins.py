"""Plug-ins: the names of interchangeable parts, and the classes that they stand for.

A module of a folder is a plug-in: ``student_t.py`` is called ``student-t``. It defines
one public class; its ``ALIASES`` are names that other people use. Other distributions
add plug-ins to the folder ``a.b.attention`` by entry points of the group
``gaam.attention``. A list of names imports no plug-in.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from abc import ABC
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gaam_cache.common.errors import ConfigError, GaamError
from gaam_cache.common.messages import did_you_mean, shortened
from gaam_cache.common.own_code import (
    canonical_code,
    files_of_module,
    hash_of_class,
    short_hash,
    source_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from importlib.metadata import EntryPoint

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""Names that another distribution may use; other entry points are ignored."""
OF_A_FILE = re.compile(r"(.+\.py(?::\w+)?)(:.*)?")
"""``FILE.py:CLASS``, and what follows: options, after another colon."""
SESSION = "a session"
"""What stands for the file of a class that was typed into a session of Python."""
BASE_MODULE = "base"
"""Module with the base class of a folder's plug-ins; it is not a plug-in."""


@dataclass(frozen=True, slots=True)
class RegisteredClass:
    """A plug-in that a person defined in a file or in a session of Python."""

    cls: type
    file_name: str  # or SESSION
    code_hash: str
    source: Path  # path of the file, or what Python shows in place of a file


_REGISTERED: dict[tuple[str, str], RegisteredClass] = {}
"""Package and name -> the class that a person registered in this process."""


def names(package: str) -> list[str]:
    """Sorted names of all plug-ins of a package, without importing any of them.

    ``package`` is the dotted name of the folder with the plug-ins.
    """
    return sorted({*_own_names(package), *_entry_points_by_name(package)})


def load(package: str, name: str, *, kind: str, **details: str | None) -> Any:
    """Import a plug-in if needed, and return its class.

    Args:
        package: dotted name of the folder.
        name: of the plug-in.
        kind: what people call such a plug-in, for messages.
        details: for the error about an unknown name, such as ``where`` it was written.

    Raises:
        ConfigError: the name is unknown.
        TypeError: a class of another distribution does not extend our base class.
    """
    registered = _REGISTERED.get((package, name))
    # a class that a person registered has a name that no plug-in of ours has
    if registered is not None:
        return registered.cls
    own_names = _own_names(package)
    if name in own_names:
        return _public_class(_import_module(package, name))
    entry_point = _entry_points_by_name(package).get(name)
    if entry_point is not None:
        return _check_class(package, entry_point.load(), kind)

    # the error suggests a name by its aliases, and these stand in the plug-ins: only
    # for an error all of them are imported
    aliases: dict[str, str] = {}
    for own_name in own_names:
        for alias in getattr(_import_module(package, own_name), "ALIASES", ()):
            aliases[alias] = own_name
    raise unknown(kind, name, names(package), aliases=aliases, **details)


@functools.cache
def _public_class(module: ModuleType) -> Any:
    """The public class that a module defines; classes that it imports do not count."""
    classes = []
    for name, value in vars(module).items():
        is_own = inspect.isclass(value) and value.__module__ == module.__name__
        if is_own and not name.startswith("_"):
            classes.append(value)
    # this line fails if a plug-in has no public class or several, which is a bug
    [public_class] = classes
    return public_class


def register_class(package: str, cls: str | type, *, kind: str) -> tuple[str, str]:
    """Make a class of a person's own a plug-in in this process, under its name.

    Call this only with what a person wrote on the command line or in Python: the code
    that a run or a model names is never executed.

    Args:
        package: dotted name of the folder.
        cls: the class, or ``FILE.py:CLASS``.
        kind: what people call such a plug-in, for messages.

    Returns:
        The name, and the path of the file; the path is empty for a class that was
        typed into a session of Python.

    Raises:
        ConfigError: the file or the class does not exist, the class does not extend
            the base class of the plug-ins, its name is taken, its code is not known,
            or its file changed after it was imported.
    """
    given_file = None
    own_class: Any = cls
    if isinstance(cls, str):
        given_file = _split_path(cls)[0]
        own_class = _class_of_file(cls)
    try:
        _check_class(package, own_class, kind)
    except TypeError as error:
        raise ConfigError(
            f"'{own_class.__name__}' is no {kind}", found=str(error)
        ) from error

    # a class that was typed into a session has no file
    source = source_file(own_class)
    is_file = source.is_file()
    name = str(own_class.__name__)
    earlier = _REGISTERED.get((package, name))
    # a person may define a class again, in the same file or in a session
    is_of_other_file = earlier is not None and is_file and earlier.source != source
    if name in names(package) or is_of_other_file:
        raise ConfigError(
            f"'{name}' is the name of another {kind}", expected="another name"
        )

    _REGISTERED[package, name] = RegisteredClass(
        cls=own_class,
        file_name=source.name if is_file else SESSION,
        code_hash=hash_of_class(own_class, kind, given_file),
        source=source,
    )
    return name, str(source) if is_file else ""


def check_registered(
    package: str, name: str, given_class: type | None, code: str, kind: str
) -> None:
    """Refuse a class in place of which another one is registered.

    A class may be defined again under its name; a worker may import other code.

    Args:
        package: dotted name of the folder.
        name: of the class.
        given_class: the class; None if it was given as ``FILE.py:CLASS``, of which each
            reading makes a new class, or in another process: then the code tells.
        code: its ``code_hash``.
        kind: what people call such a plug-in.

    Raises:
        ConfigError: the registered class is another one.
    """
    registered = _REGISTERED.get((package, name))
    if registered is None or registered.cls is given_class:
        return
    code_now = code_hash(package, name, kind=kind)
    if given_class is None and code_now == code:
        return
    raise ConfigError(
        f"the {kind} '{name}' is not the one that was given",
        expected=code,
        found=f"another class of this name, {code_now}",
        hint="give each class a name of its own, or make the config anew; for workers "
        "write values that you set later into the file",
    )


def split_file_class(text: str) -> tuple[str, str]:
    """Split ``FILE.py:CLASS:OPTIONS`` into the class and ``:OPTIONS``.

    The class is empty where the text names no file: it is the name of a plug-in then.
    """
    match = OF_A_FILE.fullmatch(text.strip())
    if match is None:
        return "", ""
    return match[1], match[2] or ""


def without_file(text: str) -> str:
    """``CLASS:OPTIONS`` for ``FILE.py:CLASS:OPTIONS``; any other text as it is."""
    file_class, options = split_file_class(text)
    if not file_class:
        return text
    _, _, class_name = file_class.rpartition(":")
    return f"{class_name}{options}"


def _split_path(text: str) -> tuple[Path, str]:
    """The path and the class of ``FILE.py:CLASS``."""
    stem, _, colon_and_class = text.rpartition(".py")
    return Path(f"{stem}.py").expanduser(), colon_and_class[1:]


def _class_of_file(text: str) -> type:
    """Execute a file of Python, and return one of its classes.

    ``text`` is ``FILE.py:CLASS``.

    Raises:
        ConfigError: the file or the class does not exist, or the file cannot be run.
    """
    path, class_name = _split_path(text)
    if not path.is_file():
        raise ConfigError(f"no file '{shortened(str(path))}'", expected="FILE.py:CLASS")
    spec: Any = importlib.util.spec_from_file_location(f"gaam_given_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    # a dataclass looks up its module here while the file is executed
    sys.modules[spec.name] = module
    with own_code(f"'{path}'", "Python can import it", file=spec.origin):
        spec.loader.exec_module(module)
    cls = getattr(module, class_name, None)
    if not inspect.isclass(cls):
        classes = [
            f"{path}:{name}"
            for name, value in vars(module).items()
            if inspect.isclass(value) and value.__module__ == module.__name__
        ]
        raise ConfigError(
            "no class of yours",
            expected=" or ".join(classes) or "FILE.py:CLASS",
            found=shortened(text),
        )
    return cls


class CodeError(ConfigError):
    """Code of a person's own, or of another package, does not work."""


@contextmanager
def own_code(name: str, expected: str, *, file: str = "") -> Iterator[None]:
    """Turn every error of code that is not gaam's in the block into one message.

    Args:
        name: what is run, for the message.
        expected: what its code must be able to do.
        file: of the code, if it is known.

    Raises:
        CodeError: the code raised an error, or ended the process.
    """
    try:
        yield
    except GaamError:
        raise
    except (Exception, SystemExit) as error:
        raise CodeError(
            f"{name} does not work",
            expected=expected,
            found=f"{type(error).__name__}: {error}",
            where=_line_of(error, file),
        ) from error


def _line_of(error: BaseException, file: str) -> str:
    """File, line and function of an error: the last ones in ``file``, if it has any."""
    frames = traceback.extract_tb(error.__traceback__)
    own_frames = [frame for frame in frames if frame.filename == file]
    if file and not own_frames:
        return file
    frame = (own_frames or frames)[-1]
    return f"{frame.filename}, line {frame.lineno}, in {frame.name}"


def file_of(package: str, name: str) -> str:
    """The file that a person named with a plug-in; empty if there is none."""
    registered = _REGISTERED.get((package, name))
    return "" if registered is None else str(registered.source)


def _check_class(package: str, cls: Any, kind: str) -> Any:
    """Refuse a class that does not extend the base class of a folder's plug-ins.

    Args:
        package: dotted name of the folder.
        cls: the class, which is also returned.
        kind: what people call such a plug-in.

    Raises:
        TypeError: the class extends another class, or lacks a method.
    """
    # any plug-in of gaam itself shows which class all of them extend
    first_name = _own_names(package)[0]
    first_class: type = load(package, first_name, kind=kind)
    # the base class of all plug-ins is the one that extends ABC itself
    [base_class] = [base for base in first_class.__mro__ if ABC in base.__bases__]
    if not issubclass(cls, base_class):
        base_name = f"{base_class.__module__}.{base_class.__name__}"
        raise TypeError(f"{cls!r} does not extend {base_name}")
    missing_methods = ", ".join(sorted(cls.__abstractmethods__))
    if missing_methods:
        raise TypeError(f"{cls!r} does not define {missing_methods}")
    return cls


def origin(package: str, name: str) -> str | None:
    """Where a plug-in comes from; None for a plug-in of gaam and an unknown one.

    This is the name of the file, or the name and version of the distribution.
    """
    # a class that a person gave as FILE.py:CLASS, or typed into a session
    registered = _REGISTERED.get((package, name))
    if registered is not None:
        return registered.file_name
    if name in _own_names(package):
        return None
    entry_point = _entry_points_by_name(package).get(name)
    if entry_point is None or not entry_point.dist:
        return None
    return f"{entry_point.dist.name} {entry_point.dist.version}"


def code_hash(package: str, name: str, *, kind: str) -> str:
    """A hash of the code of a plug-in; comments and docstrings do not change it.

    The result depends on where the plug-in comes from:

    - gaam itself: the hash of the plug-in's module.
    - another distribution: name and version of the distribution, and the hash of its
      whole package, of which the plug-in may use any module; of a module without a
      package, the hash of the module and of those that it imports, unless these are
      installed: then the version stands for them.
    - a person's file or session (``register_class``): name of the file, and the hash
      of all that the class computes with.

    Args:
        package: dotted name of gaam's folder for such plug-ins, such as
            'gaam_decoder.attention'.
        name: of the plug-in.
        kind: what people call such a plug-in, for messages.
    """
    registered = _REGISTERED.get((package, name))
    if registered is not None:
        return f"{registered.file_name} {registered.code_hash}"

    module_name = load(package, name, kind=kind).__module__
    files = [Path(str(sys.modules[module_name].__file__))]
    distribution = origin(package, name)
    # a plug-in of gaam
    if distribution is None:
        return short_hash(_canonical_code_of_files(files))

    top_package = sys.modules[module_name.partition(".")[0]]
    # a module that is not in a package has no folders
    folders = getattr(top_package, "__path__", None)
    if not folders:
        files = files_of_module(top_package)
    else:
        files = sorted(
            file for folder in folders for file in Path(folder).rglob("*.py")
        )
    return f"{distribution} {short_hash(_canonical_code_of_files(files))}"


def _canonical_code_of_files(files: Iterable[Path]) -> str:
    """The code of some files, one after the other; see ``canonical_code``."""
    return "".join(canonical_code(file.read_bytes()) for file in files)


def _own_names(package: str) -> list[str]:
    """Sorted names of the plug-ins in the folders of a package."""
    return _names_in_folders(*_folders(package))


@functools.cache
def _names_in_folders(*folders: str) -> list[str]:
    """Sorted names of the modules in some folders that are plug-ins.

    A module whose name begins with '_', and the module of the base class, are none.
    """
    files = [file for folder in folders for file in Path(folder).glob("[!_]*.py")]
    stems = {file.stem for file in files if file.stem != BASE_MODULE}
    return sorted(stem.replace("_", "-") for stem in stems)


def _folders(package: str) -> list[str]:
    """The folders with the modules of a package, which need not be imported."""
    # an imported package may have folders of several distributions
    if package in sys.modules:
        return list(sys.modules[package].__path__)
    # a.b of a checkout or an installation lies in the folder a/b
    return [str(Path(__file__).parents[2].joinpath(*package.split(".")))]


def _entry_points_by_name(package: str) -> dict[str, EntryPoint]:
    """The plug-ins that other distributions offer for a package, as entry points.

    Returns:
        Name of the plug-in -> its entry point. A name that is not in our form is left
        out.
    """
    group = f"gaam.{package.rpartition('.')[2]}"
    points_by_name = {}
    for point in _entry_points(tuple(sys.path)):
        if point.group == group and NAME.fullmatch(point.name):
            points_by_name[point.name] = point
    return points_by_name


@functools.cache
def _entry_points(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001
    """All entry points of installed distributions in groups that begin with 'gaam.'.

    ``path`` is Python's search path. It decides which distributions there are: as an
    argument it makes the cache of this function look again when the path has changed.
    """
    from importlib.metadata import entry_points

    installed = entry_points()
    groups = [group for group in installed.groups if group.startswith("gaam.")]
    return tuple(point for group in groups for point in installed.select(group=group))


def _import_module(package: str, name: str) -> ModuleType:
    """The module of a plug-in of gaam: ``student_t`` for the name 'student-t'."""
    return importlib.import_module(f"{package}.{name.replace('-', '_')}")


def check_names(
    kind: str, names: Iterable[object], valid: Iterable[str], where: str | None = None
) -> None:
    """Refuse the first name that is not valid.

    Args:
        kind: what the names are, for the message: 'setting'.
        names: to check.
        valid: the valid names.
        where: the file that has the names.
    """
    valid_names = sorted(valid)
    for name in names:
        if name not in valid_names:
            raise unknown(kind, str(name), valid_names, where=where)


def unknown(
    kind: str,
    word: str,
    valid: Iterable[str],
    *,
    aliases: Mapping[str, str] | None = None,
    **details: str | None,
) -> ConfigError:
    """The error for an unknown name; it lists the valid names and suggests one.

    Args:
        kind: what the name should name, such as 'engine'.
        word: the unknown name.
        valid: the valid names.
        aliases: names that other people use -> our names, for the suggestion.
        details: further parts of the error. A ``hint`` replaces the suggestion.
    """
    valid_names = list(valid)
    hint = details.pop("hint", None) or did_you_mean(word, valid_names, aliases)
    expected = "none: there are none"
    if valid_names:
        expected = f"one of: {', '.join(valid_names)}"
    return ConfigError(
        f"unknown {kind} '{shortened(word)}'", expected=expected, hint=hint, **details
    )
