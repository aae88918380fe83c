"""The process that ``at_once`` forks from imports it: commands then begin fast."""

import torch
import torch._dynamo
import torch.distributed.tensor
import transformers
import transformers.conversion_mapping
import transformers.models.bert.modeling_bert

import cli
import gaam_cache
import gaam_decoder

torch.set_num_threads(1)
LOADED = [
    getattr(part, name) for part in (gaam_cache, gaam_decoder) for name in part.__all__
]
LOADED += [cli.app, transformers.BertModel, transformers.PreTrainedTokenizerFast]
