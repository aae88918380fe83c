"""Turns texts into token ids, and cuts them at the maximum length of an encoder.

Shape suffixes: N texts, T tokens. The tokens are those of all texts, one text after the
other, or those of one text.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn
from transformers import PretrainedConfig

from gaam_cache.common.errors import ConfigError, DataError
from gaam_cache.config import TEXT_PLACEHOLDER, ExtractConfig
from gaam_cache.encoders._located import library_errors_as
from gaam_cache.encoders._prompts import ChatTemplate, WrappedText, wrap_in_prompt
from gaam_cache.encoders._tokenizer import EncoderTokenizer
from gaam_cache.encoders._weights import encoder_part, skeleton
from gaam_cache.encoders.base import Inputs

DEFAULT_MAX_LENGTH = 512
UNSET_LIMIT = 10**9
"""From this maximum length on, a tokenizer has no limit of its own."""
NAMES_OF_POSITIONS = (
    "max_position_embeddings",
    "max_encoder_position_embeddings",
    "max_seq_len",
)
"""Names of the number of positions in configurations: of most models, LED, and MPT."""
NUM_TOKENIZED_TWICE = 8
"""Number of texts of a shard that are tokenised twice, to find random tokenizers."""
EDGE_TOKENS = 6
"""Number of tokens at either end of a text that are searched for doubled tokens."""


class SpannedText(NamedTuple):
    """Token ids of a text and its prompt, of which only the text's own are pooled."""

    ids: NDArray[np.int64]  # of the prompt and the text
    start: int  # index of the first token to pool
    stop: int  # index behind the last token to pool


class CutText(NamedTuple):
    """Tokens of a text and its prompt, cut at the maximum length.

    The own tokens of a text are those that stand for its characters, and not for those
    of the prompt.
    """

    ids: list[int]
    start: int  # index of the text's first own token
    stop: int  # index behind its last own token; equal to ``start`` if none is left
    truncated: bool  # whether tokens were cut off


class Tokens:
    """The tokenizer of an encoder, its maximum length, and the prompt around texts.

    Without a prompt, the tokenizer cuts texts itself. With a prompt or a chat template,
    gaam cuts them after the tokenizer has read them whole, so that the prompt and the
    markup stay whole.

    Attributes:
        tokenizer: the tokenizer.
        max_length: the maximum number of tokens of a text, special tokens included.
        prompt: the prompt with ``{text}`` in the place of the text; None without one.
        chat: the chat template that writes the markup around every text; None without
            one.
    """

    def __init__(
        self,
        pretrained: Any,
        model_config: PretrainedConfig,
        folder: Path,
        config: ExtractConfig,
    ) -> None:
        """Choose the maximum length and the prompt; refuse impossible settings.

        Args:
            pretrained: the tokenizer, as transformers loads it.
            model_config: transformers' configuration of the model.
            folder: the folder of the tokenizer's files, or a GGUF file.
            config: the extraction.
        """
        self._folder = folder
        self._model_config = model_config
        self._text_config = model_config.get_text_config()
        self.tokenizer = EncoderTokenizer(pretrained, folder, self._text_config)
        self.max_length = self._choose_max_length(config.max_length)

        self.prompt: str | None = None
        if config.prompt != TEXT_PLACEHOLDER:
            self.prompt = config.prompt
        self.chat: ChatTemplate | None = None
        if config.chat_template:
            self.chat = ChatTemplate(
                pretrained, folder, self.prompt or TEXT_PLACEHOLDER
            )
            # A template writes the special tokens itself. A tokenizer with ``markup``
            # does not add them.
            self.tokenizer.markup = self.chat.before + self.chat.after

        self._is_wrapped = self.prompt is not None or self.chat is not None
        self._pools_own_tokens_only = config.pool_over == "text"
        # To know which tokens are a text's own, gaam has to cut the text itself.
        self._needs_offsets = self._is_wrapped or self._pools_own_tokens_only
        self._check_offsets()
        self._check_room_in_markup()

    def _choose_max_length(self, requested: int | None) -> int:
        """Choose the maximum length: the requested one, or 512 within the limits.

        A requested length beyond the encoder's limits is refused.
        """
        pretrained = self.tokenizer.pretrained
        # A tokenizer does not cut at all if its special tokens leave no room.
        num_special = pretrained.num_special_tokens_to_add()
        if requested is not None and requested <= num_special:
            raise ConfigError(
                "--max-length leaves no room for the text",
                expected=f"at least {num_special + 1} tokens: every text has "
                f"{num_special} special tokens",
                found=str(requested),
            )

        wanted_length = requested or DEFAULT_MAX_LENGTH
        positions = self._num_positions()
        limits = [
            limit
            for limit in (pretrained.model_max_length, positions)
            if limit and 0 < limit < UNSET_LIMIT
        ]

        # RoBERTa numbers the positions of tokens from ``pad_id + 1`` on. So only
        # ``positions - pad_id - 1`` tokens fit. Whether a model does so, only the built
        # model shows. Building it takes time, and is needed for longer texts alone.
        pad_id = getattr(self._text_config, "pad_token_id", None) or 0
        if limits and positions:
            fits_in_any_case = min(wanted_length, *limits) <= positions - pad_id - 1
            if not fits_in_any_case:
                limits += self._limits_behind_padding()

        limit = int(min(limits, default=wanted_length))
        if requested is None:
            return min(DEFAULT_MAX_LENGTH, limit)
        if requested > limit:
            raise ConfigError(
                "--max-length is more than the encoder can take",
                expected=f"at most {limit} tokens",
                found=str(requested),
            )
        return requested

    def _num_positions(self) -> int | None:
        """Number of positions of the model; None if its configuration has none."""
        for name in NAMES_OF_POSITIONS:
            positions = getattr(self._text_config, name, None)
            if positions:
                return int(positions)
        return None

    def _limits_behind_padding(self) -> list[int]:
        """Maximum numbers of tokens, by every table of positions with a padding index.

        Models such as RoBERTa give padding the position ``padding_idx``, and number the
        positions of tokens from there on. Other models give an empty list.
        """
        limits = []
        # a skeleton is the model without weights
        for name, module in encoder_part(skeleton(self._model_config)).named_modules():
            if type(module) is not nn.Embedding or module.padding_idx is None:
                continue
            # The path of a table of token types may hold "position" too.
            if "position" in name.lower() and "type" not in name.lower():
                limits.append(module.num_embeddings - module.padding_idx - 1)
        return limits

    def _check_offsets(self) -> None:
        """Refuse a tokenizer that does not say which characters a token stands for.

        gaam has to find a text's own tokens by their characters in two cases: to cut
        the text inside of its prompt or markup, and to pool over these tokens alone
        (--set pool-over=text). In all other cases any tokenizer will do.
        """
        if not self._needs_offsets:
            return
        # only the fast tokenizers of transformers report the characters of a token
        pretrained = self.tokenizer.pretrained
        if not getattr(pretrained, "is_fast", False):
            raise ConfigError(
                "the tokenizer does not report where in a text its tokens stand",
                expected="a tokenizer with a tokenizer.json, which --prompt, "
                "--chat-template and --set pool-over=text need",
                found=type(pretrained).__name__,
            )

    def _check_room_in_markup(self) -> None:
        """Refuse a maximum length if the markup of a chat template fills it."""
        if self.tokenizer.markup is None:
            return
        # At least one token of the text must fit beside the markup.
        markup_length = len(self.tokenizer.ids([self.tokenizer.markup])[0])
        if markup_length >= self.max_length:
            raise ConfigError(
                "the markup of the chat template leaves no room for the text",
                expected=f"--max-length of at least {markup_length + 1} tokens",
                found=str(self.max_length),
            )

    def prepare(self, rows: Sequence[str]) -> Inputs:
        """Tokenise texts, add the special tokens, and cut at the maximum length.

        A text without a token to pool gets the length 0.

        Raises:
            ConfigError: the tokenizer gives other tokens when it reads a text again.
        """
        cut_texts = self._cut_texts(rows)
        cut_again = self._cut_texts(rows[:NUM_TOKENIZED_TWICE])
        if cut_texts[:NUM_TOKENIZED_TWICE] != cut_again:
            raise ConfigError(
                "the tokenizer draws tokens at random",
                hint="copy the encoder and turn that off in the copy "
                "(of BPE: dropout null)",
            )

        ids_T = self._join(cut_texts)
        length_N = np.fromiter(
            (len(text.ids) for text in cut_texts), np.int64, len(cut_texts)
        )
        # the ids of every text are a part of one array, which takes less memory
        items: list[Any] = np.split(ids_T, np.cumsum(length_N)[:-1])
        if self._pools_own_tokens_only:
            items = [
                SpannedText(ids, text.start, text.stop)
                for ids, text in zip(items, cut_texts, strict=True)
            ]

        num_own_N, num_unknown_N = self._count_own_tokens(ids_T, length_N, cut_texts)
        is_lost = [self._is_lost(text) for text in cut_texts]
        return Inputs(
            items=items,
            lengths=np.where(is_lost, 0, length_N),
            truncated=[text.truncated for text in cut_texts],
            num_own_tokens=num_own_N,
            num_unknown_tokens=num_unknown_N,
            rows_by_doubled_token=self._count_doubled(cut_texts),
        )

    def _join(self, cut_texts: Sequence[CutText]) -> NDArray[np.int64]:
        """The token ids of all texts, one after the other: (T,)."""
        # Unlike NumPy, an array refuses None and fractions. It is twice as fast too.
        joined = array("q")
        with library_errors_as("the tokenizer cannot read a text", self._folder):
            for text in cut_texts:
                joined.fromlist(text.ids)
        return np.array(joined, np.int64)

    def _is_lost(self, text: CutText) -> bool:
        """Whether nothing of a text is left that could be pooled.

        A text is lost if cutting has removed all of its own tokens. These stand for its
        characters, and not for those of its prompt. A text that was empty from the
        beginning has none either, but is lost only if nothing else is pooled: otherwise
        special tokens and a prompt may stand for it.
        """
        has_own_tokens = text.start != text.stop
        if has_own_tokens:
            return False
        return text.truncated or self._pools_own_tokens_only

    def _count_own_tokens(
        self,
        ids_T: NDArray[np.int64],
        length_N: NDArray[np.int64],
        cut_texts: Sequence[CutText],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Count the own tokens of every text, without special tokens and prompt.

        Args:
            ids_T: the token ids of all texts.
            length_N: number of tokens of every text.
            cut_texts: the texts.

        Returns:
            The number of own tokens of every text, (N,); and how many of them the
            tokenizer does not know, (N,).
        """
        # For every token: the index of its text, and its position in this text.
        num_texts = len(cut_texts)
        text_T = np.repeat(np.arange(num_texts), length_N)
        first_token_N = np.cumsum(length_N) - length_N
        position_T = np.arange(len(ids_T)) - first_token_N[text_T]

        start_N = np.array([text.start for text in cut_texts], np.int64)
        stop_N = np.array([text.stop for text in cut_texts], np.int64)
        is_inside_T = (start_N[text_T] <= position_T) & (position_T < stop_N[text_T])

        # The unknown token is declared as special, but stands for text.
        is_unknown_T = np.isin(ids_T, list(self.tokenizer.unknown_ids)) & is_inside_T
        is_special_T = np.isin(ids_T, list(self.tokenizer.special_ids))
        is_own_T = (~is_special_T & is_inside_T) | is_unknown_T

        num_own_N = np.bincount(text_T[is_own_T], minlength=num_texts)
        num_unknown_N = np.bincount(text_T[is_unknown_T], minlength=num_texts)
        return num_own_N, num_unknown_N

    def _count_doubled(self, cut_texts: Sequence[CutText]) -> dict[str, int]:
        """Count the texts that have a special token twice: their own, and an added one.

        A text may hold the characters of a special token, such as "[CLS]". The
        tokenizer, or the markup of a chat template, adds the same token to every text.

        Returns:
            Such a token, as the vocabulary spells it -> the number of texts with it.
        """
        num_texts_by_token: Counter[int] = Counter()
        for text in cut_texts:
            if self.chat is None:
                num_texts_by_token.update(self._repeated_at_edges(text))
            else:
                num_texts_by_token.update(self._special_at_ends_of_text(text))
        return {
            self.tokenizer.token_text(token): num_texts
            for token, num_texts in num_texts_by_token.items()
        }

    def _repeated_at_edges(self, text: CutText) -> set[int]:
        """Ids of the special tokens that stand twice at one end of a row.

        The tokenizer adds its special tokens there. If the text begins or ends with one
        of them, it stands twice.
        """
        repeated: set[int] = set()
        for edge_ids in (text.ids[:EDGE_TOKENS], text.ids[-EDGE_TOKENS:]):
            repeated.update(self.tokenizer.repeated_special(edge_ids))
        return repeated

    def _special_at_ends_of_text(self, text: CutText) -> set[int]:
        """Ids of the special tokens of the markup with which a text begins or ends.

        The text stands inside the markup of a chat template, which holds these tokens
        already. The markup itself is not searched: it may repeat a token on purpose.
        White space at the ends of the text is skipped, up to ``EDGE_TOKENS`` tokens.
        """
        is_space = self.tokenizer.is_space
        own_ids = text.ids[text.start : text.stop]
        first_ids = [token for token in own_ids[:EDGE_TOKENS] if not is_space(token)]
        last_ids = [token for token in own_ids[-EDGE_TOKENS:] if not is_space(token)]
        return {*first_ids[:1], *last_ids[-1:]} & self.tokenizer.special_ids_around_text

    def _cut_texts(self, rows: Sequence[str]) -> list[CutText]:
        """Tokenise texts, with their prompts, and cut them at the maximum length."""
        # With a prompt, or to pool over a text's own tokens alone, gaam must know which
        # tokens are its own, and cuts the text itself.
        if self._needs_offsets:
            return self._cut_in_prompts(rows)
        return self._cut_by_tokenizer(rows)

    def _cut_by_tokenizer(self, rows: Sequence[str]) -> list[CutText]:
        """Let the tokenizer cut texts that have no prompt.

        Without a prompt, ``start`` and ``stop`` of a text enclose all of its tokens,
        with the special ones.
        """
        cut_texts = [
            CutText(list(ids), start=0, stop=len(ids), truncated=False)
            for ids in self.tokenizer.cut_ids(rows, self.max_length)
        ]

        # A text may have been cut if it fills the maximum length. Its length without
        # cutting shows whether it was.
        full_indices = [
            index
            for index, text in enumerate(cut_texts)
            if len(text.ids) == self.max_length
        ]
        if not full_indices:
            return cut_texts
        whole_ids = self.tokenizer.ids([rows[index] for index in full_indices])
        for index, ids in zip(full_indices, whole_ids, strict=True):
            truncated = len(ids) > self.max_length
            cut_texts[index] = cut_texts[index]._replace(truncated=truncated)
        return cut_texts

    def _cut_in_prompts(self, rows: Sequence[str]) -> list[CutText]:
        """Tokenise texts with their prompts, and cut the texts but not the prompts.

        A prompt is what stands around every text. The tokens of a row are cut to the
        maximum length by removing tokens of its text.
        """
        # The tokenizer itself would cut prompts too.
        wrapped_texts = [self._wrap(row) for row in rows]
        encoded = self.tokenizer.read(
            [wrapped.content for wrapped in wrapped_texts],
            truncation=False,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
        )
        truncation_side = getattr(self.tokenizer.pretrained, "truncation_side", "right")

        cut_texts = []
        for wrapped, ids, offsets, special in zip(
            wrapped_texts,
            encoded["input_ids"],
            encoded["offset_mapping"],
            encoded["special_tokens_mask"],
            strict=True,
        ):
            # One truth value a token: it is no special token; it is of the text itself;
            # it may be removed. Without a prompt, the three are the same.
            is_ordinary_T = ~np.asarray(special, bool)
            is_own_T = is_ordinary_T
            is_removable_T = is_ordinary_T
            if self._is_wrapped:
                is_own_T, is_removable_T = find_own_tokens(
                    offsets, is_ordinary_T, wrapped
                )
            cut_text = cut_around_prompt(
                ids,
                is_own_T,
                is_removable_T,
                self.max_length,
                at_beginning=truncation_side == "left",
            )
            cut_texts.append(cut_text)
        return cut_texts

    def _wrap(self, row: str) -> WrappedText:
        """Put the chat template's markup, or the prompt, around a text."""
        if self.chat is not None:
            return self.chat.wrap(row)
        return wrap_in_prompt(self.prompt or TEXT_PLACEHOLDER, row)


class OwnTokens(NamedTuple):
    """Which tokens of a text and its prompt are the text's own: two values a token.

    Both are False for a special token.
    """

    is_own_T: NDArray[np.bool_]  # whether it holds a character of the text
    is_removable_T: NDArray[np.bool_]  # whether it also holds none of the prompt


def find_own_tokens(
    offsets: Sequence[tuple[int, int]],
    is_ordinary_T: NDArray[np.bool_],
    wrapped: WrappedText,
) -> OwnTokens:
    """Find the tokens of a text inside its prompt.

    Args:
        offsets: the first character of every token, and the one behind its last.
        is_ordinary_T: whether each token is not a special one.
        wrapped: the text inside its prompt.
    """
    offsets_T2 = np.asarray(offsets, np.int64).reshape(-1, 2)
    start_T = offsets_T2[:, 0]
    stop_T = offsets_T2[:, 1]

    # Byte-level tokenizers leave white space out of offsets. If a token holds nothing
    # else, its offsets are empty, and it stands for the character before them.
    is_empty_T = start_T == stop_T
    start_T = np.where(is_empty_T, np.maximum(start_T - 1, 0), start_T)
    stop_T = np.where(is_empty_T, np.maximum(stop_T, 1), stop_T)

    overlaps_text_T = (start_T < wrapped.stop) & (stop_T > wrapped.start)
    is_own_T = overlaps_text_T & is_ordinary_T
    is_inside_T = (start_T >= wrapped.start) & (stop_T <= wrapped.stop)
    return OwnTokens(is_own_T, is_removable_T=is_own_T & is_inside_T)


def cut_around_prompt(
    ids: list[int],
    is_own_T: NDArray[np.bool_],
    is_removable_T: NDArray[np.bool_],
    max_length: int,
    *,
    at_beginning: bool,
) -> CutText:
    """Keep the whole prompt, and as much of its text as fits beside it.

    Args:
        ids: tokens of the prompt and the text.
        is_own_T: whether each token holds a character of the text.
        is_removable_T: whether each token holds characters of the text only, and none
            of the prompt.
        max_length: the most tokens of the result.
        at_beginning: whether the beginning of the text is cut off instead of its end.

    Returns:
        The tokens that are left. If no own token is left, ``start`` and ``stop`` are 0;
        this holds for an empty text too.

    Raises:
        DataError: there are tokens of the prompt between tokens of the text.
    """
    own_positions = np.flatnonzero(is_own_T)
    removable_positions = np.flatnonzero(is_removable_T)
    num_own = len(own_positions)
    num_to_cut = max(0, len(ids) - max_length)
    if num_own and own_positions[-1] - own_positions[0] + 1 != num_own:
        raise DataError("the tokens of a text do not stand together in its prompt")

    # The prompt itself may be too long, and is then cut at its end.
    leaves_no_own_token = num_own <= num_to_cut
    is_prompt_too_long = len(removable_positions) < num_to_cut
    if leaves_no_own_token or is_prompt_too_long:
        return CutText(ids[:max_length], start=0, stop=0, truncated=num_to_cut > 0)

    start = int(own_positions[0])
    stop = int(own_positions[-1]) + 1
    if num_to_cut == 0:
        return CutText(ids, start, stop, truncated=False)

    cut_positions = removable_positions[-num_to_cut:]
    if at_beginning:
        cut_positions = removable_positions[:num_to_cut]
    remaining_ids = np.delete(np.asarray(ids), cut_positions).tolist()
    return CutText(remaining_ids, start, stop - num_to_cut, truncated=True)
