"""Definitions that read docstrings or sources, and have been looked at: no out of a stage shows what they read."""

from collections.abc import Mapping

LOOKED_AT: Mapping[str, str] = {
    "tasks.agents.environments.host.in_one_line": "says where a user's environment failed",
    "tasks.algorithms.common.products.ROOT": "the folder that a measurement of this machine imports from",
    "tasks.common.checkpoints.digest": "names the checkpoint that a stopped training goes on from, to the same bits",
    "tasks.language.configs.parts.python_rewards.fault": "says what is wrong with params.yaml",
    "tasks.language.configs.parts.python_rewards.parsed": "says what is wrong with a file of the user's",
    "tasks.language.rewards.code_program.PREPARED": "names of modules that tested programs may import",
    "tasks.language.rewards.code_tests.ROOT": "the folder that tested programs import from",
    "tasks.language.rewards.python_functions.PythonFunction": "which files of the user's are deps, by name",
    "tasks.language.rewards.python_worker._Used": "which files of the user's were imported, by name",
    "tasks.language.rewards.python_worker._in_one_line": "says where a user's function failed",
}
