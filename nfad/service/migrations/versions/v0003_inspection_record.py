"""Columns are named as the fields of the inspection record; the table of facts is that of metadata."""

from alembic import op

revision = "0003"
down_revision = "0002"

RENAMED = {
    "file_name": "image",
    "sentence": "explanation",
    "control_verdict": "unfiltered_verdict",
    "control_score": "unfiltered_score",
    "control_threshold": "unfiltered_threshold",
}


def upgrade() -> None:
    for old, new in RENAMED.items():
        op.alter_column("inspections", old, new_column_name=new)
    op.rename_table("facts", "metadata")


def downgrade() -> None:
    op.rename_table("metadata", "facts")
    for old, new in RENAMED.items():
        op.alter_column("inspections", new, new_column_name=old)
