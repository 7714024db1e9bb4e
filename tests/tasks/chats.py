"""Byte-level tokenizers with the chat templates of well-known models, as their authors publish them."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tasks.language.data.chat import PLAIN_TEMPLATE

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n' }}"
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
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + message['content'] "
    "+ ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] + ' ' + eos_token }}{% endif %}{% endfor %}"
)
WITHOUT_END = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
# Four whose conversations have rules: a system prompt of the template's own, none at all, turns that have to alternate.
QWEN2_5 = (
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are "
    "a helpful assistant."
    "<|im_end|>\n' }}{% endif %}{% for message in messages %}"
    "{% if message.role == 'tool' %}{{ '<|im_start|>user\n<tool_response>\n' + message.content + "
    "'\n</tool_response><|im_end|>\n' }}"
    "{% elif message.tool_calls %}{{ '<|im_start|>assistant' }}{% if message.content %}{{ '\n' + message.content "
    "}}{% endif %}"
    "{% for call in message.tool_calls %}{{ '\n<tool_call>\n' + (call | tojson) + '\n</tool_call>' }}{% endfor "
    "%}{{ '<|im_end|>\n' }}"
    "{% else %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3_INSTRUCT = (
    "{% for message in messages %}{% set turn = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' %}{% if loop.first %}{% set turn = bos_token + turn %}{% endif "
    "%}{{ turn }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
ALTERNATES = (
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
)
# Llama 3.2 tells the model the day, in a system prompt of its own or before the conversation's.
LLAMA3_2 = (
    "{{- bos_token }}\n{%- if not date_string is defined %}\n    {%- if strftime_now is defined %}\n"
    '        {%- set date_string = strftime_now("%d %b %Y") %}\n    {%- else %}\n        {%- set date_string = "26 '
    'Jul 2024" %}\n'
    "    {%- endif %}\n{%- endif %}\n{%- if messages[0]['role'] == 'system' %}\n"
    "    {%- set system_message = messages[0]['content']|trim %}\n    {%- set messages = messages[1:] %}\n{%- else %}\n"
    '    {%- set system_message = "" %}\n{%- endif %}\n'
    "{{- '<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: ' + "
    "date_string + '\n\n'"
    " + system_message + '<|eot_id|>' }}\n{%- for message in messages %}\n"
    "    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + "
    "'<|eot_id|>' }}\n"
    "{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' "
    "}}\n{%- endif %}\n"
)
GEMMA2 = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not "
    "supported') }}{% endif %}"
    "{% for message in messages %}"
    + ALTERNATES
    + "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}" + ALTERNATES + "{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}{{ ' ' + message['content'] + eos_token }}{% endif "
    "%}{% endfor %}"
)
# Like Qwen 3's: what was thought before the last question is taken out of the answers.
QWEN3 = (
    "{% set last = namespace(question=0) %}{% for message in messages %}{% if message.role == 'user' %}"
    "{% set last.question = loop.index0 %}{% endif %}{% endfor %}{% for message in messages %}"
    "{% set said = message.content.split('</think>')[-1].lstrip('\n') %}"
    "{% if message.role != 'assistant' %}{% set said = message.content %}"
    "{% elif loop.index0 > last.question %}{% set said = '<think>\n' + "
    "message.content.split('</think>')[0].split('<think>')[-1].strip()"
    " + '\n</think>\n\n' + said if '</think>' in message.content else '<think>\n\n</think>\n\n' + said %}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\n' + said + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
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
CONVERSATIONS = {
    "Qwen 2.5": (QWEN2_5, "<|endoftext|>", "<|im_end|>", ["<|im_start|>", "<tool_call>", "</tool_call>"]),
    "Llama 3 Instruct": (LLAMA3_INSTRUCT, "<|end_of_text|>", "<|eot_id|>", CHATS["Llama 3"][3]),
    "Llama 3.2": (LLAMA3_2, "<|end_of_text|>", "<|eot_id|>", CHATS["Llama 3"][3]),
    "Gemma 2": (GEMMA2, "<eos>", "<end_of_turn>", ["<bos>", "<start_of_turn>"]),
    "Mistral": (MISTRAL, "</s>", "</s>", ["<bos>", "[INST]", "[/INST]"]),
    "Qwen 3": (QWEN3, "<|endoftext|>", "<|im_end|>", ["<|im_start|>", "<think>", "</think>"]),
}


def chat_tokenizer(name, special=True):
    """The tokenizer; without `special` its markers are added tokens but not special tokens, as in some models."""
    template, end_of_text, end, more = {**CHATS, **CONVERSATIONS}[name]
    alphabet = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    bos = {"bos_token": "<bos>"} if "<bos>" in more else {}
    words = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=end_of_text, pad_token=end_of_text, **bos)
    words.add_tokens([end, *more], special_tokens=special)
    words.chat_template = template
    return words
