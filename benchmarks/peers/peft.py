"""transformers with PEFT, in-process: what adapters are trained with, and the simplest way to run them.

It runs where Turnout's own tests have it, so it needs no environment of its own.
"""

import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from benchmarks.load import Report
from benchmarks.peers.case import Case, Figures, Setup
from benchmarks.peers.in_process import drive

name = "transformers + PEFT"


def version(_: Setup) -> str:
    """Of both."""
    return f"{metadata.version('transformers')} + {metadata.version('peft')}"


def measure(setup: Setup, cases: Sequence[Case]) -> Figures:
    """All adapters on one model; the base's cases on a model without any."""
    figures: dict[str, Report | str] = {}
    chosen = [case for case in cases if case.weights == "bfloat16"]
    figures |= {case.name: "no streaming" for case in chosen if case.measure == "ttft"}
    chosen = [case for case in chosen if case.measure == "tokens"]
    for adapted in (False, True):
        own = [case for case in chosen if (case.models != "base") == adapted]
        adapters = setup.adapters if adapted else {}
        if own:
            figures |= drive(Path(sys.executable), "peft_worker.py", setup, setup.folder, own, adapters)
    return figures
