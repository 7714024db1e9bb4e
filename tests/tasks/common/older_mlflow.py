"""MLflow's tables as an older version makes them, by the migrations of the installed one."""

from alembic import command
from mlflow.store.db import utils
from mlflow.store.tracking.dbmodels.initial_models import Base
from sqlalchemy import create_engine

VERSION = "acf3f17fdcc7"  # of MLflow 2.9.2


def make(address: str) -> None:
    """Make the tables in an empty database."""
    engine = create_engine(address)
    Base.metadata.create_all(engine)
    config = utils._get_alembic_config(address)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, VERSION)
    engine.dispose()
