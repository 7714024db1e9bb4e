"""A suite's prompt for a problem, with examples before it, as text and as tokens."""

import json
import re
from collections.abc import Sequence

from tasks.common.tokenizers import Tokenizer
from tasks.extensions.suites.suite import Prompt, Suite, SuiteProblem
from tasks.language.data import chat, prompts

PLACE = re.compile(r"\{(question|choices|solution|answer|letter)\}")


def fill_template(template: str, problem: SuiteProblem, *, chat_turn: bool = False) -> str:
    """A template with what it names of the problem; braces in the problem's own text stay.

    A turn has no spaces around the question.
    """
    question = problem.question.strip() if chat_turn else problem.question
    answer = dict(problem.choices).get(problem.answer, problem.answer)
    values = {
        "question": question,
        "choices": "\n".join(f"{label}. {text}" for label, text in problem.choices),
        "solution": problem.solution or answer,
        "answer": answer,
        "letter": problem.answer,
    }
    return PLACE.sub(lambda match: values[match[1]], template)


def build_prompt_text(suite: Suite, problem: SuiteProblem, examples: Sequence[SuiteProblem]) -> str:
    """The whole prompt of a suite that is asked in plain text."""
    prompt = suite.prompt
    shown = [
        f"{fill_template(prompt.question, example)} {fill_template(prompt.example, example)}" for example in examples
    ]
    return prompt.between.join([*shown, fill_template(prompt.question, problem)])


def encode_suite_prompts(
    suite: Suite, tokenizer: Tokenizer, problems: Sequence[SuiteProblem], examples: Sequence[SuiteProblem]
) -> list[list[int]]:
    """The prompts as tokens, with the beginning of the answer where the suite writes it."""
    prompt = suite.prompt
    if prompt.chat:
        rows = [
            {
                "question": fill_template(prompt.question, problem, chat_turn=True),
                "history": build_example_history(prompt, examples),
            }
            for problem in problems
        ]
        token_lists = prompts.encode_prompt_rows(tokenizer, rows)
    else:
        token_lists = [
            tokenize_plain_text(tokenizer, build_prompt_text(suite, problem, examples)) for problem in problems
        ]
    begun = chat.encode_response(tokenizer, prompt.prefix, ended=False) if prompt.prefix else []
    return [[*tokens, *begun] for tokens in token_lists]


def build_example_history(prompt: Prompt, examples: Sequence[SuiteProblem]) -> str:
    """The examples as turns before the question, as JSON; empty where there are none."""
    turns = [
        turn
        for example in examples
        for turn in (
            {"role": "user", "content": fill_template(prompt.question, example, chat_turn=True)},
            {"role": "assistant", "content": f"{prompt.prefix} {fill_template(prompt.example, example)}".strip()},
        )
    ]
    return json.dumps(turns) if turns else ""


def tokenize_plain_text(tokenizer: Tokenizer, text: str) -> list[int]:
    """Plain text as tokens, with those that the tokenizer puts before every text; special tokens in it are text.

    What it puts behind every text (an end token, where it was saved with add_eos_token) would end the text that is to
    go on.
    """
    tokens = tokenizer(text, add_special_tokens=True, split_special_tokens=True)["input_ids"]
    return tokens[: len(tokens) - chat.count_trailing_tokens(tokenizer)]


def truncate_at_stop(prompt: Prompt, response: str) -> str:
    """The response up to the first stop."""
    ends = [position for stop in prompt.stops if (position := response.find(stop)) >= 0]
    return response[: min(ends, default=len(response))].strip()
