"""Rows in the forms that people have, as tokens and masks, against TRL's preparation of the same rows for SFT and
DPO.
"""

import copy
import json

import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.algorithms.language.sequences import assign_documents_to_rows, pack_documents
from tasks.language.data import forms, imported_pairs
from tasks.language.data.comparisons import ComparisonSet
from tasks.language.data.rows import Row
from tasks.language.preferences import STRONG
from tasks.language.training import supervised
from tests.tasks.chats import chat_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("judge")]
# As in tests/tasks/chats.py, with the marks by which TRL finds the assistant's tokens.
MARKED = {
    "ChatML": (
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['role'] == "
        "'assistant' %}"
        "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}{{ message['content'] "
        "+ '<|im_end|>' }}"
        "{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "Llama 3": (
        "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
        "'<|end_header_id|>\n\n' }}"
        "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|eot_id|>' }}{% "
        "endgeneration %}"
        "{% else %}{{ message['content'] + '<|eot_id|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    ),
}
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Co", "Cc"], exclude_characters="<"), min_size=1).filter(
    lambda text: text == text.strip()
)


def marked(name):
    tokenizer = chat_tokenizer(name)
    tokenizer.chat_template = MARKED[name]
    return tokenizer


def turns(texts):
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


@st.composite
def conversations(draw):
    """A system prompt or none, then one to three questions with their answers."""
    count = 2 * draw(st.integers(1, 3))
    system = [{"role": "system", "content": draw(TEXTS)}] if draw(st.booleans()) else []
    return [*system, *turns(draw(st.lists(TEXTS, min_size=count, max_size=count)))]


def ours(tokenizer, row):
    """Tokens and mask of a row, as SFT reads it."""
    found = forms.parse_demonstration(row)
    return supervised.encode_demonstration(
        tokenizer, forms.dump_messages_json(found.messages) if found.messages else "", found.text, True
    )


def theirs(tokenizer, messages):
    """Tokens and mask by TRL's `assistant_only_loss`, without what the template puts behind the last answer."""
    from trl.data_utils import _tokenize

    found = _tokenize(tokenizer, messages, return_assistant_tokens_mask=True, chat_template=tokenizer.chat_template)
    ids, mask = found["input_ids"], [bool(one) for one in found["assistant_masks"]]
    end = len(mask) - mask[::-1].index(True)
    return ids[:end], mask[:end]


@pytest.mark.parametrize("name", MARKED)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(messages=conversations())
def test_conversations_have_trls_tokens_and_masks_in_each_form(name, messages):
    from trl.data_utils import maybe_convert_to_chatml

    tokenizer = marked(name)
    sharegpt = {"conversations": [{"from": one["role"], "value": one["content"]} for one in messages]}
    expected = theirs(tokenizer, maybe_convert_to_chatml(copy.deepcopy(sharegpt))["messages"])
    names = {"user": "human", "assistant": "gpt", "system": "system"}
    told = [{"from": names[one["role"]], "value": one["content"]} for one in messages]
    rows = [{"messages": messages}, {"messages": json.dumps(messages)}, sharegpt, {"conversations": told}]
    if messages[0]["role"] == "system":
        rows.append({"system": messages[0]["content"], "conversations": told[1:]})
    for row in rows:
        assert ours(tokenizer, row) == expected


@pytest.mark.parametrize("name", MARKED)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(messages=conversations())
def test_a_prompt_with_its_completion_is_learned_from_where_trl_begins(name, messages):
    """TRL learns the whole completion, and the template's newline behind it too; of several turns we learn each answer
    alone.
    """
    from trl.data_utils import _tokenize, common_prefix_length

    tokenizer = marked(name)
    prompt, completion = messages[:-1], messages[-1:]
    asked = _tokenize(tokenizer, prompt, add_generation_prompt=True)["input_ids"]
    whole = _tokenize(tokenizer, messages)["input_ids"]
    begins = common_prefix_length(asked, whole)
    ids, mask = ours(tokenizer, {"prompt": prompt, "completion": completion})
    assert ids == whole[: len(ids)]
    assert all(mask[begins:])
    assert not mask[begins - 1]
    if len(prompt) == 1:
        text = {"prompt": prompt[0]["content"], "completion": completion[0]["content"]}
        alpaca = {"instruction": text["prompt"], "input": "", "output": text["completion"]}
        asked_and_answered = {"question": text["prompt"], "answer": text["completion"]}
        assert ours(tokenizer, text) == ours(tokenizer, alpaca) == ours(tokenizer, asked_and_answered) == (ids, mask)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(messages=conversations(), other=TEXTS)
def test_pairs_have_trls_prompt_and_tokens_in_each_form(messages, other):
    """With a prompt, without one, and with a prompt as text beside whole conversations, as in
    UltraFeedback-binarized.
    """
    from trl.data_utils import _tokenize, common_prefix_length, maybe_extract_prompt

    if other == messages[-1]["content"]:
        return
    tokenizer = marked("ChatML")
    rejected = [*messages[:-1], {"role": "assistant", "content": other}]
    whole = {"chosen": messages, "rejected": rejected}
    apart = {"prompt": messages[:-1], "chosen": messages[-1:], "rejected": rejected[-1:]}
    binarized = {"prompt": messages[-2]["content"], **whole}
    for row in (whole, apart, binarized):
        expected = maybe_extract_prompt(copy.deepcopy(row))
        assert (expected["prompt"], expected["chosen"]) == (apart["prompt"], apart["chosen"])
        table = pd.DataFrame(imported_pairs.parse_unsplit_pairs([Row(row, "x-0", "x.jsonl: line 1")]))
        pairs = ComparisonSet(table, tokenizer)
        [pair] = pairs.groups[0]
        for side, answer in (("chosen", pair.chosen), ("rejected", pair.rejected)):
            asked = _tokenize(tokenizer, expected["prompt"], add_generation_prompt=True)["input_ids"]
            both = _tokenize(tokenizer, expected["prompt"] + expected[side])["input_ids"]
            assert common_prefix_length(asked, both) == len(asked)
            assert pairs.asked == [asked]
            newline = tokenizer.encode("\n", add_special_tokens=False)
            assert pairs.answers[answer] + newline == both[len(asked) :]
        assert pair.level == STRONG


@settings(max_examples=30)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=40), st.data())
def test_packed_rows_have_trls_positions_and_labels(lengths, draw):
    """Our rows through TRL's collator; and no more rows than half again as many as by its best fit, and one."""
    from datasets import Dataset
    from trl import pack_dataset
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    documents = [
        ([100 + number] * length, draw.draw(st.lists(st.booleans(), min_size=length, max_size=length)))
        for number, length in enumerate(lengths)
    ]
    rows = assign_documents_to_rows(lengths, range(len(lengths)), 20)
    best = pack_dataset(Dataset.from_dict({"input_ids": [ids for ids, _ in documents]}), 20, "bfd")
    assert sorted(one for row in rows for one in row) == [*range(len(lengths))]
    assert len(best) <= len(rows) <= 1.5 * len(best) + 1
    collate = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    batch = pack_documents([[documents[one] for one in row] for row in rows], 0)
    for number, row in enumerate(rows):
        ids = [token for one in row for token in documents[one][0]]
        labels = [token if kept else -100 for one in row for token, kept in zip(*documents[one], strict=True)]
        given_row = {"input_ids": ids, "labels": labels, "seq_lengths": [lengths[one] for one in row]}
        expected = collate([given_row])
        assert batch.tokens[number, : len(ids)].tolist() == expected["input_ids"][0].tolist()
        assert batch.response[number, : len(ids)].tolist() == (expected["labels"][0] != -100).tolist()
        positions = batch.inputs().get("position_ids", torch.arange(batch.tokens.shape[1]).repeat(len(rows), 1))
        assert positions[number, : len(ids)].tolist() == expected["position_ids"][0].tolist()
