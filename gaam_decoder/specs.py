"""Plug-ins and their options as text: ``laplace:heads=4,location=median``."""

from __future__ import annotations

import functools
import re
import typing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gaam_cache.common import plugins, settings
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import did_you_mean, shortened

if TYPE_CHECKING:
    from gaam_decoder.heads.base import Head

KINDS = {
    "mechanism": ("gaam_decoder.attention", "--attn"),
    "head": ("gaam_decoder.heads", "--head"),
    "loss": ("gaam_decoder.losses", "--loss"),
    "optimizer": ("gaam_decoder.optimizers", "--optimizer"),
}
"""What a training is made of: its folder and its option."""
USUAL_DECAY = 0.01  # of AdamW in torch, and ours
TOLD = dict.fromkeys(
    ("pool", "optimizer", "lr", "weight_decay", "layers", "train_rows", "shots", "fold")
)
TOLD |= {"weight_decay": USUAL_DECAY, "split_seed": 0, "shuffle": "full"}
"""Settings that are part of a title, in order, and which value is not worth a word."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A plug-in and its options, such as ``laplace:heads=4,location=median``."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    """Options that differ from their defaults, sorted by name."""
    file: str = field(
        default="", compare=False
    )  # of a person's own: workers read it again

    def __str__(self) -> str:
        """The canonical form: two specs mean the same exactly when this is equal."""
        spelled = {
            k: str(v).lower() if isinstance(v, bool) else str(v)
            for k, v in self.options
        }
        text = ",".join(f"{key}={value}" for key, value in spelled.items())
        return f"{self.name}:{text}" if text else self.name


def plugin_options(cls: type) -> dict[str, tuple[Any, Any]]:
    """Keyword-only arguments of a constructor, and of whose it passes on as ``**more``."""
    found: dict[str, tuple[Any, Any]] = {}
    for base in (one for one in cls.__mro__ if "__init__" in vars(one)):
        made: Any = vars(base)["__init__"]
        hints, defaults = (
            typing.get_type_hints(made),
            getattr(made, "__kwdefaults__", None) or {},
        )
        found = {
            name: (hints[name], default) for name, default in defaults.items()
        } | found
        if "more" not in hints:
            break
    return found


def own_spec(what: Any, kind: str) -> Spec:
    """As ``parse_spec``; of a person's own class too: ``FILE.py:CLASS:key=value,...``, or it."""
    package, tail = KINDS[kind][0], ""
    if isinstance(what, Spec):
        if what.file and plugins.origin(package, what.name) is None:  # in a worker
            plugins.register_class(package, f"{what.file}:{what.name}", kind=kind)
        return what
    if isinstance(what, str):
        found = re.fullmatch(r"(.+\.py(?::\w+)?)(:.*)?", what.strip())
        if found is None:
            return parse_spec(what, kind)
        what, tail = found[1], found[2] or ""
    elif not isinstance(what, type):
        raise ValueError("a string, or a list of strings")
    name, file = plugins.register_class(package, what, kind=kind)
    return replace(parse_spec(f"{name}{tail}", kind), file=file)


def parse_spec(text: str | Spec, kind: str, option: str | None = None) -> Spec:
    """Read ``name:key=value,...`` as the plug-in of that name, of one of ``KINDS``, has it."""
    if isinstance(text, Spec):
        return text
    package, option = KINDS[kind][0], option or KINDS[kind][1]
    name, _, tail = text.strip().partition(":")
    found = f"{option} {shortened(text)}"
    if "," in name:
        raise ConfigError(
            f"{option} takes one {kind}", found=found, hint=f"{option} A {option} B"
        )
    cls = plugins.load(package, name, kind=kind, found=found)
    known = plugin_options(cls)
    given: dict[str, Any] = {}
    for part in tail.split(",") if tail else ():
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in known:
            where = f"option of {kind} '{name}'"
            raise plugins.unknown(
                where, part, known, found=found, hint=did_you_mean(key, known)
            )
        try:
            given[key] = settings.parse_value(value, known[key][0], {})
        except (TypeError, ValueError) as error:
            message = f"bad value for {option} {name}:{key}"
            raise ConfigError(
                message, expected=str(error), found=f"'{value}'"
            ) from error
    options = {key: value for key, value in given.items() if value != known[key][1]}
    for key, brought in getattr(cls, "brings", {}).items():
        if options.get(key) is True:
            options |= {more: given.get(more, value) for more, value in brought.items()}
    return Spec(name, tuple(sorted(options.items())))


def parse_specs(value: Any, kind: str) -> tuple[Spec, ...]:
    """One spec or several; commas belong to the options of a spec and do not part specs."""
    return tuple(
        own_spec(one, kind)
        for one in (value if isinstance(value, (list, tuple)) else [value])
    )


def build(spec: Spec, kind: str, *arguments: Any) -> Any:
    """The plug-in that a spec names; ``arguments`` are what its kind takes besides options."""
    return plugins.load(KINDS[kind][0], spec.name, kind=kind)(
        *arguments, **dict(spec.options)
    )


def head_class(spec: Spec) -> type[Head]:
    """The class of a head."""
    cls: type[Head] = plugins.load(KINDS["head"][0], spec.name, kind="head")
    return cls


parse_attention = functools.partial(parse_spec, kind="mechanism")
parse_head = functools.partial(parse_spec, kind="head")


def parse_built(text: Any, kind: str) -> Spec:
    """A loss or an optimiser, whose options are in their ranges."""
    build(spec := parse_spec(text, kind=kind), kind)
    return spec


def row_title(
    attention: object, head: object, *, final: bool = False, **recipe: Any
) -> str:
    """What a row is called where people read it: with what a sweep varies of ``Recipe.to_dict``."""
    title = f"{attention} + {head}"
    for name, usual in TOLD.items():
        if (value := recipe.get(name)) not in (None, usual):
            said = f"{value:g}" if isinstance(value, float) else str(value)
            title += f", {name.replace('_', ' ')} {said}"
    return (
        title
        + ", labels shuffled" * bool(recipe.get("shuffle_labels"))
        + ", final model" * final
    )


def is_foreign(spec: Spec, kind: str) -> bool:
    """Whether a mechanism or head is not one of gaam's own, but of a file or another package."""
    return " " in plugins.code(KINDS[kind][0], spec.name, kind=kind)
