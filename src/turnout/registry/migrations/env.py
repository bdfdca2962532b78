"""What Alembic runs around the steps: they work on the connection, and in the transaction, that they are given."""

from alembic import context

from turnout.registry.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
