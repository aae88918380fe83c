"""Text encoders of the transformers library, such as BERT and Llama.

``_tokens`` turns texts into token ids. Here the ids run through the model.

Shape suffixes: N texts, B texts of a batch, T tokens.
"""

from __future__ import annotations

import heapq
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import nn

from gaam_cache.common.devices import memory_left
from gaam_cache.common.errors import GaamError, ShortOfMemoryError
from gaam_cache.config import DEFAULT_ENCODER, max_batch_tokens
from gaam_cache.encoders._fixed_rows import SHORT_TEXTS, TEXTS, texts_around_the_cut
from gaam_cache.encoders._forward import Batch, Forward, Span, Unusable
from gaam_cache.encoders._gguf import gguf_in_own_folder
from gaam_cache.encoders._located import LocatedEncoder
from gaam_cache.encoders._memory import SAFE_LENGTH, find_fitting_length
from gaam_cache.encoders._model import ModelEncoder
from gaam_cache.encoders._notices import compare_sentence_transformers
from gaam_cache.encoders._probe import ProbeRows
from gaam_cache.encoders._tokens import SpannedText, Tokens
from gaam_cache.encoders._weights import encoder_part
from gaam_cache.encoders.base import (
    SETTINGS_OF_PICTURES,
    SETTINGS_OF_SOUNDS,
    CausalSetting,
    Inputs,
)
from gaam_cache.store.files import hash_parts, short_digest

CAUSAL_SHIFT = 1e-6
"""Largest relative effect of a later token on earlier states that counts as no effect.

A limit too small costs a causal model some speed. A limit too large makes the states of
another model wrong.
"""
SHORT_LENGTHS = (1, 2, 3, 5, 8, 12, 17, 23, 31, 47, 64)
"""Lengths in tokens of the texts that the probe puts into one batch."""
TWO_TEXTS_UP_TO_LENGTH = 3
"""Up to this length in tokens, the probe tries two texts of each length."""
MAX_LENGTHS_BEYOND_WINDOWS = 4
"""Most lengths just beyond a window of the model that the probe tries."""
DEFAULT_VOCAB_SIZE = 256
"""Token ids to draw from if nothing shows how many a model has."""
WINDOW = re.compile(
    r"window|block|chunk|original_max|local|stride|conv.*kernel|max_distance|buckets"
)
"""Names of settings that may hold a length at which a model changes its method."""
LONGEST_CANDIDATES = 64
"""Number of texts with the most characters that are tokenised to find the longest."""
CHARACTERS_PER_TOKEN = 8
"""More characters than most tokens have.

A text with this many for every token of the maximum length is taken to reach the
maximum length, and is not tokenised to find out.
"""
CAUSAL_SETTINGS: dict[str, dict[bool, bool]] = {
    "is_causal": {True: True, False: False},
    "use_bidirectional_attention": {True: False},
    "bidirectional": {True: False},
    "is_decoder": {True: True},
}
"""Setting -> its value -> whether attention is causal with this value.

A value without an entry is a default. It stands in the configurations of unrelated
models too, and says nothing.
"""
MEDIA = frozenset({"pixel_values", "input_features", "input_values"})
"""Arguments of models that read pictures or sounds."""


class TextEncoder(ModelEncoder):
    """An encoder of texts; of an encoder-decoder model its encoder.

    Causal models run with padding on the right, without an attention mask and without a
    key-value cache. No token of a text sees the padding behind it, and without a mask
    the fast kernel for plain causal attention is available. Other models get a mask if
    a batch has padding. ``batching`` says which texts may share a batch: a probe, which
    runs the loaded model on random texts, measures it.
    """

    input_names: ClassVar[frozenset[str]] = frozenset({"input_ids"})
    expected_encoder: ClassVar[str] = "a text encoder and tokenizer"
    example_encoder: ClassVar[str] = "sentence-transformers/all-MiniLM-L6-v2"
    position_noun: ClassVar[str] = "token"
    unused_settings: ClassVar[tuple[str, ...]] = (
        *SETTINGS_OF_SOUNDS,
        *SETTINGS_OF_PICTURES,
    )
    _tokens: Tokens
    _forward: _TextForward
    _fitting_length = SAFE_LENGTH
    """Length of the longest text that is known to fit into the memory.

    It begins with a length that is always taken to fit.
    """

    def _read_preprocessor(self) -> None:
        """Read the tokenizer, and choose the maximum length of a text."""
        tokenizer, folder = _read_tokenizer(self._located, self._model_config)
        self._tokens = Tokens(tokenizer, self._model_config, folder, self._config)
        self.max_length = self._tokens.max_length

    def _settings(self) -> dict[str, Any]:
        """Settings that decide the tokens, as JSON values for the fingerprint."""
        # An unused setting leaves no key, so that it changes no fingerprint. A chat
        # template writes the special tokens itself, and the tokenizer adds none.
        settings: dict[str, Any] = {
            "special_tokens": self._tokens.chat is None,
            "tokens": self._token_digests(),
        }
        if self._tokens.chat is not None:
            settings["chat_template"] = self._tokens.chat.identity()
        if self._tokens.prompt is not None:
            settings["prompt"] = self._tokens.prompt
        if self._config.pool_over != "all":
            settings["pool_over"] = self._config.pool_over
        return settings

    def _token_digests(self) -> dict[str, str]:
        """Tokenise fixed texts, and hash their tokens for the fingerprint.

        Hashes of the tokenizer's files are not enough: two versions of a library may
        read the same files differently.

        Returns:
            Kind of texts, such as "accents" -> digest of their token ids.
        """
        texts_by_kind: dict[str, Sequence[str]] = {
            **TEXTS,
            "vocabulary": self._tokens.tokenizer.texts_of_vocabulary(),
            "cut": texts_around_the_cut(self.max_length),
        }
        return {
            kind: short_digest(hash_parts(map(self._token_bytes, texts)))
            for kind, texts in texts_by_kind.items()
        }

    def _token_bytes(self, text: str) -> bytes:
        """Tokenise one of the fixed texts, and write the result as JSON, to be hashed.

        The result is the token ids, the start and stop of the pooled part if that is
        not the whole text, and whether the text was cut.
        """
        # A tokenizer or template may refuse a fixed text, and still read all rows of
        # the data set. The fingerprint then holds that it refuses this text.
        try:
            inputs = self._tokens.prepare([text])
        except GaamError:
            return b"refused"
        item = inputs.items[0]
        if isinstance(item, SpannedText):
            id_lists = [item.ids.tolist(), [item.start], [item.stop]]
        else:
            id_lists = [item.tolist()]
        return json.dumps([id_lists, bool(inputs.truncated[0])]).encode()

    def reference_rows(self) -> Sequence[str]:
        """Two short texts."""
        return SHORT_TEXTS

    @property
    def causal_setting(self) -> CausalSetting | None:  # type: ignore[override]
        """What the configuration says about causal attention; None if nothing."""
        # A model of several towers has an inner configuration for its texts.
        configs = [self._model_config, self._model_config.get_text_config()]
        for name, causal_by_value in CAUSAL_SETTINGS.items():
            for config in configs:
                value = vars(config).get(name)
                if isinstance(value, bool) and value in causal_by_value:
                    return CausalSetting(
                        f"{name} = {str(value).lower()}",
                        is_causal=causal_by_value[value],
                    )
        return None

    def _extra_file_names(self) -> set[str]:
        """Names of all files that the tokenizer may read."""
        return self._tokens.tokenizer.files()

    def notices(self) -> list[str]:
        """Remarks on unread weights, and on differences from sentence-transformers."""
        notices = super().notices()
        # A GGUF file comes without settings of sentence-transformers.
        if self._located.is_gguf:
            return notices
        # Without this exception, every use of the default encoder would have a remark:
        # sentence-transformers cuts its texts at 256 tokens, and gaam at 512.
        if self.name == DEFAULT_ENCODER:
            return notices
        notice = compare_sentence_transformers(
            self._located.tokenizer_folder,
            max_length=self.max_length,
            pool=self._config.pool,
            prompt=self._tokens.prompt,
        )
        if notice is not None:
            notices.append(notice)
        return notices

    def _select_part(self, model: nn.Module) -> Any:
        """Select the part of a model that reads texts."""
        if hasattr(model, "get_text_features"):
            return text_tower(model)
        return encoder_part(model)

    def prepare(self, rows: Sequence[str]) -> Inputs:
        """Token ids of texts, cut at the maximum length; see ``Tokens.prepare``."""
        return self._tokens.prepare(rows)

    def describe_row(self, inputs: Inputs, row: int) -> str:
        """Describe a text by its first and last tokens, and its number of tokens."""
        ids = inputs.items[row]
        if isinstance(ids, SpannedText):
            ids = ids.ids
        return f"{self._tokens.tokenizer.show(ids)}  ({len(ids):,} tokens)"

    def _make_forward(self, part: nn.Module, model: nn.Module) -> _TextForward:
        """Build the forward of the model; refuse one whose tokenizer does not fit it.

        Args:
            part: the part of the model that reads texts.
            model: the whole model.
        """
        tokenizer = self._tokens.tokenizer
        forward = _TextForward(part, device=self.device, pooling=self._config.pool)

        forward.vocab_size = self._count_embeddings(part, model)
        tokenizer.check_vocabulary(forward.vocab_size)
        # Without a padding token, any id will do: padded positions are never pooled.
        forward.pad_id = next(iter(tokenizer.pad_ids(forward.vocab_size)), 0)

        # gaam passes no types of tokens to a model, which then takes 0 for every type.
        if "token_type_ids" in forward.argument_names and tokenizer.has_token_types():
            raise Unusable(
                "its tokenizer gives tokens types other than 0 (token_type_ids)"
            )
        return forward

    def _count_embeddings(self, part: Any, model: Any) -> int | None:
        """Number of token ids with an embedding; None if the model does not show it."""
        text_config = self._model_config.get_text_config()
        count: int | None = getattr(text_config, "vocab_size", None)
        # A table may be larger than the configuration says. The table of the part that
        # runs comes last, and replaces the other numbers.
        for module in (model, part):
            with suppress(NotImplementedError, AttributeError):
                embedding = module.get_input_embeddings()
                if isinstance(embedding, nn.Embedding):
                    count = embedding.num_embeddings
        return count

    def longest_of(self, rows: Iterable[str]) -> int:
        """Estimate the number of tokens of the longest text, after cutting.

        Only the texts with the most characters are tokenised, since tokenising all
        texts would take long.
        """
        longest_rows = heapq.nlargest(LONGEST_CANDIDATES, rows, key=len)
        # A text of this many characters is taken to have the maximum length.
        enough_characters = CHARACTERS_PER_TOKEN * self.max_length
        if longest_rows and len(longest_rows[0]) < enough_characters:
            # If the tokenizer refuses a text here, ``encode`` reports it with its row.
            with suppress(GaamError):
                return int(np.max(self.prepare(longest_rows).lengths))
        return self.max_length

    def _choose_probe_length(self, longest: int) -> int:
        """Round a length up to the next of a few lengths, within the maximum length.

        The result of a probe then serves for other texts of similar length too.
        """
        # A long text is not made longer: the memory may not suffice for it.
        if longest > SAFE_LENGTH:
            return longest
        # The lengths are 64, 96, 128, 192, 256, and so on.
        probe_length = SHORT_LENGTHS[-1]
        while probe_length < longest:
            is_power_of_two = probe_length.bit_count() == 1
            if is_power_of_two:
                probe_length += probe_length // 2
            else:
                probe_length += probe_length // 3
        return min(probe_length, self.max_length)

    def _longest_shared_length(self, probe_length: int) -> int | None:
        """Length up to which a text may share a batch; None if every text may.

        ``probe_length`` is the length of the longest text.
        """
        # A text that is longer than the token budget of a batch has a batch of its own.
        # But the probe always puts its short texts into one batch.
        budget = max_batch_tokens(self._config.batch_tokens, self.device.type)
        longest_shared = max(budget, SHORT_LENGTHS[-1])
        if longest_shared < probe_length:
            return longest_shared
        return None

    def _make_probe_rows(self, part: nn.Module, probe_length: int) -> ProbeRows:
        """Make one set of texts with the model's marker tokens, and one set without.

        The second set serves if the model fails on the first: a marker token may
        announce a picture, which the probe does not have.

        Args:
            part: the part of the model that reads texts.
            probe_length: length of the longest text.
        """
        tokenizer = self._tokens.tokenizer
        vocab_size = self._forward.vocab_size
        num_special = tokenizer.pretrained.num_special_tokens_to_add()
        lengths = probe_lengths(
            self._model_config.to_dict(), max(1, num_special), probe_length
        )

        special_ids = tokenizer.pretrained.all_special_ids
        marker_ids = tokenizer.marker_ids(part, vocab_size)
        texts_with_markers = make_probe_texts(
            lengths, vocab_size, special_ids, marker_ids
        )
        texts_without_markers = make_probe_texts(
            lengths, vocab_size, special_ids, marker_ids=[]
        )
        return ProbeRows(
            sets=[texts_with_markers, texts_without_markers],
            short_length=SHORT_LENGTHS[-1],
        )

    def _check_memory(self, longest: int) -> None:
        """Refuse texts of ``longest`` tokens if the memory is too small for them.

        A GPU reports a lack of memory. On a CPU, the system would kill the process.
        Texts of up to ``_fitting_length`` tokens need no check: that many have fitted,
        or are safe. The check raises this number.
        """
        if self.device.type != "cpu" or longest <= self._fitting_length:
            return
        vocab_size = self._forward.vocab_size
        special_ids = self._tokens.tokenizer.pretrained.all_special_ids

        # run the model on a random text, as it runs on any row alone
        @torch.inference_mode()
        def encode_length(length: int) -> None:
            [text] = make_probe_texts([length], vocab_size, special_ids, marker_ids=[])
            self._forward.reference_states(text)

        fitting_length = find_fitting_length(
            encode_length, longest, lambda: memory_left(self.device)
        )
        if fitting_length < longest:
            free_gigabytes = memory_left(self.device) / 1e9
            raise ShortOfMemoryError(
                "the memory is too small for the longest texts",
                expected=f"at most about {fitting_length:,} tokens a text: "
                f"{free_gigabytes:,.1f} GB are free",
                found=f"a text of about {longest:,} tokens",
                where=self.name,
                hint=f"--max-length {fitting_length}, --dtype bfloat16, "
                "or another --device",
            )
        self._fitting_length = longest


def _read_tokenizer(
    located: LocatedEncoder, model_config: transformers.PretrainedConfig
) -> tuple[Any, Path]:
    """Read the tokenizer of an encoder.

    Returns:
        The tokenizer, and the folder of its files or the GGUF file.
    """
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    read_tokenizer: Any = transformers.AutoTokenizer.from_pretrained
    if located.is_gguf:
        # The file holds its tokenizer. In its own folder, transformers would read the
        # tokenizer files that lie beside it.
        with gguf_in_own_folder(located.path) as (own_folder, gguf_options):
            tokenizer = read_tokenizer(own_folder, **options | gguf_options)
            return tokenizer, located.path

    folder = located.tokenizer_folder
    if folder != located.path:
        # The tokenizer lies beside an adapter. The model's configuration is elsewhere,
        # and transformers needs it to choose the tokenizer's class.
        options["config"] = model_config
    return read_tokenizer(folder, **options), folder


def text_tower(model: nn.Module) -> nn.Module:
    """Find the text tower of a model that compares texts with pictures or sounds.

    The tower must have a configuration of its own. It must take token ids, and no
    pictures or sounds.

    Raises:
        Unusable: no part or several parts of the model are such towers.
    """
    towers_by_depth: dict[int, list[nn.Module]] = {}
    for name, module in model.named_modules():
        arguments = inspect.signature(module.forward).parameters
        reads_texts = "input_ids" in arguments and not MEDIA & arguments.keys()
        if hasattr(module, "config") and reads_texts:
            towers_by_depth.setdefault(name.count("."), []).append(module)

    # Parts of a tower may take token ids too: the tower itself is the outermost one.
    outermost: list[nn.Module] = []
    if towers_by_depth:
        outermost = towers_by_depth[min(towers_by_depth)]
    if len(outermost) != 1:
        raise Unusable("it has no part that reads texts alone")
    return outermost[0]


class _TextForward(Forward):
    """Runs token ids through a model, with padding on the right."""

    reads_long_rows_alone: ClassVar[bool] = True
    pad_id = 0  # id of the token that fills padded positions
    vocab_size: int | None = None
    """Number of token ids with an embedding; None if the model does not show it."""

    def batch(self, items: Sequence[Any]) -> Batch:
        """Collate texts: token ids as (B, T), with a mask of the same shape.

        ``items`` are arrays of token ids, or ``SpannedText`` if only a part of every
        text is pooled.
        """
        texts = items
        span = None
        if isinstance(items[0], SpannedText):
            texts = [item.ids for item in items]
            span = self._make_span(items)

        cpu_length_B = np.fromiter(map(len, texts), np.int64, len(texts))
        longest = int(cpu_length_B.max())
        is_real_BT = np.arange(longest) < cpu_length_B[:, None]
        ids_BT = np.full(is_real_BT.shape, self.pad_id, np.int64)
        ids_BT[is_real_BT] = np.concatenate(texts)
        self._check_ids(ids_BT)

        # The mask is made on the device, which takes less time than sending it there.
        length_B = self.to_device(cpu_length_B)
        position_T = torch.arange(longest, device=self.device)
        return Batch(
            inputs={"input_ids": self.to_device(ids_BT)},
            length_B=length_B,
            mask=(position_T < length_B[:, None]).long(),
            padded=int(cpu_length_B.min()) < longest,
            positions=longest,
            span=span,
        )

    def _check_ids(self, ids_BT: NDArray[np.int64]) -> None:
        """Refuse a token for which the model has no embedding."""
        largest = int(ids_BT.max())
        if self.vocab_size is not None and largest >= self.vocab_size:
            raise Unusable(
                f"the tokenizer makes the token {largest}, "
                f"the model has embeddings for {self.vocab_size}"
            )

    def _make_span(self, items: Sequence[SpannedText]) -> Span:
        """Collate where the pooled tokens of every text begin, and how many there are.

        A text may have none; the longest span counts as one position at least.
        """
        start_B = np.array([item.start for item in items], np.int64)
        stop_B = np.array([item.stop for item in items], np.int64)
        count_B = stop_B - start_B
        longest = max(1, int(count_B.max()))
        return Span(self.to_device(start_B), self.to_device(count_B), longest)

    def is_causal(self, items: Sequence[Any]) -> bool | None:
        """Whether a change of the last token leaves all states before it unchanged.

        Args:
            items: token ids of some texts, from the shortest to the longest text. The
                middle one and the last one are tried.

        Returns:
            None if the texts are too short to show it. If all texts consist of one
            token only, nothing can be changed, and the model counts as causal.
        """
        for ids in (items[len(items) // 2], items[-1]):
            if len(ids) < 2:
                return None
            # Any other token of the texts may replace the last one, since the model
            # knows it.
            last_id = ids[-1]
            other_ids = (token for text in items for token in text if token != last_id)
            other_id = next(other_ids, last_id)
            # The model fails if it needs a mask. A causal model runs without one, so
            # this one is not run as a causal one.
            try:
                states = self._states_before_last(ids)
                changed_states = self._states_before_last([*ids[:-1], other_id])
            except Unusable:
                return False
            # A comparison with NaN is false, and NaN proves nothing.
            shift = (states - changed_states).norm()
            if not bool(shift <= CAUSAL_SHIFT * states.norm()):
                return False
        return True

    def _states_before_last(self, ids: Sequence[int]) -> torch.Tensor:
        """The last layer's states of all tokens of a text but the last one.

        If another last token changes these states, the model is not causal. The model
        gets no mask. The result has the shape (1, T - 1, hidden size).
        """
        batch = self.batch([np.array(ids)])._replace(mask=None)
        _, layers = self.hidden_states(batch)
        return layers[-1][:, :-1].float()


def probe_lengths(settings: dict[str, Any], shortest: int, longest: int) -> list[int]:
    """Choose the lengths of the probe's texts, in ascending order.

    They are the short lengths, some lengths just beyond a window of the model, and the
    longest one. A window is a length at which a model changes how it computes, such as
    the size of a block of sparse attention.

    Args:
        settings: the model's configuration.
        shortest: number of special tokens of a text, at least 1.
        longest: length of the longest text.
    """
    windows = set(_find_windows(settings))
    beyond_windows = sorted(
        window + 1 for window in windows if SHORT_LENGTHS[-1] <= window < longest
    )
    tried_beyond = beyond_windows[:MAX_LENGTHS_BEYOND_WINDOWS]
    lengths = {shortest, *SHORT_LENGTHS, *tried_beyond, longest}

    # BigBird pads a text that does not fill its blocks. If the longest text fills them,
    # the probe also tries a text that is one token shorter.
    if any(window > 1 and longest % window == 0 for window in windows):
        lengths.add(longest - 1)

    # No text is shorter than its special tokens.
    lower_limit = min(shortest, longest)
    return sorted(length for length in lengths if lower_limit <= length <= longest)


def _find_windows(settings: Any, name: str = "") -> Iterator[int]:
    """Integers of a nested configuration whose keys suggest the size of a window.

    A window is a length at which a model changes how it computes, such as the size of a
    block of sparse attention.

    Args:
        settings: the configuration, or a value in it.
        name: the keys that lead to ``settings``, joined by dots.
    """
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from _find_windows(value, f"{name}.{key}")
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from _find_windows(value, name)
    elif type(settings) is int and WINDOW.search(name):
        yield settings


def make_probe_texts(
    lengths: list[int],
    vocab_size: int | None,
    special_ids: Sequence[int],
    marker_ids: Sequence[int],
) -> list[list[int]]:
    """Draw random token ids for texts, from the shortest to the longest text.

    The probe, which measures which rows may share a batch, runs the model on them.
    Every second text of at most ``SHORT_LENGTHS[-1]`` tokens holds the marker tokens.

    Args:
        lengths: lengths of the texts in tokens, in ascending order. There are two texts
            of every length up to ``TWO_TEXTS_UP_TO_LENGTH``.
        vocab_size: number of token ids with an embedding; None if it is unknown.
        special_ids: special tokens, which are never drawn at random.
        marker_ids: tokens such as [CLS] and padding, to be spread over a text.

    Returns:
        The token ids of every text.
    """
    num_ids = vocab_size or DEFAULT_VOCAB_SIZE
    # Tokens at either end of a vocabulary may have a meaning without being declared as
    # special: only the middle half is drawn from.
    middle_ids = range(num_ids // 4, num_ids - num_ids // 4)
    special = set(special_ids)
    ordinary_ids = [token for token in middle_ids if token not in special]
    # A tiny vocabulary may have special tokens only.
    ordinary_ids = ordinary_ids or [0]

    # The result of a probe is kept for later processes, so all of them must draw the
    # same texts.
    rng = np.random.default_rng(0)
    texts: list[list[int]] = []
    for length in lengths:
        num_texts = 2 if length <= TWO_TEXTS_UP_TO_LENGTH else 1
        for _ in range(num_texts):
            drawn_indices = rng.integers(len(ordinary_ids), size=length)
            ids = [ordinary_ids[index] for index in drawn_indices]
            is_every_second = len(texts) % 2 == 1
            if is_every_second and length <= SHORT_LENGTHS[-1]:
                _spread_markers(ids, marker_ids)
            texts.append(ids)
    return texts


def _spread_markers(ids: list[int], marker_ids: Sequence[int]) -> None:
    """Overwrite tokens of a text with markers, in place.

    The markers are spread evenly: the first one replaces the text's first token, the
    last one its last token. In a short text, a marker may overwrite an earlier one.
    """
    last_position = len(ids) - 1
    num_gaps = max(1, len(marker_ids) - 1)
    for index, marker_id in enumerate(marker_ids):
        position = index * last_position // num_gaps
        ids[position] = marker_id
