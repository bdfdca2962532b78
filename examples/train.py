"""Train the demo adapters: `python -m examples.train [NAME ...]`."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase, get_linear_schedule_with_warmup

from examples.data import TASKS, Case
from examples.model import ADAPTERS, BASE, BASE_NAME, load_base

STEPS = 100
BATCH = 8
LEARNING_RATE = 2e-3
RANK = 8
IGNORED = -100  # The label that transformers leaves out of the loss.


def main() -> None:
    """Train the named adapters, all by default, and write them to examples/adapters."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TASKS)}; all by default")
    parser.add_argument("--base", default=BASE, help="as for turnout serve; default %(default)s")
    arguments = parser.parse_args()
    for name in arguments.names or TASKS:
        model, tokenizer = load_base(arguments.base)
        save(train(model, tokenizer, TASKS[name].training(), name), ADAPTERS / name)


def train(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, cases: list[Case], name: str) -> PreTrainedModel:
    """The model with a trained LoRA adapter; the same cases give the same weights on the same machine."""
    torch.manual_seed(0)
    config = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    adapted = get_peft_model(model, config)
    weights = [weight for weight in adapted.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=LEARNING_RATE, weight_decay=0.0)
    schedule = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=STEPS // 10, num_training_steps=STEPS)
    adapted.train()
    for step, batch in enumerate(batches(tokenizer, cases), start=1):
        with torch.autocast("cpu", torch.bfloat16):
            loss = adapted(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"{name}: step {step} of {STEPS}, loss {loss.item():.4f}", flush=True)
    return adapted


def batches(tokenizer: PreTrainedTokenizerBase, cases: list[Case]) -> Iterator[dict[str, torch.Tensor]]:
    """STEPS batches of distinct cases, padded on the right; only the answer counts in the loss."""
    order = Random(0).sample(cases, STEPS * BATCH)
    for start in range(0, len(order), BATCH):
        pairs = [encode(tokenizer, case) for case in order[start : start + BATCH]]
        tokens = [torch.tensor(prompt + answer) for prompt, answer in pairs]
        labels = [torch.tensor([IGNORED] * len(prompt) + answer) for prompt, answer in pairs]
        yield {
            "input_ids": pad_sequence(tokens, batch_first=True, padding_value=tokenizer.pad_token_id),
            "attention_mask": pad_sequence([torch.ones_like(row) for row in tokens], batch_first=True),
            "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
        }


def encode(tokenizer: PreTrainedTokenizerBase, case: Case) -> tuple[list[int], list[int]]:
    """The token ids of the prompt in the base's own chat template, and of the answer with its end."""
    prompt = tokenizer.apply_chat_template(case.messages, add_generation_prompt=True, tokenize=False)
    answer = case.expected + tokenizer.eos_token
    return (
        tokenizer(prompt, add_special_tokens=False)["input_ids"],
        tokenizer(answer, add_special_tokens=False)["input_ids"],
    )


def save(adapted: PreTrainedModel, folder: Path) -> None:
    """Write the adapter as PEFT does, in bfloat16 and with only the settings that differ from nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {key: tensor.bfloat16().contiguous() for key, tensor in get_peft_model_state_dict(adapted).items()}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": BASE_NAME,
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": ["q_proj", "v_proj"],
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
