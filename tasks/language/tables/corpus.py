"""The table of the stage `corpus`."""

from tasks.common.documents import Documents

FILES = {"corpus.parquet": Documents}
