"""Prompts, and pooling over the text within: against transformers, one text at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import gaam_cache
from gaam_cache import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.store.plan import read_plan
from tests.cache.encoders.tokenizers_of import KINDS, save
from tests.conftest import Outcome

MAX_LENGTH = 64
POOLS = tuple(plugins.names("gaam_cache.encoders.poolings"))
TEXTS = [
    "goal",
    "Hello world",
    "news item",  # words of prompts
    "Topic of this news item:",
    "{text} and {0} {curly}",
    "👍🏽 family 👨‍👩‍👧",
    "e\u0301te\u0301 naïve",
    "\u0301combining first",
    "שלום עולם",
    "مرحبا بالعالم 東京",
    "  spaces  around\t",
    "a\nb\r\nc",
    "[SEP] is a word [CLS]",
    "ﬁne ½ ㎞",
    "the vote on the price " * 20,  # longer than the maximum
    "x" * 150,
    "👍 " * 40,
]
PROMPTS = [
    None,
    "Topic of this news item: {text}",
    "Topic:{text}",
    "{text} is news",
    "{text}!",
    "pre{text}post",
    " {text} ",
    "«{text}» {curly} {0} {{}}",
    "👍{text}👍🏽",
    "cafe{text}\u0301",
    "שלום {text} عالم",
    "Read:\n\n{text}\n\nTopic:",
]


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def alone(folder: Path) -> Alone:
    return Alone(folder)


def config_for(folder: Path, root: Path, texts: list[str], **options: Any) -> ExtractConfig:
    root.mkdir(exist_ok=True)
    lines = [json.dumps({"text": text, "label": "ab"[i % 2]}) for i, text in enumerate(texts)]
    (root / "train.jsonl").write_text("\n".join(lines))
    return ExtractConfig(
        encoder=str(folder), dataset=str(root / "train.jsonl"), splits=("train",), pool=POOLS,
        out=root / "cache", batch_tokens=200, storage_dtype="float32", max_length=MAX_LENGTH,
        **options,
    )  # fmt: skip


class Alone:
    """Token ids of a text in its prompt and which are the text's, character by character."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModel.from_pretrained(folder).eval()

    def tokens(self, prompt: str | None, text: str) -> tuple[list[int], list[int]]:
        place = (prompt or "{text}").index("{text}")
        whole = text if prompt is None else prompt[:place] + text + prompt[place + 6 :]
        own_characters = set(range(place, place + len(text)))
        read = self.tokenizer(whole, return_offsets_mapping=True, return_special_tokens_mask=True)
        kept = []
        for token, (start, stop), special in zip(
            read["input_ids"], read["offset_mapping"], read["special_tokens_mask"], strict=True
        ):
            held = set(range(start, stop)) or {max(start - 1, 0)}
            if prompt is None:
                held = own_characters
            own = bool(held & own_characters) and not special
            kept.append((token, own, own and held <= own_characters))
        while len(kept) > MAX_LENGTH:
            del kept[max(i for i, (_, _, inside) in enumerate(kept) if inside)]
        return [token for token, _, _ in kept], [i for i, (_, own, _) in enumerate(kept) if own]

    @torch.no_grad()
    def states(self, ids: list[int], places: list[int]) -> dict[str, np.ndarray]:
        output = self.model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        x = torch.stack(output.hidden_states[1:])[:, 0].double().numpy()[:, places]
        return {"mean": x.mean(1), "last": x[:, -1], "first": x[:, 0], "max": x.max(1)}


@pytest.mark.parametrize(
    ("over", "prompt"),
    [*(("text", prompt) for prompt in PROMPTS), *(("all", prompt) for prompt in PROMPTS[:3])],
)
def test_states_are_those_of_transformers_for_every_tokenizer_prompt_and_text(
    over: str, prompt: str | None, alone: Alone, folder: Path, tmp_path: Path
) -> None:
    tokens = [alone.tokens(prompt, text) for text in TEXTS]
    texts = [text for text, (_, places) in zip(TEXTS, tokens, strict=True) if places]
    tokens = [(ids, places) for ids, places in tokens if places]
    assert len(texts) >= len(TEXTS) - 1
    config = config_for(folder, tmp_path / "rows", texts, prompt=prompt, pool_over=over)
    summary = gaam_cache.extract(config)
    assert summary.truncated >= 1
    assert summary.padding_share > 0
    split = gaam_cache.open_cache(config.out)["train"]
    assert split.num_tokens.tolist() == [len(ids) for ids, _ in tokens]
    pooled = {pool: split.pooled(pool)[:] for pool in POOLS}
    for row, (ids, places) in enumerate(tokens):
        assert places == list(range(places[0], places[-1] + 1))
        where = places if over == "text" else list(range(len(ids)))
        for pool, expected in alone.states(ids, where).items():
            np.testing.assert_allclose(
                pooled[pool][row], expected, rtol=1e-5, atol=1e-5, err_msg=texts[row]
            )
    if prompt is None or folder.name.startswith(next(iter(KINDS))):  # each of them once
        verified = gaam_cache.verify(config.out, recompute_rows=len(texts))
        assert verified.good, verified.in_words()


@pytest.mark.parametrize("prompt", [None, "news: {text}"])
def test_a_text_of_which_nothing_is_left_is_refused_with_its_row(
    prompt: str | None, tmp_path: Path
) -> None:
    folder = save("wordpiece", tmp_path / "encoder")
    texts = ["goal", "vote", "\ue000", "star"]
    config = config_for(folder, tmp_path / "rows", texts, prompt=prompt, pool_over="text")
    with pytest.raises(DataError, match="has no tokens that could be pooled") as caught:
        gaam_cache.extract(config)
    assert "train.jsonl" in str(caught.value)
    assert "row 3" in str(caught.value)


def test_a_cache_with_a_prompt_is_verified_and_taken_up_without_the_file(
    tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    folder = save("unigram", tmp_path / "encoder")
    prompt = tmp_path / "prompt.txt"
    text = f"Topic, {'long ' * 60}long; of \"this\":\n{{text}} 'news'\t👍 / ~"
    prompt.write_text(text)
    texts = ["goal", "vote on the price"]
    config = config_for(folder, tmp_path / "rows", texts, prompt_file=prompt, pool_over="text")
    config = replace(config, max_length=None)
    gaam_cache.extract(config)
    before = read_plan(config.out).fingerprint
    prompt.unlink()
    assert gaam_cache.verify(config.out, recompute_rows=2).good
    assert gaam_cache.extract(replace(config, prompt_file=None, prompt=text)).rows_made == 0
    assert read_plan(config.out).fingerprint == before
    said = gaam("verify", config.out, "--recompute", 2)
    assert said.code == 0, said.err
