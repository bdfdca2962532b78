"""`python -m turnout` is the `turnout` command."""

from turnout.cli import app

app()
