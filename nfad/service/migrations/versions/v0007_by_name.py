"""A search for a name reads names alone, not a million whole rows."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_index("by_name", "inspections", ["id", "image"])


def downgrade() -> None:
    op.drop_index("by_name", "inspections")
