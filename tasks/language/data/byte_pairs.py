"""A byte-pair tokenizer with every digit a token of its own, and a chat template, trained on texts.

Digits are split because a model of a million weights learns to add digit by digit; merged numbers it must memorise.
"""

from collections.abc import Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD = "<|pad|>"
START = "<|start|>"
USER = "<|user|>"
ASSISTANT = "<|assistant|>"
END = "<|end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}" + USER + "{{ message['content'] }}"
    "{% else %}" + ASSISTANT + "{{ message['content'] }}" + END + "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}" + ASSISTANT + "{% endif %}"
)


def train_byte_pair_tokenizer(texts: Sequence[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A tokenizer of at most `vocabulary` tokens, the 256 bytes and the special tokens included."""
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
        vocab_size=vocabulary,
        special_tokens=[PAD, START, USER, ASSISTANT, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token=PAD, bos_token=START, eos_token=END)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
