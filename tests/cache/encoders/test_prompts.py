"""Prompts, and pooling over the text within: against transformers, one text at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
CASES = [
    ("text", None),
    ("text", "Topic of this news item: {text}"),
    ("text", "«{text}» {curly} {0} {{}}"),
    ("text", "cafe{text}\u0301"),
    ("all", "Read:\n\n{text}!"),
]
"""What is pooled, and the prompt."""


class Alone:
    """Token ids of a text in its prompt and which are the text's, character by character."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModel.from_pretrained(folder).eval()

    def tokens(self, prompt: str | None, text: str) -> tuple[list[int], list[int]]:
        place = (prompt or "{text}").index("{text}")
        whole = text if prompt is None else prompt[:place] + text + prompt[place + 6 :]
        own_characters = set(range(place, place + len(text)))
        read = self.tokenizer(
            whole, return_offsets_mapping=True, return_special_tokens_mask=True
        )
        kept = []
        for token, (start, stop), special in zip(
            read["input_ids"],
            read["offset_mapping"],
            read["special_tokens_mask"],
            strict=True,
        ):
            held = set(range(start, stop)) or {max(start - 1, 0)}
            if prompt is None:
                held = own_characters
            own = bool(held & own_characters) and not special
            kept.append((token, own, own and held <= own_characters))
        while len(kept) > MAX_LENGTH:
            del kept[max(i for i, (_, _, inside) in enumerate(kept) if inside)]
        return [token for token, _, _ in kept], [
            i for i, (_, own, _) in enumerate(kept) if own
        ]

    @torch.no_grad()
    def states(self, ids: list[int], places: list[int]) -> dict[str, np.ndarray]:
        output = self.model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        x = torch.stack(output.hidden_states[1:])[:, 0].double().numpy()[:, places]
        return {"mean": x.mean(1), "last": x[:, -1], "first": x[:, 0], "max": x.max(1)}


@pytest.mark.parametrize("kind", KINDS)
def test_states_are_those_of_transformers_for_every_tokenizer_prompt_and_text(
    kind: str, tmp_path: Path
) -> None:
    alone = Alone(folder := save(kind, tmp_path / "encoder"))
    for over, prompt in CASES:
        tokens = [(text, *alone.tokens(prompt, text)) for text in TEXTS]
        tokens = [one for one in tokens if one[2]]
        assert len(tokens) >= len(TEXTS) - 1
        encoder = TextEncoder.open(
            ExtractConfig(
                encoder=str(folder), pool=POOLS, max_length=MAX_LENGTH, prompt=prompt,
                pool_over=over,
            )
        )  # fmt: skip
        encoder.load()
        inputs = encoder.prepare([text for text, _, _ in tokens])
        assert any(inputs.truncated)
        assert list(inputs.lengths) == [len(ids) for _, ids, _ in tokens]
        for first in range(0, len(tokens), 5):
            row_B = np.arange(first, min(first + 5, len(tokens)))
            pooled = encoder.encode(inputs.batch(row_B))
            for place, row in enumerate(row_B):
                text, ids, places = tokens[row]
                assert places == list(range(places[0], places[-1] + 1))
                where = places if over == "text" else list(range(len(ids)))
                for pool, expected in alone.states(ids, where).items():
                    np.testing.assert_allclose(
                        pooled[pool][place],
                        expected,
                        rtol=1e-5,
                        atol=1e-5,
                        err_msg=text,
                    )


def config_for(
    folder: Path, root: Path, texts: list[str], **options: Any
) -> ExtractConfig:
    root.mkdir(exist_ok=True)
    lines = [
        json.dumps({"text": text, "label": "ab"[i % 2]}) for i, text in enumerate(texts)
    ]
    (root / "train.jsonl").write_text("\n".join(lines))
    return ExtractConfig(
        encoder=str(folder), dataset=str(root / "train.jsonl"), splits=("train",),
        out=root / "cache", **options,
    )  # fmt: skip


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
