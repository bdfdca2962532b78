"""How the tables came to be, step by step."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from turnout.core.errors import SettingsError

_LOCK = 0x7475726E
"""Number of PostgreSQL's advisory lock under which the tables are changed."""


def migrate(engine: Engine) -> None:
    """Bring the tables up to date, in one transaction; several servers may try at once.

    Raises SettingsError for a registry that a newer Turnout has changed.
    """
    with engine.connect().execution_options(turnout_writes=True) as connection, connection.begin():
        if engine.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        config = configuration(connection)
        script = ScriptDirectory.from_config(config)
        current = MigrationContext.configure(connection).get_current_revision()
        if current is not None and current not in {known.revision for known in script.walk_revisions()}:
            raise SettingsError(
                f"--registry: its tables are of a newer Turnout (step {current} is unknown here); upgrade this one"
            )
        if current != script.get_current_head():
            command.upgrade(config, "head")


def configuration(connection: Connection) -> Config:
    """Alembic's settings, for work on this connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config
