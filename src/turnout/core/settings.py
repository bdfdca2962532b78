"""What a server is told at its start: read once, checked, never changed."""

import ipaddress
import re
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Literal, get_args

from turnout.core.errors import SettingsError

DtypeChoice = Literal["auto", "float32", "bfloat16"]
WeightsChoice = Literal["auto", "int8"]

_SIZE = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?(e[0-9]{1,2})?)\s*((?P<prefix>[kmgt])(?P<binary>i?))?b?")


def parse_bytes(text: str) -> int:
    """A size in bytes, rounded down: `2GiB`, `512 MB`, `1.5g`, `1e9` or `1048576`. Raises SettingsError."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise SettingsError(f"'{text}' is not a size in bytes; write it as 512MiB, 2GiB or 1048576")
    power = "kmgt".index(match["prefix"]) + 1 if match["prefix"] else 0
    return int(Fraction(match["number"]) * (1024 if match["binary"] else 1000) ** power)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of `turnout serve`. Sizes are in bytes; keys never show in its repr. Raises SettingsError.

    `adapters`: a folder with one adapter folder in each of its folders; `named_adapters`: name and folder of each
    further one. Adapters loaded at run time must lie under `adapters`, a named adapter's folder or `adapter_roots`.
    `threads` None leaves their number to torch. `weights` auto keeps the base's linear layers in the compute dtype.
    `registry` is a file's path or a postgresql:// URL, `artifacts` a folder or an object store's URL; None for places
    in Turnout's data folder. `lineage_for` is in microseconds, None for ever.
    """

    base: str
    served_model_name: str | None = None
    adapters: Path | None = None
    named_adapters: tuple[tuple[str, Path], ...] = ()
    adapter_roots: tuple[Path, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    device: str = "cpu"
    dtype: DtypeChoice = "auto"
    weights: WeightsChoice = "auto"
    threads: int | None = None
    max_batch_tokens: int = 512
    max_sequences: int = 64
    max_waiting: int = 1024
    max_lora_rank: int = 256
    kv_memory: int = 1 << 30
    adapter_memory: int = 1 << 30
    registry: str | None = field(default=None, repr=False)
    artifacts: str | None = None
    keep_prompts: bool = False
    lineage_for: int | None = 30 * 86400 * 10**6
    api_key: str | None = field(default=None, repr=False)
    admin_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._check_sizes()
        for name, choices in (("dtype", get_args(DtypeChoice)), ("weights", get_args(WeightsChoice))):
            if getattr(self, name) not in choices:
                raise SettingsError(f"--{name} must be one of {', '.join(choices)}, not '{getattr(self, name)}'")
        for name in ("base", "served_model_name"):
            if getattr(self, name) == "":
                raise SettingsError(f"{_flag(name)} must not be empty")
        for name in ("api_key", "admin_key"):
            key = getattr(self, name)
            # Anything else could not be sent in a header. The message does not repeat what may be nearly the key.
            if key is not None and not re.fullmatch("[!-~]+", key):
                raise SettingsError(f"TURNOUT_{name.upper()} must be printable ASCII without spaces, and not empty")

    def _check_sizes(self) -> None:
        at_least_one = ("max_batch_tokens", "max_sequences", "max_waiting", "max_lora_rank", "kv_memory")
        lowest = {**dict.fromkeys(at_least_one, 1), "adapter_memory": 0, "port": 0}
        if self.threads is not None:
            lowest["threads"] = 1
        for name, bound in lowest.items():
            if getattr(self, name) < bound:
                raise SettingsError(f"{_flag(name)} must be at least {bound}, not {getattr(self, name)}")
        if self.port > 65535:
            raise SettingsError(f"--port must be at most 65535, not {self.port}")
        if self.max_batch_tokens < self.max_sequences:
            raise SettingsError(
                f"--max-batch-tokens ({self.max_batch_tokens}) is less than --max-sequences ({self.max_sequences}): "
                "a step must have room for one token of each sequence; raise the one or lower the other"
            )

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders below which adapters may be loaded at run time."""
        named = tuple(path for _, path in self.named_adapters)
        return (*((self.adapters,) if self.adapters else ()), *named, *self.adapter_roots)


def check_reach(host: str, *, guarded: bool) -> None:
    """Raise SettingsError where others than this machine could reach a server that asks for no key."""
    if not guarded and not is_loopback(host):
        raise SettingsError(
            f"without a key the server listens on loopback only, and '{host}' is not; set TURNOUT_API_KEY, make a key "
            "by `turnout keys create`, or leave --host at 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
