"""Run by Alembic, with the connection that nfad.service.store hands it."""

from alembic import context

connection = context.config.attributes["connection"]
# SQLite too can take back a half-made table, which Alembic does not expect of it.
context.configure(connection=connection, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
