"""Ways from data sets to what was told of them, and to their columns."""

from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.create_index("lc_lineage_node_of_dataset", "lc_lineage_node", ["dataset_id"])
    op.create_index("lc_lineage_told_of_target", "lc_lineage_told", ["target_id"])
    op.create_index("lc_lineage_input_of_source", "lc_lineage_input", ["source_id"])
    op.create_index("lc_lineage_interval_of_told", "lc_lineage_interval", ["told_id"])
