"""Plug-ins and their options as text: ``laplace:heads=4,location=median``."""

from __future__ import annotations

import inspect
import typing
from dataclasses import dataclass
from typing import Any, Literal

from gaam_cache import registry
from gaam_cache.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Spec:
    """A plug-in and its options, such as ``laplace:heads=4,location=median``."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    """Options that differ from their defaults, sorted by name."""

    def __str__(self) -> str:
        """The canonical form: two specs mean the same exactly when this is equal."""
        text = ",".join(f"{key}={_spell(value)}" for key, value in self.options)
        return f"{self.name}:{text}" if text else self.name


def _spell(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def plugin_options(cls: type) -> dict[str, tuple[Any, Any]]:
    """Options of a plug-in: name -> (annotated type, default).

    They are the keyword-only arguments of its constructor, and of its base's where it passes
    ``**options`` on.
    """
    options: dict[str, tuple[Any, Any]] = {}
    for base in cls.__mro__:
        if "__init__" not in vars(base):
            continue
        hints = typing.get_type_hints(base.__init__)  # type: ignore[misc]
        parameters = inspect.signature(base.__init__).parameters.values()  # type: ignore[misc]
        for parameter in parameters:
            if parameter.kind is parameter.KEYWORD_ONLY:
                options.setdefault(parameter.name, (hints[parameter.name], parameter.default))
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return options


def parse_spec(text: str, *, package: str, kind: str) -> Spec:
    """Read ``name:key=value,...`` and check it against the plug-in of that name.

    Args:
        text: what the user wrote.
        package: folder of plug-ins, such as 'gaam_decoder.attention'.
        kind: what to call it in messages.

    Raises:
        ConfigError: unknown name or option, or a value of the wrong type.
    """
    name, _, tail = text.strip().partition(":")
    known = plugin_options(registry.load(package, name, kind=kind))
    options = {}
    for part in tail.split(",") if tail else ():
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or key not in known:
            raise ConfigError(
                f"unknown option '{part}' of {kind} '{name}'",
                expected=f"{', '.join(f'{k}=...' for k in known) or 'no options'}",
                found=f"'{text}'",
            )
        hint, default = known[key]
        parsed = _parse_value(value.strip(), hint, f"{name}:{key}")
        if parsed != default:
            options[key] = parsed
    return Spec(name, tuple(sorted(options.items())))


def _parse_value(value: str, hint: Any, where: str) -> Any:
    kinds = [kind for kind in (typing.get_args(hint) or (hint,)) if kind is not type(None)]
    if typing.get_origin(hint) is Literal:
        if value in kinds:
            return value
        expected = f"one of: {', '.join(map(str, kinds))}"
    elif kinds[0] is bool:
        if value in ("true", "false"):
            return value == "true"
        expected = "true or false"
    else:
        try:
            return kinds[0](value)
        except ValueError:
            expected = f"a value of type {kinds[0].__name__}"
    raise ConfigError(f"bad value for {where}", expected=expected, found=f"'{value}'")


def parse_attention(text: str) -> Spec:
    """Read an attention spec."""
    return parse_spec(text, package="gaam_decoder.attention", kind="mechanism")


def parse_head(text: str) -> Spec:
    """Read a head spec."""
    return parse_spec(text, package="gaam_decoder.heads", kind="head")


def parse_loss(text: str) -> Spec:
    """Read a loss spec."""
    return parse_spec(text, package="gaam_decoder.losses", kind="loss")


def row_title(
    attention: object,
    head: object,
    *,
    lr: float | None = None,
    layers: str | None = None,
    fold: str | None = None,
) -> str:
    """What a row of the table is called where people read it; None is left out."""
    title = f"{attention} + {head}"
    title += "" if lr is None else f", lr {lr:g}"
    title += f", layers {layers}" if layers else ""
    return title + (f", fold {fold}" if fold else "")
