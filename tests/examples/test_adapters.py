"""The demo adapters do their jobs in Turnout's own engine, as well as examples/README.md says."""

import re
from pathlib import Path
from statistics import mean

import pytest

import examples
from examples.data import TASKS
from tests.support.engines import Bench
from turnout.build import base_folder
from turnout.text.chat import load_chat_template
from turnout.text.tokenizer import load_tokenizer

FOLDER = Path(examples.__file__).parent
TOLERANCE = 0.1
"""Another CPU rounds otherwise, and three of thirty answers may hang on that."""


def stated_scores() -> dict[str, tuple[float, float]]:
    """The table in the README: adapter to the base's score and its own."""
    rows = re.findall(r"^\| `([\w-]+)` \|.*\| ([\d.]+) \| ([\d.]+) \|$", (FOLDER / "README.md").read_text(), re.M)
    return {name: (float(base), float(adapter)) for name, base, adapter in rows}


@pytest.fixture(scope="module")
def scores() -> dict[str, tuple[float, float]]:
    """Measured: all held-out cases of all tasks, by the base and by the adapter, in one crowd."""
    folder = base_folder("smollm2-135m")
    tokenizer, template = load_tokenizer(folder), load_chat_template(folder)
    with Bench(folder, dtype="bfloat16", check=False, kv_memory=1 << 30, adapter_memory=64 << 20) as bench:
        digests = {name: bench.load(FOLDER / "adapters" / name) for name in TASKS}
        answers = {
            (name, adapted): [
                bench.ask(
                    digests[name] if adapted else None,
                    tokenizer.encode(template.render(case.messages), add_special_tokens=False),
                    task.max_tokens,
                    stop_token_ids=tokenizer.eos_token_ids,
                )
                for case in task.held_out()
            ]
            for name, task in TASKS.items()
            for adapted in (False, True)
        }

        def score(name: str, adapted: bool) -> float:
            texts = [
                tokenizer.decode(answer.wait(600).tokens, skip_special_tokens=True) for answer in answers[name, adapted]
            ]
            return mean(map(TASKS[name].score, TASKS[name].held_out(), texts))

        return {name: (score(name, False), score(name, True)) for name in TASKS}


@pytest.mark.parametrize("name", TASKS)
def test_the_readme_states_what_is_measured(scores, name) -> None:
    base, adapter = stated_scores()[name]
    assert scores[name][0] == pytest.approx(base, abs=TOLERANCE)
    assert scores[name][1] == pytest.approx(adapter, abs=TOLERANCE)
    assert adapter - base > 0.3
