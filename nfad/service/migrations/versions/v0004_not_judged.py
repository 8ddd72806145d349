"""How far a photo lies outside the fit; and what may be null in the inspection record may be so here.

A photo without a finite score is kept as not judged. There is a way back only while no such photo was kept: an older
version has no place for it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

NULLABLE = {
    "score": sa.Double(),
    "threshold": sa.Double(),
    "false_alarm_rate": sa.Double(),
    "unfiltered_verdict": sa.String(16),
}


def upgrade() -> None:
    with op.batch_alter_table("inspections") as table:  # SQLite must copy the table for it
        table.add_column(sa.Column("strangeness", sa.Double))
        for name, kind in NULLABLE.items():
            table.alter_column(name, existing_type=kind, nullable=True)


def downgrade() -> None:
    with op.batch_alter_table("inspections") as table:
        for name, kind in NULLABLE.items():
            table.alter_column(name, existing_type=kind, nullable=False)
        table.drop_column("strangeness")
