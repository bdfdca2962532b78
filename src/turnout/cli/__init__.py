"""The `turnout` command."""

import typer

from turnout.cli.adapters import adapters
from turnout.cli.audit import audit
from turnout.cli.demo import demo
from turnout.cli.keys import keys
from turnout.cli.lineage import lineage
from turnout.cli.serve import serve
from turnout.cli.tenants import tenants

app = typer.Typer(
    name="turnout",
    help="Serve many LoRA adapters on one resident base model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command()(demo)
for group in (adapters, keys, tenants, audit, lineage):
    app.add_typer(group)


@app.callback()
def _commands() -> None:
    """Serve many LoRA adapters on one resident base model."""
