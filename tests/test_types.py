"""The Protocols fit the objects that they are made for, and their modules hold no code that runs."""

import ast
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast
from typing_extensions import get_protocol_members

from tasks.algorithms.language import causal_lm
from tasks.common.tokenizers import Tokenizer
from tests.tasks.tiny import ARCHITECTURES, llama_scorer

ROOT = Path(__file__).parent.parent
TYPES = {"tasks.algorithms.language.causal_lm", "tasks.common.tokenizers"}


@pytest.mark.tree
@pytest.mark.parametrize("module", sorted(TYPES))
def test_modules_of_types_hold_nothing_that_runs(module):
    """These modules are no code deps either: they hold Protocols and typed dictionaries, whose methods have no body."""
    tree = ast.parse((ROOT / module.replace(".", "/")).with_suffix(".py").read_text())
    _, *rest = tree.body
    classes = [node for node in rest if isinstance(node, ast.ClassDef)]
    others = [ast.unparse(node) for node in rest if not isinstance(node, ast.ClassDef | ast.Import | ast.ImportFrom)]
    assert classes
    assert all(text.startswith("Conversation = ") for text in others)
    for one in classes:
        for node in one.body:
            if isinstance(node, ast.FunctionDef):
                node = node.body[-1]
            assert isinstance(node, ast.AnnAssign | ast.Expr), f"{module}: {one.name}: {ast.unparse(node)}"
            assert getattr(node, "value", None) is None or isinstance(node.value, ast.Constant)


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_models_of_hugging_face_have_what_the_stages_ask_of_them(name):
    model = ARCHITECTURES[name]()
    for protocol in (causal_lm.PretrainedCausalLM, causal_lm.SwitchableAttention):
        assert not {member for member in get_protocol_members(protocol) if not hasattr(model, member)}
    assert not {
        member for member in get_protocol_members(causal_lm.PretrainedModelConfig) if not hasattr(model.config, member)
    }


def test_classifiers_of_hugging_face_have_what_the_stages_ask_of_them():
    model = llama_scorer()
    assert not {member for member in get_protocol_members(causal_lm.PretrainedClassifier) if not hasattr(model, member)}


def test_tokenizers_of_hugging_face_have_what_the_stages_ask_of_them():
    members = get_protocol_members(Tokenizer) - {"chat_template"}  # attributes of instances
    special = {"eos_token", "eos_token_id", "bos_token_id", "pad_token", "pad_token_id"}  # found by __getattr__
    assert not {member for member in members - special if not hasattr(PreTrainedTokenizerFast, member)}
    assert {name.removesuffix("_id") for name in special} <= set(PreTrainedTokenizerFast.SPECIAL_TOKENS_ATTRIBUTES)
