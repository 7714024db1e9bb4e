"""Text for pretraining."""

import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table


class Documents(Table):
    """Text for pretraining, one document a row; `kind` says which generator or file it comes from."""

    kind: Series[str]
    text: Series[str] = pa.Field(str_length={"min_value": 1})
