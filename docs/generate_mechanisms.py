"""Write the page of all mechanisms and the pictures of their weight functions.

    python docs/generate_mechanisms.py

Everything on the page is from the code: formulas and options from docstrings and
constructors, curves from the functions that training calls. A mechanism that is added
to ``gaam_decoder/attention`` appears on it. A test compares page and pictures with what
this script makes.
"""

from __future__ import annotations

import inspect
import textwrap
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gaam_cache.common import plugins
from gaam_decoder.attention.base import Attention
from gaam_decoder.attention.frames.density import DensityGate
from gaam_decoder.attention.frames.softmax import softmax_weights
from gaam_decoder.attention.nadaraya_watson import Kernel, kernel_weights
from gaam_decoder.catalogue import describe_mechanism
from gaam_decoder.decoder import build_attention
from gaam_decoder.specs import parse_spec

PACKAGE = "gaam_decoder.attention"
FOLDER = Path(__file__).parent / "concepts"
LAYERS = 12
HIDDEN_SIZE = 768
"""The size of BERT base, by which parameters are counted."""
VALUES = {
    "a": (-4.0, 0.0, 4.0),
    "beta": (1.0, 2.0, 8.0),
    "k": (2.0, 4.0, 8.0),
    "nu": (1.0, 5.0, 50.0),
}
"""Values of a learned parameter that are drawn; others: a quarter, once, four times
the value at the start."""
SOFTMAX = (
    "additive",
    "dot",
    "gqa",
    "gqgaam",
    "mha",
    "mha-bn",
    "mqa",
    "perceiver",
    "scalar-mix",
)
"""Mechanisms whose weights are a softmax of scores: they share a picture."""
FAMILIES = {
    "gates": "Gates: a weight for every layer and feature",
    "between": "Attention between layers",
    "queries": "Learned queries read the layers",
    "controls": "Controls",
}


@dataclass(frozen=True)
class Line:
    """A curve of a picture.

    Attributes:
        label: what distinguishes it.
        x: places, (points,).
        y: values, (points,).
    """

    label: str
    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Panel:
    """One pair of axes with its curves."""

    x_label: str
    lines: Sequence[Line]
    bars: bool = False
    """Whether the only curve is drawn as bars."""


# --- curves -------------------------------------------------------------------------


def density_panels(gate: type[DensityGate], name: str) -> list[Panel]:
    """A panel for each learned parameter: the density for three of its values.

    A density without parameters has one curve.
    """
    mechanism = build_attention(parse_spec(f"{name}:heads=1", "mechanism"), LAYERS, 1)
    starts = {
        parameter: float(value.detach().flatten()[0])
        for parameter, value in mechanism.learned().items()
        if parameter != "offset"
    }
    r = torch.linspace(-5, 5, 201, dtype=torch.float64)
    if not starts:
        return [Panel("standardised value r", [Line("w", r, gate.curve(r, {}))])]
    panels = []
    for parameter, start in starts.items():
        usual = (start / 4, start, start * 4)
        lines = []
        for value in VALUES.get(parameter, usual):
            learned = {
                other: torch.full_like(r, other_start)
                for other, other_start in starts.items()
            }
            learned[parameter] = torch.full_like(r, value)
            label = f"{parameter} = {value:g}"
            lines.append(Line(label, r, gate.curve(r, learned)))
        panels.append(Panel("standardised value r", lines))
    return panels


def layer_gate_panels(name: str) -> list[Panel]:
    """The weights of layers whose means are evenly spread, against their z."""
    count = 201
    place = torch.linspace(-1, 1, count, dtype=torch.float64)
    z = (place - place.mean()) / place.std(correction=0)
    # every feature of a layer has the same value
    x_BLD = place[None, :, None].expand(1, count, 4)
    options = ":heads=1" if name == "gaussian-mixture" else ""
    with torch.no_grad():
        mechanism = build_attention(parse_spec(name + options, "mechanism"), count, 4)
        weights = mechanism.double().attention_map(x_BLD)
    assert weights is not None
    y = weights[0, :, 0]
    return [Panel("standardised value z", [Line("w", z, y / y.max())])]


def softmax_panels() -> list[Panel]:
    """The weight of a layer by its score; the scores of all other layers are 0."""
    score = torch.linspace(-5, 5, 201, dtype=torch.float64)
    lines = []
    for layers in (3, 6, 12, 24):
        # one query of size 1, which is 1: the scores are the keys
        key = torch.zeros(len(score), 1, layers, 1, dtype=torch.float64)
        key[:, 0, 0, 0] = score
        query = torch.ones(len(score), 1, 1, 1, dtype=torch.float64)
        weight = softmax_weights(query, key, 1.0)[:, 0, 0, 0]
        lines.append(Line(f"{layers} layers", score, weight))
    return [Panel("score above that of the other layers", lines)]


def kernel_panels() -> list[Panel]:
    """The weight of a layer, as a share of the weight of one at distance 0."""
    u = torch.linspace(0, 3, 241, dtype=torch.float64)
    pair = torch.stack([u, torch.zeros_like(u)], dim=-1)
    lines = []
    for kernel in typing.get_args(Kernel):
        weight = kernel_weights(pair, kernel)
        lines.append(Line(kernel, u, weight[:, 0] / weight[:, 1]))
    return [Panel("distance / bandwidth u", lines)]


def constant_panels(name: str) -> list[Panel]:
    """The weight of every layer of a control."""
    layer = torch.arange(1, LAYERS + 1, dtype=torch.float64)
    x_BLD = torch.eye(LAYERS, dtype=torch.float64)[None]
    mechanism = build_attention(parse_spec(name, "mechanism"), LAYERS, LAYERS).double()
    # layer l has the l-th unit vector: outputs show how much of it is read
    weight = mechanism(x_BLD)[0].max(0).values
    return [Panel("layer", [Line("w", layer, weight)], bars=True)]


def panels_of(name: str, mechanism: Attention) -> list[Panel]:
    """The picture of a mechanism; empty if it has none."""
    if isinstance(mechanism, DensityGate):
        return density_panels(type(mechanism), name)
    if name in SOFTMAX:
        return softmax_panels()
    if name == "nadaraya-watson":
        return kernel_panels()
    if family_of(name, mechanism) == "controls":
        return constant_panels(name)
    if family_of(name, mechanism) == "gates":
        return layer_gate_panels(name)
    return []


# --- pictures -----------------------------------------------------------------------

WIDTH = 300
HEIGHT = 190
LEFT, RIGHT, TOP, BOTTOM = 38, 10, 42, 36
STYLE = """\
<style>
.paper { fill: #ffffff }
text { font: 11px sans-serif; fill: #24292f }
.axis { stroke: #8c959f; fill: none }
.c0 { stroke: #0969da } .c1 { stroke: #1a7f37 } .c2 { stroke: #bc4c00 }
.c3 { stroke: #8250df }
.t0 { fill: #0969da } .t1 { fill: #1a7f37 } .t2 { fill: #bc4c00 } .t3 { fill: #8250df }
.bar { stroke-width: 8 }
.curve { fill: none; stroke-width: 1.8 }
@media (prefers-color-scheme: dark) {
  .paper { fill: #0d1117 }
  text { fill: #e6edf3 }
  .c0 { stroke: #58a6ff } .c1 { stroke: #3fb950 } .c2 { stroke: #f0883e }
  .c3 { stroke: #bc8cff }
  .t0 { fill: #58a6ff } .t1 { fill: #3fb950 } .t2 { fill: #f0883e }
  .t3 { fill: #bc8cff }
}
</style>"""


def picture(panels: Sequence[Panel]) -> str:
    """Panels side by side as an SVG, for light and dark screens."""
    width = WIDTH * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" '
        f'width="{width}" height="{HEIGHT}">',
        STYLE,
        f'<rect class="paper" width="{width}" height="{HEIGHT}"/>',
    ]
    for index, panel in enumerate(panels):
        parts += panel_parts(panel, index * WIDTH)
    return "\n".join([*parts, "</svg>", ""])


def panel_parts(panel: Panel, shift: int) -> list[str]:
    """The elements of one panel, whose left edge is at ``shift``."""
    left = shift + LEFT
    right = shift + WIDTH - RIGHT
    bottom = HEIGHT - BOTTOM
    low = min(float(line.x.min()) for line in panel.lines)
    high = max(float(line.x.max()) for line in panel.lines)
    # bars stand inside the axes
    inset = 12 if panel.bars else 0
    parts = [
        f'<path class="axis" d="M{left} {TOP}V{bottom}H{right}"/>',
        f'<text x="{left - 6}" y="{TOP + 4}" text-anchor="end">1</text>',
        f'<text x="{left - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<text x="{left + inset}" y="{bottom + 14}" text-anchor="middle">'
        f"{low:.3g}</text>",
        f'<text x="{right - inset}" y="{bottom + 14}" text-anchor="end">'
        f"{high:.3g}</text>",
        f'<text x="{(left + right) / 2:g}" y="{bottom + 28}" text-anchor="middle">'
        f"{panel.x_label}</text>",
    ]
    place = left
    for number, line in enumerate(panel.lines):
        share = (line.x - low) / (high - low)
        x = left + inset + share * (right - left - 2 * inset)
        y = bottom - line.y.clamp(0, 1) * (bottom - TOP)
        points = " ".join(
            f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True)
        )
        if panel.bars:
            parts += bar_parts(x.tolist(), y.tolist(), bottom)
        else:
            parts.append(f'<polyline class="curve c{number}" points="{points}"/>')
        parts.append(f'<text class="t{number}" x="{place}" y="24">{line.label}</text>')
        place += 7 * len(line.label) + 12
    return parts


def bar_parts(x: list[float], y: list[float], bottom: int) -> list[str]:
    """A bar from the axis up to every point."""
    return [
        f'<path class="bar c0" d="M{place:.1f} {bottom}V{top:.1f}"/>'
        for place, top in zip(x, y, strict=True)
    ]


# --- page ---------------------------------------------------------------------------


def family_of(name: str, mechanism: Attention) -> str:
    """The section of the page that a mechanism belongs to."""
    summary = describe_mechanism(name, LAYERS, HIDDEN_SIZE)["summary"]
    if summary.startswith("A control"):
        return "controls"
    with torch.no_grad():
        weights = mechanism.attention_map(torch.randn(1, LAYERS, HIDDEN_SIZE))
    if weights is None:
        return "between"
    if weights.dim() == 3:
        return "gates"
    # (B, heads, queries, layers)
    return "between" if weights.shape[2] == LAYERS else "queries"


def entry(name: str, has_picture: bool) -> str:
    """The section of one mechanism."""
    described = describe_mechanism(name, LAYERS, HIDDEN_SIZE)
    lines = [f"### {name}", "", described["summary"], ""]
    if has_picture:
        file = "softmax" if name in SOFTMAX else name
        lines += [f"![Weight function of {name}](mechanisms/{file}.svg)", ""]
    # the head of the page defines r, from the docstring of the base class
    formula = described["formula"].replace("r as in DensityGate", "r as above")
    lines += ["```text", *wrapped(formula), "```", ""]
    rows = [
        ("learned parameters", f"{described['parameters']['total']:,}"),
        ("output", " x ".join(map(str, described["output_shape"][1:]))),
        *(
            (f"option `{option['name']}`", option_in_words(option))
            for option in described["options"]
        ),
    ]
    if described["source"]:
        rows.append(("source", described["source"].replace("``", "`")))
    lines += ["| property | value |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in rows]
    return "\n".join([*lines, ""])


def wrapped(formula: str) -> list[str]:
    """A formula in lines of at most 80 characters."""
    return textwrap.wrap(formula, 80)


def option_in_words(option: dict[str, object]) -> str:
    kind = str(option["type"]).replace("|", ", ")
    return f"{kind}; default {option['value']}"


def page(names_by_family: dict[str, list[str]], pictured: set[str]) -> str:
    """The page in Markdown."""
    frame = inspect.cleandoc(DensityGate.__doc__ or "")
    formulas = frame[frame.index("loc ") : frame.index("With ``location")].strip()
    parts = [
        HEADER.format(
            layers=LAYERS,
            hidden_size=HIDDEN_SIZE,
            formulas="\n".join(line.strip() for line in formulas.splitlines()),
        )
    ]
    for family, title in FAMILIES.items():
        parts.append(f"## {title}\n")
        parts.append(INTRODUCTIONS[family])
        parts += [entry(name, name in pictured) for name in names_by_family[family]]
    return "\n".join(parts)


HEADER = """\
# Mechanisms

<!-- Written by docs/generate_mechanisms.py: change the code, then run it. -->

```bash
gaam describe --attn laplace
```

A mechanism reads the layers of a row, x of shape (layers, features), and a head
predicts from its output. This page is generated from the code. Numbers of parameters,
and the default of `heads`, are for {layers} layers of {hidden_size} features.

A *density gate*, such as `gaam` or `laplace`, multiplies each value by a density of its
standardised value, scaled to peak 1. It splits the layers into groups of neighbours,
one for each of its `heads`, and standardises each value over the layers of its group.

The default of `heads` is the largest number of equal groups, at most 8, with three
layers or more each: 2 heads for 6 layers, 4 for 12, 8 for 24 or 40. So `gaam` on 6
layers is `gaam:heads=2` in a report.

```text
{formulas}
```

The first small number keeps the spread above 0, the second limits r where the values of
a group are nearly equal.

The pictures of these gates vary one learned parameter over three values, while all
other parameters have their start values. The densities have peak 1.
"""
INTRODUCTIONS = {
    "gates": """\
A gate multiplies each layer and feature by a weight. It mixes no layers, and its output
has the shape of its input. Only `gqgaam` mixes layers: `gqa` follows its gate.
""",
    "between": """\
Every layer reads all layers of its row, by softmax weights. In the
picture all layers but one have the same score: the x axis is the score of that layer
minus theirs, the y axis its weight, with a curve each for 3, 6, 12 and 24 layers.
""",
    "queries": """\
Each query reads one weighted mean of the layers, whose weights have the sum 1.
""",
    "controls": """\
A claim that a mechanism helps means that it beats these. The pictures show how much of
each layer is read, at the start.
""",
}


def files() -> dict[str, str]:
    """Name, relative to ``docs/concepts``, and content of every file."""
    torch.manual_seed(0)
    names_by_family: dict[str, list[str]] = {family: [] for family in FAMILIES}
    pictures: dict[str, str] = {}
    pictured = set()
    for name in plugins.names(PACKAGE):
        # the pages are about gaam's own mechanisms
        if plugins.origin(PACKAGE, name):
            continue
        mechanism = build_attention(parse_spec(name, "mechanism"), LAYERS, HIDDEN_SIZE)
        names_by_family[family_of(name, mechanism)].append(name)
        panels = panels_of(name, mechanism)
        if panels:
            pictured.add(name)
            file = "softmax" if name in SOFTMAX else name
            pictures[f"mechanisms/{file}.svg"] = picture(panels)
    return {"mechanisms.md": page(names_by_family, pictured), **pictures}


if __name__ == "__main__":
    (FOLDER / "mechanisms").mkdir(exist_ok=True)
    for file_name, content in files().items():
        (FOLDER / file_name).write_text(content, "utf-8")
