"""An index of the time: after a clock is set back, an id tells the order of inspections and no longer their time."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_index("by_time", "inspections", ["time", "id"])


def downgrade() -> None:
    op.drop_index("by_time", "inspections")
