"""Inspections, the rate each model is set to, and facts about the database itself."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "inspections",
        sa.Column("id", sa.String(22), primary_key=True),
        sa.Column("time", sa.String(24), nullable=False),
        sa.Column("model", sa.String(64), nullable=False),
        sa.Column("model_sha256", sa.String(64), nullable=False),
        sa.Column("file_name", sa.String(255), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("suffix", sa.String(8), nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("score", sa.Double, nullable=False),
        sa.Column("threshold", sa.Double, nullable=False),
        sa.Column("false_alarm_rate", sa.Double, nullable=False),
        sa.Column("p_value", sa.Double),
        sa.Column("control_verdict", sa.String(16), nullable=False),
        sa.Column("control_score", sa.Double),
        sa.Column("control_threshold", sa.Double),
        sa.Column("gate", sa.Double),
        sa.Column("participation", sa.Double),
        sa.Column("nuisance_fraction", sa.Double),
        sa.Column("sentence", sa.Text, nullable=False),
        sa.Column("milliseconds", sa.Double, nullable=False),
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("height", sa.Integer, nullable=False),
        sa.Column("scale", sa.Double, nullable=False),
        sa.Column("nuisance_by_family", sa.JSON, nullable=False),
        sa.Column("view", sa.JSON, nullable=False),
        sa.Column("pictures", sa.Boolean, nullable=False),
        sa.Column("review_verdict", sa.String(16)),
        sa.Column("review_note", sa.Text),
        sa.Column("review_time", sa.String(24)),
    )
    op.create_index("by_model", "inspections", ["model", "id"])
    op.create_index("by_review", "inspections", ["review_verdict", "id"])
    op.create_index("by_pictures", "inspections", ["pictures", "id"])
    op.create_table(
        "rates",
        sa.Column("model", sa.String(64), primary_key=True),
        sa.Column("rate", sa.Double, nullable=False),
    )
    op.create_table(
        "facts",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )


def downgrade() -> None:
    for table in ("facts", "rates", "inspections"):
        op.drop_table(table)
