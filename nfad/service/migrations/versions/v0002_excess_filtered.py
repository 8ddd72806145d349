"""How much of the excess over normal parts was filtered out; unknown for what was judged before."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("inspections", sa.Column("excess_filtered", sa.Double))


def downgrade() -> None:
    op.drop_column("inspections", "excess_filtered")
