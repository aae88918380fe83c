"""Plug-ins and their options as text: ``laplace:heads=4,location=median``."""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gaam_cache.common import plugins, settings
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import did_you_mean, shortened
from gaam_cache.config import IMPORTED

if TYPE_CHECKING:
    from gaam_decoder.heads.base import Head


class PluginKind(NamedTuple):
    """Where the plug-ins of a kind are, and how a command asks for one."""

    package: str
    """Its files are gaam's plug-ins; other distributions add theirs under this name."""
    option: str
    """Of the command line."""


KINDS = {
    "mechanism": PluginKind("gaam_decoder.attention", "--attn"),
    "head": PluginKind("gaam_decoder.heads", "--head"),
    "loss": PluginKind("gaam_decoder.losses", "--loss"),
    "optimizer": PluginKind("gaam_decoder.optimizers", "--optimizer"),
}
USUAL_DECAY = 0.01
"""Weight decay of AdamW in torch, and in gaam."""
DEFAULTS_IN_TITLES = {
    "pool": IMPORTED,
    "optimizer": None,
    "lr": None,
    "weight_decay": USUAL_DECAY,
    "layers": None,
    "train_rows": None,
    "shots": None,
    "fold": None,
    "split_seed": 0,
    "val_split": None,
    "shuffle": "full",
    "state_scale": "none",
}
"""Settings that a title shows, in order, with the default, which it omits."""
Settings = dict[str, Any]
"""Settings of a recipe by name, as JSON values, as ``Recipe.to_dict`` gives them.

Titles and tables show them by name; code that uses one reads the ``Recipe``.
"""


class PluginOption(NamedTuple):
    """An option of a plug-in: a keyword-only argument of its constructor."""

    type: Any
    default: Any


@dataclass(frozen=True, slots=True)
class Spec:
    """A plug-in and its options, such as ``laplace:heads=4,location=median``."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    """Options that differ from their defaults, sorted by name."""
    file: str = field(default="", compare=False)
    """The file of a user's own class, from which workers load it again."""
    code: str = field(default="", compare=False)
    """Origin and hash of the code of a user's own class, as ``plugins.code_hash``."""
    given_class: type | None = field(default=None, compare=False, repr=False)
    """The class itself, if a user gave it; later ones may have its name."""

    def __reduce__(self) -> tuple[type[Spec], tuple[object, ...]]:
        """Leave out the class: one of a session belongs to one process."""
        return Spec, (self.name, self.options, self.file, self.code)

    def __str__(self) -> str:
        """The canonical form: two specs are the same exactly when this is equal."""
        parts = []
        for key, value in self.options:
            text = str(value)
            # TOML and the command line write true and false.
            if isinstance(value, bool):
                text = text.lower()
            parts.append(f"{key}={text}")
        return f"{self.name}:{','.join(parts)}" if parts else self.name


def plugin_options(cls: type) -> dict[str, PluginOption]:
    """The options of a plug-in by name, those of its base classes first.

    Options are the keyword-only arguments of the constructor. A constructor that takes
    ``**more`` passes them on to its base class, whose options then belong to the class,
    too.
    """
    options: dict[str, PluginOption] = {}
    for base in cls.__mro__:
        if "__init__" not in vars(base):
            continue
        constructor: Any = vars(base)["__init__"]
        name = f"the constructor of {cls.__name__}"
        with plugins.own_code(name, "its types have known names"):
            hints = typing.get_type_hints(constructor)
        defaults = getattr(constructor, "__kwdefaults__", None) or {}
        untyped = sorted(defaults.keys() - hints.keys())
        if untyped:
            raise ConfigError(
                f"an option of '{cls.__name__}' has no type",
                expected=f"{untyped[0]}: TYPE = {defaults[untyped[0]]!r}",
                found=f"{untyped[0]}={defaults[untyped[0]]!r}",
            )
        base_options = {
            name: PluginOption(hints[name], default)
            for name, default in defaults.items()
        }
        # A class has the last word on the defaults of its base classes.
        options = base_options | options
        passes_options_on = "more" in hints
        if not passes_options_on:
            break
    return options


def parse_plugin(plugin: object, kind: str) -> Spec:
    """Read the spec of a plug-in, or of a user's own class.

    Args:
        plugin: a text for ``parse_spec``, ``FILE.py:CLASS:key=value,...``, a class, or
            a spec.
        kind: one of ``KINDS``.

    Raises:
        ValueError: ``plugin`` is of another type; the message says what is expected.
        ConfigError: an unknown plug-in or option, or a bad value.
    """
    package = KINDS[kind].package
    if isinstance(plugin, Spec):
        # A worker process does not know yet the class of a user's file.
        if plugin.file and plugins.origin(package, plugin.name) is None:
            plugins.register_class(package, f"{plugin.file}:{plugin.name}", kind=kind)
        return plugin

    # empty, or as a text has them: ":key=value,..."
    options_text = ""
    written = None
    if isinstance(plugin, str):
        written = plugin
        file_class, options_text = plugins.split_file_class(plugin)
        if not file_class:
            return parse_spec(plugin, kind)
        plugin = file_class
    elif not isinstance(plugin, type):
        raise ValueError("a text such as name:key=value, or a class")
    name, file = plugins.register_class(package, plugin, kind=kind)
    spec = parse_spec(f"{name}{options_text}", kind, written=written)
    code = plugins.code_hash(package, name, kind=kind)
    given_class = plugin if isinstance(plugin, type) else None
    return replace(spec, file=file, code=code, given_class=given_class)


def parse_spec(
    text: str | Spec, kind: str, option: str | None = None, written: str | None = None
) -> Spec:
    """Read ``name:key=value,...``.

    Args:
        text: the text, or a spec, which is returned as it is.
        kind: one of ``KINDS``.
        option: the option of the command line, for messages (default: of the kind).
        written: what a person wrote, for messages (default: the text).

    Raises:
        ConfigError: an unknown plug-in or option, or a bad value.
    """
    if isinstance(text, Spec):
        return text
    option = option or KINDS[kind].option
    name, _, option_texts = text.strip().partition(":")
    written = f"{option} {shortened(written or text)}"
    cls = _load_plugin(name, kind, option, written)
    known_options = plugin_options(cls)

    given_options: dict[str, object] = {}
    for part in option_texts.split(",") if option_texts else ():
        key, _, value = part.partition("=")
        key = key.strip()
        if key not in known_options:
            raise plugins.unknown(
                f"option of {kind} '{name}'",
                part,
                known_options,
                found=written,
                hint=did_you_mean(key, known_options),
            )
        if key in given_options:
            raise _given_twice_error(key, name, kind, option, written)
        given_options[key] = _parse_option(
            value.strip(), known_options[key].type, label=f"{option} {name}:{key}"
        )
    options = {
        key: value
        for key, value in given_options.items()
        if value != known_options[key].default
    }
    _add_implied_options(options, given_options, getattr(cls, "implied_options", {}))
    return Spec(name, tuple(sorted(options.items())))


def _load_plugin(name: str, kind: str, option: str, written: str) -> Any:
    """The class of the plug-in that a spec names.

    Args:
        name: of the plug-in.
        kind: one of ``KINDS``.
        option: the option of the command line, for messages.
        written: the option and what a person wrote, for messages.

    Raises:
        ConfigError: an unknown plug-in, or several.
    """
    if "," in name:
        raise ConfigError(
            f"{option} takes one {kind}", found=written, hint=f"{option} A {option} B"
        )
    try:
        return plugins.load(KINDS[kind].package, name, kind=kind, found=written)
    except ConfigError as error:
        error.details.setdefault(
            "to do", f"a class of your own: {option} FILE.py:CLASS"
        )
        raise


def _given_twice_error(
    key: str, name: str, kind: str, option: str, written: str
) -> ConfigError:
    """The error for a spec that gives an option of a plug-in twice.

    Args:
        key: of the option of the plug-in.
        name: of the plug-in.
        kind: one of ``KINDS``.
        option: the option of the command line.
        written: the option and what a person wrote.
    """
    return ConfigError(
        f"the option '{key}' of {kind} '{name}' is given twice",
        expected="one value",
        found=written,
        hint=(
            f"for two decoders give {option} twice"
            if kind in ("mechanism", "head")
            else None
        ),
    )


def _add_implied_options(
    options: dict[str, object],
    given: Mapping[str, object],
    implied_options: Mapping[str, Mapping[str, object]],
) -> None:
    """Spell out the options that other options set, so that equal decoders look equal.

    So ``gqa:published=true`` becomes ``gqa:init=xavier-normal,published=true``.

    Args:
        options: those that differ from their defaults; the implied ones are added.
        given: all options that the spec has; a given value is not replaced.
        implied_options: as ``Attention.implied_options``.
    """
    for key, implied in implied_options.items():
        if options.get(key) is True:
            for implied_key, value in implied.items():
                options[implied_key] = given.get(implied_key, value)


def read_spec(text: str) -> Spec:
    """Read a recorded spec without its plug-in, which need not be installed.

    Options get the types that their texts suggest.
    """
    name, _, option_texts = text.partition(":")
    options = []
    for part in option_texts.split(",") if option_texts else ():
        key, _, value = part.partition("=")
        options.append((key, _read_option(value)))
    return Spec(name, tuple(options))


def _read_option(text: str) -> str | bool | int | float:
    """Read the value of an option without knowing its type.

    ``true``, ``3`` or ``0.5`` becomes a truth value or a number if that is written
    with the same characters again; other texts, such as ``007``, stay.
    """
    if text in ("true", "false"):
        return text == "true"
    for number_type in (int, float):
        try:
            number = number_type(text)
        except ValueError:
            continue
        if str(number) == text:
            return number
    return text


def _parse_option(text: str, option_type: object, *, label: str) -> Any:
    """Read the value of an option by its type; ``label`` names it in the error."""
    try:
        return settings.parse_value(text, option_type, metadata={})
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"bad value for {label}", expected=str(error), found=f"'{text}'"
        ) from error


def parse_specs(value: object, kind: str) -> tuple[Spec, ...]:
    """Read one spec or a list; a comma separates options, never specs."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return tuple(parse_plugin(entry, kind) for entry in values)


def build(spec: Spec, kind: str, *arguments: Any) -> Any:
    """Build a plug-in; ``arguments`` are those of its kind, before the options."""
    package = KINDS[kind].package
    cls = plugins.load(package, spec.name, kind=kind)
    if spec.code:
        plugins.check_registered(package, spec.name, spec.given_class, spec.code, kind)
    options = dict(spec.options)
    # an error in gaam's own code is a bug, and needs its traceback
    if plugins.origin(package, spec.name) is None:
        return cls(*arguments, **options)
    expected = (
        f"__init__ takes {len(arguments)} arguments beside self, and options by "
        "keyword, with types and defaults"
    )
    with own_code(spec, kind, expected):
        return cls(*arguments, **options)


def own_code(spec: Spec, kind: str, expected: str) -> AbstractContextManager[None]:
    """Turn every error that the code of a user's own plug-in raises into one message.

    Args:
        spec: of the plug-in.
        kind: one of ``KINDS``.
        expected: what its code must be able to do.
    """
    return plugins.own_code(
        f"the {kind} '{spec}'",
        expected,
        file=plugins.file_of(KINDS[kind].package, spec.name),
    )


def attention_class(spec: Spec) -> type:
    """The class of a mechanism."""
    cls: type = plugins.load(KINDS["mechanism"].package, spec.name, kind="mechanism")
    return cls


def head_class(spec: Spec) -> type[Head]:
    """The class of a head."""
    cls: type[Head] = plugins.load(KINDS["head"].package, spec.name, kind="head")
    return cls


def plugin_tasks(spec: Spec, kind: str) -> tuple[str, ...]:
    """Names of the tasks that a head or a loss serves."""
    cls = plugins.load(KINDS[kind].package, spec.name, kind=kind)
    tasks: tuple[str, ...] = cls.tasks
    return tasks


parse_attention = functools.partial(parse_spec, kind="mechanism")
parse_head = functools.partial(parse_spec, kind="head")


def parse_checked(plugin: object, kind: str) -> Spec:
    """Read the spec of a loss or an optimizer, and check the ranges of its options."""
    spec = parse_plugin(plugin, kind)
    # The constructor checks the ranges.
    build(spec, kind)
    return spec


def decoder_title(
    attention: object,
    head: object,
    settings: Mapping[str, object],
    *,
    final: bool = False,
) -> str:
    """The name of a decoder for people, with the settings that a sweep varies."""
    title = f"{attention} + {head}"
    for name, default in DEFAULTS_IN_TITLES.items():
        value = settings.get(name)
        # an unset setting or a default says nothing
        if value in (None, default):
            continue
        text = f"{value:g}" if isinstance(value, float) else str(value)
        title += f", {name.replace('_', ' ')} {text}"
    if settings.get("shuffle_labels"):
        title += ", labels shuffled"
    if final:
        title += ", final model"
    return title


def is_foreign(spec: Spec, kind: str) -> bool:
    """Whether a mechanism or head is from a file or from another package."""
    # its code is named with a digest behind a space; gaam's own has none
    return " " in plugins.code_hash(KINDS[kind].package, spec.name, kind=kind)
