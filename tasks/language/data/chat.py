"""From text to tokens and back: chat prompts and responses, the same way in every stage.

What a person or a data set wrote is text: `<|end|>` in it becomes ordinary tokens, never the token that ends a
response. A response is tokenized apart from its prompt and closed with the end token, so that a prompt's tokens are
always a prefix of the whole, and the end token is inside the loss. The chat template decides what stands around a
response: which token ends it (the tokenizer's `eos_token` often ends documents only), and what is written before it
(gpt-oss's channel).
"""

from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from typing import NamedTuple

from tasks.algorithms.language.causal_lm import PretrainedCausalLM, PretrainedModel
from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer

# For a tokenizer that brings no chat template, as base models' do not. A system prompt, tools, calls and their results
# stand as text.
PLAIN_TEMPLATE = (
    "{{ bos_token or '' }}{% if tools %}Tools:\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}\n{% endif %}"
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ message['content'] or '' }}{% for call in message['tool_calls'] or [] %}"
    "{{ '\n' if message['content'] or not loop.first }}Call: {{ (call['function'] or call) | tojson }}{% endfor "
    "%}{{ eos_token }}"
    "{% elif message['role'] in ('system', 'developer') %}{{ message['content'] }}\n\n"
    "{% elif message['role'] == 'tool' %}Result: {{ message['content'] }}\nAnswer:\n"
    "{% else %}Question: {{ message['content'] }}\nAnswer:\n{% endif %}"
    "{% endfor %}"
)


# Llama 3's own date where it cannot know today's. Templates that ask for today's get this one, since an out may not
# vary with the day.
TODAY = date(2024, 7, 26)
DATED = "strftime_now"  # the function by which a template asks
THINK = ("<think>", "</think>")  # around a thought within an answer; templates that know it look for it themselves
DIRECTIVES = ("%-d", "%-m", *(f"%{letter}" for letter in "aAbBdeHIjmMpSyY"))


def build_fixed_date_template(tokenizer: Tokenizer) -> str | None:
    """The chat template; one that writes today's date gets a macro of that name, which writes TODAY.

    The tokenizer keeps its own, so that a model that was trained here knows the day where it is used.
    """
    chat_template = tokenizer.chat_template
    if chat_template is None or DATED not in chat_template:
        return chat_template
    written = "".join(f" | replace('{directive}', '{TODAY.strftime(directive)}')" for directive in DIRECTIVES)
    return f"{{% macro {DATED}(format) %}}{{{{ format{written} }}}}{{% endmacro %}}\n{chat_template}"


def encode_prompt(tokenizer: Tokenizer, question: str) -> list[int]:
    """Token ids of the chat template's opening: the user's question, up to where the response begins."""
    conversation = [{"role": "user", "content": question}]
    return tokenizer.apply_chat_template(
        conversation,
        chat_template=build_fixed_date_template(tokenizer),
        add_generation_prompt=True,
        sanitize_control_tokens=True,
    )["input_ids"]


class Surroundings(NamedTuple):
    """What a chat template writes around an answer."""

    opening: tuple[int, ...]  # tokens between the prompt and the answer, up to the last control token there
    opened: str  # their text
    before: str  # what stands behind them
    trims: bool  # whether the spaces around the answer are left out
    after: str  # what stands between the answer and its end token
    end: int

    def text(self, response: str) -> str:
        """The response with the characters around it."""
        return f"{self.before}{response.strip() if self.trims else response}{self.after}"


def encode_response(tokenizer: Tokenizer, response: str, ended: bool = True) -> list[int]:
    """Token ids of a response as the chat template renders it; with what closes it unless it was cut off."""
    around = get_answer_surroundings(tokenizer)
    opening = [*around.opening]
    if opening and (thought := _extract_leading_thought(around, response)):
        around = around._replace(before="")
        response = response.removeprefix(thought)
        opening = tokenizer(thought, add_special_tokens=False)["input_ids"]
    text = around.text(response) if ended else f"{around.before}{response}"
    ids = [*opening, *tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]]
    return [*ids, around.end] if ended else ids


def _extract_leading_thought(around: Surroundings, response: str) -> str:
    """The thought with which a response begins where the template would open it by an empty one; else an empty text."""
    begins, ends = THINK
    head, closing, _ = response.partition(ends)
    opens = around.opened.startswith(begins) and head.lstrip().startswith(begins)
    return head + closing if opens and closing else ""


def decode_response(tokenizer: Tokenizer, tokens: Sequence[int], ended: bool = True) -> str:
    """A sampled response's text as its judges see it: without what the template writes around it, and without spaces
    there.

    Any other special token stays in the text, such as `<|user|>`: an answer with one in it is another answer.
    """
    tokens = [int(token) for token in tokens]
    opening = get_answer_surroundings(tokenizer).opening
    if opening and tuple(tokens[: len(opening)]) == opening:
        tokens = tokens[len(opening) :]
    closed = ended and tokens and tokens[-1] in control_tokens(tokenizer)
    return tokenizer.decode(tokens[:-1] if closed else tokens, skip_special_tokens=False).strip()


def end_tokens(model: PretrainedCausalLM, tokenizer: Tokenizer) -> set[int]:
    """Every token that ends a response: the template's, the tokenizer's, and those of the model's generation config."""
    declared = model.generation_config.eos_token_id
    more = declared if isinstance(declared, list) else [declared]
    return {token for token in (*more, tokenizer.eos_token_id, end_token(tokenizer)) if token is not None}


def end_token(tokenizer: Tokenizer) -> int:
    """The token that closes a response: the first special one that the chat template puts behind an assistant's answer.

    `<|im_end|>` in ChatML, `<end_of_turn>` in Gemma's, `<|eot_id|>` in Llama 3's. If the template puts none there, it
    is the tokenizer's `eos_token`.
    """
    return get_answer_surroundings(tokenizer).end


@lru_cache(maxsize=8)
def count_trailing_tokens(tokenizer: Tokenizer) -> int:
    """How many tokens the tokenizer puts behind every text."""
    bare, whole = (tokenizer("text", add_special_tokens=special)["input_ids"] for special in (False, True))
    starts = range(len(whole) - len(bare), -1, -1)
    return next((len(whole) - at - len(bare) for at in starts if whole[at : at + len(bare)] == bare), 0)


def get_answer_surroundings(tokenizer: Tokenizer) -> Surroundings:
    """What the chat template writes around the answer to a question; nothing where it shows the answer in another
    form.
    """
    return _probe_answer_surroundings(tokenizer, build_fixed_date_template(tokenizer), tokenizer.eos_token_id)


def get_max_positions(model: PretrainedModel) -> int | None:
    """How many tokens the model can read; None where its config names no limit."""
    limit: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return limit


def check_positions(
    model: PretrainedModel, lengths: Sequence[int], what: str, more: int = 0, why: str = "", limited_by: str = ""
) -> None:
    """DataError with one line where the longest of `what`, with `more` tokens (`why`), goes beyond the model's
    positions.

    Otherwise learned positions would be read past their end, and rotary ones would go beyond what the model was trained
    on without any error.
    """
    limit = get_max_positions(model)
    longest = max(lengths, default=0)
    if limit is not None and longest + more > limit:
        then = f" and {why} = {more} make {longest + more}" if more else ""
        raise DataError(
            f"{model.name_or_path}: the model has {limit} positions (config.json: max_position_embeddings), but "
            "the longest of "
            f"{what} has {longest} tokens{then}; expected at most {limit}"
            + (f": set {limited_by}" if limited_by else "")
        )


@lru_cache(maxsize=8)
def _probe_answer_surroundings(tokenizer: Tokenizer, template: str | None, end: int) -> Surroundings:
    bare = Surroundings((), "", "", False, "", end)
    if template is None:
        return bare
    question = {"role": "user", "content": "A question."}

    def answered(text: str) -> str:
        chat = [question, {"role": "assistant", "content": text}]
        return tokenizer.apply_chat_template(chat, chat_template=template, tokenize=False)

    answer = "An answer."
    before, shown, behind = answered(answer).rpartition(answer)
    if not shown:
        return bare
    control = control_tokens(tokenizer)
    tokens = tokenizer.encode(behind, add_special_tokens=False)
    ends = next((token for token in tokens if token in control), None)
    after = "" if ends is None else behind[: behind.find(tokenizer.decode([ends], skip_special_tokens=False))]
    prompt = tokenizer.apply_chat_template(
        [question], chat_template=template, tokenize=False, add_generation_prompt=True
    )
    if not before.startswith(prompt):
        return bare._replace(end=end if ends is None else ends)
    written = before[len(prompt) :]
    opening = tokenizer.encode(written, add_special_tokens=False)
    last = max((position for position, token in enumerate(opening, 1) if token in control), default=0)
    shown = tokenizer.decode(opening[last - 1 : last], skip_special_tokens=False)
    text = written.rpartition(shown)[2] if last else written
    opened = written.removesuffix(text)
    if text.isspace():  # a SentencePiece tokenizer puts a space before each text by itself
        whole, prompt_ids = (
            tokenizer.encode(part, add_special_tokens=False) for part in (before + answer, prompt + opened)
        )
        text = "" if whole[len(prompt_ids) :] == tokenizer.encode(answer, add_special_tokens=False) else text
    spaced = f" \n{answer}\n "
    trims = answered(spaced) == f"{before}{answer}{behind}"
    return Surroundings(tuple(opening[:last]), opened, text, trims, after, end if ends is None else ends)


@lru_cache(maxsize=8)
def control_tokens(tokenizer: Tokenizer) -> set[int]:
    """Special tokens, and added tokens that are not marked as special, except runs of spaces."""
    added = {token for text, token in tokenizer.added_tokens_encoder.items() if text.strip()}
    return added | set(tokenizer.all_special_ids)
