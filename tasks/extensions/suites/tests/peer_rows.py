"""The frozen rows and answers that peers judge, and a Qwen2 whose weights hang on no random numbers."""

from pathlib import Path

from tests.oracles.prm import sow
from tests.tasks.tiny import SIZES


def arc(stem, key, *texts):
    choices = [{"label": label, "text": text} for label, text in zip("ABCD", texts, strict=False)]
    return {"question": {"stem": stem, "choices": choices}, "answerKey": key}


ARC = [
    arc("What do bees make?", "B", "milk", "honey", "wool and a little cheese", "silk"),
    arc("Which is a metal?", "A", "iron", "the wood of an old oak", "glass", "water"),
    arc("Ice is frozen...", "D", "sand", "air", "oil", "water"),
    arc("At night we see", "C", "no light at all, ever", "the sun", "stars", "a rainbow"),
    arc("Plants need", "A", "light", "noise", "salt", "a café"),
    arc("A day has", "C", "10 hours", "100 hours", "24 hours", "7 hours"),
    arc("What falls {question} when it is cold?", "B", "heat", "snow", "gold"),
    arc("Long. " * 90, "A", "a", "b", "the longest choice of them all", "d"),
]
ARC_EXAMPLES = [
    arc("What barks?", "A", "a dog", "a fish", "a stone", "a cloud"),
    arc("What is wet?", "D", "fire", "sand", "glass", "rain"),
]
# Reference and response: the two filters of lm-eval's gsm8k differ on most of them.
GSM8K_ANSWERS = [
    ("2 + 3 = 5\n#### 5", " 2 + 3 = 5\n#### 5"),
    ("#### 5", "The answer is 5."),
    ("#### 1234", "So it is 1,234 dollars.\n#### 1,234"),
    ("#### 1,234", "#### $1234"),
    ("#### 18", "It costs $18."),
    ("#### 18", "It costs $18 for 2"),
    ("#### 7", "#### 7\n#### 8"),
    ("#### 8", "#### 7\n#### 8"),
    ("#### -3", "below zero: -3"),
    ("#### 3.5", "3.5"),
    ("#### 3.5", "3.50"),
    ("#### 5", ""),
    ("#### 5", "no number"),
    ("#### 5", "#### five"),
    ("#### 12", "12..."),
    ("#### 9", "the 9th"),
    ("#### 60", "60%"),
    ("#### 2", "#### 2."),
]
LETTERS = [" B", "B", "b", "(B)", "B.", "A", "", "B is best", "\N{GREEK CAPITAL LETTER BETA}", "\nB\n", "**B**"]
# Reference and response of mathematics, for Qwen2.5-Math's parser and grader.
QWEN_ANSWERS = [
    ("5", "Thus $\\boxed{5}$."),
    ("5", "first \\boxed{4}, then \\boxed{5}"),
    ("4", "first \\boxed{4}, then \\boxed{5}"),
    ("\\frac{1}{2}", "\\boxed{\\frac{1}{2}}"),
    ("\\frac{1}{2}", "\\boxed{0.5}"),
    ("\\frac{1}{2}", "The answer is 1/2."),
    ("12", "Final Answer: The final answer is $12$. I hope it is correct."),
    ("12", "The final answer is $12$. I hope so, but \\boxed{13}."),
    ("7", "We get 3 and then 7"),
    ("7", "We get 7 and then 3"),
    ("1234", "There are 1,234"),
    ("-2", "so x = -2"),
    ("5", ""),
    ("5", "nothing here"),
    ("(1,2)", "\\boxed{(1, 2)}"),
    ("(1,2)", "\\boxed{(2, 1)}"),
    ("x^2+1", "\\boxed{1+x^2}"),
    ("\\sqrt{2}", "\\boxed{\\sqrt{2}}"),
    ("\\sqrt{2}", "\\boxed{\\sqrt{3}}"),
    ("10", "\\boxed{10"),
    ("10", "the answer is: 10\n"),
    ("3", "\\boxed{x=3}"),
    ("27", "\\boxed{27.0}"),
    ("\\frac{3}{4}", "\\boxed{\\frac34}"),
    ("90", "\\boxed{90^\\circ}"),
    ("8", "\\boxed{8 \\text{ apples}}"),
    ("50", "\\boxed{50\\%}"),
    ("3", "he answer is 3. And so on"),
]


def save_qwen2(folder: Path) -> None:
    """A Qwen2 that reads bytes, with its tokenizer, in a folder."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(letters)}, merges=[]))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    words.add_special_tokens(["<end>"])
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", pad_token="<end>").save_pretrained(folder)
    sizes = {**SIZES, "vocab_size": 257, "eos_token_id": 256, "max_position_embeddings": 400}
    with torch.device("cpu"):
        model = Qwen2ForCausalLM(Qwen2Config(**sizes)).eval()
    sow(model)
    model.save_pretrained(folder)
