"""Use cases: what a caller can have done, independent of HTTP."""
