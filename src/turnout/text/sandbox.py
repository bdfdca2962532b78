"""The Jinja2 environment in which chat templates run: what transformers offers them, and limits."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range

MAX_LOOP_STEPS = 1_000_000
"""Numbers that all `range` calls of one rendering may yield together."""

MAX_CHARACTERS = 16 * 1024 * 1024
"""Characters that a rendering, or one repeated string in it, may have: several times the longest context known."""

MAX_BITS = 4096
"""Bits of the largest number that a template may compute."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox whose `*` and `**` cannot make values of any size out of short templates.

    A template is still the model's own code, chosen with its weights: the limits end mistakes and plain
    mischief, they do not make it safe to run a template from anyone.
    """

    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute an intercepted operator; SecurityError when the result would be too large."""
        if operator == "**":
            too_large = isinstance(right, int) and isinstance(left, int) and left.bit_length() * right > MAX_BITS
        elif isinstance(left, int) and isinstance(right, int):
            too_large = left.bit_length() + right.bit_length() > MAX_BITS
        else:
            too_large = _repeated_length(left, right) > MAX_CHARACTERS
        if too_large:
            raise SecurityError(f"the result of {operator} is too large")
        return super().call_binop(context, operator, left, right)


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks the assistant's words for training; here it is only its body."""

    tags = {"generation"}  # noqa: RUF012 - declared so by Jinja2

    def parse(self, parser: Parser) -> nodes.Node:
        """Turn the tag into a call block, which gives its body a scope of its own as transformers does."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Macro) -> str:
        return caller()


def template_environment() -> TemplateEnvironment:
    """The filters, functions and tags that transformers gives chat templates, and nothing that makes text up."""
    environment = TemplateEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    del environment.globals["lipsum"]
    return environment


def counted_range() -> Callable[..., range]:
    """A `range` for one rendering, which raises SecurityError after MAX_LOOP_STEPS numbers in all."""
    left = MAX_LOOP_STEPS

    def counted(*bounds: int) -> range:
        nonlocal left
        steps = safe_range(*bounds)
        left -= len(steps)
        if left < 0:
            raise SecurityError(f"the template loops over more than {MAX_LOOP_STEPS} numbers")
        return steps

    return counted


def _repeated_length(left: Any, right: Any) -> int:
    value, times = (right, left) if isinstance(left, int) else (left, right)
    return len(value) * times if isinstance(times, int) and isinstance(value, str | list | tuple) else 0


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja2's own filter escapes what HTML would need.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)
