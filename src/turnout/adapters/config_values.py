"""Typed reading of a configuration's values; a failure names the file, the key, what was found and what is right."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnout.adapters.wording import shown
from turnout.core.errors import AdapterConfigError

Names = re.Pattern[str] | frozenset[str]
"""Modules by a pattern that matches the full name, or by full names and their endings."""


@dataclass(frozen=True, slots=True)
class ConfigValues:
    """What an `adapter_config.json` holds; `where` names the file in messages.

    All methods raise AdapterConfigError for a value of the wrong kind. Null counts as missing.
    """

    where: str
    values: Mapping[str, Any]

    def error(self, key: str, found: object, expected: str) -> AdapterConfigError:
        """The error for a value that means nothing under this key."""
        return AdapterConfigError(f"{self.where}: {key} = {shown(found)}, expected {expected}")

    def get(self, key: str, default: Any) -> Any:
        """The value as it is, `default` if missing."""
        value = self.values.get(key)
        return default if value is None else value

    def flag(self, key: str) -> bool:
        """A switch, off if missing."""
        value = self.get(key, False)
        if type(value) is not bool:
            raise self.error(key, value, "true or false")
        return value

    def rank(self, key: str, value: object) -> int:
        """`value` as a rank."""
        if type(value) is not int or value < 1:
            raise self.error(key, value, "a positive integer")
        return value

    def number(self, key: str, value: object) -> float:
        """`value` as a finite number."""
        if type(value) in (int, float):
            try:
                number = float(value)  # type: ignore[arg-type]
            except OverflowError:
                number = math.inf
            if math.isfinite(number):
                return number
        raise self.error(key, value, "a finite number")

    def mapping(self, key: str) -> Mapping[str, Any]:
        """An object, empty if missing."""
        value = self.get(key, {})
        if not isinstance(value, dict):
            raise self.error(key, value, "an object from patterns to values")
        return value

    def strings(self, key: str, value: object) -> tuple[str, ...]:
        """`value` as strings, of which a single one may stand without its list."""
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
            raise self.error(key, value, "a string or a list of strings")
        return tuple(listed)

    def pattern(self, key: str, expression: str) -> re.Pattern[str]:
        """A regular expression in Python's syntax, as PEFT builds it from a value of `key`."""
        try:
            return re.compile(expression)
        except (re.error, OverflowError, RecursionError) as error:
            raise self.error(key, expression, f"a regular expression, but: {error}") from error

    def names(self, key: str) -> Names:
        """Modules: a string is a pattern for the full name, a list holds names and endings; none if missing."""
        value = self.get(key, [])
        if isinstance(value, str) and value:
            return self.pattern(key, value)
        return frozenset(name for name in self.strings(key, value) if name)
