"""Settings: what they are called and mean, where they come from, what they may be.

A setting is a field of a configuration; the string under it says what it means. One with ``KEY`` in
its metadata has no option: it is a key of TOML files and of ``--set``. The command line counts
before a config file, that before a preset, that before the default.
"""

import functools
import inspect
import re
import textwrap
import tomllib
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeVar

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError, GaamError, NotFoundError
from gaam_cache.common.messages import did_you_mean, option_of, shortened
from gaam_cache.common.paths import absolute_path

KEY = {"key": True}  # metadata of a setting without an option
UNCHECKED = "unchecked"  # metadata of a field that may be any text, white space too
LARGEST_NUMBER = (
    2**31 - 1
)  # of any setting that counts something; more is a slip of the finger
SECTIONS = ("extract", "import", "train", "plant")
WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "path",
}
TAKEN: Any = {bool: (), int: (Integral, str), float: (Real, str)}
KINDS: dict[Any, str] = {bool: "true|false", int: "N", float: "NUMBER", Path: "PATH"}
"""What a list of settings calls a type; any other is TEXT."""
Config = TypeVar("Config")
Rule = tuple[str, object, str, str]
"""Settings, what must hold of them, what is wrong with the first where it does not, what to do."""


def key_of(field: Field[Any]) -> str:
    """How a field is written as a key: ``text-column`` for ``text_columns``."""
    return str(field.metadata.get("option") or option_of(field.name))[2:]


def command_words(field: Field[Any], value: Any) -> Iterator[str]:
    """A setting as the command line has it; of a list each by itself."""
    key, is_key = key_of(field), "key" in field.metadata
    if isinstance(value, bool) and not is_key:
        yield from [f"--{key}"] * value + [f"--no-{key}"] * (
            field.default is True and not value
        )
        return
    for one in value if isinstance(value, (list, tuple)) else [value]:
        text = str(one).lower() if isinstance(one, bool) else str(one)
        yield from ("--set", f"{key}={text}") if is_key else (f"--{key}", text)


def spelled(config: object, name: str) -> str:
    """How a field of a configuration is called: ``--limit``, or ``shard-rows`` without option."""
    field = next(one for one in fields(config) if one.name == name)  # type: ignore[arg-type]
    return key_of(field) if "key" in field.metadata else f"--{key_of(field)}"


def settle(config: Any) -> None:
    """Parse every field into its type, whatever options, files or Python code handed over.

    Raises:
        ConfigError: the first that cannot be; its ``setting`` is the name of the field.
    """
    hints = typing.get_type_hints(type(config))
    for one in fields(config):
        value = getattr(config, one.name)
        if value is None and one.default is None:
            continue
        try:
            made = parse_value(value, hints[one.name], one.metadata)
            if made == () and one.default:
                raise ValueError("at least one")
        except GaamError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            said = (
                ", ".join(map(str, value))
                if isinstance(value, (list, tuple))
                else str(value)
            )
            choices = str(error).partition("one of: ")[2].split(", ")
            refusal = ConfigError(
                f"bad value for {spelled(config, one.name)}",
                expected=str(error),
                found=shortened(repr(said)),
                hint=did_you_mean(said, choices),
            )
            refusal.setting = one.name
            raise refusal from error
        object.__setattr__(config, one.name, made)


def check_at_least(config: object, minimum: int, *names: str) -> None:
    """Refuse values below ``minimum`` or senselessly large; None means not set and passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not minimum <= value <= LARGEST_NUMBER:
            expected = f"{minimum} to {LARGEST_NUMBER:,}"
            message, found = (
                f"{spelled(config, name)} is out of range",
                shortened(str(value)),
            )
            raise ConfigError(message, expected=expected, found=found)


def check_rules(config: Any, rules: Iterable[Rule]) -> None:
    """Refuse settings that cannot work, alone or together; a rule may rely on those before it."""
    for names, holds, problem, expected in rules:
        if not holds:
            shown = [one for one in fields(config) if one.name in names.split()]
            found = " ".join(
                w
                for one in shown
                for w in command_words(one, getattr(config, one.name))
            )
            message = f"{spelled(config, names.split()[0])} {problem}"
            raise ConfigError(message, expected=expected, found=shortened(found))


def data_path() -> Path:
    """The ``data`` folder: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parents[1]
    return here / "data" if (here / "data").is_dir() else here.parent / "data"


def preset_names(section: str) -> list[str]:
    files = sorted((data_path() / "presets").glob("*.toml"))
    return [
        file.stem for file in files if section in tomllib.loads(file.read_text("utf-8"))
    ]


def resolve(
    cls: type[Config],
    section: str,
    given: Mapping[str, Any],
    *,
    sets: Iterable[str] | None = None,
    config_file: Path | None = None,
    preset: str | None = None,
) -> Config:
    """Build a configuration from every place that may set its fields.

    What options say is ``given``, None where they do not; ``sets`` are ``KEY=VALUE``. ``section``
    is its table in TOML files: ``config_file``, and ``preset`` of ``data/presets``.
    """
    layers: list[tuple[str, Mapping[str, Any]]] = []
    if preset is not None:
        if preset not in (known := preset_names(section)):
            raise plugins.unknown(
                "preset", preset, known, where=f"presets for gaam {section}"
            )
        file = data_path() / "presets" / f"{preset}.toml"
        layers.append((f"preset '{preset}'", _read(file, section)))
    if config_file is not None:
        layers.append((str(config_file), _read(config_file, section)))
    # an option and --set are one place: a setting in both is set twice
    options = {f"--{key}": value for key, value in given.items() if value is not None}
    layers.append(("the command line", parse_pairs(sets or ()) | options))
    every = fields(cls)  # type: ignore[arg-type]
    named = {one.name: one for one in every} | {
        key_of(one).replace("-", "_"): one for one in every
    }
    values, places = dict[str, Any](), dict[str | None, str]()
    for where, layer in layers:
        written = set()
        for key, value in layer.items():
            if (field := named.get(key.removeprefix("--").replace("-", "_"))) is None:
                raise plugins.unknown(
                    "setting", key, sorted(map(key_of, every)), where=where
                )
            if field.name in written:
                raise ConfigError(
                    f"'{key_of(field)}' is set twice", expected="once", where=where
                )
            written.add(field.name)
            values[field.name], places[field.name] = value, where
    try:
        return cls(**values)
    except ConfigError as error:
        if error.setting in places:
            error.details["where"] = places[error.setting]
        raise


def _read(path: Path, section: str) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise NotFoundError(f"cannot read '{path}'", found=error.strerror) from error
    except ValueError as error:
        raise ConfigError(f"'{path}' is not valid TOML", found=str(error)) from error
    for name in content:
        if name not in SECTIONS:
            raise plugins.unknown("section", name, SECTIONS, where=str(path))
    if not isinstance(table := content.get(section, {}), dict):
        raise ConfigError(
            f"'{section}' is no section in '{path}'", expected=f"[{section}]"
        )
    return table


def parse_pairs(
    texts: Iterable[str], option: str = "--set", known: Collection[str] | None = None
) -> dict[str, Any]:
    """Values by key, of ``KEY=VALUE``; several of one key are a list."""
    found: dict[str, list[str]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ConfigError(
                f"{option} {shortened(text)} is none", expected=f"{option} KEY=VALUE"
            )
        if known is not None and key not in known:
            raise plugins.unknown("key", key, known, where=option)
        found.setdefault(key, []).append(value)
    return {
        key: values if len(values) > 1 else values[0] for key, values in found.items()
    }


def parse_value(value: Any, hint: Any, about: Mapping[str, Any]) -> Any:
    """A value of a TOML file or the command line as the field holds it; errors say what must be."""
    several = value if isinstance(value, (list, tuple)) else [value]
    for one in several:
        if (
            isinstance(one, str)
            and (not one.strip() or "\0" in one)
            and not about.get(UNCHECKED)
        ):
            raise ValueError("something: the value is empty")
    if parse := about.get("parse"):
        return parse(value)
    parts = typing.get_args(hint)  # None stands for what is not set
    kind: Any = parts[0] if type(None) in parts else hint
    if typing.get_origin(kind) is Literal:
        if value not in typing.get_args(kind):
            raise ValueError(f"one of: {', '.join(typing.get_args(kind))}")
        return value
    if typing.get_origin(kind) is tuple:
        if not all(isinstance(one, str) for one in several):
            raise TypeError("a list of strings")
        return tuple(part for one in several for part in one.split(",") if part)
    if kind is bool and str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    if isinstance(value, bool) or not isinstance(value, TAKEN.get(kind, (str, Path))):
        raise TypeError(WORDS[kind])
    if kind is Path:
        return absolute_path(value)
    try:
        return kind(value)
    except (ValueError, OverflowError):
        raise ValueError(WORDS[kind]) from None


@functools.cache
def keys(cls: type) -> list[dict[str, Any]]:
    """All settings: key, type, default, meaning, and whether there is an option."""
    meanings: dict[str, str] = {}
    for base in cls.__mro__[:-1]:
        source = Path(inspect.getfile(base)).read_text("utf-8")
        source = source.partition(f"\nclass {base.__name__}")[2].partition(
            "\n@dataclass"
        )[0]
        meanings |= re.findall(r'^    (\w+): .*?\n    """(.*?)"""', source, re.M | re.S)
    hints, found = typing.get_type_hints(cls), []
    for field in fields(cls):
        parts = (hints[field.name], *typing.get_args(hints[field.name]))
        choices = [
            p
            for part in parts
            if typing.get_origin(part) is Literal
            for p in part.__args__
        ]
        several = ["LIST" for part in parts if typing.get_origin(part) is tuple]
        named = [KINDS[part] for part in parts if part in KINDS]
        default = None if field.default is MISSING else field.default
        about = {
            "key": key_of(field),
            "type": "|".join(choices) if choices else [*several, *named, "TEXT"][0],
            "default": str(default) if isinstance(default, Path) else default,
            "option": "key" not in field.metadata,
            "meaning": " ".join(meanings[field.name].split()),
        }
        found.append(about)
    return found


def in_words(cls: type, key: str) -> str:
    """What a setting means, with the words that it may be and its default, in one line."""
    about = next(one for one in keys(cls) if one["key"] == key)
    text, default = about["meaning"].split(". ")[0].removesuffix("."), about["default"]
    choices = about["type"][0].islower() and not isinstance(default, bool)
    said = [about["type"].replace("|", ", ")] if choices else []
    if default not in (None, False, (), (None,)) and "default:" not in text:
        several = default if isinstance(default, tuple) else [default]
        said.append(f"default: {', '.join(map(str, several)).replace('True', 'yes')}")
    return f"{text} ({'; '.join(said)})." if said else f"{text}."


def list_in_words(sections: Mapping[str, type], width: int) -> str:
    """All settings of commands, each with what it means and what it is without it."""
    lines = []
    for section, cls in sections.items():
        lines.append(f"[{section}]")
        for about in keys(cls):
            kind = about["type"] if about["type"].isupper() else ""
            text = f"{about['key']} {kind}".ljust(26) + in_words(cls, about["key"])
            lines.append(textwrap.fill(text, width, subsequent_indent=" " * 26))
    return "\n".join(lines)
