"""The language-model flow: from problems and a pretrained model to preference-tuned policies and a report.

dvc.yaml says how each stage is run; this is the order in which Prefect starts them. What waits for nothing that runs
goes on side by side, within the machine's cores and GPUs. Of the stages that are named here only those run that the
targets need and that are out of date.
"""

from typing import Any

from prefect import State, flow

from flows.orchestration.prefect_tasks import format_flow_run_name, run_pipeline

POLICIES = ("sft", "sft_control", "rejection_sft", "reinforce", "ppo", "grpo", "dpo")


@flow(name="language", flow_run_name=format_flow_run_name)
def language(
    targets: list[str] = ["language"],  # noqa: B006  # Prefect shows them, and changes none
    set: dict[str, Any] | None = None,
    seeds: list[int] | None = None,
    force: list[str] | None = None,
    where: str = "",
) -> State[object]:
    """Bring the targets up to date: stages, or `language` for the whole report.

    `flows.orchestration.prefect_tasks.run_pipeline` has the parameters.
    """
    with run_pipeline("language", targets, set, seeds, force, where) as stage:
        stage("code")  # what each stage reaches of tasks/, so that an edit runs what it can change

        # Data, and the model to start from.
        stage("problems")  # word problems with worked solutions, generated or one's own
        stage("corpus", "problems")  # text for pretraining
        stage("tokenizer", "corpus", "problems")  # byte pairs, single digits, a chat template
        stage("pretrained", "corpus", "tokenizer")  # trained here, or a checkpoint

        # Imitation, beside which the policies have to show a gain.
        stage("demonstrations", "problems")  # the conversations that fine-tuning imitates
        stage("sft", "pretrained", "demonstrations")  # supervised fine-tuning
        stage("sft_control", "sft", "demonstrations")  # the same carried on over the policies' problems

        # Preferences, and a reward model of them.
        stage("responses", "sft", "problems")  # several sampled answers to each prompt
        stage("preferences", "responses", "problems")  # pairs, judged by a rule, a model or people
        stage("solutions", "sft", "problems")  # answers in steps, each step with a label
        stage("reward_model", "sft", "preferences", "solutions")

        # Policies, side by side.
        stage("dpo", "sft", "preferences")  # directly from the pairs
        stage("mixture", "problems")  # the prompts of all that learn by reward
        stage("rejection_sft", "sft", "mixture", "reward_model")  # fine-tuning on the best of N
        stage("reinforce", "sft", "mixture", "reward_model")  # with a baseline or a critic
        stage("ppo", "sft", "mixture", "reward_model")  # clipped, with a critic
        stage("grpo", "sft", "mixture", "reward_model")  # against the mean of a group

        # What came out.
        stage("evaluate", *POLICIES, "problems", "reward_model")  # all on the same test problems
        stage("report", "evaluate", "reward_model")  # what each stage contributed
        return stage.end()
