"""What ``gaam describe`` says about mechanisms, heads and losses: read off the plug-ins.

Formulas, sources and what options mean come from docstrings, options and defaults from
constructors, shapes and counts from a module built without memory.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import typing
from itertools import pairwise
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
        listed[kind] = [_entry(package, name, kind) for name in plugins.names(package)]
    for entry in listed["mechanism"]:
        entry |= _size(entry["name"], num_layers, hidden_size)
    return listed


def describe_mechanism(text: str, num_layers: int, hidden_size: int) -> dict[str, Any]:
    """One mechanism for one encoder, as JSON values.

    Args:
        text: ``name`` or ``name:key=value,...``.
        num_layers: L, layers of the encoder.
        hidden_size: D, hidden size of the encoder.

    Raises:
        ConfigError: unknown name or option, or an option that does not fit these dimensions.
    """
    spec = parse_attention(text)
    package = KINDS["mechanism"][0]
    cls = plugins.load(package, spec.name, kind="mechanism")
    try:
        with on_paper():
            attention = build_attention(spec, num_layers, hidden_size)
    except ConfigError as error:
        error.details.setdefault("where", f"--attn {text}")
        raise
    frames = [b for b in cls.__mro__[1:] if issubclass(b, Attention) and b is not Attention]
    explained = {
        name: text for base in (*reversed(frames), cls) for name, text in _arguments(base).items()
    }
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
                "meaning": explained.get(name, ""),
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


def _entry(package: str, name: str, kind: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "summary": "", "options": {}}
    entry["origin"] = plugins.origin(package, name)
    try:
        cls = plugins.load(package, name, kind=kind)
        with plugins.blamed(package, name, kind=kind):
            options = {key: default for key, (_, default) in plugin_options(cls).items()}
    except ConfigError as error:
        return entry | {"damage": error.reason}
    return entry | {"summary": _parts(cls)["summary"], "options": options}


def _size(name: str, num_layers: int, hidden_size: int) -> dict[str, Any]:
    try:
        about = describe_mechanism(name, num_layers, hidden_size)
    except ConfigError:
        return {"parameters": None, "output_shape": None}
    return {"parameters": about["parameters"]["total"], "output_shape": about["output_shape"]}


def _parts(cls: type) -> dict[str, Any]:
    """Summary, prose, formula, numerics and source of a docstring, each on one line or None."""
    text = inspect.cleandoc(cls.__doc__ or "")
    places = [match.start() for match in SECTION.finditer(text)] + [len(text)]
    blocks = [text[a:b] for a, b in pairwise(places)]
    sections: dict[str, str] = {}
    prose = [text[: places[0]]]
    for block in blocks:
        name, _, rest = block.partition(":")
        if name == "Formula":  # what follows its paragraph belongs to no section
            rest, _, after = rest.partition("\n\n")
            prose.append(after)
        sections[name] = rest
    paragraphs = [p for part in prose for p in re.split(r"\n\s*\n", part) if p.strip()]
    return {
        "summary": _flow(paragraphs[0]) if paragraphs else "",
        "text": "\n\n".join(p if p.startswith("    ") else _flow(p) for p in paragraphs),
        "formula": _flow(sections["Formula"]).replace("``", "") if "Formula" in sections else None,
        "numerics": _flow(sections["Numerics"]) if "Numerics" in sections else None,
        "source": _flow(sections["Source"]) if "Source" in sections else None,
    }


def _flow(text: str) -> str:
    return " ".join(text.split())


def _arguments(cls: type) -> dict[str, str]:
    text = inspect.cleandoc(vars(cls).get("__doc__") or "")
    start = text.find("\nArgs:\n")
    if start < 0:
        return {}
    block = text[start + len("\nArgs:\n") :]
    block = re.split(r"^\S", block, maxsplit=1, flags=re.MULTILINE)[0]
    found = list(ARGUMENT.finditer(block))
    ends = [match.start() for match in found[1:]] + [len(block)]
    return {m[1]: _flow(block[m.end() : end]) for m, end in zip(found, ends, strict=True)}


def _type_name(hint: Any) -> str:
    values = [v for v in (typing.get_args(hint) or (hint,)) if v is not type(None)]
    return "|".join(v.__name__ if isinstance(v, type) else str(v) for v in values)


def catalogue_in_words(listed: dict[str, Any], width: int = 100) -> str:
    """The result of ``catalogue`` as lines for people."""
    lines = []
    for kind, (_, option) in KINDS.items():
        entries = listed[kind]
        size = f", parameters for {listed['layers']} layers x {listed['hidden_size']}"
        lines.append(f"{option}{size if kind == 'mechanism' else ''}")
        column = max(len(entry["name"]) for entry in entries)
        for entry in entries:
            count = ""
            if kind == "mechanism":
                number = entry["parameters"]
                count = "does not load" if "damage" in entry else "does not fit"
                count = f"{count if number is None else f'{number:,}':>13}  "
            head = f"  {entry['name']:<{column}}  {count}"
            options = ", ".join(
                key if default is None else f"{key}={str(default).lower()}"
                for key, default in entry["options"].items()
            )
            text = f"{_flow(entry.get('damage', entry['summary']))}"
            text += f" Options: {options}." if options else ""
            text += f" From {entry['origin']}." if entry["origin"] else ""
            indent = " " * len(head)
            lines += textwrap.wrap(
                text, width, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False
            )
        lines.append("")
    lines.append("gaam describe --attn NAME says more about one mechanism")
    return "\n".join(lines).replace("``", "")


def mechanism_in_words(about: dict[str, Any], width: int = 100) -> str:
    """The result of ``describe_mechanism`` as lines for people."""

    def block(text: str, indent: str = "") -> list[str]:
        lines: list[str] = []
        for paragraph in text.split("\n\n"):
            if paragraph.startswith("    "):
                lines += [indent + line for line in paragraph.splitlines()]
            else:
                lines += textwrap.wrap(
                    paragraph, width, initial_indent=indent, subsequent_indent=indent
                )
            lines.append("")
        return lines

    shape = " -> ".join(
        f"({', '.join(map(str, about[key]))})" for key in ("input_shape", "output_shape")
    )
    lines = [about["spec"], "", *block(about["text"])]
    if about["origin"]:
        lines += ["from the package", f"  {about['origin']}", ""]
    if about["formula"]:
        lines += ["formula", *block(about["formula"], "  ")]
    for frame in about["frames"]:
        lines += ["in this frame", *block(frame, "  ")]
    lines += ["shapes", f"  {shape}, B the batch", ""]
    total = about["parameters"]["total"]
    lines.append(f"parameters: {total:,}")
    for name, size in about["parameters"]["tensors"].items():
        lines.append(f"  {name} {' x '.join(map(str, size))}")
    lines += ["", "options" if about["options"] else "no options"]
    for option in about["options"]:
        fixed = option["default"] is not None
        default = f"default {option['default']}".lower() if fixed else f"here {option['value']}"
        head = f"{option['name']}={option['type']} ({default})"
        lines += textwrap.wrap(
            f"{head}: {option['meaning']}" if option["meaning"] else head,
            width,
            initial_indent="  ",
            subsequent_indent="    ",
        )
    lines.append("")
    if about["depends_on_batch"]:
        lines += block("A sample's output depends on the samples it shares a batch with.")
    if about["numerics"]:
        lines += ["numerics", *block(about["numerics"], "  ")]
    if about["source"]:
        lines += ["source", *block(about["source"], "  ")]
    return "\n".join(lines).rstrip().replace("``", "")
