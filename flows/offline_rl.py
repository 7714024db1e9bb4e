"""The offline-RL flow: from behaviour policies and the data sets recorded with them to learned policies and a table of
scores.

dvc.yaml says how each stage is run; this is the order in which Prefect starts them. Each stage has a branch for every
environment or data set that its section of params.yaml names, and all that wait for nothing that runs go on side by
side.
"""

from typing import Any

from prefect import State, flow

from flows.orchestration.prefect_tasks import format_flow_run_name, run_pipeline

METHODS = ("tabular_q", "bc", "dqn", "cql", "awr", "iql", "decision_transformer")


@flow(name="offline", flow_run_name=format_flow_run_name)
def offline(
    targets: list[str] = ["offline"],  # noqa: B006  # Prefect shows them, and changes none
    set: dict[str, Any] | None = None,
    seeds: list[int] | None = None,
    force: list[str] | None = None,
    where: str = "",
) -> State[object]:
    """Bring the targets up to date: stages, or `offline` for the whole report.

    `flows.orchestration.prefect_tasks.run_pipeline` has the parameters.
    """
    with run_pipeline("offline", targets, set, seeds, force, where) as stage:
        stage("code")  # what each stage reaches of tasks/, so that an edit runs what it can change

        # Data sets.
        stage("behaviour")  # policies from random to expert
        stage("transitions", "behaviour", "agent_episodes")  # recorded with them, or one's own

        # Methods.
        stage("tabular_q", "transitions")  # dynamic programming on counts
        stage("bc", "transitions")  # cloning of all, or of the best
        stage("dqn", "transitions")  # Q-learning as if the data were a replay buffer
        stage("cql", "transitions")  # Q-learning that holds unseen actions down
        stage("awr", "transitions")  # cloning weighted by advantage
        stage("iql", "transitions")  # an expectile of what the data did
        stage("decision_transformer", "transitions")  # actions from the return that is wanted

        # What came out.
        stage("returns", *METHODS, "transitions")  # episodes played by each policy
        stage("offline_report", "returns")  # what each method earned on each data set
        return stage.end()
