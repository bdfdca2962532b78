"""The tasks of the demo adapters, by adapter name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from examples.data import json_extract, sentiment, sql_helper, support_tone
from examples.data.task import Case, Task

TASKS: Mapping[str, Task[Any]] = MappingProxyType(
    {task.name: task for task in (json_extract.TASK, sql_helper.TASK, support_tone.TASK, sentiment.TASK)}
)

__all__ = ["TASKS", "Case", "Task"]
