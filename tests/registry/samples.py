"""Versions to push in tests."""

import hashlib
from typing import Any

from turnout.core.identity import Digest
from turnout.registry.records import Claims, Facts, NewVersion, StoredFile

BASE = Digest("sha256:" + "b" * 64)

FACTS = Facts(
    config={"peft_type": "LORA", "r": 8, "lora_alpha": 16, "bias": None},
    ranks=(8,),
    nbytes=4096,
    adapted=2,
    untouched=208,
    warnings=("the base has another name",),
    norms={"model.layers.0.self_attn.q_proj": 0.25, "model.layers.1.self_attn.q_proj": 0.5},
)


def digest_of(content: object) -> Digest:
    return Digest("sha256:" + hashlib.sha256(str(content).encode()).hexdigest())


def new_version(content: object, **said: Any) -> NewVersion:
    """A version whose weights are `content`; what `metrics` says goes into its claims."""
    claims = Claims(metrics=said.pop("metrics", {}))
    files = {
        "adapter_config.json": StoredFile(digest_of("config"), 300),
        "adapter_model.safetensors": StoredFile(digest_of(f"file {content}"), 5000),
    }
    defaults = {"model_revision": BASE, "files": files, "facts": FACTS, "claims": claims}
    return NewVersion(digest=digest_of(content), **(defaults | said))
