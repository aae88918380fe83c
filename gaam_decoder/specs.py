"""Plug-ins and their options as text: ``laplace:heads=4,location=median``."""

from __future__ import annotations

import inspect
import typing
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gaam_cache import plugins
from gaam_cache.errors import ConfigError
from gaam_cache.messages import nearest, shortened

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

REPEATABLE = ("--attn", "--head")
"""Options that take one name each and may be given several times."""


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

    They are the keyword-only arguments of its constructor.
    """
    hints = typing.get_type_hints(cls.__init__)  # type: ignore[misc]
    return {
        parameter.name: (hints[parameter.name], parameter.default)
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def parse_spec(text: str, kind: str, option: str | None = None) -> Spec:
    """Read ``name:key=value,...`` and check it against the plug-in of that name.

    Args:
        text: what the user wrote.
        kind: of ``KINDS``.
        option: of the command line that takes it, where it is not that of the kind.

    Raises:
        ConfigError: unknown name or option, an option twice, or a value of the wrong type.
    """
    package, usual = KINDS[kind]
    option = option or usual
    name, _, tail = text.strip().partition(":")
    valid = plugins.names(package)
    if "," in name:
        each = " ".join(f"{option} {part}" for part in name.split(",") if part)
        several = f"give the option several times: {shortened(each)}"
        raise ConfigError(
            f"{option} takes one {kind}",
            found=f"'{shortened(text)}'",
            hint=several if option in REPEATABLE else "choose one of them",
        )
    meant = _option_in_the_name(name, package, valid, kind)
    details = {
        "found": f"{option} {shortened(text)}",
        "hint": f"did you mean '{meant}'?" if meant else None,
    }
    cls = plugins.load(package, name, kind=kind, **details)
    with plugins.blamed(package, name, kind=kind):
        known = plugin_options(cls)
    options: dict[str, Any] = {}
    given: dict[str, Any] = {}
    written: dict[str, str] = {}
    for part in tail.split(",") if tail else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key not in known:
            raise _unknown_option(part, text, known, valid, kind=kind, option=option)
        if key in written:
            raise ConfigError(
                f"{key} is given twice in {option} {shortened(text)}",
                expected="one value",
                found=f"{written[key]} and {value}",
            )
        written[key] = value
        hint, default = known[key]
        given[key] = parsed = _parse_value(value, hint, f"{option} {name}:{key}")
        if parsed != default:
            options[key] = parsed
    for key, brought in getattr(cls, "brings", {}).items():
        if options.get(key) is True:
            options |= {more: given.get(more, value) for more, value in brought.items()}
    return Spec(name, tuple(sorted(options.items())))


def _option_in_the_name(name: str, package: str, valid: list[str], kind: str) -> str | None:
    """``mha:published=true`` for ``mha-published``, where that is an option of yes or no."""
    if name in valid:
        return None
    plain = name.casefold().replace("_", "-")
    for first in (one for one in valid if plain.startswith(f"{one}-")):
        key = plain.removeprefix(f"{first}-").replace("-", "_")
        options = plugin_options(plugins.load(package, first, kind=kind))
        if key in options and options[key][0] is bool:
            return f"{first}:{key}=true"
    return None


def _unknown_option(
    part: str,
    text: str,
    known: dict[str, tuple[Any, Any]],
    valid: list[str],
    *,
    kind: str,
    option: str,
) -> ConfigError:
    name, key = text.partition(":")[0], part.partition("=")[0].strip()
    meant = nearest(key, known)
    hint = f"did you mean '{meant}=...'?" if meant else None
    if not meant and nearest(key.partition(":")[0], valid):
        hint = f"several: {option} {name} {option} {shortened(key)}"
    return ConfigError(
        f"unknown option '{shortened(part)}' of {kind} '{name}'",
        expected=f"{', '.join(f'{k}=...' for k in known) or 'no options'}",
        found=f"{option} {shortened(text)}",
        hint=hint,
    )


def _parse_value(value: str, hint: Any, where: str) -> Any:
    kinds = [kind for kind in (typing.get_args(hint) or (hint,)) if kind is not type(None)]
    meant = None
    if typing.get_origin(hint) is Literal:
        if value in kinds:
            return value
        expected = f"one of: {', '.join(map(str, kinds))}"
        meant = nearest(value, map(str, kinds))
    elif kinds[0] is bool:
        if value in ("true", "false"):
            return value == "true"
        expected = "true or false"
        meant = nearest(value, ("true", "false"), {"yes": "true", "no": "false"})
    else:
        try:
            parsed = kinds[0](value)
            if kinds[0] is str or abs(parsed) < LARGEST_NUMBER:  # NaN is not less either
                return parsed if kinds[0] is str else parsed + 0  # -0.0 is 0.0
        except ValueError:
            pass
        expected = f"a {'whole ' * (kinds[0] is int)}number of sensible size"
    raise ConfigError(
        f"bad value for {where}",
        expected=expected,
        found=f"'{shortened(value)}'",
        hint=f"did you mean '{meant}'?" if meant else None,
    )


def blamed(spec: Spec, kind: str) -> AbstractContextManager[None]:
    """What goes wrong inside is the fault of a plug-in, where it is not ours."""
    return plugins.blamed(KINDS[kind][0], spec.name, kind=kind)


def build(spec: Spec, kind: str, *arguments: Any) -> Any:
    """The plug-in that a spec names, made with its options.

    Args:
        spec: name and options.
        kind: of ``KINDS``.
        arguments: what its kind is made with besides.

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


def parse_attention(text: str, option: str = "--attn") -> Spec:
    """Read an attention spec."""
    return parse_spec(text, "mechanism", option)


def parse_head(text: str) -> Spec:
    """Read a head spec."""
    return parse_spec(text, "head")


def parse_loss(text: str) -> Spec:
    """Read a loss spec."""
    return parse_spec(text, "loss")


USUAL_DECAY = 0.01
"""Of AdamW in torch, and ours; another is part of a title."""


def row_title(
    attention: object,
    head: object,
    *,
    pool: str | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    layers: str | None = None,
    budget: str | None = None,
    fold: str | None = None,
    split_seed: int | None = None,
    shuffled: bool = False,
    shuffle: str | None = None,
    final: bool = False,
) -> str:
    """What a row of the table is called where people read it; None is left out."""
    title = f"{attention} + {head}" + (f", pool {pool}" if pool else "")
    title += "" if lr is None else f", lr {lr:g}"
    title += "" if weight_decay in (None, USUAL_DECAY) else f", weight decay {weight_decay:g}"
    title += (f", layers {layers}" if layers else "") + (f", {budget}" if budget else "")
    title += f", fold {fold}" + f" of split seed {split_seed}" * bool(split_seed) if fold else ""
    title += f", shuffle {shuffle}" if shuffle not in (None, "full") else ""
    return title + ", labels shuffled" * shuffled + ", final model" * final
