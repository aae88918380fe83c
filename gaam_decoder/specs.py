"""Plug-ins and their options as text: ``laplace:heads=4,location=median``."""

from __future__ import annotations

import functools
import inspect
import typing
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gaam_cache import plugins
from gaam_cache.errors import ConfigError
from gaam_cache.messages import did_you_mean, shortened

if TYPE_CHECKING:
    from gaam_decoder.heads._base import Head

LARGEST_NUMBER = 2**31
"""Of an option; more has no meaning, and sizes made of it overflow."""
KINDS = {
    "mechanism": ("gaam_decoder.attention", "--attn"),
    "head": ("gaam_decoder.heads", "--head"),
    "loss": ("gaam_decoder.losses", "--loss"),
}
"""What a decoder is made of: its folder and its option."""
USUAL_DECAY = 0.01
"""Of AdamW in torch, and ours; another is part of a title."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A plug-in and its options, such as ``laplace:heads=4,location=median``."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    """Options that differ from their defaults, sorted by name."""

    def __str__(self) -> str:
        """The canonical form: two specs mean the same exactly when this is equal."""
        spelled = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in self.options}
        text = ",".join(f"{key}={value}" for key, value in spelled.items())
        return f"{self.name}:{text}" if text else self.name


def plugin_options(cls: type) -> dict[str, tuple[Any, Any]]:
    """Keyword-only arguments of a plug-in's constructor: name -> type, default."""
    hints = typing.get_type_hints(cls.__init__)  # type: ignore[misc]
    return {
        parameter.name: (hints[parameter.name], parameter.default)
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def parse_spec(text: str, kind: str, option: str | None = None) -> Spec:
    """Read ``name:key=value,...`` as the plug-in of that name, of one of ``KINDS``, has it.

    Raises:
        ConfigError: unknown name or option, an option twice, or a value of the wrong type.
    """
    package, usual = KINDS[kind]
    option = option or usual
    name, _, tail = text.strip().partition(":")
    found = f"{option} {shortened(text)}"
    if "," in name:
        hint = f"several: {option} A {option} B"
        raise ConfigError(f"{option} takes one {kind}", found=found, hint=hint)
    cls = plugins.load(package, name, kind=kind, found=found)
    with plugins.blamed(package, name, kind=kind):
        known = plugin_options(cls)
    given: dict[str, Any] = {}
    for part in tail.split(",") if tail else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key not in known:
            raise ConfigError(
                f"unknown option '{shortened(part)}' of {kind} '{name}'",
                expected=f"{', '.join(f'{k}=...' for k in known) or 'no options'}",
                found=found,
                hint=did_you_mean(key, known),
            )
        if key in given:
            raise ConfigError(f"{key} is given twice", expected="one value", found=found)
        given[key] = _parse_value(value, known[key][0], f"{option} {name}:{key}")
    options = {key: value for key, value in given.items() if value != known[key][1]}
    for key, brought in getattr(cls, "brings", {}).items():
        if options.get(key) is True:
            options |= {more: given.get(more, value) for more, value in brought.items()}
    return Spec(name, tuple(sorted(options.items())))


def _parse_value(value: str, hint: Any, where: str) -> Any:
    kinds = [kind for kind in (typing.get_args(hint) or (hint,)) if kind is not type(None)]
    if kinds[0] is str:
        return value
    words: dict[str, Any] = {"true": True, "false": False} if kinds[0] is bool else {}
    if typing.get_origin(hint) is Literal:
        words = {one: one for one in kinds}
    if value in words:
        return words[value]
    expected = f"one of: {', '.join(words)}"
    if not words:
        expected = f"a {'whole ' * (kinds[0] is int)}number of sensible size"
        with suppress(ValueError):
            if abs(parsed := kinds[0](value)) < LARGEST_NUMBER:  # NaN is not less either
                return parsed + 0  # -0.0 is 0.0
    hint, found = did_you_mean(value, words), f"'{shortened(value)}'"
    raise ConfigError(f"bad value for {where}", expected=expected, found=found, hint=hint)


def blamed(spec: Spec, kind: str) -> AbstractContextManager[None]:
    """What goes wrong inside is the fault of a plug-in, where it is not ours."""
    return plugins.blamed(KINDS[kind][0], spec.name, kind=kind)


def build(spec: Spec, kind: str, *arguments: Any) -> Any:
    """The plug-in that a spec names, made with its options and what its kind takes besides.

    Raises:
        ConfigError: an option that does not fit, or one of another distribution does not work.
    """
    cls = plugins.load(KINDS[kind][0], spec.name, kind=kind)
    with blamed(spec, kind):
        return cls(*arguments, **dict(spec.options))


def head_class(spec: Spec) -> type[Head]:
    """The class of a head."""
    cls: type[Head] = plugins.load(KINDS["head"][0], spec.name, kind="head")
    return cls


parse_attention = functools.partial(parse_spec, kind="mechanism")
parse_head = functools.partial(parse_spec, kind="head")
parse_loss = functools.partial(parse_spec, kind="loss")


def row_title(attention: object, head: object, *, final: bool = False, **recipe: Any) -> str:
    """What a row is called where people read it: with what a sweep varies of ``Recipe.to_dict``."""
    get = recipe.get
    decay = None if get("weight_decay") == USUAL_DECAY else get("weight_decay")
    size, unit = get("train_rows") or get("shots"), "shot" if get("shots") else "row"
    split = f" of split seed {get('split_seed')}" if get("split_seed") else ""
    parts = {
        "pool ": get("pool"),
        "lr ": None if get("lr") is None else f"{get('lr'):g}",
        "weight decay ": None if decay is None else f"{decay:g}",
        "layers ": get("layers"),
        "": f"{size:,} {unit}{'s' * (size > 1)}" if size else None,
        "fold ": get("fold") and f"{get('fold')}{split}",
        "shuffle ": None if get("shuffle") == "full" else get("shuffle"),
    }
    title = f"{attention} + {head}" + "".join(f", {k}{v}" for k, v in parts.items() if v)
    return title + ", labels shuffled" * bool(get("shuffle_labels")) + ", final model" * final
