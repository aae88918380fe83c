"""What the table against peers rests on: ``python -m tests.benchmarks.bench_peers``.

That gaam and the plain loop train the same decoders by the same recipe, that states which differ
are seen, that lines are counted alike, and that no row of the table is lost.
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import DecoderSpec, build_decoder
from gaam_decoder.specs import Spec
from tests.benchmarks.peers.contestants import (
    CANNOT,
    CONTESTANTS,
    MECHANISMS,
    TASKS,
    USERS,
    lines_of_code,
)
from tests.benchmarks.peers.measuring import in_turn
from tests.benchmarks.peers.states import difference
from tests.benchmarks.peers.table import HEADINGS, markdown
from tests.benchmarks.peers.users.plain.mechanisms import make_decoder

PROGRAMS = sorted(path for path in USERS.rglob("*") if path.suffix in (".py", ".sh"))
LAYERS, SIZE, CLASSES = 6, 16, 4


def tokens_of(text: str) -> int:
    """Lines with a token that is no comment and no string that stands alone, by the tokenizer."""
    nothing = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    nothing |= {tokenize.ENCODING, tokenize.ENDMARKER}
    lines: set[int] = set()
    begins = True
    for token in tokenize.tokenize(io.BytesIO(text.encode()).readline):
        if token.type not in nothing and not (begins and token.type == tokenize.STRING):
            lines |= set(range(token.start[0], token.end[0] + 1))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            begins = token.type in nothing
    return len(lines)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_lines_are_those_that_the_tokenizer_sees(path: Path) -> None:
    text = path.read_text()
    count = lines_of_code(text, path.suffix)
    if path.suffix == ".py":
        assert count == tokens_of(text)
    commented = "\n".join(f"{line}\n\n# {line}" for line in text.splitlines())
    if path.suffix == ".sh" and "\\\n" not in text:
        assert lines_of_code(commented, path.suffix) == count
    assert lines_of_code(f"{text}pass\n", path.suffix) == count + 1


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_plain_loop_trains_the_decoder_that_gaam_trains(name: str) -> None:
    """With the same numbers in both, same logits and same gradients, in float64."""
    spec = DecoderSpec(
        attention=Spec(name),
        head=Spec("linear"),
        num_layers=LAYERS,
        hidden_size=SIZE,
        num_classes=CLASSES,
    )
    for seed in range(5):
        torch.manual_seed(seed)
        ours = build_decoder(spec, seed).double()
        plain = make_decoder(name, LAYERS, SIZE, CLASSES).double()
        pairs = list(zip(ours.parameters(), plain.parameters(), strict=True))
        for a, b in pairs:
            assert a.numel() == b.numel()
            if seed == 0 and a.detach().unique().numel() == 1:  # a start that is no random number
                assert torch.equal(a.flatten(), b.flatten())
            b.data.copy_((a.data + 0.1 * torch.randn_like(a)).view(b.shape))
            a.data.copy_(b.data.view(a.shape))
        x_BLD = torch.randn(7, LAYERS, SIZE, dtype=torch.float64)
        label_B = torch.randint(CLASSES, (7,))
        logits = [decoder(x_BLD) for decoder in (ours, plain)]
        torch.testing.assert_close(*logits)
        for each in logits:
            torch.nn.functional.cross_entropy(each, label_B).backward()
        for a, b in pairs:
            assert a.grad is not None
            assert b.grad is not None
            torch.testing.assert_close(a.grad.flatten(), b.grad.flatten())


def test_the_plain_loop_has_the_recipe_that_gaam_has_by_default() -> None:
    config = TrainConfig()
    wanted = {name: getattr(config, name) for name in ("lr", "weight_decay", "batch_size")}
    tree = ast.parse((USERS / "plain" / "train.py").read_text())
    given = {
        keyword.arg: ast.literal_eval(keyword.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg in wanted
    }
    assert given == wanted
    assert (config.head, config.select, config.val_fraction) == (("linear",), "val", 0.1)


def test_states_that_are_not_the_same_are_seen() -> None:
    random = np.random.default_rng(0)
    plain = random.normal(size=(20, LAYERS, SIZE)).astype(np.float32)
    last = plain[:, -1] / np.linalg.norm(plain[:, -1], axis=1, keepdims=True)
    for same in (plain, plain.reshape(20, -1), last):
        assert difference(same, plain)["largest"] < 1e-6
        assert difference(same, plain)["rows"] == 0
        for row in range(20):
            moved = same.copy()
            moved[row] *= 1.02
            assert difference(moved, plain)["rows"] == 1
        assert difference(same[::-1], plain)["rows"] == 20
    assert difference(plain[:, ::-1], plain)["rows"] == 20
    with pytest.raises(ValueError, match="beside"):
        difference(plain[:-1], plain)


def test_every_row_is_in_the_table_whatever_became_of_it() -> None:
    """Medians of what was measured, dashes and words for the rest."""
    for broken in (None, *(one.folder for one in CONTESTANTS)):
        found: dict[str, Any] = {}
        for place, one in enumerate(CONTESTANTS, 1):
            rounds = [figures(place * factor) for factor in (1, 9, 2)]
            found[one.folder] = {"rounds": rounds, "accuracies": {"none": [0.25, 0.75]}}
        if broken:
            found[broken] = {"error": "no such wheel"}
        text = markdown(TASKS, CONTESTANTS, found, {})
        rows = [line for line in text.splitlines() if line.startswith("| ")]
        asked = len(CONTESTANTS) + sum(map(len, CANNOT.values()))
        assert len(rows) == asked + 2 * len(TASKS)
        assert {row.count(" | ") for row in rows} == {len(HEADINGS) - 1}
        assert ("no such wheel" in text) == bool(broken)
        for place, one in enumerate(CONTESTANTS, 1):
            shown = f"| {one.who} | {2 * place:.1f} | {4 * place:.1f} | {6 * place:.1f} | "
            assert (shown in text) == (one.folder != broken), one
        assert "50.0 ± 35.4" in text


def figures(scale: float) -> dict[str, Any]:
    phases = {
        name: {"seconds": share * scale, "peak_bytes": 1e9}
        for name, share in (("encode", 1.0), ("train", 2.0))
    }
    return {"phases": phases, "state_bytes": 1e6, "other_bytes": 0}


def test_over_an_even_number_of_rounds_nobody_runs_later_than_another() -> None:
    names = [one.folder for one in CONTESTANTS]
    for rounds in (2, 4, 6):
        orders = [in_turn(names, turn) for turn in range(rounds)]
        assert all(sorted(order) == sorted(names) for order in orders)
        assert len({sum(order.index(name) for order in orders) for name in names}) == 1
