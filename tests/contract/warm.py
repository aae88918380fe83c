"""Imported once by the process that ``begun`` forks from: every command then begins in a moment."""

import torch
import torch._dynamo  # what is differentiated imports it
import torch.distributed.tensor
import transformers
import transformers.conversion_mapping
import transformers.models.bert.modeling_bert

import cli
import gaam_cache
import gaam_decoder

torch.set_num_threads(1)
LOADED = [
    *(getattr(gaam_cache, name) for name in gaam_cache.__all__),
    *(getattr(gaam_decoder, name) for name in gaam_decoder.__all__),
    cli.app,
    transformers.BertModel,
    transformers.PreTrainedTokenizerFast,
]
