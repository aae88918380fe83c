"""Settings: their declaration, their names, their sources and their checks.

A setting is a field of a configuration dataclass. ``option`` and ``key`` declare one
with its default and its meaning. The command line overrides a config file, a config
file overrides a preset, and a preset overrides the default.
"""

import dataclasses
import functools
import textwrap
import tomllib
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError, GaamError, NotFoundError
from gaam_cache.common.messages import did_you_mean, option_of, shortened
from gaam_cache.common.paths import absolute_path

UNCHECKED = "unchecked"  # key in the metadata of a field that accepts blank text
LARGEST_NUMBER = 2**31 - 1  # a larger number of rows, epochs and so on is a mistake
SECTIONS = ("extract", "import", "train", "plant")
EXPECTED = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "path",
}
ACCEPTED_TYPES: Any = {
    bool: (),
    int: (Integral, str),
    float: (Real, str),
}
TYPE_WORDS: dict[object, str] = {
    bool: "true|false",
    int: "N",
    float: "NUMBER",
    Path: "PATH",
}
"""Type of a field -> its word in a list of settings; every other type is TEXT."""
DEFAULTS_OF_NOTHING = (None, False, (), (None,))
"""Defaults that say nothing to people; 0 equals False. ``(None,)`` is a list with one
entry: all rows, or all layers."""
LIST_INDENT = 26  # characters in a list of settings, before what a setting means
Config = TypeVar("Config")


class Rule(NamedTuple):
    """A condition that settings must meet; ``setting_rule`` makes one."""

    setting_names: tuple[str, ...]
    """Fields of the configuration; the message begins with the first."""
    holds: bool
    """Whether the settings meet the condition."""
    problem: str
    """What is wrong if they do not, as a predicate of the first setting."""
    expected: str
    """The values that are right."""


def option(default: object, meaning: str, **metadata: object) -> Any:
    """Declare a field of a configuration that has an option on the command line.

    Args:
        default: the value of a setting that no source sets.
        meaning: one or two sentences for help and lists of settings.
        metadata: ``flag``, the option where its name is not that of the field;
            ``shown_default``, what people read where the default says nothing;
            ``parse``, a function that makes the field's value of any input;
            ``unchecked``, true where blank text is allowed; and keys that other modules
            define and read.
    """
    return dataclasses.field(default=default, metadata={"meaning": meaning, **metadata})


def key(default: object, meaning: str, **metadata: object) -> Any:
    """Declare a field without an option: a key of TOML files and of ``--set``."""
    return option(default, meaning, key=True, **metadata)


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of a configuration as people see it."""

    name: str  # of the field
    key: str  # as TOML files and the command line spell it
    type: str
    """A word in capitals, such as PATH; or the choices: 'constant|plateau|cosine'."""
    default: object
    option: bool  # whether the command line has an option for it
    meaning: str
    shown_default: str | None  # in place of a default that says nothing to people

    def to_dict(self) -> dict[str, object]:
        """The setting as JSON values, without the name of its field."""
        values = dataclasses.asdict(self)
        del values["name"]
        return values

    def sentence(self) -> str:
        """What the setting means, and its choices."""
        return self._with_details(self._choices_in_words())

    def in_words(self) -> str:
        """What the setting means, its choices, and its default if it has one."""
        details = self._choices_in_words()
        default = self._default_in_words()
        if default:
            details.append(f"default: {default}")
        return self._with_details(details)

    def _default_in_words(self) -> str:
        """The default for people; empty if it says nothing."""
        if self.shown_default is not None:
            return self.shown_default
        if self.default in DEFAULTS_OF_NOTHING:
            return ""
        if self.default is True:
            return "yes"
        if isinstance(self.default, tuple):
            return ", ".join(map(str, self.default))
        return str(self.default)

    def _choices_in_words(self) -> list[str]:
        """One text with all choices; none for a setting that is free."""
        is_free = self.type[0].isupper() or self.type == TYPE_WORDS[bool]
        if is_free:
            return []
        return [self.type.replace("|", ", ")]

    def _with_details(self, details: list[str]) -> str:
        """The first sentence of the meaning, with details at its end."""
        text = self.meaning.split(". ")[0].removesuffix(".")
        if details:
            text += f" ({'; '.join(details)})"
        return f"{text}."


def fields_of(config: object) -> tuple[Field[object], ...]:
    """The fields of a configuration, or of a class of configurations."""
    return dataclasses.fields(config)  # type: ignore[arg-type]


def has_option(field: Field[object]) -> bool:
    """Whether a field has an option of its own, and is not a key of ``--set`` alone."""
    return "key" not in field.metadata


def key_of(field: Field[object]) -> str:
    """The key of a field in TOML files and ``--set``: ``text-column``."""
    flag = field.metadata.get("flag") or option_of(field.name)
    return str(flag).removeprefix("--")


def command_words(field: Field[object], value: object) -> Iterator[str]:
    """Yield the words of a command line that give a field a value.

    A list gives one option for each of its values. A field without an option (a key)
    is set by ``--set KEY=VALUE``.
    """
    name = key_of(field)
    # the option of a truth value has no value: --quiet or --no-quiet
    if isinstance(value, bool) and has_option(field):
        if value:
            yield f"--{name}"
        elif field.default is True:
            yield f"--no-{name}"
        return

    for entry in value if isinstance(value, (list, tuple)) else [value]:
        text = str(entry)
        if isinstance(entry, bool):
            text = text.lower()
        if has_option(field):
            yield f"--{name}"
            yield text
        else:
            yield "--set"
            yield f"{name}={text}"


def name_in_messages(config: object, name: str) -> str:
    """What messages call a field: ``--limit``; ``shard-rows`` if it has no option."""
    fields_by_name = {field.name: field for field in fields_of(config)}
    field = fields_by_name[name]
    if has_option(field):
        return f"--{key_of(field)}"
    return key_of(field)


def parse_fields(config: object) -> None:
    """Parse the value of every field into the type of the field, in place.

    The constructor of a configuration calls this, so values may be text of the command
    line, values of a TOML file or objects of Python.

    Raises:
        ConfigError: for the first invalid value; its ``setting`` names the field.
    """
    type_hints = typing.get_type_hints(type(config))
    for field in fields_of(config):
        value = getattr(config, field.name)
        # None means "not set" where it is the default, so there is nothing to parse
        if value is None and field.default is None:
            continue
        try:
            parsed = parse_value(value, type_hints[field.name], field.metadata)
            if parsed == () and field.default:
                raise ValueError("at least one")
        # a parser may raise an error with details of its own
        except GaamError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise _bad_value_error(config, field.name, value, error) from error
        # the dataclass is frozen: this is its constructor's last step
        object.__setattr__(config, field.name, parsed)


def _bad_value_error(
    config: object, name: str, value: object, error: Exception
) -> ConfigError:
    """The error for an invalid value.

    Args:
        config: the configuration.
        name: the field that has the value.
        value: the value.
        error: what the parser raised; its text says what is expected.
    """
    text = str(value)
    if isinstance(value, (list, tuple)):
        text = ", ".join(map(str, value))
    # if the text lists choices, the hint suggests the one that is spelled most alike
    joined_choices = str(error).partition("one of: ")[2]
    choices = joined_choices.split(", ") if joined_choices else []
    refusal = ConfigError(
        f"bad value for {name_in_messages(config, name)}",
        expected=str(error),
        found=shortened(repr(text)),
        hint=did_you_mean(text, choices),
    )
    refusal.setting = name
    return refusal


def check_at_least(config: object, minimum: int, *names: str) -> None:
    """Refuse numbers below ``minimum`` or above ``LARGEST_NUMBER``.

    Args:
        config: the configuration.
        minimum: the smallest valid number.
        names: fields of the configuration. The value None, which means "not set", is
            valid.

    Raises:
        ConfigError: a number is out of the range.
    """
    for name in names:
        value = getattr(config, name)
        if value is not None and not minimum <= value <= LARGEST_NUMBER:
            raise ConfigError(
                f"{name_in_messages(config, name)} is out of range",
                expected=f"{minimum} to {LARGEST_NUMBER:,}",
                found=shortened(str(value)),
            )


def setting_rule(*setting_names: str, holds: bool, problem: str, expected: str) -> Rule:
    """A condition that settings must meet, with the parts of its error message.

    Args:
        setting_names: fields of the configuration. The message begins with the first
            one and shows the values of all of them.
        holds: whether the settings meet the condition.
        problem: what is wrong if they do not; continues a sentence whose subject is
            the first setting: 'is out of range'.
        expected: the values that are right.
    """
    return Rule(setting_names, holds, problem, expected)


def check_rules(config: object, rules: Iterable[Rule]) -> None:
    """Raise ConfigError for the first rule that the settings break.

    No rule after it is evaluated, so a rule may rely on the rules before it.
    """
    for rule in rules:
        if rule.holds:
            continue
        # the settings and their values, as a person would write them
        command_line: list[str] = []
        for field in fields_of(config):
            if field.name in rule.setting_names:
                command_line += command_words(field, getattr(config, field.name))
        subject = name_in_messages(config, rule.setting_names[0])
        raise ConfigError(
            f"{subject} {rule.problem}",
            expected=rule.expected,
            found=shortened(" ".join(command_line)),
        )


def data_path() -> Path:
    """The ``data`` folder: inside the installed package, or beside it in a checkout."""
    # a wheel has the folder inside the package
    package = Path(__file__).resolve().parents[1]
    installed = package / "data"
    if installed.is_dir():
        return installed
    return package.parent / "data"


def preset_names(section: str) -> list[str]:
    """Names of the presets that have settings of a command, sorted."""
    files = sorted((data_path() / "presets").glob("*.toml"))
    return [
        file.stem for file in files if section in tomllib.loads(file.read_text("utf-8"))
    ]


def resolve(
    cls: type[Config],
    section: str,
    options: Mapping[str, object],
    *,
    sets: Iterable[str] | None = None,
    config_file: Path | None = None,
    preset: str | None = None,
) -> Config:
    """Build a configuration from every source of settings.

    Args:
        cls: the class of the configuration.
        section: its table in TOML files.
        options: values of command line options; None where an option is not set.
        sets: ``KEY=VALUE`` of every ``--set``.
        config_file: a TOML file.
        preset: the name of a file in ``data/presets``.
    """
    # a later source overrides an earlier one
    sources: list[tuple[str, Mapping[str, object]]] = []
    if preset is not None:
        sources.append((f"preset '{preset}'", _read_preset(preset, section)))
    if config_file is not None:
        sources.append((str(config_file), _read_section(config_file, section)))
    # Options and --set are one source, which must not set a field twice. Options keep
    # their dashes here: so an option and a key of one name are two entries, and
    # ``_by_field_name`` refuses them.
    set_options = {
        f"--{name}": value for name, value in options.items() if value is not None
    }
    pairs = parse_pairs(sets or (), spellings=_pair_spellings(cls))
    sources.append(("the command line", pairs | set_options))

    # an error names the source of the value that it refuses
    values: dict[str, object] = {}
    source_by_field: dict[str | None, str] = {}
    for source, values_by_key in sources:
        for name, value in _by_field_name(cls, values_by_key, source).items():
            values[name] = value
            source_by_field[name] = source
    try:
        return cls(**values)
    except ConfigError as error:
        if error.setting in source_by_field:
            error.details["where"] = source_by_field[error.setting]
        raise


def _by_field_name(
    cls: type, values_by_key: Mapping[str, object], source: str
) -> dict[str, object]:
    """The values of one source of settings, such as a TOML file, by name of the field.

    Args:
        cls: the class of the configuration.
        values_by_key: the values as the source has them.
        source: name of the source, for messages.

    Raises:
        ConfigError: a key is unknown, or set twice.
    """
    fields = fields_of(cls)
    # files may write text_columns, the name of the field, or text-column, its key;
    # the command line gives the key as an option, --text-column
    fields_by_spelling = {field.name: field for field in fields}
    fields_by_spelling |= {key_of(field).replace("-", "_"): field for field in fields}
    values: dict[str, object] = {}
    for name, value in values_by_key.items():
        spelling = name.removeprefix("--").replace("-", "_")
        field = fields_by_spelling.get(spelling)
        if field is None:
            keys = sorted(map(key_of, fields))
            raise plugins.unknown("setting", name, keys, where=source)
        if field.name in values:
            raise ConfigError(
                f"'{key_of(field)}' is set twice", expected="once", where=source
            )
        values[field.name] = value
    return values


def _read_preset(preset: str, section: str) -> dict[str, object]:
    """The settings that a preset has for a command.

    Raises:
        ConfigError: there is no such preset for the command.
    """
    presets = preset_names(section)
    if preset not in presets:
        where = f"presets for gaam {section}"
        raise plugins.unknown("preset", preset, presets, where=where)
    return _read_section(data_path() / "presets" / f"{preset}.toml", section)


def _read_section(path: Path, section: str) -> dict[str, object]:
    """One table of a TOML file; empty where the file has none."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise NotFoundError(f"cannot read '{path}'", found=error.strerror) from error
    except ValueError as error:
        raise ConfigError(f"'{path}' is not valid TOML", found=str(error)) from error
    plugins.check_names("section", content, SECTIONS, where=str(path))
    table = content.get(section, {})
    if not isinstance(table, dict):
        raise ConfigError(
            f"'{section}' is not a section in '{path}'", expected=f"[{section}]"
        )
    return table


def _pair_spellings(cls: type) -> dict[str, str]:
    """Key of every setting -> its ``--set KEY=VALUE``, with a word for its values."""
    spellings = {}
    for setting in settings_of(cls):
        # whoever leaves out the value of a truth value wants it to be true
        value = "true" if setting.type == TYPE_WORDS[bool] else setting.type
        spellings[setting.key] = f"--set {setting.key}={value}"
    return spellings


def parse_pairs(
    texts: Iterable[str],
    option: str = "--set",
    known: Collection[str] | None = None,
    *,
    spellings: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The values of texts ``KEY=VALUE`` by key.

    Args:
        texts: the texts.
        option: the option that the texts follow, for messages.
        known: the valid keys; None if any key is valid.
        spellings: key -> the option with a value, the hint for a key without one.

    Returns:
        Key -> value; a list of values for a key that is repeated.

    Raises:
        ConfigError: a text has another form, or its key is not valid.
    """
    values_by_key: dict[str, list[str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ConfigError(
                f"{option} {shortened(text)} is not KEY=VALUE",
                expected=f"{option} KEY=VALUE",
                hint=(spellings or {}).get(text.replace("_", "-")),
            )
        if known is not None and name not in known:
            raise plugins.unknown("key", name, known, where=option)
        values_by_key.setdefault(name, []).append(value)
    return {
        name: values if len(values) > 1 else values[0]
        for name, values in values_by_key.items()
    }


def parse_value(
    value: object, field_type: object, metadata: Mapping[str, Any]
) -> object:
    """A value of a TOML file or the command line, parsed into the type of its field.

    Args:
        value: the value.
        field_type: the type of the field, such as ``int | None``.
        metadata: the metadata of the field, from ``option`` or ``key``.

    Raises:
        TypeError, ValueError: the value is invalid; the message says what is expected.
    """
    values = value if isinstance(value, (list, tuple)) else [value]
    if not metadata.get(UNCHECKED):
        _check_not_blank(values)
    parse = metadata.get("parse")
    if parse is not None:
        return parse(value)

    # the type "T | None" means T, because None only means "not set"
    parts = typing.get_args(field_type)
    kind: Any = parts[0] if type(None) in parts else field_type
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        if value not in choices:
            raise ValueError(f"one of: {', '.join(choices)}")
        return value
    if typing.get_origin(kind) is tuple:
        return _parse_strings(values)
    return _parse_single(value, kind)


def _check_not_blank(values: Iterable[object]) -> None:
    """Raise ValueError for a blank text, or a text with a zero character."""
    for value in values:
        if isinstance(value, str) and (not value.strip() or "\0" in value):
            raise ValueError("something: the value is empty")


def _parse_strings(values: Iterable[object]) -> tuple[str, ...]:
    """The parts between commas of every text."""
    strings: list[str] = []
    for value in values:
        if not isinstance(value, str):
            raise TypeError("a list of strings")
        strings += [part for part in value.split(",") if part]
    return tuple(strings)


def _parse_single(value: Any, kind: Any) -> object:
    """A truth value, number, text or path; ``kind`` is its type."""
    # TOML has true and false as values, the command line as words
    word = str(value).lower()
    if kind is bool and word in ("true", "false"):
        return word == "true"
    accepted = ACCEPTED_TYPES.get(kind, (str, Path))
    # True and False are integers in Python, never in a setting
    if isinstance(value, bool) or not isinstance(value, accepted):
        raise TypeError(EXPECTED[kind])
    if kind is Path:
        return absolute_path(value)
    try:
        return kind(value)
    except (ValueError, OverflowError):
        raise ValueError(EXPECTED[kind]) from None


@functools.cache
def settings_of(cls: type) -> list[Setting]:
    """All settings of a configuration, in the order of its fields."""
    hints = typing.get_type_hints(cls)
    settings = []
    for field in fields_of(cls):
        default = None if field.default is MISSING else field.default
        if isinstance(default, Path):
            default = str(default)
        setting = Setting(
            name=field.name,
            key=key_of(field),
            type=_type_word(hints[field.name]),
            default=default,
            option=has_option(field),
            meaning=field.metadata["meaning"],
            shown_default=field.metadata.get("shown_default"),
        )
        settings.append(setting)
    return settings


def _type_word(hint: object) -> str:
    """What a list of settings calls a type: its choices, LIST, N, TEXT and so on."""
    parts = (hint, *typing.get_args(hint))
    choices: list[str] = []
    for part in parts:
        if typing.get_origin(part) is Literal:
            choices += typing.get_args(part)
    if choices:
        return "|".join(choices)
    if any(typing.get_origin(part) is tuple for part in parts):
        return "LIST"
    for part in parts:
        if part in TYPE_WORDS:
            return TYPE_WORDS[part]
    return "TEXT"


def find_setting(cls: type, name: str) -> Setting:
    """The setting of the field of a configuration that is called ``name``."""
    settings_by_name = {setting.name: setting for setting in settings_of(cls)}
    return settings_by_name[name]


def list_in_words(sections: Mapping[str, type], width: int) -> str:
    """The settings of every command, one paragraph each."""
    lines = []
    for section, cls in sections.items():
        lines.append(f"[{section}]")
        for setting in settings_of(cls):
            # a word in capitals such as PATH; ``in_words`` lists choices
            type_word = setting.type if setting.type.isupper() else ""
            name = f"{setting.key} {type_word}".ljust(LIST_INDENT)
            lines.append(
                textwrap.fill(
                    name + setting.in_words(),
                    width,
                    subsequent_indent=" " * LIST_INDENT,
                )
            )
    return "\n".join(lines)
