"""Describe mechanisms, heads, losses and optimizers for ``gaam describe``.

Formulas, sources and the meaning of options come from docstrings, options and defaults
from constructors, and shapes and sizes from a module that is built without memory.
"""

import inspect
import re
import textwrap
import typing
from collections.abc import Collection, Mapping
from typing import Any

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError
from gaam_decoder.attention.base import Attention
from gaam_decoder.attention.frames.softmax import Projected
from gaam_decoder.decoder import build_attention, shapes_only
from gaam_decoder.specs import KINDS, parse_plugin, plugin_options

SECTION = re.compile(r"^(Formula|Args|Source|Numerics|Shape|Raises):", re.MULTILINE)

OPTION = re.compile(r"    (\w+): ")
"""The first line of an option in the section ``Args``."""


def catalogue(num_layers: int, hidden_size: int) -> dict[str, Any]:
    """All plug-ins of every kind, and the dimensions, as JSON values.

    Each kind (mechanism, head, loss, optimizer) has a list of entries with the keys of
    ``_describe_plugin``.

    Args:
        num_layers: layers of the encoder.
        hidden_size: hidden size of the encoder.
    """
    listed: dict[str, object] = {"layers": num_layers, "hidden_size": hidden_size}
    for kind, plugin_kind in KINDS.items():
        listed[kind] = [
            _describe_plugin(kind, name, num_layers, hidden_size)
            for name in plugins.names(plugin_kind.package)
        ]
    return listed


def _describe_plugin(
    kind: str, name: str, num_layers: int, hidden_size: int
) -> dict[str, object]:
    """The entry of a plug-in: name, origin, summary, options, parameters, output_shape.

    The origin is the other distribution that it is from, if it is. A mechanism that
    does not fit the dimensions has no parameters and no output shape. The summary of a
    broken plug-in is the reason.
    """
    package = KINDS[kind].package
    entry: dict[str, object] = {
        "name": name,
        "origin": plugins.origin(package, name),
        "summary": "",
        "options": {},
        "parameters": None,
        "output_shape": None,
    }
    try:
        cls = plugins.load(package, name, kind=kind)
        entry["summary"] = _split_docstring(cls)["summary"]
        defaults = {key: option.default for key, option in plugin_options(cls).items()}
        entry["options"] = defaults
        if kind == "mechanism":
            description = describe_mechanism(name, num_layers, hidden_size)
            entry["parameters"] = description["parameters"]["total"]
            entry["output_shape"] = description["output_shape"]
    except plugins.CodeError as error:
        entry["summary"] = f"does not work: {_join_lines(error.details['found'])}"
    except ConfigError:
        # It does not fit these dimensions, but is listed.
        pass
    except Exception as error:  # noqa: BLE001 another distribution may raise anything
        reason = _join_lines(f"{type(error).__name__}: {error}")
        entry["summary"] = f"does not work: {reason}"
    return entry


def describe_mechanism(
    spec_text: str, num_layers: int, hidden_size: int
) -> dict[str, Any]:
    """Describe ``name:key=value,...`` as JSON values.

    Args:
        spec_text: the mechanism, as ``--attn`` takes it.
        num_layers: layers of the encoder.
        hidden_size: hidden size of the encoder.

    Raises:
        ConfigError: unknown name or option, or an option that does not fit these
            dimensions.
    """
    spec = parse_plugin(spec_text, "mechanism")
    with shapes_only():
        attention = build_attention(spec, num_layers, hidden_size)
    docstring = _split_docstring(type(attention))
    tensors = {
        name: list(parameter.shape) for name, parameter in attention.named_parameters()
    }
    return {
        "name": spec.name,
        "spec": str(spec),
        "origin": plugins.origin(KINDS["mechanism"].package, spec.name),
        "summary": docstring["summary"],
        "formula": docstring["formula"],
        "source": docstring["source"],
        "text": _full_text(type(attention)),
        "options": _describe_options(attention, dict(spec.options)),
        "input_shape": ["B", num_layers, hidden_size],
        "output_shape": ["B", *attention.output_shape],
        "parameters": {
            "total": sum(parameter.numel() for parameter in attention.parameters()),
            "tensors": tensors,
        },
        "depends_on_batch": attention.depends_on_batch,
    }


def _full_text(cls: type[Attention]) -> str:
    """The docstring of a mechanism, and of the base classes that explain it."""
    text: str = _split_docstring(cls)["text"]
    options = plugin_options(cls)
    for base in cls.__mro__[1:]:
        # Base classes such as DensityGate explain options and symbols too.
        is_frame = issubclass(base, Attention) and base not in (Attention, Projected)
        if is_frame:
            base_text = _without_other_options(_split_docstring(base)["text"], options)
            text += f"\n\nIt extends {base.__name__}:\n\n{base_text}"
    return text


def _without_other_options(text: str, options: Collection[str]) -> str:
    """The docstring of a base class without the options that a mechanism lacks.

    A mechanism may fix an option of its base class, as ``mqa`` fixes ``kv_heads``.
    """
    lines = []
    is_in_args = False
    keeps_line = True
    for line in text.splitlines():
        if SECTION.match(line):
            is_in_args = line == "Args:"
            keeps_line = True
        # the lines below the first line of an option belong to it
        option = OPTION.match(line)
        if is_in_args and option:
            keeps_line = option[1] in options
        if keeps_line:
            lines.append(line)
    return "\n".join(lines)


def _describe_options(
    attention: Attention, values: Mapping[str, object]
) -> list[dict[str, object]]:
    """Name, type, default and value of every option of a mechanism."""
    described = []
    for name, option in plugin_options(type(attention)).items():
        # The mechanism itself derives a value where the default is None.
        value_if_omitted = option.default
        if option.default is None:
            value_if_omitted = getattr(attention, name, None)
        described.append(
            {
                "name": name,
                "type": _spell_type(option.type),
                "default": option.default,
                "value": values.get(name, value_if_omitted),
            }
        )
    return described


def _spell_type(hint: object) -> str:
    """The types or values of a hint, without None: ``int|float``."""
    names = []
    for part in typing.get_args(hint) or (hint,):
        if part is type(None):
            continue
        names.append(part.__name__ if isinstance(part, type) else str(part))
    return "|".join(names)


def _split_docstring(cls: type) -> dict[str, Any]:
    """A docstring as text; its summary, formula and source on one line, or None."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "")
    # split() gives the text before the first section, then names and texts in turn.
    first, *parts = SECTION.split(text)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    formula = _join_lines(sections.get("Formula", "").partition("\n\n")[0])
    return {
        "text": text,
        "summary": _join_lines(first.partition("\n\n")[0]),
        "formula": formula.replace("``", "") or None,
        "source": _join_lines(sections.get("Source", "")) or None,
    }


def _join_lines(text: str) -> str:
    """A text on one line, with single spaces."""
    return " ".join(text.split())


def catalogue_in_words(listed: dict[str, Any], width: int = 100) -> str:
    """The result of ``catalogue`` for people, in lines of at most ``width`` letters."""
    lines = []
    for kind, plugin_kind in KINDS.items():
        heading = plugin_kind.option
        if kind == "mechanism":
            heading += (
                f", parameters for {listed['layers']} layers x {listed['hidden_size']}"
            )
        lines.append(heading)
        for entry in listed[kind]:
            left_columns = f"  {entry['name']:<20}  "
            if kind == "mechanism":
                left_columns += f"{_spell_size(entry['parameters']):>13}  "
            lines.append(
                textwrap.fill(
                    left_columns + _entry_in_words(entry),
                    width,
                    subsequent_indent=" " * len(left_columns),
                )
            )
        lines.append("")
    lines.append("gaam describe --attn NAME describes a mechanism in full")
    return "\n".join(lines).replace("``", "")


def _spell_size(parameters: int | None) -> str:
    """A number of parameters; None: the mechanism does not fit the dimensions."""
    return "does not fit" if parameters is None else f"{parameters:,}"


def _entry_in_words(entry: dict[str, Any]) -> str:
    """Summary, options and origin of a plug-in."""
    text = str(entry["summary"])
    # None: the plug-in derives the value from the states, or validation rows choose it
    options = [
        name if default is None else f"{name}={default}"
        for name, default in entry["options"].items()
    ]
    if options:
        text += f" Options: {', '.join(options)}."
    if entry["origin"]:
        text += f" From {entry['origin']}."
    return text


def mechanism_in_words(description: dict[str, Any]) -> str:
    """The result of ``describe_mechanism`` for people."""
    lines = [description["spec"], "", description["text"], ""]
    if description["origin"]:
        lines.append(f"from {description['origin']}")
    input_shape = _spell_shape(description["input_shape"])
    output_shape = _spell_shape(description["output_shape"])
    lines.append(f"shapes: {input_shape} -> {output_shape}")
    lines.append(f"parameters: {description['parameters']['total']:,}")
    for name, shape in description["parameters"]["tensors"].items():
        lines.append(f"  {name} {' x '.join(map(str, shape))}")
    lines.append("options:" if description["options"] else "no options")
    lines += [
        f"  {option['name']}={option['type']} (here {option['value']})"
        for option in description["options"]
    ]
    if description["depends_on_batch"]:
        lines.append("The output for a row depends on the other rows of its batch.")
    # marks of docstrings: code, and a block of it
    return "\n".join(lines).replace("``", "").replace("::\n", ":\n")


def _spell_shape(shape: list[Any]) -> str:
    """A shape in parentheses, such as ``(B, 12, 384)``."""
    return f"({', '.join(map(str, shape))})"
