"""Steps in bfloat16: near those in single precision, and with no weight that was rounded before it learned."""

from itertools import islice

import pytest
import torch

from benchmarks.offline import CASES, make_random_transitions
from benchmarks.offline_ours import BUILDERS
from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.half_precision import iterate_under_autocast
from tasks.algorithms.offline.networks.mlp import MeanAction
from tasks.algorithms.offline.transition_tensors import Spaces

CPU = torch.device("cpu")


def test_a_weight_is_rounded_anew_after_it_has_learned():
    """In one step: a product, a step of the optimizer, and a product again."""
    torch.manual_seed(0)
    policy, seen = MeanAction(Spaces(8, 2, False), [16]), torch.randn(32, 8)
    optimizer, found = Adam(policy.parameters(), 0.1), []

    def steps():
        while True:
            before = policy(seen)
            optimizer.step(before.square().mean())
            yield before.detach(), policy(seen).detach()

    for before, after in islice(iterate_under_autocast(steps(), CPU, True), 2):
        found += [before, after]
    assert not torch.equal(found[0], found[1])
    assert torch.equal(found[1], found[2]), "the next step begins with what this one ended with"


def test_it_is_off_between_steps_and_where_nobody_asks():
    for half in (False, True):
        for inside in islice(
            iterate_under_autocast(iter(lambda: torch.is_autocast_enabled("cpu"), None), CPU, half), 2
        ):
            assert inside is half
            assert not torch.is_autocast_enabled("cpu")
    assert list(iterate_under_autocast([1, 2], CPU, True)) == [1, 2]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_method_stays_near_and_keeps_whole_weights(case, one_thread):
    if case.settings["method"] in ("td3_bc", "rebrac"):
        pytest.importorskip("tasks.extensions.continuous_control")
    data, rows = make_random_transitions(case.spaces, 3), {}
    settings = case.settings | (
        {"hidden": [32, 32]} if "hidden" in case.settings else {"width": 32, "context": 8, "batch_size": 32}
    )
    for half in (False, True):
        torch.manual_seed(0)
        policy, steps = BUILDERS[case.settings["method"]](data, case.spaces, settings, torch.Generator().manual_seed(0))
        rows[half] = [*islice(iterate_under_autocast(steps, CPU, half), 4)][-1]
        assert all(parameter.dtype == torch.float32 for parameter in policy.parameters())
    differs = False
    for name, exact in rows[False].items():
        assert rows[True][name].dtype == exact.dtype, name
        assert rows[True][name].item() == pytest.approx(exact.item(), rel=0.05, abs=0.05), name
        differs |= rows[True][name].item() != exact.item()
    assert differs, "nothing was rounded"
