"""The benchmark suites, each as one entry. A further suite, or another convention for one, is a further entry.

A suite's plain name follows the peer that people cite for it: Qwen2.5-Math's evaluation for mathematics,
lm-evaluation-harness for ARC. Where the other of the two asks or scores in another way, that is there by its name:
`gsm8k-lm-eval`.
"""

from dataclasses import replace

from tasks.extensions.suites.suite import Hub, Prompt, Suite, SuiteColumns

QWEN = "Qwen2.5-Math"
LM_EVAL = "lm-evaluation-harness"
# The instruction of Qwen2.5-Math's prompt `qwen-boxed` (evaluation/utils.py), which other reports on reasoning use too.
BOXED = Prompt(
    "{question}\nPlease reason step by step, and put your final answer within \\boxed{}.",
    "{solution}\nThe answer is \\boxed{{answer}}.",
    chat=True,
)
# lm-evaluation-harness: tasks/gsm8k/gsm8k.yaml, tasks/minerva_math, tasks/arc.
QUESTION_ANSWER = Prompt(
    "Question: {question}\nAnswer:", "{solution}", chat=False, stops=("Question:", "</s>", "<|im_end|>")
)
PROBLEM_SOLUTION = Prompt("Problem:\n{question}\n\nSolution:", "{solution}", chat=False, stops=("Problem:",))
CHOICE = Prompt("Question: {question}\nAnswer:", "{answer}", chat=False)
LETTER = Prompt(
    "Given the following question and four candidate answers (A, B, C and D), choose the best answer.\nQuestion: "
    "{question}\n"
    '{choices}\nYour response should end with "The best answer is [the_answer_letter]" where the '
    "[the_answer_letter] is one of "
    "A, B, C or D.",
    "{letter}",
    chat=True,
    prefix="The best answer is",
    stops=("\n\n", "."),
)

MATH500 = Suite(
    title="MATH-500",
    file="math500/test",
    examples="math500/train",
    hub=Hub("HuggingFaceH4/MATH-500", None, "test"),
    columns=SuiteColumns(("problem", "question"), ("answer",), solution="solution", level="level", subject="subject"),
    prompt=BOXED,
    extraction="qwen",
    scoring="mathematics",
    headline="greedy",
    peer=QWEN,
)
AIME24 = replace(
    MATH500,
    title="AIME 2024",
    file="aime24/test",
    examples="aime24/train",
    hub=Hub("HuggingFaceH4/aime_2024", None, "train"),
    columns=SuiteColumns(("problem", "question"), ("answer",), solution="solution"),
    headline="mean",
)
GSM8K = replace(
    MATH500,
    title="GSM8K",
    file="gsm8k/test",
    examples="gsm8k/train",
    hub=Hub("openai/gsm8k", "main", "test"),
    columns=SuiteColumns(("question",), ("answer",), "behind ####", solution="answer"),
)
ARC_EASY = Suite(
    title="ARC-Easy",
    file="arc/easy_test",
    examples="arc/easy_train",
    hub=Hub("allenai/ai2_arc", "ARC-Easy", "test"),
    columns=SuiteColumns(("question",), ("answerKey",), choices=True),
    prompt=CHOICE,
    extraction="letter",
    scoring="likelihood",
    headline="greedy",
    peer=LM_EVAL,
)
ARC_CHALLENGE = replace(
    ARC_EASY,
    title="ARC-Challenge",
    file="arc/challenge_test",
    examples="arc/challenge_train",
    hub=Hub("allenai/ai2_arc", "ARC-Challenge", "test"),
)

SUITES: dict[str, Suite] = {
    "math500": MATH500,
    "math500-lm-eval": replace(
        MATH500,
        title="MATH-500 as minerva_math500",
        prompt=PROBLEM_SOLUTION,
        extraction="whole",
        scoring="mathematics in the whole text",
        peer=LM_EVAL,
    ),
    "aime24": AIME24,
    "aime25": replace(
        AIME24,
        title="AIME 2025",
        file="aime25/test",
        examples="aime25/train",
        hub=Hub("math-ai/aime25", None, "test"),
    ),
    "amc23": replace(
        AIME24, title="AMC 2023", file="amc23/test", examples="amc23/train", hub=Hub("math-ai/amc23", None, "test")
    ),
    "minerva_math": replace(
        MATH500,
        title="Minerva Math",
        file="minerva_math/test",
        examples="minerva_math/train",
        hub=Hub("math-ai/minervamath", None, "test"),
        columns=SuiteColumns(
            ("problem", "question"), ("answer", "solution"), "in a box", solution="solution", subject="type"
        ),
    ),
    "olympiadbench": replace(
        MATH500,
        title="OlympiadBench",
        file="olympiadbench/test",
        examples="olympiadbench/train",
        hub=Hub("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train"),
        columns=SuiteColumns(("question",), ("final_answer",), solution="solution", subject="subfield"),
    ),
    "gsm8k": GSM8K,
    "gsm8k-lm-eval": replace(
        GSM8K,
        title="GSM8K, strict-match",
        prompt=QUESTION_ANSWER,
        extraction="strict-match",
        scoring="exact number",
        peer=LM_EVAL,
    ),
    "gsm8k-lm-eval-flexible": replace(
        GSM8K,
        title="GSM8K, flexible-extract",
        prompt=QUESTION_ANSWER,
        extraction="flexible-extract",
        scoring="exact number",
        peer=LM_EVAL,
    ),
    "svamp": replace(
        MATH500,
        title="SVAMP",
        file="svamp/test",
        examples="svamp/train",
        hub=Hub("ChilleD/SVAMP", None, "test"),
        columns=SuiteColumns(("Body", "Question"), ("Answer",), subject="Type", joined=True),
    ),
    "arc_easy": ARC_EASY,
    "arc_challenge": ARC_CHALLENGE,
    "arc_easy-text": replace(
        ARC_EASY, title="ARC-Easy by text", prompt=LETTER, extraction="bare letter", scoring="bare letter"
    ),
    "arc_challenge-text": replace(
        ARC_CHALLENGE, title="ARC-Challenge by text", prompt=LETTER, extraction="bare letter", scoring="bare letter"
    ),
}
