"""The tokenizer of an encoder: its files, and what its tokens stand for.

It tells special tokens, unknown tokens and white space from the words of a text.
``_tokens`` cuts the texts.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gaam_cache.common.errors import ConfigError, GaamWarning
from gaam_cache.common.messages import visible
from gaam_cache.encoders._located import library_errors_as

SETTINGS = "tokenizer_config.json"
"""Settings of a tokenizer, which some tokenizers list among their vocabulary files."""
VOCABULARY_SAMPLE = 64
"""About how many tokens of a vocabulary go into the texts that identify a tokenizer."""
MIN_TOKEN_SHARE = 0.9
"""Smallest share of a model's embeddings for which its tokenizer has tokens.

Models that round the size of their vocabulary up have 0.98 and more.
"""
SPELLED_SPACE = " \n\t\r\u2581\u0120\u010a\u0109\u010d"
"""White space, and how SentencePiece and byte-level BPE spell it in names of tokens."""
SHOWN_START = 48
"""Number of characters for the first tokens of a long text that a person is shown."""
SHOWN_END = 16
"""Number of characters for the last tokens of a long text that a person is shown."""
RARE_LETTERS = ("\ua66e", "\ua387", "\U00013000")
"""A letter of one Cyrillic psalter, a letter of Yi, and a hieroglyph.

Hardly any vocabulary has a token for them.
"""


class EncoderTokenizer:
    """A tokenizer of transformers, read from the folder of an encoder.

    Attributes:
        markup: the text that a chat template writes around every text, with the special
            tokens. None if the tokenizer adds the special tokens.
    """

    def __init__(self, pretrained: Any, folder: Path, text_config: Any) -> None:
        self.pretrained = pretrained
        self.folder = folder
        self.markup: str | None = None
        self._text_config = text_config
        self._is_space_by_token: dict[int, bool] = {}
        self._check_files()

    def _check_files(self) -> None:
        """Refuse a folder from which the tokenizer read no vocabulary."""
        files = self.files() - {SETTINGS}
        usual_files = sorted(set(self.pretrained.vocab_files_names.values()))
        if SETTINGS in usual_files:
            usual_files.remove(SETTINGS)

        # A GGUF file holds its tokenizer, and some tokenizers need no file.
        if self.folder.is_file() or not usual_files:
            return
        if any((self.folder / name).is_file() for name in files):
            return
        raise ConfigError(
            f"'{self.folder}' holds no tokenizer",
            expected=f"one of: {', '.join(usual_files)}",
            hint="save it there: "
            "AutoTokenizer.from_pretrained(...).save_pretrained(folder)",
        )

    def files(self) -> set[str]:
        """Names of the files in the folder that the tokenizer may read.

        transformers lists the tokenizer's arguments that name files. Other arguments
        are values, such as a chat template.
        """
        arguments = self.pretrained.vocab_files_names
        names = set(arguments.values())
        for argument in arguments:
            value = self.pretrained.init_kwargs.get(argument)
            if isinstance(value, str):
                path = Path(value)
                self._check_inside(path)
                names.add(path.name)
        return names

    def _check_inside(self, path: Path) -> None:
        """Refuse a file outside of the folder.

        transformers before 5.2 opens any path that tokenizer_config.json names.
        """
        if path.is_file() and path.parent.resolve() != self.folder.resolve():
            raise ConfigError(
                "the tokenizer reads a file outside of the encoder's folder",
                expected=f"a file in '{self.folder}'",
                found=str(path),
                where=str(self.folder / SETTINGS),
            )

    def read(self, rows: Sequence[str], *, truncation: bool, **options: Any) -> Any:
        """Call the tokenizer with texts, and return its output."""
        # Texts with markup hold their special tokens already.
        with library_errors_as("the tokenizer cannot read a text", self.folder):
            return self.pretrained(
                list(rows),
                add_special_tokens=self.markup is None,
                padding=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
                truncation=truncation,
                **options,
            )

    def ids(self, rows: Sequence[str]) -> list[list[int]]:
        """Token ids of whole texts."""
        ids: list[list[int]] = self.read(rows, truncation=False)["input_ids"]
        return ids

    def cut_ids(self, rows: Sequence[str], max_length: int) -> list[list[int]]:
        """Token ids of texts, cut by the tokenizer at a maximum length."""
        encoded = self.read(rows, truncation=True, max_length=max_length)
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    @cached_property
    def special(self) -> set[int]:
        """Ids of the tokens that stand for no part of a text."""
        # The tokens of an empty text are those that the tokenizer adds to every text.
        declared = self.pretrained.added_tokens_decoder
        special = {number for number, token in declared.items() if token.special}
        return {*self.pretrained.all_special_ids, *special, *self.ids([""])[0]}

    @cached_property
    def added(self) -> set[int]:
        """Ids of the special tokens that are added to every text."""
        around_text = set(self.ids([self.markup or ""])[0])
        return around_text & (self.special - self.unknown)

    @cached_property
    def unknown(self) -> set[int]:
        """Ids of the tokens that stand for letters outside of the vocabulary.

        They are the declared unknown token, and the tokens that occur in all three of
        ``RARE_LETTERS``.
        """
        unknown: set[int] = set()
        # A tokenizer may refuse such letters, and then has no token for them.
        with suppress(ConfigError):
            common = set.intersection(*map(set, self.ids(RARE_LETTERS)))
            unknown = {token for token in common if not self.is_space(token)}
        if self.pretrained.unk_token_id is not None:
            unknown.add(self.pretrained.unk_token_id)
        return unknown - set(self.ids([""])[0])

    def is_space(self, token: int) -> bool:
        """Whether a token is only white space, as it is or as tokenizers spell it."""
        # Decoding takes time, and texts repeat the same few tokens at their ends.
        if token not in self._is_space_by_token:
            name = self.name(token)
            is_space = not name.strip(SPELLED_SPACE)
            if not is_space:
                is_space = not self.pretrained.decode([token]).strip()
            self._is_space_by_token[token] = is_space
        return self._is_space_by_token[token]

    def name(self, token: int) -> str:
        """What the tokenizer calls a token."""
        return str(self.pretrained.convert_ids_to_tokens(token))

    def repeated_special(self, ids: Sequence[int]) -> Iterator[int]:
        """Yield added tokens that stand twice, with only white space between them."""
        previous: int | None = None
        for token in ids:
            if token in self.added:
                if token == previous:
                    yield token
                previous = token
            elif previous is not None and not self.is_space(token):
                previous = None

    def has_token_types(self) -> bool:
        """Whether the tokenizer gives the tokens of a single text different types."""
        for text in ("", "a"):
            # A tokenizer that fails on these texts may still read every row.
            with suppress(Exception):
                encoded = self.pretrained(
                    [text], return_token_type_ids=True, verbose=False
                )
                if any(map(any, encoded.get("token_type_ids") or [])):
                    return True
        return False

    def check_vocabulary(self, num_embeddings: int | None) -> None:
        """Warn where a model has embeddings for many more tokens than there are."""
        num_tokens = len(self.pretrained)
        if num_embeddings is None or num_tokens >= MIN_TOKEN_SHARE * num_embeddings:
            return
        warnings.warn(
            f"the tokenizer in '{self.folder}' has {num_tokens:,} tokens and the model "
            f"embeddings for {num_embeddings:,}: it may be another model's tokenizer, "
            "and then the states mean nothing",
            GaamWarning,
            stacklevel=2,
        )

    def texts_of_vocabulary(self) -> list[str]:
        """Texts of the tokenizer's own tokens, evenly spread, in several cases.

        A small vocabulary may know no word of texts that are the same for all encoders.
        """
        token_by_id = {
            number: token for token, number in self.pretrained.get_vocab().items()
        }
        ids = sorted(token_by_id)
        step = max(1, len(ids) // VOCABULARY_SAMPLE)
        words = " ".join(token_by_id[number] for number in ids[::step])
        return [words, words.lower(), words.upper(), words.title()]

    def pad_ids(self, num_embeddings: int | None) -> list[int]:
        """Ids of the tokens with which the tokenizer or the model fills batches.

        ``num_embeddings`` is the number of token ids with an embedding, if known.
        """
        # The configuration of XLM calls it pad_index.
        candidates = [
            self.pretrained.pad_token_id,
            getattr(self._text_config, "pad_token_id", None),
            getattr(self._text_config, "pad_index", None),
        ]
        return [
            token
            for token in candidates
            if type(token) is int and 0 <= token < (num_embeddings or token + 1)
        ]

    def marker_ids(self, model: nn.Module, num_embeddings: int | None) -> list[int]:
        """Ids of special tokens that an input may hold, the likeliest first, each once.

        They are the tokens around every text, such as [CLS], and padding tokens.
        ``num_embeddings`` is the number of ids that the model knows, if that is known.
        """
        around_text = self.ids([""])[0]
        # The embedding at a padding index is zero, and some models treat it specially.
        padding_indices = [
            module.padding_idx
            for module in model.modules()
            if isinstance(module, nn.Embedding)
            and module.num_embeddings == num_embeddings
        ]
        candidates = [
            *around_text[:1],
            *self.pad_ids(num_embeddings),
            *padding_indices,
            *around_text[1:],
        ]
        usable: list[int] = []
        for token in candidates:
            if token is None or token in usable:
                continue
            # 0 stands for a number that is not known
            if not num_embeddings or token < num_embeddings:
                usable.append(token)
        return usable

    def show(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Names of tokens on one line; a long text shows its first and last tokens."""
        tokens = self.pretrained.convert_ids_to_tokens(list(ids))
        names = [visible(str(token)) for token in tokens]
        text = " ".join(names)
        if len(text) <= SHOWN_START + SHOWN_END:
            return text
        # Cut between tokens, unless the first or last one is too long by itself.
        start = text[:SHOWN_START].rpartition(" ")[0] or text[:SHOWN_START]
        end = text[-SHOWN_END:].partition(" ")[2] or names[-1][-SHOWN_END:]
        return f"{start} ... {end}"
