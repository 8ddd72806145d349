"""The tables as the newest migration leaves them; a test compares the two."""

from sqlalchemy import JSON, Boolean, Column, Double, Index, Integer, MetaData, String, Table, Text, text

SCHEMA = MetaData()
# Word for word in the index and in what is asked: SQLite looks for the very same terms.
CHANGED = text("verdict <> unfiltered_verdict AND verdict <> 'not judged'")
REVIEWED = text("review_verdict IS NOT NULL")

INSPECTIONS = Table(
    "inspections",
    SCHEMA,
    Column("id", String(22), primary_key=True),
    Column("time", String(24), nullable=False),
    Column("image", String(255), nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("model", String(64), nullable=False),
    Column("model_sha256", String(64), nullable=False),
    Column("verdict", String(16), nullable=False),
    Column("explanation", Text, nullable=False),
    Column("milliseconds", Double, nullable=False),
    Column("score", Double),
    Column("threshold", Double),
    Column("false_alarm_rate", Double),
    Column("p_value", Double),
    Column("unfiltered_verdict", String(16)),
    Column("unfiltered_score", Double),
    Column("unfiltered_threshold", Double),
    Column("excess_filtered", Double),
    Column("nuisance_fraction", Double),
    Column("nuisance_by_family", JSON, nullable=False),
    Column("participation", Double),
    Column("gate", Double),
    Column("strangeness", Double),
    Column("moved", Double),
    Column("suffix", String(8), nullable=False),
    Column("width", Integer, nullable=False),
    Column("height", Integer, nullable=False),
    Column("scale", Double, nullable=False),
    Column("view", JSON, nullable=False),
    Column("pictures", Boolean, nullable=False),
    Column("review_verdict", String(16)),
    Column("review_note", Text),
    Column("review_time", String(24)),
    Index("by_model", "model", "id"),
    Index("by_review", "review_verdict", "id"),
    Index("by_pictures", "pictures", "id"),
    Index("by_verdict", "verdict", "id"),
    Index("by_score", "model", "model_sha256", "verdict", "score"),
    Index("by_name", "id", "image"),
    Index("by_changed", "id", sqlite_where=CHANGED, postgresql_where=CHANGED),
    Index(
        "by_reviewed",
        "model",
        "model_sha256",
        "review_verdict",
        "verdict",
        "score",
        sqlite_where=REVIEWED,
        postgresql_where=REVIEWED,
    ),
)

RATES = Table("rates", SCHEMA, Column("model", String(64), primary_key=True), Column("rate", Double, nullable=False))

METADATA = Table(
    "metadata", SCHEMA, Column("name", String(32), primary_key=True), Column("value", Text, nullable=False)
)

TOKENS = Table(
    "tokens",
    SCHEMA,
    Column("name", String(64), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("made", String(24), nullable=False),
    Column("revoked", String(24)),
)

CHANGES = Table(
    "changes",
    SCHEMA,
    Column("number", Integer, primary_key=True),
    Column("time", String(24), nullable=False),
    Column("who", String(64), nullable=False),
    Column("what", String(16), nullable=False),
    Column("subject", String(64), nullable=False),
    Column("before", JSON),
    Column("after", JSON),
)
