"""Indexes for millions of rows: by verdict, by score or review within a model file, and what the filter has changed."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_index("by_verdict", "inspections", ["verdict", "id"])
    op.create_index("by_score", "inspections", ["model", "model_sha256", "verdict", "score"])
    changed = sa.text("verdict <> unfiltered_verdict AND verdict <> 'not judged'")
    op.create_index("by_changed", "inspections", ["id"], sqlite_where=changed, postgresql_where=changed)
    reviewed, columns = (
        sa.text("review_verdict IS NOT NULL"),
        ["model", "model_sha256", "review_verdict", "verdict", "score"],
    )
    op.create_index("by_reviewed", "inspections", columns, sqlite_where=reviewed, postgresql_where=reviewed)


def downgrade() -> None:
    for name in ("by_reviewed", "by_changed", "by_score", "by_verdict"):
        op.drop_index(name, "inspections")
