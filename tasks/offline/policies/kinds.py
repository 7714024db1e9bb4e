"""The kinds of trained policies, for the stages that play the policies of any method.

A new policy adds one entry to BUILDERS, under the name of its class. Stages that train save theirs by
tasks/offline/policies/files.py and do not import this: they would depend on the code of every method.
"""

from collections.abc import Callable
from pathlib import Path

from tasks.algorithms.offline.decision_transformer import DecisionTransformer
from tasks.algorithms.offline.networks.mlp import MeanAction, Preferences, QValues
from tasks.algorithms.offline.networks.stochastic import Categorical, Gaussian, SquashedGaussian
from tasks.algorithms.offline.tabular_q import QTable
from tasks.offline.policies import files, trunks

Policy = Preferences | MeanAction | SquashedGaussian | QTable | DecisionTransformer  # or a subclass of one of them
BUILDERS: dict[str, Callable[..., Policy]] = {  # called with the spaces and the sizes
    "Preferences": Preferences,
    "QValues": QValues,
    "MeanAction": MeanAction,
    "Categorical": Categorical,
    "Gaussian": Gaussian,
    "SquashedGaussian": SquashedGaussian,
    "QTable": QTable,
    "DecisionTransformer": trunks.build_decision_transformer,
}


def load_policy_of_any_kind(path: Path) -> Policy:
    """The policy of any known kind that was saved in the folder `path`; DataError with one line if there is none."""
    return files.load_policy(path, BUILDERS)
