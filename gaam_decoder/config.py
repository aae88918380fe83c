"""What a training is: decoder specs, seeds, and one frozen dataclass that validates itself."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
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


MAX_NUMBERS = 100_000
"""Of one list of seeds or layers: a slip of the finger must not fill the memory."""


def parse_numbers(text: str) -> list[int]:
    """Read numbers and ranges separated by commas: ``1-8,12``, in the order given.

    Raises:
        ValueError: anything else.
    """
    text = text.replace(" ", "")
    if not re.fullmatch(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*,?", text):
        raise ValueError("a list (3,5,9), a range (0-31), or both (1-8,12)")
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), min(int(last or first), int(first) + MAX_NUMBERS) + 1)
        if len(numbers) > MAX_NUMBERS:
            raise ValueError(f"at most {MAX_NUMBERS:,} numbers")
    return numbers


def spell_numbers(numbers: Sequence[int]) -> str:
    """Ascending numbers as ``parse_numbers`` reads them, as short as can be: ``1-8,12``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def _each_once(numbers: list[int], what: str) -> tuple[int, ...]:
    if not numbers or len(set(numbers)) != len(numbers):
        raise ValueError(f"at least one {what}, and each only once")
    return tuple(sorted(numbers))


def parse_seeds(value: str | int | list[int] | tuple[int, ...]) -> tuple[int, ...]:
    """Read seeds: ``10`` is 0 to 9, ``0-31`` a range, ``3,5,9`` a list; these combine by commas.

    Raises:
        ValueError: anything else.
    """
    if isinstance(value, (list, tuple)):
        return _each_once([int(seed) for seed in value], "seed")
    text = str(value).strip()
    if re.fullmatch(r"\d{1,9}", text):
        text = f"0-{int(text) - 1}" if int(text) else ""
    try:
        return _each_once(parse_numbers(text), "seed")
    except ValueError as error:
        raise ValueError(f"a number of seeds (10), or {error}") from None


def parse_layers(value: str | int | list[int] | tuple[int, ...]) -> tuple[int, ...]:
    """Read layer numbers, counted from 1: ``19,20,21``, ``19-21`` or ``1-8,12``.

    Raises:
        ValueError: anything else.
    """
    if isinstance(value, (list, tuple)):
        return _each_once([int(layer) for layer in value], "layer")
    return _each_once(parse_numbers(str(value)), "layer")


def parse_list(value: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """One spec or several; commas belong to the options of a spec and do not separate specs."""
    return (value,) if isinstance(value, str) else tuple(value)


def parse_rates(value: str | float | list[float] | tuple[float, ...]) -> tuple[float, ...]:
    """Read one number or several: ``1e-4,3e-4``.

    Raises:
        ValueError: anything else.
    """
    parts = value.split(",") if isinstance(value, str) else value
    try:
        rates = [float(part) for part in (parts if isinstance(parts, (list, tuple)) else [parts])]
    except (TypeError, ValueError):
        raise ValueError("a number, or several: 1e-4,3e-4") from None
    return tuple(rates)


def parse_seed_batch(value: str | int | None) -> int | None:
    """Read ``auto`` (None) or a number.

    Raises:
        ValueError: anything else.
    """
    if value in ("auto", None):
        return None
    try:
        return int(str(value))
    except ValueError:
        raise ValueError("auto or a number") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """Everything ``gaam train`` can be told.

    Raises:
        ConfigError: on construction, when a value is out of its range or a name is unknown.
    """

    attn: tuple[str, ...] = field(default=("gaam",), metadata={"parse": parse_list})
    """Mechanisms, each ``name`` or ``name:key=value,...``."""
    head: str | tuple[str, ...] = field(default="linear", metadata={"parse": parse_list})
    """Classifier heads: linear, mlp, or conv as published."""
    loss: str = "cross-entropy"
    """cross-entropy, or focal as the paper used for speech: ``focal:gamma=2.5,alpha=0.25``."""
    cache: Path = Path("cache")
    """Folder of the cache."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""
    seeds: tuple[int, ...] = field(default=tuple(range(10)), metadata={"parse": parse_seeds})
    """A number (10), a range (0-31) or a list (3,5,9)."""
    epochs: int = 35
    """Passes over the training rows."""
    batch_size: int = 32
    """Rows of one step."""
    lr: float | tuple[float, ...] = field(default=3e-4, metadata={"parse": parse_rates})
    """Learning rate of AdamW, or several."""
    weight_decay: float = 0.01
    """Weight decay of AdamW."""
    schedule: Literal["constant", "plateau"] = "constant"
    """plateau: divide the rate by 10 when the watched accuracy has not risen for 10 epochs."""
    clip_grad_norm: float | None = None
    """Largest gradient norm; default: no clipping."""
    select: Literal["val", "last", "test"] = "val"
    """Epoch that is kept: best on a part of train, the last, or best on test (optimistic)."""
    val_fraction: float = 0.1
    """Share of every class of train that --select val holds out."""
    split_seed: int = 0
    """Decides which rows --select val holds out."""
    pool: str | None = None
    """Pooling to read; default: the first in the cache."""
    layers: tuple[int, ...] | None = field(default=None, metadata={"parse": parse_layers})
    """Encoder layers to learn from, ascending, counted from 1 as in the paper: layer n is
    ``hidden_states[n]`` of transformers. Default: all."""
    train_split: str = "train"
    """Split to train on."""
    test_split: str = "test"
    """Split to report on."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    """Arithmetic of matrix products; auto: bfloat16 where the device has it. Parameters, optimiser
    and loss are float32."""
    seed_batch: int | None = field(default=None, metadata={"parse": parse_seed_batch})
    """Seeds trained together at most; default: chosen from memory."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Whether torch.compile is used; auto: where there is a compiler and enough work for it."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work, before anything is read."""
        at_least: dict[str, float] = {"epochs": 1, "batch_size": 1, "split_seed": 0}
        for name, minimum in at_least.items():
            if getattr(self, name) < minimum:
                raise _range_error(name, f">= {minimum:g}", getattr(self, name))
        positive: list[tuple[str, float | None]] = [("lr", lr) for lr in self.lrs]
        for name, value in [*positive, ("clip_grad_norm", self.clip_grad_norm)]:
            if value is not None and not 0 < value < float("inf"):
                raise _range_error(name, "a positive number", value)
        if self.seed_batch is not None and self.seed_batch < 1:
            raise _range_error("seed_batch", "auto, or at least 1", self.seed_batch)
        if not 0 <= self.weight_decay < float("inf"):
            raise _range_error("weight_decay", ">= 0", self.weight_decay)
        if not 0 < self.val_fraction <= 0.5:
            raise _range_error("val_fraction", "more than 0, at most 0.5", self.val_fraction)
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise _range_error("device", "auto, cpu, cuda or cuda:N", self.device)
        if self.layers is not None and (
            not self.layers or self.layers[0] < 1 or list(self.layers) != sorted(set(self.layers))
        ):
            expected = "layer numbers from 1 on, ascending, each once"
            raise _range_error("layers", expected, self.layers)
        specs = [str(parse_attention(text)) for text in self.attn]
        heads = [str(parse_head(text)) for text in self.heads]
        loss = parse_loss(self.loss)
        registry.load("gaam_decoder.losses", loss.name, kind="loss")(**dict(loss.options))
        lists: dict[str, list[Any]] = {"attn": specs, "head": heads, "lr": list(self.lrs)}
        for name, values in lists.items():
            if not values:
                raise ConfigError("nothing to train", expected=f"at least one --{name}")
            if repeated := {value for value in values if values.count(value) > 1}:
                raise ConfigError(f"--{name} {', '.join(map(str, repeated))} is given twice")

    @property
    def heads(self) -> tuple[str, ...]:
        """All heads."""
        return parse_list(self.head)

    @property
    def lrs(self) -> tuple[float, ...]:
        """All learning rates."""
        return parse_rates(self.lr)

    def recipes(self) -> list[TrainConfig]:
        """One config for every mechanism, head and learning rate, in this order."""
        return [
            replace(self, attn=(attention,), head=head, lr=lr)
            for attention in self.attn
            for head in self.heads
            for lr in self.lrs
        ]


def _range_error(name: str, expected: str, found: Any) -> ConfigError:
    option = "--" + name.replace("_", "-")
    return ConfigError(f"{option} is out of range", expected=expected, found=str(found))
