"""Special tokens that stand twice; and chat templates: against transformers' own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

import gaam_cache
from gaam_cache.common.errors import ConfigError, GaamWarning
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.extraction.rows import RowEncoder
from tests.cache.encoders.tokenizers_of import KINDS, save
from tests.conftest import Outcome
from tests.tiny import random_rows, write_csv

TEMPLATES = {
    "plain": "{% for m in messages %}[CLS]{{ m['role'] }}: {{ m['content'] }}[SEP]\n{% endfor %}"
    "{% if add_generation_prompt %}[CLS]assistant: {% endif %}",
    "trimmed, with a system message": "{{ bos_token }}{% if messages[0]['role'] != 'system' %}"
    "[CLS]be brief[SEP]{% endif %}{{ messages[0]['content'] | trim }}[SEP]",
    "with the date": "today is {{ strftime_now('%d %b %Y') }}: {{ messages[0]['content'] }}[SEP]",
}
TEXTS = [
    "goal", "  spaces  around\t", "{{ messages }} {text}", "the vote on the price " * 20,
    "\u0645\u0631\u062d\u0628\u0627 news", "a\nb",
]  # fmt: skip


def with_template(kind: str, template: str, folder: Path) -> Path:
    """An encoder whose tokenizer has a chat template."""
    save(kind, folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.bos_token = "[CLS]"
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return folder


def open_text(folder: Path, **settings: Any) -> TextEncoder:
    return TextEncoder.open(ExtractConfig(encoder=str(folder), **settings))


@pytest.mark.parametrize(
    "template", [name for name in TEMPLATES if name != "with the date"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_those_of_the_tokenizers_own_template(
    kind: str, template: str, tmp_path: Path
) -> None:
    folder = with_template(kind, TEMPLATES[template], tmp_path / "encoder")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = open_text(folder, chat_template=True, max_length=400).prepare(TEXTS)
    for text, ids in zip(TEXTS, inputs.items, strict=True):
        message = [{"role": "user", "content": text}]
        assert ids.tolist() == tokenizer.apply_chat_template(message, return_dict=False)
    assert not inputs.rows_by_doubled_token
    # the text is cut, and not the markup
    markup = tokenizer.apply_chat_template(
        [{"role": "user", "content": "q"}], return_dict=False
    )
    [whole] = (
        open_text(folder, chat_template=True, max_length=400).prepare([TEXTS[3]]).items
    )
    cut = open_text(folder, chat_template=True, max_length=48).prepare([TEXTS[3]])
    [ids] = (one.tolist() for one in cut.items)
    same = [one == other for one, other in zip(markup, whole.tolist(), strict=False)]
    before = same.index(False)
    assert (len(ids), list(cut.truncated)) == (48, [True])
    assert ids[:before] == markup[:before]
    assert ids[-1] == markup[-1]


def test_a_prompt_and_pooling_over_the_text_go_with_a_template(tmp_path: Path) -> None:
    folder = with_template("byte-level", TEMPLATES["plain"], tmp_path / "encoder")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    settings: dict[str, Any] = {"prompt": "Topic: {text}?", "pool_over": "text"}
    encoder = open_text(folder, chat_template=True, **settings)
    inputs = encoder.prepare(["news item"])
    [item] = inputs.items
    message = [{"role": "user", "content": "Topic: news item?"}]
    assert item.ids.tolist() == tokenizer.apply_chat_template(
        message, return_dict=False
    )
    shown = str(tokenizer.decode(item.ids[item.start : item.stop]))
    assert shown.replace("\u0120", "").replace(" ", "") == "newsitem"


def test_a_template_and_its_markup_are_part_of_the_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = with_template("byte-level", TEMPLATES["plain"], tmp_path / "plain")
    dated = with_template("byte-level", TEMPLATES["with the date"], tmp_path / "dated")
    without = open_text(plain).identity()
    chat = open_text(plain, chat_template=True).identity()
    assert "chat_template" not in without
    assert without["special_tokens"] is True
    assert chat["chat_template"]["markup"] == "[CLS]user: {text}[SEP]\n"
    assert {key for key in chat if chat[key] != without.get(key)} == {
        "chat_template", "special_tokens", "tokens",
    }  # fmt: skip
    # every day writes the same date
    markup = open_text(dated, chat_template=True).identity()["chat_template"]["markup"]
    assert markup == "today is 26 Jul 2024: {text}[SEP]"


def test_a_cache_of_a_template_is_verified_and_predicted_from(tmp_path: Path) -> None:
    folder = with_template("byte-level", TEMPLATES["plain"], tmp_path / "encoder")
    texts = [f"{text} {number}" for number, (_, text) in enumerate(random_rows(12, 1))]
    for split in ("train", "test"):
        write_csv(
            tmp_path / f"{split}.csv", [("ab"[n % 2], x) for n, x in enumerate(texts)]
        )
    config = ExtractConfig(
        encoder=str(folder),
        dataset=str(tmp_path),
        out=tmp_path / "cache",
        chat_template=True,
    )
    gaam_cache.extract(config)
    cache = gaam_cache.open_cache(config.out)
    assert gaam_cache.verify(config.out, recompute_rows=5).good
    again = RowEncoder.open(cache.plan).encode(texts, pooling="mean")
    np.testing.assert_allclose(
        again, cache["train"].embeddings[:].astype(np.float32), atol=2e-3
    )
    with pytest.raises(ConfigError, match="holds another cache"):
        gaam_cache.extract(replace(config, chat_template=False))


REFUSED = {
    "none": (None, {}, "no chat template"),
    "of no text": ("{{ messages[0]['role'] }}", {}, "exactly once"),
    "of the text twice": (
        "{{ (messages[0]['content'] + ' ') * 2 }}",
        {},
        "exactly once",
    ),
    "that fails": ("{{ raise_exception('no system message') }}", {}, "cannot be used"),
    "longer than the maximum": (
        TEMPLATES["plain"],
        {"max_length": 6},
        "leaves no room",
    ),
}
"""Template, settings, and what is said."""


@pytest.mark.parametrize("case", REFUSED)
def test_a_template_that_cannot_be_used_is_refused(case: str, tmp_path: Path) -> None:
    template, settings, said = REFUSED[case]
    folder = save("byte-level", tmp_path / "encoder")
    if template is not None:
        folder = with_template("byte-level", template, tmp_path / "with")
    with pytest.raises(ConfigError, match=said) as caught:
        open_text(folder, chat_template=True, **settings)
    assert caught.value.exit_code == 2


DOUBLED: dict[str, tuple[list[str], dict[str, Any], set[str]]] = {
    "none": (["goal bank", "a [SEP] b", "star [CLS] vote"], {}, set()),
    "in texts": (["[CLS] goal [SEP]"], {}, {"[CLS]", "[SEP]"}),
    "at the start of the prompt": (["goal"], {"prompt": "[CLS] {text}"}, {"[CLS]"}),
    "before white space at the end": (["goal [SEP]  "], {}, {"[SEP]"}),
    "of texts that are cut": (["[CLS]" + " goal" * 99], {"max_length": 32}, {"[CLS]"}),
}
"""Texts, settings, and what stands twice."""


@pytest.mark.parametrize("case", DOUBLED)
@pytest.mark.parametrize("kind", ["wordpiece", "byte-level", "unigram"])
def test_special_tokens_that_stand_twice_are_named(
    kind: str, case: str, tmp_path: Path
) -> None:
    texts, settings, expected = DOUBLED[case]
    found = (
        open_text(save(kind, tmp_path / "encoder"), **settings)
        .prepare(texts)
        .rows_by_doubled_token
    )
    assert found == dict.fromkeys(expected, 1)


def test_texts_that_bring_the_markup_of_the_template_are_named(tmp_path: Path) -> None:
    folder = with_template("byte-level", TEMPLATES["plain"], tmp_path / "encoder")
    encoder = open_text(folder, chat_template=True)
    assert encoder.prepare(["[CLS]user: goal[SEP]"]).rows_by_doubled_token == {
        "[CLS]": 1,
        "[SEP]": 1,
    }
    assert encoder.prepare(["goal"]).rows_by_doubled_token == {}


def test_an_extraction_warns_of_them(tmp_path: Path) -> None:
    encoder = save("wordpiece", tmp_path / "encoder")
    rows = [(label, f"[CLS] {text}") for label, text in random_rows(12, 1)]
    for split in ("train", "test"):
        write_csv(tmp_path / "data" / f"{split}.csv", rows)
    config = ExtractConfig(
        encoder=str(encoder), dataset=str(tmp_path / "data"), out=tmp_path / "cache"
    )
    with pytest.warns(GaamWarning, match=r"24 of 24 rows.*\[CLS\]"):
        gaam_cache.extract(config)


def test_a_template_is_for_texts(gaam: Callable[..., Outcome], tmp_path: Path) -> None:
    outcome = gaam(
        "extract", "--encoder", "tfidf", "--chat-template", "--out", tmp_path / "c"
    )
    assert (outcome.code, "means nothing for this" in outcome.err) == (2, True)
