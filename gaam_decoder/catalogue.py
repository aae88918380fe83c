"""What ``gaam describe`` says about mechanisms, heads and losses: read off the plug-ins.

Formulas, sources and what options mean come from docstrings, options and defaults from
constructors, shapes and counts from a module built without memory.
"""

import inspect
import re
import textwrap
import typing
from typing import Any

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError
from gaam_decoder.attention._softmax import Projected
from gaam_decoder.attention.base import Attention
from gaam_decoder.decoder import build_attention, on_paper
from gaam_decoder.specs import KINDS, own_spec, plugin_options

SECTION = re.compile(r"^(Formula|Args|Source|Numerics|Shape|Raises):", re.MULTILINE)


def catalogue(num_layers: int, hidden_size: int) -> dict[str, Any]:
    """All plug-ins: kind -> one entry per name with its summary, mechanisms with their size.

    A mechanism that does not fit this encoder has ``parameters`` None. One of another distribution
    has its ``origin``, and where it does not work the reason as ``summary``.
    """
    listed: dict[str, Any] = {"layers": num_layers, "hidden_size": hidden_size}
    for kind, (package, _) in KINDS.items():
        listed[kind] = []
        for name in plugins.names(package):
            entry: dict[str, Any] = {
                "name": name,
                "origin": plugins.origin(package, name),
            }
            entry |= {
                "summary": "",
                "options": {},
                "parameters": None,
                "output_shape": None,
            }
            try:
                cls = plugins.load(package, name, kind=kind)
                entry["summary"] = _parts(cls)["summary"]
                entry["options"] = {
                    k: default for k, (_, default) in plugin_options(cls).items()
                }
                if kind == "mechanism":
                    about = describe_mechanism(name, num_layers, hidden_size)
                    entry["parameters"] = about["parameters"]["total"]
                    entry["output_shape"] = about["output_shape"]
            except ConfigError:  # it does not fit
                pass
            except Exception as error:  # noqa: BLE001 whatever another distribution does
                entry["summary"] = (
                    f"does not work: {_flow(f'{type(error).__name__}: {error}')}"
                )
            listed[kind].append(entry)
    return listed


def describe_mechanism(text: str, num_layers: int, hidden_size: int) -> dict[str, Any]:
    """``name:key=value,...`` for an encoder of L layers and hidden size D, as JSON values.

    Raises:
        ConfigError: unknown name or option, or an option that does not fit these dimensions.
    """
    spec = own_spec(text, "mechanism")
    with on_paper():
        attention = build_attention(spec, num_layers, hidden_size)
    cls = type(attention)
    # what a mechanism is made in, such as ``DensityGate``, explains options and symbols too
    bases, plain = cls.__mro__[1:], (Attention, Projected)
    frames = [
        base for base in bases if issubclass(base, Attention) and base not in plain
    ]
    given, parts, options = dict(spec.options), _parts(cls), []
    for name, (hint, default) in plugin_options(cls).items():
        # a default of None is chosen to fit the encoder: the module knows what it chose
        value = given.get(
            name, getattr(attention, name, None) if default is None else default
        )
        parts_of = [
            v for v in (typing.get_args(hint) or (hint,)) if v is not type(None)
        ]
        kinds = "|".join(
            v.__name__ if isinstance(v, type) else str(v) for v in parts_of
        )
        options.append(
            {"name": name, "type": kinds, "default": default, "value": value}
        )
    return {
        "name": spec.name,
        "spec": str(spec),
        "origin": plugins.origin(KINDS["mechanism"][0], spec.name),
        **{name: parts[name] for name in ("summary", "formula", "source")},
        "text": "\n\nin this frame:\n\n".join(
            _parts(one)["text"] for one in (cls, *frames)
        ),
        "options": options,
        "input_shape": ["B", num_layers, hidden_size],
        "output_shape": ["B", *attention.output_shape],
        "parameters": {
            "total": sum(p.numel() for p in attention.parameters()),
            "tensors": {
                name: list(p.shape) for name, p in attention.named_parameters()
            },
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
        "formula": _flow(found.get("Formula", "").partition("\n\n")[0]).replace(
            "``", ""
        )
        or None,
        "source": _flow(found.get("Source", "")) or None,
    }


def _flow(text: str) -> str:
    return " ".join(text.split())


def catalogue_in_words(listed: dict[str, Any], width: int = 100) -> str:
    """The result of ``catalogue`` as lines for people."""
    lines = []
    for kind, (_, option) in KINDS.items():
        of_size = (
            f", parameters for {listed['layers']} layers x {listed['hidden_size']}"
        )
        lines.append(option + of_size * (kind == "mechanism"))
        for entry in listed[kind]:
            count = (
                "does not fit"
                if entry["parameters"] is None
                else f"{entry['parameters']:,}"
            )
            head = f"  {entry['name']:<20}  " + f"{count:>13}  " * (kind == "mechanism")
            spelled = [
                k if v is None else f"{k}={v}" for k, v in entry["options"].items()
            ]
            text = entry["summary"] + f" Options: {', '.join(spelled)}." * bool(spelled)
            text += f" From {entry['origin']}." if entry["origin"] else ""
            lines.append(
                textwrap.fill(head + text, width, subsequent_indent=" " * len(head))
            )
        lines.append("")
    lines.append("gaam describe --attn NAME says more about one mechanism")
    return "\n".join(lines).replace("``", "")


def mechanism_in_words(about: dict[str, Any]) -> str:
    """The result of ``describe_mechanism`` for people."""
    shapes = (
        f"({', '.join(map(str, about[key]))})"
        for key in ("input_shape", "output_shape")
    )
    lines = [about["spec"], "", about["text"], ""]
    lines += [f"from the package {about['origin']}"] * bool(about["origin"])
    lines += [
        f"shapes: {' -> '.join(shapes)}",
        f"parameters: {about['parameters']['total']:,}",
    ]
    tensors = about["parameters"]["tensors"].items()
    lines += [f"  {name} {' x '.join(map(str, size))}" for name, size in tensors]
    lines += ["options:" if about["options"] else "no options"]
    lines += [
        f"  {one['name']}={one['type']} (here {one['value']})"
        for one in about["options"]
    ]
    lines += ["A sample's output depends on its batch."] * about["depends_on_batch"]
    return "\n".join(lines).replace("``", "")
