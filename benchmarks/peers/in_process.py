"""Peers without a server: a script in the peer's own environment gets all requests and answers with arrival times."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.load import Answer, Report, prompts, report
from benchmarks.peers.case import Case, Setup

WORKERS = Path(__file__).parent / "workers"


def drive(
    python: Path, worker: str, setup: Setup, model: Path, cases: Sequence[Case], adapters: Mapping[str, Path]
) -> dict[str, Report]:
    """Run the worker script on all cases, with these adapters at hand.

    It answers with seconds in all for each case, and for each request when it was sent and when its tokens came.
    """
    job = {
        "model": str(model),
        "threads": setup.threads,
        "adapters": {name: str(path) for name, path in adapters.items()},
        "cases": [_requests(case, setup) for case in cases],
    }
    done = subprocess.run(
        [python, WORKERS / worker], input=json.dumps(job), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{worker} failed:\n{done.stderr[-2000:]}")
    results = json.loads(done.stdout.splitlines()[-1])
    return {
        case.name: report(
            [Answer(each["sent"], tuple(each["arrivals"])) for each in result["answers"]],
            result["elapsed"],
            case.load(setup.config["vocab_size"]),
        )
        for case, result in zip(cases, results, strict=True)
    }


def _requests(case: Case, setup: Setup) -> dict[str, Any]:
    load = case.load(setup.config["vocab_size"])
    drawn = islice(zip(case.drawn(list(setup.adapters)), prompts(load), strict=False), load.clients + load.requests)
    return {
        "clients": case.clients,
        "output_tokens": case.output_tokens,
        "requests": [{"model": model, "prompt": prompt} for model, prompt in drawn],
    }
