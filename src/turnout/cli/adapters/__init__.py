"""`turnout adapters`."""

import typer

from turnout.cli.adapters.aliases import alias, history, promote, rollback, unalias
from turnout.cli.adapters.care import delete, gc, share, verify
from turnout.cli.adapters.push import export, import_, push
from turnout.cli.adapters.show import diff, list_, show

adapters = typer.Typer(name="adapters", help="Push, look at, promote and roll back adapters.", no_args_is_help=True)
adapters.command()(push)
adapters.command()(promote)
adapters.command()(rollback)
adapters.command(name="list")(list_)
adapters.command()(show)
adapters.command()(history)
adapters.command()(diff)
adapters.command()(alias)
adapters.command()(unalias)
adapters.command()(share)
adapters.command()(export)
adapters.command(name="import")(import_)
adapters.command()(delete)
adapters.command()(verify)
adapters.command()(gc)
