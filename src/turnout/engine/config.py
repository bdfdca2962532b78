"""How large an engine may get."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The limits of one engine. Memory is in bytes.

    `max_batch_tokens` bounds a step, and so how long a prompt may hold up everybody's next token.
    `max_waiting` bounds the queue of requests that have not begun. `check` verifies all books after every step.
    """

    max_batch_tokens: int = 512
    max_sequences: int = 64
    max_waiting: int = 1024
    kv_memory: int = 1 << 30
    adapter_memory: int = 1 << 30
    block_size: int = 16
    check: bool = False
