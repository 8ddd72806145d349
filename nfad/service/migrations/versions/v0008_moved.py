"""How far a photo lay off its place."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("inspections", sa.Column("moved", sa.Double))


def downgrade() -> None:
    with op.batch_alter_table("inspections") as table:
        table.drop_column("moved")
