"""What else than the policies differs between two evaluations, and what a difference of their numbers then means."""

from collections.abc import Iterator

from flows.engine import dvc_lock
from flows.lineage.comparison.comparing import find_changed_values, flatten_record_params
from flows.lineage.execution_record import ExecutionRecord

MEANING = {
    "evaluate.problems": "they are compared on the problems that both were asked",
    "evaluate.source": "they are compared on the problems that both were asked",
    "evaluate.samples": "metrics of another number of samples are left out",
    "evaluate.pass_at": "metrics that only one side has are left out",
    "evaluate.temperatures": "metrics at a temperature that only one side has are left out",
    "evaluate.candidates": "the best temperature was chosen from others, so a difference at tbest may "
    "come from the choice",
    "evaluate.validation_problems": "the best temperature was chosen otherwise, so a difference at tbest may come "
    "from the choice",
    "evaluate.validation_samples": "the best temperature was chosen otherwise, so a difference at tbest may come "
    "from the choice",
    "evaluate.max_new_tokens": "answers are cut off elsewhere, so any difference may come from that",
    "evaluate.seed": "sampled answers were drawn anew; greedy ones are not touched by that",
    "evaluate.strip_thinking": "answers were judged with their thinking on one side, so any "
    "difference may come from that",
    "evaluate.batch_size": "batches round differently, so a few answers may differ by that alone",
    "returns.seed": "the episodes begin elsewhere, so a difference may come from their starts",
    "agent_returns.seed": "sampled actions were drawn anew; greedy ones are not touched by that",
    "agent_returns.games": "they are compared in the games that both played",
    "agent_returns.temperatures": "temperatures that only one side has are left out",
    "agent_returns.max_action_tokens": "actions are cut off elsewhere, so any difference may come from that",
    "returns.episodes": "they are compared in the episodes that both played",
}
SILENT = ("evaluate.bootstrap", "returns.gamma", "returns.fitted_q")  # they change no number that is compared
REWARDED = ("reward_", "_best_of_")  # in names of metrics that a reward model makes
FILES = 3  # of code that are named
MATTERS = (
    "cpu",
    "platform",
    "threads",
    "products",
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
)  # to an answer, of what runs are made with


def describe_evaluation_differences(flow: str, a: ExecutionRecord, b: ExecutionRecord) -> Iterator[str]:
    """One sentence for each thing that differs."""
    for key, (old, new) in find_changed_values(flatten_record_params(a), flatten_record_params(b)).items():
        if not key.startswith(SILENT):
            yield (
                f"{key} {_format_short_value(old)} -> {_format_short_value(new)}: "
                f"{MEANING.get(key, 'the evaluations were not the same')}"
            )
    if code := find_changed_values(dvc_lock.get_code_hashes(a.entry), dvc_lock.get_code_hashes(b.entry)):
        more = f" and {len(code) - FILES} more" if len(code) > FILES else ""
        yield f"the evaluation's code differs ({', '.join([*code][:FILES])}{more}): any difference may come from that"
    if flow == "language":
        if _find_reward_model_hash(a) != _find_reward_model_hash(b):
            yield "the reward models differ: rewards and best-of-k cannot be compared"
        if _find_reference_model_hash(a) != _find_reference_model_hash(b):
            yield "the references differ: KL divergences cannot be compared"
    if a.environment and b.environment:
        for name, (old, new) in find_changed_values(a.environment, b.environment).items():
            if name in MATTERS:
                yield (
                    f"{name} {_format_short_value(old)} -> {_format_short_value(new)}: answers may differ by that alone"
                )


def explain_incomparable_metric(metric: str, a: ExecutionRecord, b: ExecutionRecord) -> str:
    """Why the two values of a metric mean different things; empty if they do not."""
    if any(part in metric for part in REWARDED) and _find_reward_model_hash(a) != _find_reward_model_hash(b):
        return "scored by different reward models"
    if metric.startswith("kl_") and _find_reference_model_hash(a) != _find_reference_model_hash(b):
        return "measured against different references"
    return ""


def _find_reward_model_hash(record: ExecutionRecord) -> str | None:
    path = str(flatten_record_params(record).get("evaluate.reward_model_path"))
    return dvc_lock.get_entry_hashes(record.entry, "deps").get(path)


def _find_reference_model_hash(record: ExecutionRecord) -> str | None:
    """The hash of the folder after `--reference` in the evaluation's command."""
    words = str(record.entry.get("cmd", "")).split()
    path = words[words.index("--reference") + 1] if "--reference" in words[:-1] else ""
    return dvc_lock.get_entry_hashes(record.entry, "deps").get(path)


def _format_short_value(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 40 else text[:37] + "..."
