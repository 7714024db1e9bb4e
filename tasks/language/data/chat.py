"""From text to tokens and back: chat prompts and responses, the same way in every stage.

What a person or a data set wrote is text: `<|end|>` in it becomes ordinary tokens, never the token that ends a response.
A response is tokenized apart from its prompt and closed with the end token, so that a prompt's tokens are always a
prefix of the whole, and the end token is inside the loss. The chat template decides which token ends a response: the
tokenizer's `eos_token` often ends documents only.
"""

from collections.abc import Sequence
from datetime import date
from functools import lru_cache

from tasks.algorithms.language.causal_lm import PretrainedCausalLM, PretrainedModel
from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer

# For a tokenizer that brings no chat template, as base models' do not. A system prompt, a tool's call and its result stand as text.
PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first %}{{ bos_token or '' }}{% endif %}"
    "{% if message['role'] == 'assistant' %}{{ message['content'] or '' }}{% for call in message['tool_calls'] or [] %}"
    "{{ '\n' if message['content'] or not loop.first }}Call: {{ (call['function'] or call) | tojson }}{% endfor %}{{ eos_token }}"
    "{% elif message['role'] in ('system', 'developer') %}{{ message['content'] }}\n\n"
    "{% elif message['role'] == 'tool' %}Result: {{ message['content'] }}\nAnswer:\n"
    "{% else %}Question: {{ message['content'] }}\nAnswer:\n{% endif %}"
    "{% endfor %}"
)


# Llama 3's own date where it cannot know today's. Templates that ask for today's get this one, since an out may not vary with the day.
TODAY = date(2024, 7, 26)
DATED = "strftime_now"  # the function by which a template asks
DIRECTIVES = ("%-d", "%-m", *(f"%{letter}" for letter in "aAbBdeHIjmMpSyY"))


def template(tokenizer: Tokenizer) -> str | None:
    """The chat template; one that writes today's date gets a macro of that name, which writes TODAY.

    The tokenizer keeps its own, so that a model that was trained here knows the day where it is used.
    """
    own = tokenizer.chat_template
    if own is None or DATED not in own:
        return own
    written = "".join(f" | replace('{one}', '{TODAY.strftime(one)}')" for one in DIRECTIVES)
    return f"{{% macro {DATED}(format) %}}{{{{ format{written} }}}}{{% endmacro %}}\n{own}"


def encode_prompt(tokenizer: Tokenizer, question: str) -> list[int]:
    """Token ids of the chat template's opening: the user's question, up to where the response begins."""
    conversation = [{"role": "user", "content": question}]
    return tokenizer.apply_chat_template(
        conversation, chat_template=template(tokenizer), add_generation_prompt=True, sanitize_control_tokens=True
    )["input_ids"]


def encode_response(tokenizer: Tokenizer, response: str, ended: bool = True) -> list[int]:
    """Token ids of a response; with the end token unless it was cut off."""
    ids = tokenizer(response, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return [*ids, end_token(tokenizer)] if ended else ids


def decode(tokenizer: Tokenizer, tokens: Sequence[int], ended: bool = True) -> str:
    """A sampled response's text as its judges see it: without the special token that closes it, if it `ended`.

    Any other special token stays in the text, such as `<|user|>`: an answer with one in it is another answer.
    """
    tokens = [int(token) for token in tokens]
    closed = ended and tokens and tokens[-1] in _special(tokenizer)
    return tokenizer.decode(tokens[:-1] if closed else tokens, skip_special_tokens=False).strip()


def end_tokens(model: PretrainedCausalLM, tokenizer: Tokenizer) -> set[int]:
    """Every token that ends a response: the template's, the tokenizer's, and those of the model's generation config."""
    declared = model.generation_config.eos_token_id
    more = declared if isinstance(declared, list) else [declared]
    return {token for token in (*more, tokenizer.eos_token_id, end_token(tokenizer)) if token is not None}


def end_token(tokenizer: Tokenizer) -> int:
    """The token that closes a response: the first special one that the chat template puts behind an assistant's answer.

    `<|im_end|>` in ChatML, `<end_of_turn>` in Gemma's, `<|eot_id|>` in Llama 3's. If the template puts none there, it is the
    tokenizer's `eos_token`.
    """
    return _end_token(tokenizer, template(tokenizer), tokenizer.eos_token_id)


def positions(model: PretrainedModel) -> int | None:
    """How many tokens the model can read; None where its config names no limit."""
    limit: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return limit


def check_positions(
    model: PretrainedModel, lengths: Sequence[int], what: str, more: int = 0, why: str = "", limited_by: str = ""
) -> None:
    """DataError with one line where the longest of `what`, with `more` tokens (`why`), goes beyond the model's positions.

    Otherwise learned positions would be read past their end, and rotary ones would go beyond what the model was trained on
    without any error.
    """
    limit = positions(model)
    longest = max(lengths, default=0)
    if limit is not None and longest + more > limit:
        then = f" and {why} = {more} make {longest + more}" if more else ""
        raise DataError(
            f"{model.name_or_path}: the model has {limit} positions (config.json: max_position_embeddings), but the longest of "
            f"{what} has {longest} tokens{then}; expected at most {limit}"
            + (f": set {limited_by}" if limited_by else "")
        )


@lru_cache(maxsize=8)
def _end_token(tokenizer: Tokenizer, template: str | None, end: int) -> int:
    answer = "An answer."
    if template is None:
        return end
    conversation = [{"role": "user", "content": "A question."}, {"role": "assistant", "content": answer}]
    whole = tokenizer.apply_chat_template(conversation, chat_template=template, tokenize=False)
    _, found, behind = whole.rpartition(answer)
    tokens = tokenizer.encode(behind, add_special_tokens=False) if found else []
    return next((token for token in tokens if token in _special(tokenizer)), end)


@lru_cache(maxsize=8)
def _special(tokenizer: Tokenizer) -> set[int]:
    """Special tokens, and added tokens that are not marked as special, except runs of spaces."""
    added = {token for text, token in tokenizer.added_tokens_encoder.items() if text.strip()}
    return added | set(tokenizer.all_special_ids)
