"""Episodes on one cache against plain passes over whole transcripts."""

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from tasks.algorithms.agents.acting import ActionSampling, play_episodes
from tasks.algorithms.agents.transcripts import compute_action_logps, make_transcripts, stack_sampled_logps
from tasks.algorithms.common.errors import TrainingError
from tests.tasks.tiny import ARCHITECTURES, llama

OPENINGS = [[3, 4, 5, 6, 7], [8], [9, 3, 1], [2, 2], [12, 13]]
ENDS = frozenset({0, 5, 11})
GREEDY, SAMPLED = (ActionSampling(6, temperature, ENDS, None) for temperature in (0.0, 0.7))


def world(turns):
    """Answers each action with an observation that depends on it; row n ends after `turns[n]` turns."""
    heard = [[] for _ in turns]

    def react(actions):
        found = []
        for action in actions:
            heard[action.row].append(action)
            over = len(heard[action.row]) == turns[action.row]
            found.append(None if over else [1 + sum(action.tokens) % 4] * (1 + action.tokens[0] % 3))
        return found

    return react, heard


def played(model, turns, sampling=SAMPLED, seed=0, openings=OPENINGS):
    react, heard = world(turns)
    return play_episodes(model, openings, react, sampling, torch.Generator().manual_seed(seed)), heard


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_log_probabilities_are_those_of_a_plain_pass(architecture, sampling):
    """Rows end at other turns, actions at other lengths, and observations differ in length."""
    model = ARCHITECTURES[architecture](1)
    found, _ = played(model, [4, 1, 3, 2, 4], sampling)
    batch = make_transcripts(found.transcripts, pad=0)
    with torch.no_grad():
        plain = compute_action_logps(model, batch, sampling.temperature or 1.0)
    assert torch.allclose(plain, stack_sampled_logps(found.transcripts), atol=2e-5)
    assert batch.taken.sum(1).tolist() == [4, 1, 3, 2, 4]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_actions_are_those_that_every_turn_sampled_anew_gives(architecture):
    model = ARCHITECTURES[architecture](2)
    found, _ = played(model, [3] * 5, GREEDY)
    for transcript in found.transcripts:
        for turn in range(3):
            said = transcript.action(turn)
            before = [
                token
                for token, at, acts in zip(transcript.tokens, transcript.turns, transcript.acts, strict=True)
                if at < turn or (at == turn and not acts)
            ]
            for place, token in enumerate(said):
                logits = model(input_ids=torch.tensor([[*before, *said[:place]]]), use_cache=False).logits[0, -1]
                assert logits.argmax().item() == token
            assert said[-1] in ENDS or len(said) == GREEDY.max_action_tokens


def test_a_row_does_not_depend_on_when_others_end():
    """Random numbers follow from the turn and the row."""
    model = llama(3)
    long, _ = played(model, [4] * 5)
    mixed, _ = played(model, [4, 1, 1, 4, 1])
    for row in (0, 3):
        assert long.transcripts[row].tokens == mixed.transcripts[row].tokens
    again, _ = played(model, [4, 1, 1, 4, 1])
    assert [one.tokens for one in again.transcripts] == [one.tokens for one in mixed.transcripts]


def test_what_the_world_hears_is_what_the_transcript_has():
    found, heard = played(llama(4), [3, 2, 1, 3, 2])
    for row, transcript in enumerate(found.transcripts):
        assert [action.tokens for action in heard[row]] == [transcript.action(turn) for turn in range(len(heard[row]))]
        assert [action.ended for action in heard[row]] == [action.tokens[-1] in ENDS for action in heard[row]]
    assert {action.ended for row in heard for action in row} == {True, False}


def test_an_episode_ends_where_the_context_does():
    sampling = ActionSampling(6, 0.7, ENDS, context=16)
    found, heard = played(llama(5), [9] * 5, sampling)
    assert found.cut == [True] * 5
    assert all(len(one.tokens) <= 16 for one in found.transcripts)
    assert all(1 <= len(row) < 9 for row in heard)
    none, unheard = played(llama(5), [9] * 5, ActionSampling(6, 0.7, ENDS, context=8))
    assert len(unheard[0]) == 0, "the opening alone leaves no room"
    assert none.transcripts[0].tokens == []
    assert none.cut[0]


def test_a_model_with_a_sliding_window_is_refused():
    """Its cache has forgotten tokens that a later turn would need moved."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 16, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 4}
    model = MistralForCausalLM(MistralConfig(**sizes, **heads, eos_token_id=None, bos_token_id=None)).eval()
    with pytest.raises(TrainingError, match="expected plain attention, without a sliding window"):
        played(model, [3] * 5)
