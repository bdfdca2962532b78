"""From what a client names to exactly one Route; pure functions over an immutable picture of the catalogue."""
