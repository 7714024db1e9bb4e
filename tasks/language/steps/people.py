"""What people said of the steps of solutions: one label for each step, by the majority."""

from collections import Counter
from collections.abc import Sequence

from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat
from tasks.language.judgements.judgement_log import JudgementRecord
from tasks.language.judgements.lines import Answer, Item, StepsValue


def collect_judged_solutions(record: JudgementRecord) -> list[tuple[Item, list[int]]]:
    """Each solution that somebody judged step by step, with the majority's labels; of two judgements by one person the
    later counts.
    """
    labels_by_item: dict[str, dict[str, Sequence[int | None]]] = {}
    for judgement in record.judgements:
        if isinstance(judgement.value, StepsValue):
            labels_by_item.setdefault(judgement.item, {})[judgement.person] = judgement.value.labels
    return [
        (record.items[item], merge_labels_by_majority([*labels.values()]))
        for item, labels in sorted(labels_by_item.items())
    ]


def merge_labels_by_majority(labels: Sequence[Sequence[int | None]]) -> list[int]:
    """One label for each step from those of several people, None where a person did not judge the step.

    The most frequent label of those who judged the step; of equally frequent ones the worst. Steps behind the first
    wrong one that nobody judged are wrong: people stop there (PRM800K, arXiv:2305.20050).
    """
    step_labels = []
    for step in zip(*labels, strict=True):
        counts = Counter(label for label in step if label is not None)
        most = max(counts.values(), default=0)
        step_labels.append(min((label for label in counts if counts[label] == most), default=-1))
    return step_labels


def get_or_encode_answer_tokens(tokenizer: Tokenizer, answer: Answer) -> list[int]:
    """The answer's own tokens where they are this tokenizer's, else those of its text."""
    answer_tokens = [*(answer.tokens or ())]
    ours = (
        answer_tokens
        and max(answer_tokens) < len(tokenizer)
        and chat.decode_response(tokenizer, answer_tokens, answer.ended) == answer.text
    )
    return answer_tokens if ours else chat.encode_response(tokenizer, answer.text, answer.ended)
