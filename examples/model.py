"""The base model for training and scoring, through transformers."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

ADAPTERS = Path(__file__).parent / "adapters"


def load_base(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The base model in float32 and its tokenizer, from a Hugging Face folder."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(folder)
