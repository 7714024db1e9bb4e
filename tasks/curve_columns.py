"""`python -m tasks.curve_columns NAME MODULE..`: whether the curve of each stage has a number of this name, and the
names of all that it has.

`posttrain sweep --early` asks before it runs anything. One JSON object: module -> {"has": .., "names": [..]}.
"""

import importlib
import json
import sys
from collections.abc import Sequence

from tasks import metrics


def main(arguments: Sequence[str]) -> None:
    """Answer for each module; a stage without a curve has no numbers."""
    name, *modules = arguments
    columns = {}
    for module in modules:
        names = [*metrics.expand_reward_names(getattr(importlib.import_module(module), "CURVES", {}))]
        columns[module] = {
            "has": any(metrics.compile_metric_pattern(column).fullmatch(name) for column in names),
            "names": names,
        }
    print(json.dumps(columns))


if __name__ == "__main__":
    main(sys.argv[1:])
