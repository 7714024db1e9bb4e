"""Code that cannot change an out: what a stage writes is the same with another version of it."""

from collections.abc import Mapping

# Definitions that read docstrings or sources; no out of a stage shows what they read.
LOOKED_AT: Mapping[str, str] = {
    "tasks.agents.environments.host.format_error_line": "says where a user's environment failed",
    "tasks.algorithms.common.matmul_backend.ROOT": "the folder that a measurement of this machine imports from",
    "tasks.common.checkpoints._code": "names the checkpoint that a stopped training goes on from, to the same bits",
    "tasks.language.configs.parts.python_rewards.find_reward_function_fault": "says what is wrong with params.yaml",
    "tasks.language.configs.parts.python_rewards.parse_python_file": "says what is wrong with a file of the user's",
    "tasks.language.rewards.code_program.PREPARED": "names of modules that tested programs may import",
    "tasks.language.rewards.code_tests.ROOT": "the folder that tested programs import from",
    "tasks.language.rewards.python_functions.PythonFunction": "which files of the user's are deps, by name",
    "tasks.language.rewards.python_worker._Used": "which files of the user's were imported, by name",
    "tasks.language.rewards.python_worker._format_exception": "says where a user's function failed",
}

# Modules that cannot change an out, so that a change to them, or to what they alone import, re-runs nothing.
# tests/test_without_influence.py shows it.
WITHOUT_INFLUENCE = frozenset(
    (
        "tasks.algorithms.common.errors",  # exceptions; where one is raised, nothing is written
        "tasks.algorithms.language.causal_lm",  # Protocols, for the type checker alone
        "tasks.code",  # the same package, which only refuses
        "tasks.code.import_check",  # compares code, and refuses
        "tasks.common.config_faults",  # messages about bad values
        "tasks.common.run_environment",  # versions and the machine, for the records
        "tasks.common.errors",  # exceptions too
        "tasks.common.mlflow_address",  # where MLflow's records are
        "tasks.common.mlflow_database",  # the same, opened
        "tasks.common.mlflow_shared",  # the same, elsewhere
        "tasks.common.source_code",  # what git has of the code, for the records
        "tasks.common.tokenizers",  # a Protocol, for the type checker alone
        "tasks.common.tracking",  # records and shows rows; never alters them
        "tasks.language.configs.parts.names",  # refuses a name that nothing has
    )
)
