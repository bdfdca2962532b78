"""The text of an API key: `tk_<prefix>_<secret>`, both in hexadecimal digits.

The prefix names the key in listings, logs and records. The secret has 256 random bits, so its SHA-256 is enough to
keep: slow hashes protect secrets that people choose, and this one cannot be guessed however fast the guesses are.
"""

import hashlib
import re
import secrets

_TOKEN = re.compile("tk_(?P<prefix>[0-9a-f]{12})_[0-9a-f]{64}")


def new_prefix() -> str:
    """A prefix that, at 48 bits, no other key has but by a freak of chance (and then making the key fails)."""
    return secrets.token_hex(6)


def new_token(prefix: str) -> str:
    """A key's text, with a new secret."""
    return f"tk_{prefix}_{secrets.token_hex(32)}"


def prefix_of(token: str) -> str | None:
    """The prefix of what has a key's form; None for anything else, no part of which is fit to be shown."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else match["prefix"]


def hash_token(token: str) -> str:
    """What is kept of a key: 64 hexadecimal digits."""
    return hashlib.sha256(token.encode()).hexdigest()
