"""The demo tasks' data: repeatable, without overlap, and scored as they say."""

import pytest

from examples.data import TASKS


@pytest.mark.parametrize("name", TASKS)
def test_data_is_the_same_each_time_and_held_out_is_held_out(name) -> None:
    task = TASKS[name]
    training, held_out = task.training(), task.held_out()
    assert training == task.training() and held_out == task.held_out()
    assert not {case.prompt for case in training} & {case.prompt for case in held_out}
    assert len({case.prompt for case in held_out}) == len(held_out) >= 20


@pytest.mark.parametrize("name", TASKS)
def test_the_expected_answer_scores_one_and_others_less(name) -> None:
    task = TASKS[name]
    held_out = task.held_out()
    for case in held_out:
        assert task.score(case, case.expected) == 1.0
        assert task.score(case, "I cannot help with that.") < 0.5
    wrong = next(case for case in held_out if case.expected != held_out[0].expected)
    assert task.score(held_out[0], wrong.expected) < 1.0
