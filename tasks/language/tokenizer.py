"""A byte-pair tokenizer with every digit a token of its own, and a chat template, trained on the corpus."""

from pathlib import Path

from tasks.common import tables
from tasks.common.documents import Documents
from tasks.language.configs.tokenizer import TokenizerConfig
from tasks.language.data import byte_pairs
from tasks.language.tables.problems import Problems
from tasks.stage import Metrics, main

METRICS = {
    "vocabulary": "The number of tokens in the vocabulary.",
    "tokens_per_solution": "The mean number of tokens of a training problem's solution.",
    "characters_per_token": "The mean number of characters that a token of these solutions stands for; the higher, "
    "the fewer tokens a text has.",
}


def run(config: TokenizerConfig, corpus: Path, problems: Path, out: Path) -> Metrics:
    """Train on the corpus and the training problems' solutions; save in Hugging Face layout."""
    texts = tables.read_table(Documents, corpus / "corpus.parquet")["text"].tolist()
    train = tables.read_table(Problems, problems / "train.parquet")
    tokenizer = byte_pairs.train_byte_pair_tokenizer([*texts, *train["solution"]], config.vocabulary)
    tokenizer.save_pretrained(out)
    solutions = tokenizer(train["solution"].tolist())["input_ids"]
    return {
        "vocabulary": len(tokenizer),
        "tokens_per_solution": sum(map(len, solutions)) / len(solutions),
        "characters_per_token": int(train["solution"].str.len().sum()) / sum(map(len, solutions)),
    }


if __name__ == "__main__":
    main(run)
