"""From chat messages to the one text that the model was trained to continue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError

from turnout.core.errors import BaseModelError, InvalidRequest
from turnout.text.config import read_tokenizer_config
from turnout.text.sandbox import MAX_CHARACTERS, counted_range, template_environment

# What a template's own code may raise: it does arithmetic, look-ups and calls on values that a client sent.
_RENDER_ERRORS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A model's compiled chat template; threads may share it.

    `named_tokens` are the special tokens that the template can write by name, such as `bos_token`. The text
    it renders holds all special tokens it needs: encode it with `add_special_tokens=False`.
    """

    source: str
    named_tokens: Mapping[str, str]
    _template: Template = field(repr=False)

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> str:
        """The text of a chat, up to where the assistant's next turn begins if `add_generation_prompt`.

        `messages` hold plain JSON values, as the client sent them. Raises InvalidRequest when there are none,
        when the template refuses them (roles out of turn, a part it does not know), or when it would write more
        than MAX_CHARACTERS characters.
        """
        if not messages:
            raise InvalidRequest("a chat needs at least one message", param="messages")
        variables = {
            **self.named_tokens,
            "messages": [_present(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            "tools": None,
            "documents": None,
            "range": counted_range(),
        }
        try:
            return self._written(variables)
        except _RENDER_ERRORS as error:
            raise InvalidRequest(
                f"the model's chat template cannot render these messages: {error}", param="messages"
            ) from error

    def _written(self, variables: Mapping[str, Any]) -> str:
        parts: list[str] = []
        left = MAX_CHARACTERS
        for part in self._template.generate(variables):
            left -= len(part)
            if left < 0:
                raise InvalidRequest(
                    f"the chat is longer than {MAX_CHARACTERS} characters once rendered", param="messages"
                )
            parts.append(part)
        return "".join(parts)


def load_chat_template(folder: Path) -> ChatTemplate | None:
    """The template in chat_template.jinja, or else the one in tokenizer_config.json; None when there is neither.

    Of several named templates it is the one called "default". Raises BaseModelError when it does not compile.
    """
    config = read_tokenizer_config(folder)
    path = folder / "chat_template.jinja"
    try:
        source = path.read_text(encoding="utf-8") if path.is_file() else config.chat_template
        if source is None:
            return None
        template = template_environment().from_string(source)
    except (OSError, UnicodeDecodeError, TemplateError) as error:
        raise BaseModelError(f"the chat template in {folder} cannot be used: {error}") from error
    return ChatTemplate(source, config.named_tokens, template)


def _present(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message without its nulls: templates ask `is defined`, so a null must look like a field left out."""
    return {name: value for name, value in message.items() if value is not None}
