"""Byte-level tokenizers with the chat templates of well-known models, as their authors publish them."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tasks.language.data.chat import PLAIN_TEMPLATE

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PHI3 = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for message in messages %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
LLAMA2 = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] + ' ' + eos_token }}{% endif %}{% endfor %}"
)
WITHOUT_END = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
# For each model: the template, the end of documents, the end of answers, and further special tokens.
CHATS = {
    "ChatML": (CHATML, "<|endoftext|>", "<|im_end|>", ["<|im_start|>"]),
    "Phi 3": (PHI3, "<|endoftext|>", "<|end|>", ["<|user|>", "<|assistant|>"]),
    "Gemma": (GEMMA, "<eos>", "<end_of_turn>", ["<bos>", "<start_of_turn>"]),
    "Llama 3": (LLAMA3, "<|end_of_text|>", "<|eot_id|>", ["<bos>", "<|start_header_id|>", "<|end_header_id|>"]),
    "Llama 2": (LLAMA2, "</s>", "</s>", ["<bos>"]),
    "plain": (PLAIN_TEMPLATE, "</s>", "</s>", ["<bos>"]),
    "without an end": (WITHOUT_END, "</s>", "</s>", ["<bos>"]),
}


def chat_tokenizer(name, special=True):
    """The tokenizer; without `special` its markers are added tokens but not special tokens, as in some models."""
    template, end_of_text, end, more = CHATS[name]
    alphabet = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    bos = {"bos_token": "<bos>"} if "<bos>" in more else {}
    words = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=end_of_text, pad_token=end_of_text, **bos)
    words.add_tokens([end, *more], special_tokens=special)
    words.chat_template = template
    return words
