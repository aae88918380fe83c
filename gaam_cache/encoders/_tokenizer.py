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
from transformers import PretrainedConfig

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

    def __init__(
        self, pretrained: Any, folder: Path, text_config: PretrainedConfig
    ) -> None:
        """Wrap a loaded tokenizer; refuse one that read no vocabulary.

        Args:
            pretrained: the tokenizer, as transformers loads it.
            folder: the folder of its files, or a GGUF file.
            text_config: the model's configuration for texts.
        """
        self.pretrained = pretrained
        self.folder = folder
        # ``Tokens`` sets it if texts get the markup of a chat template
        self.markup: str | None = None
        self._text_config = text_config
        # token id -> the result of ``is_space`` for it; filled by its calls
        self._is_space_by_token: dict[int, bool] = {}
        self._refuse_missing_vocabulary()

    def _refuse_missing_vocabulary(self) -> None:
        """Refuse a folder from which the tokenizer read no vocabulary."""
        # ``files`` also has the names that the settings of this tokenizer give. The
        # settings themselves hold no vocabulary.
        vocabulary_names = self.files() - {SETTINGS}
        usual_names = set(self.pretrained.vocab_files_names.values()) - {SETTINGS}

        # A GGUF file holds its tokenizer, and some tokenizers need no file.
        if self.folder.is_file() or not usual_names:
            return
        # one file of a vocabulary is enough: many tokenizers can read several formats
        if any((self.folder / name).is_file() for name in vocabulary_names):
            return
        raise ConfigError(
            f"'{self.folder}' holds no tokenizer",
            expected=f"one of: {', '.join(sorted(usual_names))}",
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
        """Call the tokenizer with texts, and return its output.

        Args:
            rows: the texts, with their markup if there is a chat template.
            truncation: whether the tokenizer cuts texts at ``max_length``.
            options: more arguments for the tokenizer, such as ``max_length``.

        Returns:
            transformers' own object; its "input_ids" are a list for every text.
        """
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
    def special_ids(self) -> set[int]:
        """Ids of the tokens that stand for no part of a text.

        They are the tokens that the tokenizer calls special, in either of two lists,
        and the tokens of an empty text, which it adds to every text.
        """
        declared_tokens = self.pretrained.added_tokens_decoder
        declared_ids = {id_ for id_, token in declared_tokens.items() if token.special}
        ids_of_empty_text = self.ids([""])[0]
        return {
            *self.pretrained.all_special_ids,
            *declared_ids,
            *ids_of_empty_text,
        }

    @cached_property
    def special_ids_around_text(self) -> set[int]:
        """Ids of the special tokens that stand around every text, such as [CLS].

        The tokenizer adds them, or the markup of the chat template holds them.
        """
        around_text = set(self.ids([self.markup or ""])[0])
        return around_text & (self.special_ids - self.unknown_ids)

    @cached_property
    def unknown_ids(self) -> set[int]:
        """Ids of the tokens that stand for letters outside of the vocabulary.

        They are the declared unknown token, and the tokens that occur in all three of
        ``RARE_LETTERS``: hardly any vocabulary has a token for one of these.
        """
        unknown: set[int] = set()
        # A tokenizer may refuse such letters, and then has no token for them.
        with suppress(ConfigError):
            common = set.intersection(*map(set, self.ids(RARE_LETTERS)))
            unknown = {token for token in common if not self.is_space(token)}
        if self.pretrained.unk_token_id is not None:
            unknown.add(self.pretrained.unk_token_id)
        # The tokens around every text occur in all three texts too.
        return unknown - set(self.ids([""])[0])

    def is_space(self, token: int) -> bool:
        """Whether a token is only white space, as it is or as tokenizers spell it."""
        # Decoding takes time, and texts repeat the same few tokens at their ends.
        if token not in self._is_space_by_token:
            is_space = not self.token_text(token).strip(SPELLED_SPACE)
            # A tokenizer may spell white space in a way of its own: decode the token.
            if not is_space:
                is_space = not self.pretrained.decode([token]).strip()
            self._is_space_by_token[token] = is_space
        return self._is_space_by_token[token]

    def token_text(self, token: int) -> str:
        """The text of a token as the vocabulary spells it, such as "##ing"."""
        return str(self.pretrained.convert_ids_to_tokens(token))

    def repeated_special(self, ids: Sequence[int]) -> Iterator[int]:
        """Yield special tokens around a text that stand twice, but for white space.

        This happens if a text begins or ends with the characters of such a token, and
        the tokenizer adds the token again.
        """
        # The last of these tokens, if nothing but white space has followed it.
        previous: int | None = None
        for token in ids:
            if token in self.special_ids_around_text:
                if token == previous:
                    yield token
                previous = token
            elif previous is not None and not self.is_space(token):
                previous = None

    def has_token_types(self) -> bool:
        """Whether the tokenizer gives a token of a single text a type other than 0.

        Types tell a model which of two texts a token belongs to.
        """
        for text in ("", "a"):
            # A tokenizer that fails on these texts may still read every row.
            with suppress(Exception):
                encoded = self.pretrained(
                    [text], return_token_type_ids=True, verbose=False
                )
                types_of_texts = encoded.get("token_type_ids") or []
                if any(any(types) for types in types_of_texts):
                    return True
        return False

    def check_vocabulary(self, num_embeddings: int | None) -> None:
        """Warn if the numbers of tokens of a model and its tokenizer do not fit.

        A model may have some more embeddings than tokens. A tokenizer may have some
        added tokens without embeddings, which no text needs.

        Args:
            num_embeddings: number of token ids with an embedding; None if it is not
                known, and then nothing is checked.
        """
        if num_embeddings is None:
            return
        num_tokens = len(self.pretrained)
        num_tokens_before_added = self.pretrained.vocab_size
        has_enough_tokens = num_tokens >= MIN_TOKEN_SHARE * num_embeddings
        if has_enough_tokens and num_tokens_before_added <= num_embeddings:
            return
        warnings.warn(
            f"the tokenizer in '{self.folder}' has {num_tokens:,} tokens and the model "
            f"embeddings for {num_embeddings:,}: it may be another model's tokenizer, "
            "and then the states mean nothing",
            GaamWarning,
            stacklevel=2,
        )

    def texts_of_vocabulary(self) -> list[str]:
        """Texts made of the tokenizer's own tokens, which identify the tokenizer.

        A small vocabulary may know no word of texts that are the same for all encoders.

        Returns:
            The same tokens, taken evenly from the whole vocabulary, as they are, in
            lower case, in upper case and as titles.
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

        The likeliest comes first. The list may repeat an id, and is empty if neither
        names a usable one.

        Args:
            num_embeddings: number of token ids with an embedding; None or 0 if it is
                not known. An id without an embedding is left out.
        """
        # The configuration of XLM calls it pad_index.
        candidates = [
            self.pretrained.pad_token_id,
            getattr(self._text_config, "pad_token_id", None),
            getattr(self._text_config, "pad_index", None),
        ]
        usable_ids = [
            token for token in candidates if type(token) is int and token >= 0
        ]
        if not num_embeddings:
            return usable_ids
        return [token for token in usable_ids if token < num_embeddings]

    def marker_ids(self, model: nn.Module, num_embeddings: int | None) -> list[int]:
        """Ids of special tokens that a model may treat in its own way, each once.

        They are the tokens around every text, such as [CLS], and padding tokens. The
        probe spreads them over its texts in this order: the token that begins a text,
        padding tokens, the tokens that end a text.

        Args:
            model: the model that reads the ids.
            num_embeddings: number of token ids with an embedding; None or 0 if it is
                not known. An id without an embedding is left out.
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
            if not num_embeddings or token < num_embeddings:
                usable.append(token)
        return usable

    def show(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Tokens of a text on one line, as the vocabulary spells them, for a person.

        Of a long text, only the first and last tokens are shown.
        """
        tokens = self.pretrained.convert_ids_to_tokens(list(ids))
        names = [visible(str(token)) for token in tokens]
        text = " ".join(names)
        if len(text) <= SHOWN_START + SHOWN_END:
            return text
        # Show whole tokens, and a part of one only if it is too long by itself.
        whole_first_tokens = text[:SHOWN_START].rpartition(" ")[0]
        whole_last_tokens = text[-SHOWN_END:].partition(" ")[2]
        start = whole_first_tokens or text[:SHOWN_START]
        end = whole_last_tokens or names[-1][-SHOWN_END:]
        return f"{start} ... {end}"
