"""Tokens with roles, of which only hashes are kept, and what was changed by whom."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("made", sa.String(24), nullable=False),
        sa.Column("revoked", sa.String(24)),
    )
    op.create_table(
        "changes",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("time", sa.String(24), nullable=False),
        sa.Column("who", sa.String(64), nullable=False),
        sa.Column("what", sa.String(16), nullable=False),
        sa.Column("subject", sa.String(64), nullable=False),
        sa.Column("before", sa.JSON),
        sa.Column("after", sa.JSON),
    )


def downgrade() -> None:
    for table in ("changes", "tokens"):
        op.drop_table(table)
