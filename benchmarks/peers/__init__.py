"""Turnout side by side with what people use instead, on the same load and in one run."""
