"""The process that ``at_once`` forks from imports it: commands then begin fast.

No gradient is computed here: torch refuses that in a fork of a process that did.
"""

import shutil

import h5py
import rich.progress
import torch
import torch._dynamo
import torch.distributed.tensor
import transformers
import transformers.models.bert.modeling_bert
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

import cli
import gaam_cache
import gaam_decoder
from tests.conftest import USER_CACHE
from tests.contract.conftest import run

torch.set_num_threads(1)
LOADED = [
    getattr(part, name) for part in (gaam_cache, gaam_decoder) for name in part.__all__
]
LOADED += [cli.app, transformers.BertModel, transformers.PreTrainedTokenizerFast]
LOADED += [h5py.File, rich.progress.Progress]
# the first command of a process builds all others, and what reads their options
run("describe", "--json")
# and the first model that it loads translates the names of all models' weights
get_checkpoint_conversion_mapping("bert")
# every command has a folder of its own
shutil.rmtree(USER_CACHE)
