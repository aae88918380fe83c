"""Prompts, and pooling over their texts: against transformers, text by text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers

import gaam_cache
from gaam_cache.common import plugins
from gaam_cache.common.errors import DataError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.store.plan import read_plan
from tests.cache.encoders.tokenizers_of import KINDS, save

MAX_LENGTH = 64
POOLS = tuple(plugins.names("gaam_cache.encoders.poolings"))

TEXTS = [
    "goal",
    "Hello world",
    "news item",  # words of prompts
    "{text} and {0} {curly}",
    "👍🏽 family 👨‍👩‍👧",
    "e\u0301te\u0301 naïve",
    "\u0301combining first",
    "مرحبا بالعالم 東京",
    "  spaces  around\t",
    "a\nb\r\nc",
    "[SEP] is a word [CLS]",
    "the vote on the price " * 20,  # longer than the maximum
    "👍 " * 40,
]
PROMPTS: dict[str, tuple[Any, str | None]] = {
    "no prompt": ("text", None),
    "words of a text": ("text", "Topic of this news item: {text}"),
    "curly brackets": ("text", "«{text}» {curly} {0} {{}}"),
    "a combining mark": ("text", "cafe{text}\u0301"),
    "pooled too": ("all", "Read:\n\n{text}!"),
}
"""What is pooled, and the prompt."""


class Row(NamedTuple):
    """A text, the token ids of its prompt, and the places of its own tokens."""

    text: str
    ids: list[int]
    places: list[int]


class Reference:
    """Tokens and states of a text in its prompt, character by character."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModel.from_pretrained(folder).eval()

    def row(self, prompt: str | None, text: str) -> Row:
        place = (prompt or "{text}").index("{text}")
        whole = text if prompt is None else prompt[:place] + text + prompt[place + 6 :]
        text_characters = set(range(place, place + len(text)))
        tokens = self.tokenizer(
            whole, return_offsets_mapping=True, return_special_tokens_mask=True
        )
        # id, whether it has characters of the text, and whether it has no others
        kept: list[tuple[int, bool, bool]] = []
        for token, (start, stop), special in zip(
            tokens["input_ids"],
            tokens["offset_mapping"],
            tokens["special_tokens_mask"],
            strict=True,
        ):
            characters = set(range(start, stop)) or {max(start - 1, 0)}
            if prompt is None:
                characters = text_characters
            is_own = bool(characters & text_characters) and not special
            kept.append((token, is_own, is_own and characters <= text_characters))
        # a row that is too long loses the last tokens of its text
        while len(kept) > MAX_LENGTH:
            inside = [i for i, (_, _, is_inside) in enumerate(kept) if is_inside]
            del kept[inside[-1]]
        ids = [token for token, _, _ in kept]
        places = [i for i, (_, is_own, _) in enumerate(kept) if is_own]
        return Row(text, ids, places)

    @torch.no_grad()
    def states(self, ids: list[int], places: list[int]) -> dict[str, np.ndarray]:
        output = self.model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        x = torch.stack(output.hidden_states[1:])[:, 0].double().numpy()[:, places]
        return {"mean": x.mean(1), "last": x[:, -1], "first": x[:, 0], "max": x.max(1)}


@pytest.mark.parametrize("case", PROMPTS)
@pytest.mark.parametrize("kind", KINDS)
def test_states_are_those_of_transformers_for_every_tokenizer_prompt_and_text(
    kind: str, case: str, tmp_path: Path
) -> None:
    pool_over, prompt = PROMPTS[case]
    folder = save(kind, tmp_path / "encoder")
    reference = Reference(folder)
    rows = [reference.row(prompt, text) for text in TEXTS]
    rows = [row for row in rows if row.places]
    assert len(rows) >= len(TEXTS) - 1
    config = ExtractConfig(
        encoder=str(folder),
        pool=POOLS,
        max_length=MAX_LENGTH,
        prompt=prompt,
        pool_over=pool_over,
    )
    encoder = TextEncoder.open(config)
    encoder.load()
    inputs = encoder.prepare([row.text for row in rows])
    assert any(inputs.truncated)
    assert list(inputs.lengths) == [len(row.ids) for row in rows]
    for first in range(0, len(rows), 5):
        batch = rows[first : first + 5]
        row_B = np.arange(first, first + len(batch))
        pooled = encoder.encode(inputs.batch(row_B))
        for place, row in enumerate(batch):
            assert row.places == list(range(row.places[0], row.places[-1] + 1))
            places = row.places if pool_over == "text" else list(range(len(row.ids)))
            for pool, expected in reference.states(row.ids, places).items():
                np.testing.assert_allclose(
                    pooled[pool][place],
                    expected,
                    rtol=1e-5,
                    atol=1e-5,
                    err_msg=row.text,
                )


def config_for(
    folder: Path, root: Path, texts: list[str], **options: Any
) -> ExtractConfig:
    root.mkdir(exist_ok=True)
    rows = [{"text": text, "label": "ab"[i % 2]} for i, text in enumerate(texts)]
    file = root / "train.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return ExtractConfig(
        encoder=str(folder),
        dataset=str(file),
        splits=("train",),
        out=root / "cache",
        **options,
    )


def test_a_text_of_which_nothing_is_left_is_refused_with_its_row(
    tmp_path: Path,
) -> None:
    folder = save("wordpiece", tmp_path / "encoder")
    texts = ["goal", "vote", "\ue000", "star"]
    config = config_for(
        folder, tmp_path, texts, prompt="news: {text}", pool_over="text"
    )
    with pytest.raises(DataError, match=r"train\.jsonl, row 3"):
        gaam_cache.extract(config)


def test_a_cache_with_a_prompt_is_verified_and_taken_up(tmp_path: Path) -> None:
    folder = save("unigram", tmp_path / "encoder")
    text = "Topic, of \"this\":\n{text} 'news'\t👍 / ~"
    texts = ["goal", "vote on the price"]
    config = config_for(folder, tmp_path, texts, prompt=text, pool_over="text")
    gaam_cache.extract(config)
    assert read_plan(config.out).fingerprint_fields["encoder"]["prompt"] == text
    assert gaam_cache.verify(config.out, recompute_rows=2).good
    assert gaam_cache.extract(config).rows_made == 0
