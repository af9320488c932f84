"""A training whose networks diverge, or are replaced under it, says so with every backend."""

import pytest
from rlox.callbacks import Callback, CheckpointCallback
from rlox.errors import DivergenceError
from rlox_offpolicy.sac import SAC
from rlox_onpolicy.ppo import PPO
from small_algorithms import build
from torch import nn

SMALL = {"n_envs": 4, "n_steps": 32, "batch_size": 32, "n_epochs": 2}

BACKENDS = [
    (name, {"backend": backend})
    for name in ("ppo", "dqn", "sac", "iql")
    for backend in ("torch", "native")
] + [(name, {}) for name in ("crossq", "fqe")]


class Spoil(Callback):
    """Makes the first network's parameters NaN after some gradient steps."""

    def __init__(self, after=3):
        self.after = after
        self.spoilt = False

    def on_train_batch(self, **kwargs):
        if kwargs["gradient_step"] == self.after:
            next(iter(kwargs["algo"].optimizers.values())).parameters.fill_(float("nan"))
            self.spoilt = True

    def on_iteration_end(self, **kwargs):
        assert not self.spoilt


@pytest.mark.parametrize(("name", "options"), BACKENDS)
def test_parameters_that_are_not_finite_end_a_training(name, options):
    """At the end of the iteration, before a callback sees it; before that all trains as ever."""
    spoil = Spoil()
    algorithm = build(name, callbacks=[spoil], **options)
    first = next(iter(algorithm.optimizers))
    with pytest.raises(DivergenceError, match=rf"diverged: after .* the parameters of {first}"):
        algorithm.train(512)
    assert spoil.spoilt


@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize(
    ("env", "env_backend"), [("CartPole-v1", "native"), ("Pendulum-v1", "gymnasium")]
)
def test_a_diverged_policy_is_not_the_envs_fault(env, env_backend, backend):
    """The error says which steps, which network and what to lower, and no env is blamed."""
    ppo = PPO(env, vf_coef=1e38, env_backend=env_backend, backend=backend, **SMALL)
    with pytest.raises(
        DivergenceError, match=r"after 128 env steps the parameters of policy .* lower the learning"
    ):
        ppo.train(2_000)


def test_an_error_within_the_iteration_is_reported_as_divergence():
    """The env that refuses a diverged policy's actions is the cause, not the error."""
    small = {"hidden": 8, "batch_size": 16, "learning_starts": 32, "steps_per_iteration": 64,
             "buffer_size": 500}  # fmt: skip
    sac = SAC("Pendulum-v1", **small, callbacks=[Spoil(after=1)])
    with pytest.raises(DivergenceError, match="the parameters of policy") as caught:
        sac.train(256)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "finite" in str(caught.value.__cause__)


def test_checkpoints_of_a_diverged_training_stay_good(tmp_path):
    """The iteration that diverged is not saved."""
    saving = CheckpointCallback(128, tmp_path, verbose=False)
    ppo = PPO("CartPole-v1", **SMALL, callbacks=[saving, Spoil(after=12)])
    with pytest.raises(DivergenceError):
        ppo.train(1_000)
    assert [path.name for path in tmp_path.iterdir()] == ["step-128.safetensors"]
    restored = PPO.from_checkpoint(tmp_path / "step-128.safetensors")
    assert restored.optimizer.is_finite()


class SpoilAtTheEnd(Callback):
    """Makes the first network's parameters NaN in one of the last hooks."""

    def __init__(self, hook):
        setattr(self, hook, self.spoil)

    def spoil(self, **kwargs):
        next(iter(kwargs["algo"].optimizers.values())).parameters.fill_(float("nan"))


@pytest.mark.parametrize("hook", ["on_iteration_end", "on_training_end"])
@pytest.mark.parametrize("name", ["ppo", "dqn", "fqe"])
def test_what_a_last_hook_made_of_the_parameters_is_reported(name, hook):
    """After the last iteration too, for what is saved next would be worthless."""
    algorithm = build(name, callbacks=[SpoilAtTheEnd(hook)])
    with pytest.raises(DivergenceError, match="diverged: after"):
        algorithm.train(64)


def replace_data(policy):
    """Give all parameters the data of one vector."""
    values = nn.utils.parameters_to_vector(policy.parameters()).detach().clone()
    nn.utils.vector_to_parameters(values, policy.parameters())


REPLACED = "parameters of the .* were replaced, .*copy_"


@pytest.mark.parametrize(("name", "options"), BACKENDS)
def test_a_training_of_replaced_parameters_is_refused(name, options):
    """Before anything is learnt, for gradient steps would not reach them."""
    algorithm = build(name, **options)
    algorithm.train(64)
    for optimizer in algorithm.optimizers.values():
        optimizer.require_views()
    replace_data(getattr(algorithm, {"dqn": "network", "fqe": "critic"}.get(name, "policy")))
    before = algorithm.clock.steps
    with pytest.raises(RuntimeError, match=REPLACED):
        algorithm.train(64)
    assert algorithm.clock.steps == before


@pytest.mark.parametrize("backend", ["torch", "native"])
def test_two_trainings_of_one_module_are_refused(backend):
    """The second takes the parameters over; the first says so, and a copy is for both."""
    first = PPO("CartPole-v1", backend=backend, **SMALL)
    second = PPO("CartPole-v1", policy=first.policy, backend=backend, **SMALL)
    with pytest.raises(RuntimeError, match=REPLACED):
        first.train(128)
    second.train(128)
