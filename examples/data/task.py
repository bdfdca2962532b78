"""A task: seeded cases in two parts that share no words, and a score for an answer."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

Words = TypeVar("Words")

TRAINING_CASES = 800
HELD_OUT_CASES = 30


@dataclass(frozen=True, slots=True)
class Case:
    """One user message, and the answer an adapter should give to it."""

    prompt: str
    expected: str

    @property
    def messages(self) -> list[dict[str, str]]:
        """The case as a chat: a single user message."""
        return [{"role": "user", "content": self.prompt}]


@dataclass(frozen=True, slots=True)
class Task(Generic[Words]):
    """What one adapter learns.

    `write` makes a case from the words of one part. `score` is pure: 0.0 for a useless answer, 1.0 for a perfect one.
    `max_tokens` is enough for every expected answer.
    """

    name: str
    training_words: Words
    held_out_words: Words
    write: Callable[[Random, Words], Case]
    score: Callable[[Case, str], float]
    max_tokens: int

    def training(self) -> list[Case]:
        """The cases an adapter is trained on: always the same ones, all different."""
        return self._cases("training", self.training_words, TRAINING_CASES)

    def held_out(self) -> list[Case]:
        """The cases an adapter is scored on: always the same ones, all different, from words training never saw."""
        return self._cases("held out", self.held_out_words, HELD_OUT_CASES)

    def _cases(self, part: str, words: Words, count: int) -> list[Case]:
        random = Random(f"{self.name}, {part}")
        cases: dict[str, Case] = {}
        while len(cases) < count:
            case = self.write(random, words)
            cases[case.prompt] = case
        return list(cases.values())
