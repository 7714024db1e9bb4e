from pathlib import Path

import pytest
import torch
from transformers import OPTConfig, OPTForCausalLM

from tasks.algorithms.offline.transition_tensors import Spaces
from tasks.common.errors import StageError
from tasks.offline.policies import files, kinds, trunks
from tests import repository
from tests.tasks import tiny

STORIES = Path(__file__).parents[5] / "shared/models/stories260K"


def stored(kind, path, **changes):
    tiny.ARCHITECTURES[kind](**changes).save_pretrained(path)
    return path


def states(trunk, *given):
    with torch.no_grad():
        return trunk.eval()(*given)


@pytest.mark.parametrize("kind", tiny.ARCHITECTURES)
def test_a_language_models_layers_carry_a_decision_transformer_that_is_saved_and_loaded(kind, tmp_path):
    trunk = trunks.load_language_model(stored(kind, tmp_path / "model"), None).trunk
    spaces, sizes = Spaces(3, 2, False), {"context": 4, "timesteps": 9, "scale": 2.0, "targets": [1.0]}
    policy = trunks.DecisionTransformer(spaces, trunk, **sizes).eval()
    given = torch.randn(2, 4), torch.randn(2, 4, 3), torch.rand(2, 4, 2), torch.arange(4).expand(2, 4)
    files.save_policy(policy, tmp_path / "policy")
    again = kinds.load_policy_of_any_kind(tmp_path / "policy")
    with torch.no_grad():
        assert torch.equal(again(*given), policy(*given))
        assert torch.allclose(policy(*given, last=True), policy(*given)[:, -1:], atol=1e-6)
    assert again.sizes == policy.sizes
    assert not list((tmp_path / "policy").glob("*.bin"))


@pytest.mark.parametrize("kind", tiny.ARCHITECTURES)
def test_its_layers_keep_their_weights(kind, tmp_path):
    whole = tiny.ARCHITECTURES[kind]().eval()
    whole.save_pretrained(tmp_path)
    model = trunks.load_language_model(tmp_path, None)
    tokens = torch.randint(16, (2, 7))
    with torch.no_grad():
        embeddings = model.tokens[tokens]
        if model.positions is not None:
            embeddings = embeddings + model.positions[:7]
        expected = whole.base_model(tokens).last_hidden_state
        assert torch.allclose(states(model.trunk, embeddings), expected, atol=1e-5)
        logits = whole(tokens).logits[:, :-1]
        expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        assert model.text(7).loss(model.trunk, tokens).item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("kind", tiny.ARCHITECTURES)
def test_another_of_its_size_has_as_many_weights_and_new_ones(kind, tmp_path):
    model = trunks.load_language_model(stored(kind, tmp_path), None).trunk
    torch.manual_seed(5)
    other = trunks.build_trunk(model.sizes)
    counts = [sum(p.numel() for p in trunk.parameters() if p.requires_grad) for trunk in (model, other)]
    assert counts[0] == counts[1]
    x = torch.randn(1, 3, model.width)
    assert not torch.allclose(states(model, x), states(other, x), atol=1e-3)


def test_learned_positions_are_taken_out_and_the_vocabulary_is_forgotten(tmp_path):
    model = trunks.load_language_model(stored("gpt2", tmp_path, vocab_size=500), None)
    assert not model.trunk.is_position_dependent()
    assert model.tokens.shape == (500, 32)
    assert sum(p.numel() for p in model.trunk.model.get_input_embeddings().parameters()) == 32
    assert all(module.p == 0 for module in model.trunk.modules() if isinstance(module, torch.nn.Dropout))


def test_a_gpt2_left_as_it_is_would_know_places():
    inner = tiny.gpt2().transformer
    trunk = trunks.HuggingFace(inner)
    torch.nn.init.normal_(inner.wpe.weight)
    assert trunk.is_position_dependent()


def test_a_model_whose_positions_cannot_be_taken_out_is_refused(tmp_path):
    sizes = {
        "hidden_size": 16,
        "ffn_dim": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "word_embed_proj_dim": 16,
    }
    ids = {"vocab_size": 8, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    OPTForCausalLM(OPTConfig(**sizes, **ids, init_std=0.5)).save_pretrained(tmp_path)
    with pytest.raises(StageError, match="its position embeddings cannot be taken out"):
        trunks.load_language_model(tmp_path, None)


@pytest.mark.parametrize(
    "content", [None, '{"model_type": "nonsense"}', '{"auto_map": {"AutoModelForCausalLM": "x.Y"}}']
)
def test_a_directory_without_a_model_that_can_be_loaded_is_named(tmp_path, content):
    if content:
        (tmp_path / "config.json").write_text(content)
        (tmp_path / "model.safetensors").touch()
    with pytest.raises(StageError, match=f"^{tmp_path}: (holds no weights|cannot be loaded)"):
        trunks.load_language_model(tmp_path, None)


def test_an_untied_head_stays_apart(tmp_path):
    model = trunks.load_language_model(stored("llama", tmp_path, tie_word_embeddings=False), None)
    assert model.head is not None
    assert trunks.load_language_model(stored("gpt2", tmp_path / "gpt2"), None).head is None


@pytest.mark.skipif(not STORIES.exists(), reason=repository.needs("models/stories260K"))
def test_a_real_small_llama_fits():
    model = trunks.load_language_model(STORIES, None)
    hidden = states(model.trunk, torch.randn(2, 60, model.trunk.width), torch.arange(1, 60, 3))
    assert hidden.shape == (2, 20, model.trunk.width)
