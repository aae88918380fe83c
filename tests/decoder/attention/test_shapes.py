"""Shape suffixes and the legends at the top of files are true."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import gaam_decoder
from gaam_cache import plugins
from gaam_decoder.decoder import build_attention
from gaam_decoder.specs import parse_attention, plugin_options

ROOT = Path(gaam_decoder.__file__).parent
FOLDERS = ("attention", "heads", "losses")
B, L, D, C = 5, 6, 52, 7  # D has no divisor near L: letters keep sizes of their own
SUFFIX = re.compile(r"_([A-Z0-9]*[A-Z][A-Z0-9]*)$")


def specs() -> Iterator[str]:
    """Every mechanism with its defaults, published, and normalised."""
    for name in plugins.names("gaam_decoder.attention"):
        cls = plugins.load("gaam_decoder.attention", name, kind="mechanism")
        yield name
        for option, value in {"published": "true", "normalize": "density"}.items():
            if option in plugin_options(cls):
                yield f"{name}:{option}={value}"


def legend(path: Path) -> set[str]:
    """The letters that a file explains, or else those of its folder's frame."""
    for file in (path, path.with_name("_base.py")):
        text = file.read_text("utf-8").split('"""')[1]
        if letters := set(re.findall(r"\b[A-Z]\b", text)):
            return letters
    return set()


def lies(path: Path, tensors: dict[str, torch.Tensor]) -> Iterator[str]:
    """What suffixes say of the tensors of one call that is not so."""
    sizes: dict[str, int] = {}
    for name, tensor in tensors.items():
        suffix = SUFFIX.search(name)
        if not suffix:
            continue
        if len(suffix[1]) != tensor.ndim:
            yield f"{name} {tuple(tensor.shape)}"
            continue
        for letter, size in zip(suffix[1], tensor.shape, strict=True):
            if letter.isdigit() and size != int(letter):
                yield f"{name} {tuple(tensor.shape)}"
            elif letter.isalpha() and letter not in legend(path):
                yield f"{name}: no {letter} in the legend"
            elif letter.isalpha() and sizes.setdefault(letter, size) != size:
                yield f"{name}: {letter} is {size} here, {sizes[letter]} there"


@contextmanager
def watched() -> Iterator[set[str]]:
    """Look at the local variables of every call within; whatever is not so is in the set."""
    found: set[str] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        path = Path(frame.f_code.co_filename)
        if path.parent.parent != ROOT or path.parent.name not in FOLDERS:
            return None
        if event == "return":
            tensors = {k: v for k, v in frame.f_locals.items() if isinstance(v, torch.Tensor)}
            where = f"{path.parent.name}/{path.name} {frame.f_code.co_name}"
            found.update(f"{where}: {lie}" for lie in lies(path, tensors))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield found
    finally:
        sys.settrace(before)


def test_a_lie_is_found() -> None:
    path = ROOT / "losses" / "focal.py"
    for name, shape in {"x_BC": (2,), "x_B1": (2, 2), "x_BQ": (2, 3), "x_BB": (2, 3)}.items():
        assert list(lies(path, {name: torch.zeros(shape)})), name
    assert not list(lies(path, {"x_B1": torch.zeros(2, 1), "y_CB": torch.zeros(3, 2)}))


@pytest.mark.parametrize("text", list(specs()))
def test_shapes_of_a_mechanism_are_what_it_says(text: str) -> None:
    attention = build_attention(parse_attention(text), L, D)
    with watched() as found:
        attention(torch.randn(B, L, D))
        attention.attention_map(torch.randn(B, L, D))
        attention.learned()
    assert not found


@pytest.mark.parametrize("name", plugins.names("gaam_decoder.heads"))
def test_shapes_of_a_head_are_what_it_says(name: str) -> None:
    head = plugins.load("gaam_decoder.heads", name, kind="head")(L, D, C)
    noise = torch.rand(B, head.num_noise) if head.num_noise else None
    with watched() as found:
        head(torch.randn(B, L, D, requires_grad=True), noise).sum().backward()
    assert not found


@pytest.mark.parametrize("name", plugins.names("gaam_decoder.losses"))
def test_shapes_of_a_loss_are_what_it_says(name: str) -> None:
    loss = plugins.load("gaam_decoder.losses", name, kind="loss")()
    with watched() as found:
        loss(torch.randn(B, C), torch.zeros(B, dtype=torch.int64))
    assert not found
