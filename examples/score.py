"""Score the demo adapters against the base on held-out inputs: `python -m examples.score [NAME ...]`."""

import argparse
from statistics import mean

import torch
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from examples.data import TASKS, Case
from examples.model import ADAPTERS, BASE, load_base

BATCH = 10


def main() -> None:
    """Print, for the named adapters, all by default, the mean score of the base and of the adapter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TASKS)}; all by default")
    parser.add_argument("--base", default=BASE, help="as for turnout serve; default %(default)s")
    arguments = parser.parse_args()
    print("| adapter | held-out inputs | base | adapter |\n| --- | --- | --- | --- |")
    for name in arguments.names or TASKS:
        task, cases = TASKS[name], TASKS[name].held_out()
        base, tokenizer = load_base(arguments.base)
        plain = answers(base, tokenizer, cases, task.max_tokens)
        adapted = answers(PeftModel.from_pretrained(base, ADAPTERS / name), tokenizer, cases, task.max_tokens)
        scores = [mean(map(task.score, cases, given)) for given in (plain, adapted)]
        print(f"| `{name}` | {len(cases)} | {scores[0]:.2f} | {scores[1]:.2f} |", flush=True)


@torch.inference_mode()
def answers(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, cases: list[Case], max_tokens: int
) -> list[str]:
    """What the model answers to each case, greedily."""
    tokenizer.padding_side = "left"
    texts: list[str] = []
    for start in range(0, len(cases), BATCH):
        inputs = tokenizer.apply_chat_template(
            [case.messages for case in cases[start : start + BATCH]],
            add_generation_prompt=True,
            padding=True,
            return_tensors="pt",
            return_dict=True,
        )
        output = model.generate(**inputs, max_new_tokens=max_tokens, do_sample=False)
        texts += tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return texts


if __name__ == "__main__":
    main()
