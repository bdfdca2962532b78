"""The base model: from the name a user gives to weights, tokenizer and chat template in memory."""

from dataclasses import dataclass
from pathlib import Path

import torch

from turnout.artifacts.home import home
from turnout.artifacts.sources import locate_base
from turnout.core.adapter import Dtype
from turnout.core.identity import Digest
from turnout.kernels import select
from turnout.kernels.interface import Kernels
from turnout.models.config import read_config
from turnout.models.decoder import DecoderWeights
from turnout.models.gguf import convert
from turnout.models.spec import DecoderSpec
from turnout.models.weights import load_weights, model_revision
from turnout.text.chat import ChatTemplate, load_chat_template
from turnout.text.tokenizer import Tokenizer, load_tokenizer


@dataclass(frozen=True, slots=True)
class Base:
    """A loaded base model, and the kernels its weights are packed for."""

    spec: DecoderSpec
    weights: DecoderWeights
    kernels: Kernels
    model_revision: Digest
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None


def base_folder(name: str) -> Path:
    """The Hugging Face folder of a base model; a GGUF file is converted once and kept under TURNOUT_HOME.

    Raises BaseModelError.
    """
    path = locate_base(name)
    return convert(path, home() / "models") if path.suffix == ".gguf" and path.is_file() else path


def load_base(folder: Path, *, dtype: Dtype, device: str, int8_weights: bool = False) -> Base:
    """Read all of a base model.

    Raises BaseModelError for what is missing, broken or not supported, SettingsError where int8 is not to be had.
    """
    spec = DecoderSpec.from_config(read_config(folder))
    torch_dtype: torch.dtype = getattr(torch, dtype)
    kernels = select(device, torch_dtype, int8_weights=int8_weights)
    return Base(
        spec=spec,
        weights=load_weights(folder, spec, kernels, torch_dtype, torch.device(device)),
        kernels=kernels,
        model_revision=model_revision(folder),
        tokenizer=load_tokenizer(folder),
        chat_template=load_chat_template(folder),
    )
