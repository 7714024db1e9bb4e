"""The agents flow: from the best play of environments of several turns to policies that learn by acting, and a report.

dvc.yaml says how each stage is run; this is the order in which Prefect starts them. Each stage has a branch for every
environment or policy that its section of params.yaml names, and all that wait for nothing that runs go on side by side.
"""

from typing import Any

from prefect import State, flow

from flows.orchestration.prefect_tasks import format_flow_run_name, run_pipeline


@flow(name="agents", flow_run_name=format_flow_run_name)
def agents(
    targets: list[str] = ["agents"],  # noqa: B006  # Prefect shows them, and changes none
    set: dict[str, Any] | None = None,
    seeds: list[int] | None = None,
    force: list[str] | None = None,
    where: str = "",
) -> State[object]:
    """Bring the targets up to date: stages, or `agents` for the whole report.

    `flows.orchestration.prefect_tasks.run_pipeline` has the parameters.
    """
    with run_pipeline("agents", targets, set, seeds, force, where) as stage:
        stage("code")  # what each stage reaches of tasks/, so that an edit runs what it can change

        stage("expert_episodes")  # the best play, by each environment's own solver
        stage("behaviour_cloning", "expert_episodes")  # a language model that acts as the expert does
        stage("agents", "behaviour_cloning", "expert_episodes")  # trained by the rewards of its own episodes
        stage("budgets", "behaviour_cloning", "expert_episodes")  # trained on what a budget buys

        # What came out.
        stage(
            "agent_returns", "behaviour_cloning", "agents", "budgets", "expert_episodes"
        )  # in games that nobody trained on
        stage(
            "agent_episodes", "behaviour_cloning", "agents", "budgets", "expert_episodes"
        )  # data sets for the offline flow
        stage("agents_report", "agent_returns")  # what agents earn
        return stage.end()
