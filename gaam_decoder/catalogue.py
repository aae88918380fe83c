"""What ``gaam describe`` says about mechanisms, heads and losses: read off the plug-ins.

Formulas, sources and what options mean come from docstrings, options and defaults from
constructors, shapes and counts from a module built without memory.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import typing
from contextlib import suppress
from typing import Any

from gaam_cache import plugins
from gaam_cache.errors import ConfigError
from gaam_decoder.attention._base import Attention
from gaam_decoder.decoder import build_attention, on_paper
from gaam_decoder.specs import KINDS, parse_attention, plugin_options

SECTION = re.compile(r"^(Formula|Args|Source|Numerics|Shape|Raises):", re.MULTILINE)
ARGUMENT = re.compile(r"^    (\w+): ", re.MULTILINE)


def catalogue(num_layers: int, hidden_size: int) -> dict[str, Any]:
    """All plug-ins: kind -> one entry per name with its summary, mechanisms with their size.

    A mechanism that does not fit this encoder has ``parameters`` None. One of another distribution
    has its ``origin``, and where it cannot be loaded the reason as ``damage``.
    """
    listed: dict[str, Any] = {"layers": num_layers, "hidden_size": hidden_size}
    for kind, (package, _) in KINDS.items():
        listed[kind] = []
        for name in plugins.names(package):
            entry: dict[str, Any] = {"name": name, "summary": "", "options": {}}
            entry["origin"] = plugins.origin(package, name)
            if kind == "mechanism":
                entry |= {"parameters": None, "output_shape": None}
            listed[kind].append(entry)
            try:
                cls = plugins.load(package, name, kind=kind)
                with plugins.blamed(package, name, kind=kind):
                    options = {key: default for key, (_, default) in plugin_options(cls).items()}
            except ConfigError as error:
                entry["damage"] = error.reason
                continue
            entry |= {"summary": _parts(cls)["summary"], "options": options}
            if kind == "mechanism":
                with suppress(ConfigError):
                    about = describe_mechanism(name, num_layers, hidden_size)
                    entry["parameters"] = about["parameters"]["total"]
                    entry["output_shape"] = about["output_shape"]
    return listed


def describe_mechanism(text: str, num_layers: int, hidden_size: int) -> dict[str, Any]:
    """``name:key=value,...`` for an encoder of L layers and hidden size D, as JSON values.

    Raises:
        ConfigError: unknown name or option, or an option that does not fit these dimensions.
    """
    spec = parse_attention(text)
    cls = plugins.load(KINDS["mechanism"][0], spec.name, kind="mechanism")
    try:
        with on_paper():
            attention = build_attention(spec, num_layers, hidden_size)
    except ConfigError as error:
        error.details.setdefault("where", f"--attn {text}")
        raise
    frames = _frames(cls)
    meanings: dict[str, str] = {}
    for base in (*reversed(frames), cls):
        block = _sections(vars(base).get("__doc__")).get("Args", "")
        found = ARGUMENT.split(block)[1:]  # name, meaning, name, meaning
        meanings |= {k: _flow(v) for k, v in zip(found[::2], found[1::2], strict=True)}
    given = dict(spec.options)
    # a default of None is chosen to fit the encoder: the module knows what it chose
    chosen = {name: getattr(attention, name, None) for name in plugin_options(cls)}
    return {
        "name": spec.name,
        "spec": str(spec),
        "origin": plugins.origin("gaam_decoder.attention", spec.name),
        **_parts(cls),
        "frames": [_parts(base)["text"] for base in frames],
        "options": [
            {
                "name": name,
                "type": _type_name(hint),
                "default": default,
                "value": given.get(name, chosen[name] if default is None else default),
                "meaning": meanings.get(name, ""),
            }
            for name, (hint, default) in plugin_options(cls).items()
        ],
        "input_shape": ["B", num_layers, hidden_size],
        "output_shape": ["B", *attention.output_shape],
        "parameters": {
            "total": sum(p.numel() for p in attention.parameters()),
            "tensors": {name: list(p.shape) for name, p in attention.named_parameters()},
        },
        "depends_on_batch": attention.depends_on_batch,
    }


def _frames(cls: type) -> list[type]:
    """What a mechanism is made in, such as ``DensityGate``."""
    return [b for b in cls.__mro__[1:] if issubclass(b, Attention) and b is not Attention]


def _sections(docstring: str | None) -> dict[str, str]:
    """A docstring by its sections; its prose by the empty name."""
    first, *parts = SECTION.split(inspect.cleandoc(docstring or ""))
    found = {"": first, **dict(zip(parts[::2], parts[1::2], strict=True))}
    if "Formula" in found:  # what follows its paragraph belongs to no section
        found["Formula"], _, after = found["Formula"].partition("\n\n")
        found[""] += f"\n\n{after}"
    return found


def _parts(cls: type) -> dict[str, Any]:
    """Summary, prose, formula, numerics and source of a docstring, each on one line or None."""
    sections = _sections(cls.__doc__)
    paragraphs = [p for p in re.split(r"\n\s*\n", sections[""]) if p.strip()]
    parts: dict[str, Any] = {"summary": _flow(paragraphs[0]) if paragraphs else ""}
    parts["text"] = "\n\n".join(p if p.startswith("    ") else _flow(p) for p in paragraphs)
    for name in ("Formula", "Numerics", "Source"):
        text = _flow(sections[name]) if name in sections else None
        parts[name.lower()] = text and text.replace("``", "") if name == "Formula" else text
    return parts


def _flow(text: str) -> str:
    return " ".join(text.split())


def _type_name(hint: Any) -> str:
    values = [v for v in (typing.get_args(hint) or (hint,)) if v is not type(None)]
    return "|".join(v.__name__ if isinstance(v, type) else str(v) for v in values)


def catalogue_in_words(listed: dict[str, Any], width: int = 100) -> str:
    """The result of ``catalogue`` as lines for people."""
    lines = []
    for kind, (_, option) in KINDS.items():
        size = f", parameters for {listed['layers']} layers x {listed['hidden_size']}"
        lines.append(f"{option}{size if kind == 'mechanism' else ''}")
        column = max(len(entry["name"]) for entry in listed[kind])
        for entry in listed[kind]:
            head = f"  {entry['name']:<{column}}  "
            if kind == "mechanism":
                count = entry["parameters"]
                head += f"{'does not fit' if count is None else f'{count:,}':>13}  "
            spelled = {k: k if v is None else f"{k}={v}" for k, v in entry["options"].items()}
            text = _flow(entry.get("damage", entry["summary"]))
            text += f" Options: {', '.join(spelled.values())}." if spelled else ""
            text += f" From {entry['origin']}." if entry["origin"] else ""
            after = " " * len(head)
            lines.append(textwrap.fill(head + text, width, subsequent_indent=after))
        lines.append("")
    lines.append("gaam describe --attn NAME says more about one mechanism")
    return "\n".join(lines).replace("``", "")


def mechanism_in_words(about: dict[str, Any]) -> str:
    """The result of ``describe_mechanism`` for people, with what its author wrote of it."""
    cls = plugins.load(KINDS["mechanism"][0], about["name"], kind="mechanism")
    lines = [about["spec"], "", inspect.cleandoc(cls.__doc__ or ""), ""]
    for frame in _frames(cls):
        lines += ["in this frame:", "", inspect.cleandoc(frame.__doc__ or ""), ""]
    lines += [f"from the package {about['origin']}"] * bool(about["origin"])
    shapes = (f"({', '.join(map(str, about[key]))})" for key in ("input_shape", "output_shape"))
    lines += [f"shapes: {' -> '.join(shapes)}, B the batch"]
    lines += [f"parameters: {about['parameters']['total']:,}"]
    for name, size in about["parameters"]["tensors"].items():
        lines.append(f"  {name} {' x '.join(map(str, size))}")
    lines += ["options:" if about["options"] else "no options"]
    lines += [f"  {one['name']}={one['type']} (here {one['value']})" for one in about["options"]]
    if about["depends_on_batch"]:
        lines.append("A sample's output depends on the samples it shares a batch with.")
    return "\n".join(lines).replace("``", "")
