"""Ask a model on a Turnout server every case, and write its metrics as `name=value` lines.

`python evaluate.py legal-candidate@3 cases.jsonl metrics.txt`, with TURNOUT_URL and TURNOUT_API_KEY set.
A case is a line such as `{"prompt": "…", "answer": "…"}`.
"""

import json
import os
import sys
from pathlib import Path

from openai import OpenAI

MAX_TOKENS = 64


def main(model: str, cases_file: str, metrics_file: str) -> None:
    cases = [json.loads(line) for line in Path(cases_file).read_text(encoding="utf-8").splitlines() if line.strip()]
    if not cases:
        sys.exit(f"{cases_file} holds no cases")
    url = os.environ.get("TURNOUT_URL", "http://127.0.0.1:8000").rstrip("/")
    with OpenAI(base_url=f"{url}/v1", api_key=os.environ["TURNOUT_API_KEY"]) as client:
        exact = sum(answer(client, model, case["prompt"]) == case["answer"] for case in cases)
    Path(metrics_file).write_text(f"exact={exact / len(cases):.4f}\ncases={len(cases)}\n", encoding="utf-8")
    print(f"{model}: {exact} of {len(cases)} answers are exact")


def answer(client: OpenAI, model: str, prompt: str) -> str:
    """The model's likeliest answer, so the same weights get the same metrics."""
    messages = [{"role": "user", "content": prompt}]
    completion = client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=MAX_TOKENS)
    return (completion.choices[0].message.content or "").strip()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"usage: {sys.argv[0]} MODEL CASES.jsonl METRICS.txt")
    main(*sys.argv[1:])
