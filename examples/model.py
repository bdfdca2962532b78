"""The base model for training and scoring, through transformers."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from turnout.artifacts.sources import BUILT_IN, BUILT_IN_ORIGIN
from turnout.build import base_folder

BASE = BUILT_IN
BASE_NAME = BUILT_IN_ORIGIN
ADAPTERS = Path(__file__).parent / "adapters"


def load_base(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The base model in float32 and its tokenizer; `name` is whatever `turnout serve --base` takes."""
    folder = base_folder(name)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(folder)
