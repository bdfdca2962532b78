"""The `turnout` command."""

import typer

from turnout.cli.demo import demo
from turnout.cli.serve import serve

app = typer.Typer(
    name="turnout",
    help="Serve many LoRA adapters on one resident base model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command()(demo)


@app.callback()
def _commands() -> None:
    """Serve many LoRA adapters on one resident base model."""
