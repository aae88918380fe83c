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
            entry |= {"parameters": None, "output_shape": None} if kind == "mechanism" else {}
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
    with on_paper():
        attention = build_attention(spec, num_layers, hidden_size)
    # what a mechanism is made in, such as ``DensityGate``, explains options and symbols too
    frames = [b for b in cls.__mro__[1:] if issubclass(b, Attention) and b is not Attention]
    meanings: dict[str, str] = {}
    for base in (*reversed(frames), cls):
        found = ARGUMENT.split(_parts(base)["args"])[1:]  # name, meaning, name, meaning
        meanings |= {k: _flow(v) for k, v in zip(found[::2], found[1::2], strict=True)}
    given, parts = dict(spec.options), _parts(cls)
    options = []
    for name, (hint, default) in plugin_options(cls).items():
        # a default of None is chosen to fit the encoder: the module knows what it chose
        chosen = getattr(attention, name, None) if default is None else default
        values = [v for v in (typing.get_args(hint) or (hint,)) if v is not type(None)]
        kinds = "|".join(v.__name__ if isinstance(v, type) else str(v) for v in values)
        about = {"name": name, "type": kinds, "default": default}
        about |= {"value": given.get(name, chosen), "meaning": meanings.get(name, "")}
        options.append(about)
    return {
        "name": spec.name,
        "spec": str(spec),
        "origin": plugins.origin("gaam_decoder.attention", spec.name),
        **{name: parts[name] for name in ("summary", "formula", "source")},
        "text": "\n\nin this frame:\n\n".join(_parts(one)["text"] for one in (cls, *frames)),
        "options": options,
        "input_shape": ["B", num_layers, hidden_size],
        "output_shape": ["B", *attention.output_shape],
        "parameters": {
            "total": sum(p.numel() for p in attention.parameters()),
            "tensors": {name: list(p.shape) for name, p in attention.named_parameters()},
        },
        "depends_on_batch": attention.depends_on_batch,
    }


def _parts(cls: type) -> dict[str, Any]:
    """A docstring, and of it summary, formula and source on one line each or None."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "")
    first, *parts = SECTION.split(text)
    found = dict(zip(parts[::2], parts[1::2], strict=True))
    return {
        "text": text,
        "summary": _flow(first.partition("\n\n")[0]),
        "formula": _flow(found.get("Formula", "").partition("\n\n")[0]).replace("``", "") or None,
        "source": _flow(found.get("Source", "")) or None,
        "args": found.get("Args", ""),
    }


def _flow(text: str) -> str:
    return " ".join(text.split())


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
    """The result of ``describe_mechanism`` for people."""
    lines = [about["spec"], "", about["text"], ""]
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
