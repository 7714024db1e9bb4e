"""A byte-pair tokenizer with every digit a token of its own, and a chat template, trained on the corpus.

Digits are split because a model of a million weights learns to add digit by digit; merged numbers it must memorise.
"""

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tasks.common import tables
from tasks.common.documents import Documents
from tasks.language.configs.tokenizer import TokenizerConfig
from tasks.language.tables.problems import Problems
from tasks.stage import Metrics, main

PAD, START, USER, ASSISTANT, END = "<|pad|>", "<|start|>", "<|user|>", "<|assistant|>", "<|end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}" + USER + "{{ message['content'] }}"
    "{% else %}" + ASSISTANT + "{{ message['content'] }}" + END + "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}" + ASSISTANT + "{% endif %}"
)
METRICS = {
    "vocabulary": "The number of tokens in the vocabulary.",
    "tokens_per_solution": "The mean number of tokens of a training problem's solution.",
    "characters_per_token": "The mean number of characters that a token of these solutions stands for; the higher, the fewer tokens a text has.",
}


def run(config: TokenizerConfig, corpus: Path, problems: Path, out: Path) -> Metrics:
    """Train on the corpus and the training problems' solutions; save in Hugging Face layout."""
    texts = tables.read(Documents, corpus / "corpus.parquet")["text"].tolist()
    train = tables.read(Problems, problems / "train.parquet")
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            # A word, a digit or a run of other signs, each with the space before it, or a run of spaces.
            pre_tokenizers.Split(Regex(r" ?\p{L}+| ?\d| ?[^\s\p{L}\d]+|\s+"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocabulary,
        special_tokens=[PAD, START, USER, ASSISTANT, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator([*texts, *train["solution"]], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token=PAD, bos_token=START, eos_token=END)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(out)
    solutions = tokenizer(train["solution"].tolist())["input_ids"]
    return {
        "vocabulary": len(tokenizer),
        "tokens_per_solution": sum(map(len, solutions)) / len(solutions),
        "characters_per_token": int(train["solution"].str.len().sum()) / sum(map(len, solutions)),
    }


if __name__ == "__main__":
    main(run)
