"""What differs between two versions."""

from dataclasses import replace

from tests.registry.samples import FACTS, digest_of, new_version
from turnout.registry.difference import Change, Difference, diff
from turnout.registry.records import Claims, NewVersion, StoredFile, Version


def numbered(new: NewVersion) -> Version:
    said = {name: getattr(new, name) for name in NewVersion.__dataclass_fields__}
    return Version(**said, number=1, created_by="tester", created_at=0)


def test_a_version_does_not_differ_from_itself() -> None:
    version = numbered(new_version("a"))
    assert diff(version, version) == Difference({}, {}, {}, {})


def test_each_difference_is_named() -> None:
    q, k = "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj"
    before = numbered(new_version("a", metrics={"f1": 0.8, "loss": 0.5}))
    config = {"peft_type": "LORA", "r": 16, "lora_alpha": 16, "use_rslora": True}
    after = numbered(
        replace(
            new_version("a"),
            model_revision=digest_of("another base"),
            facts=replace(FACTS, config=config, ranks=(16,), norms={q: 0.3, "new": 0.1}),
            claims=Claims(metrics={"f1": 0.9, "bleu": 30.0}, owner="nlp", hyper_parameters={"lr": 0.1}),
            files={"adapter_config.json": StoredFile(digest_of("other"), 300)},
        )
    )
    assert diff(before, after) == Difference(
        facts={
            "config.r": Change(8, 16),
            "config.use_rslora": Change(None, True),
            "model_revision": Change(before.model_revision, after.model_revision),
            "ranks": Change((8,), (16,)),
        },
        claims={
            "hyper_parameters.lr": Change(None, 0.1),
            "metrics.bleu": Change(None, 30.0),
            "metrics.f1": Change(0.8, 0.9),
            "metrics.loss": Change(0.5, None),
            "owner": Change(None, "nlp"),
        },
        files={
            "adapter_config.json": Change(digest_of("config"), digest_of("other")),
            "adapter_model.safetensors": Change(digest_of("file a"), None),
        },
        modules={q: Change(0.25, 0.3), k: Change(0.5, None), "new": Change(None, 0.1)},
    )
