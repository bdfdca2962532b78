"""Runs where transformers and PEFT are: one batch after the other, for they have no other way. See `in_process.drive`.

A batch ends when all its requests have ended, so all arrivals but the batch's first are those of its end.
"""

import json
import sys
import time

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

BASE = "__base__"


def main() -> None:
    """Read the job, run its cases, write the results."""
    job = json.load(sys.stdin)
    torch.set_num_threads(job["threads"])
    model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.bfloat16)
    for name, path in job["adapters"].items():
        if isinstance(model, PeftModel):
            model.load_adapter(path, adapter_name=name)
        else:
            model = PeftModel.from_pretrained(model, path, adapter_name=name)
    model.eval()
    print(json.dumps([_batches(model, case) for case in job["cases"]]))


def _batches(model: torch.nn.Module, case: dict) -> dict:
    requests, size = case["requests"], case["clients"]
    batches = [requests[start : start + size] for start in range(0, len(requests), size)]
    _generate(model, batches[0], case["output_tokens"])
    began = time.perf_counter()
    answers = [answer for batch in batches[1:] for answer in _generate(model, batch, case["output_tokens"])]
    return {"elapsed": time.perf_counter() - began, "answers": answers}


def _generate(model: torch.nn.Module, batch: list, output_tokens: int) -> list:
    prompts = torch.tensor([request["prompt"] for request in batch])
    options = {"max_new_tokens": output_tokens, "min_new_tokens": output_tokens, "do_sample": False}
    if isinstance(model, PeftModel):
        names = [request["model"] for request in batch]
        options["adapter_names"] = [name if name in model.peft_config else BASE for name in names]
    sent = time.perf_counter()
    with torch.inference_mode():
        model.generate(input_ids=prompts, attention_mask=torch.ones_like(prompts), pad_token_id=0, **options)
    return [{"sent": sent, "arrivals": [time.perf_counter()]} for _ in batch]


if __name__ == "__main__":
    main()
