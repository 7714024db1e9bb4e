import pytest
import torch
from transformers import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_cosine_with_min_lr_schedule_with_warmup,
    get_linear_schedule_with_warmup,
)

from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.common.optimizer import make_lr_schedule
from tests.tasks.optimizers import make_optimizer
from tests.tasks.tiny import ARCHITECTURES, gpt2, llama, llama_scorer


def names(model, part):
    """The weights that one of the parts updates."""
    taken = {id(p) for group in part.param_groups for p in group["params"]}
    return {name for name, p in model.named_parameters() if id(p) in taken}


def test_warm_up_and_cosine_decay_by_hand():
    factor = make_lr_schedule("cosine", steps=104, warmup=0.04, final_rate=0.1)
    assert [factor(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert factor(4) == pytest.approx(1.0)
    assert factor(54) == pytest.approx(0.55), "halfway"
    assert factor(104) == pytest.approx(0.1)
    assert factor(500) == pytest.approx(0.1)
    assert make_lr_schedule("cosine", 1, 0.03, 0.1)(0) == 1.0, "one step is not none"


def rates(make, steps, *arguments, **options):
    """The rates of `steps` steps by a schedule of torch or transformers, for a peak of 1."""
    judged = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, found = make(judged, *arguments, **options), []
    for _ in range(steps):
        found.append(scheduler.get_last_lr()[0])
        judged.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("steps", [1, 7, 40])
@pytest.mark.parametrize("warmup", [0.0, 0.2, 0.5, 1.0])
def test_the_schedules_are_those_of_transformers(steps, warmup):
    """Theirs begins the warm-up at 0, and so spends one step on nothing: the warm-up here is one step ahead of
    theirs.
    """
    ramp = max(1, int(warmup * steps))
    theirs = {
        ("constant", 0.3): rates(get_constant_schedule_with_warmup, steps + 1, ramp),
        ("linear", 0.0): rates(get_linear_schedule_with_warmup, steps + 1, ramp, steps),
        ("cosine", 0.0): rates(get_cosine_schedule_with_warmup, steps + 1, ramp, steps),
        ("cosine", 0.3): rates(get_cosine_with_min_lr_schedule_with_warmup, steps + 1, ramp, steps, min_lr_rate=0.3),
    }
    for (kind, final_rate), expected in theirs.items():
        factor = make_lr_schedule(kind, steps, warmup, final_rate)
        assert [factor(step) for step in range(ramp - 1)] == pytest.approx(expected[1:ramp]), kind
        assert factor(ramp - 1) == 1.0
        assert [factor(step) for step in range(ramp, steps)] == pytest.approx(expected[ramp:steps]), kind


def test_a_linear_schedule_that_ends_above_0_is_that_of_torch():
    factor, torchs = make_lr_schedule("linear", 30, 0.0, 0.25), torch.optim.lr_scheduler.LinearLR
    expected = rates(torchs, 31, start_factor=1.0, end_factor=0.25, total_iters=29)
    assert [factor(step) for step in range(1, 31)] == pytest.approx(expected[:30])
    assert factor(30) == pytest.approx(0.25)


def test_betas_are_those_of_adamw():
    model, other = llama(), llama()
    ours = make_optimizer(model, 0.01, 3, clip=1e9, betas=(0.5, 0.7), schedule="constant", warmup=0.0)
    torchs = torch.optim.AdamW(other.parameters(), lr=0.01, betas=(0.5, 0.7), weight_decay=0.0)
    for number in range(3):
        steps(model, ours, [number])
        generator = torch.Generator().manual_seed(number)
        for p in other.parameters():
            p.grad = torch.randn(p.shape, generator=generator)
        torchs.step()
    for p, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, expected, rtol=1e-5, atol=1e-6)


def test_a_step_uses_the_rate_it_tells():
    model = llama()
    optimizer = make_optimizer(model, 0.01, steps=10, clip=1.0, warmup=0.4)
    rates = []
    for _ in range(3):
        rates.append(optimizer.learning_rate)
        before = model.model.norm.weight.detach().clone()
        model.model.norm.weight.grad = torch.ones_like(before)
        optimizer.step()
        moved = (model.model.norm.weight - before).abs().mean().item()
        assert moved == pytest.approx(rates[-1], rel=1e-3), "AdamW moves by its rate under a constant gradient"
    assert rates == pytest.approx([0.0025, 0.005, 0.0075])


def test_clipping_and_clearing():
    model = llama()
    optimizer = make_optimizer(model, 0.01, steps=10, clip=0.5)
    for p in model.parameters():
        p.grad = torch.full_like(p, 3.0)
    norm = sum(9.0 * p.numel() for p in model.parameters()) ** 0.5
    seen = {}
    optimizer.parts[0].register_step_pre_hook(
        lambda *_: seen.update(norm=sum(p.grad.square().sum() for p in model.parameters()).sqrt().item())
    )
    assert optimizer.step() == pytest.approx(norm, rel=1e-4), "the norm before clipping"
    assert seen["norm"] == pytest.approx(0.5, rel=1e-3), "what the update saw"
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("make", [*ARCHITECTURES.values(), llama_scorer])
def test_every_weight_has_one_optimizer(make, kind):
    model = make()
    parts = [names(model, part) for part in make_optimizer(model, 0.01, 10, clip=1.0, kind=kind).parts]
    everything = {name for name, _ in model.named_parameters()}
    assert set.union(*parts) == everything
    assert sum(map(len, parts)) == len(everything)


@pytest.mark.parametrize("make", [*ARCHITECTURES.values(), llama_scorer])
def test_muon_takes_hidden_matrices_only(make):
    model = make()
    adamw, muon = (names(model, part) for part in make_optimizer(model, 0.01, 10, clip=1.0, kind="muon").parts)
    assert all(".layers." in name or ".h." in name for name in muon)
    hidden = [name for name, p in model.named_parameters() if p.dim() == 2 and (".layers." in name or ".h." in name)]
    assert muon == set(hidden)
    assert any("embed" in name or "wte" in name for name in adamw)


def test_tied_embeddings_stay_with_adamw():
    model = llama(tie_word_embeddings=True)
    adamw, _ = (names(model, part) for part in make_optimizer(model, 0.01, 10, clip=1.0, kind="muon").parts)
    assert "model.embed_tokens.weight" in adamw


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_weight_decay_touches_matrices_only(kind):
    """Without a gradient only decay changes a weight, by rate times decay."""
    model = gpt2()
    optimizer = make_optimizer(model, 0.01, steps=1, clip=1.0, kind=kind, weight_decay=0.5)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in model.named_parameters():
        expected = before[name] * (1 - 0.01 * 0.5) if p.dim() > 1 else before[name]
        torch.testing.assert_close(p.detach(), expected, rtol=1e-5, atol=1e-6)


def test_frozen_weights_stay():
    model = llama()
    model.model.embed_tokens.weight.requires_grad_(False)
    optimizer = make_optimizer(model, 0.01, 10, clip=1.0)
    assert "model.embed_tokens.weight" not in names(model, optimizer.parts[0])


def steps(model, optimizer, numbers):
    """Take steps with gradients that depend only on the number of the step."""
    for number in numbers:
        generator = torch.Generator().manual_seed(number)
        for p in model.parameters():
            if p.requires_grad:
                p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("stop", [0, 1, 4])
def test_a_loaded_optimizer_goes_on_to_the_same_bits(kind, stop):
    def made():
        model = gpt2()
        model.transformer.wpe.weight.requires_grad_(False)
        return model, make_optimizer(model, 0.01, 6, clip=1.0, kind=kind, weight_decay=0.1, warmup=0.4)

    whole, optimizer = made()
    steps(whole, optimizer, range(6))
    first, first_optimizer = made()
    steps(first, first_optimizer, range(stop))
    second, second_optimizer = made()
    steps(second, second_optimizer, range(90, 90 + stop))  # loading replaces the state
    second.load_state_dict(first.state_dict())
    second_optimizer.load_state_dict(first_optimizer.state_dict())
    steps(first, first_optimizer, range(50, 52))  # and no tensor is shared
    steps(second, second_optimizer, range(stop, 6))
    assert second_optimizer.learning_rate == optimizer.learning_rate
    for name, tensor in optimizer.state_dict().items():
        assert torch.equal(second_optimizer.state_dict()[name], tensor), name
    for name, p in whole.named_parameters():
        assert torch.equal(second.get_parameter(name), p), name


def test_two_steps_of_adamw_by_hand():
    """beta1 0.9, beta2 0.95, without weight decay: gradients of 1 and then 3 on the norm's weights, which start at
    1.
    """
    model = llama()
    optimizer = make_optimizer(model, 0.01, steps=100, clip=1e9, warmup=0.0)
    weight, rates = model.model.norm.weight, []
    for gradient in (1.0, 3.0):
        rates.append(optimizer.learning_rate)
        weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
    momentum = (0.9 * 0.1 * 1 + 0.1 * 3) / (1 - 0.9**2)
    square = (0.95 * 0.05 * 1 + 0.05 * 9) / (1 - 0.95**2)
    expected = 1 - rates[0] - rates[1] * momentum / square**0.5
    torch.testing.assert_close(weight.detach(), torch.full_like(weight, expected), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_gradient_that_is_no_number_moves_no_weight(kind, bad):
    """One bad entry is enough, since clipping by the norm would make every gradient nan."""
    model = gpt2()
    optimizer = make_optimizer(model, 0.01, 6, clip=1.0, kind=kind, weight_decay=0.1)
    steps(model, optimizer, range(2))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    model.transformer.wpe.weight.grad[3, 1] = bad
    with pytest.raises(TrainingError, match=r"^the gradient's norm is (inf|nan): training has diverged$"):
        optimizer.step()
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
