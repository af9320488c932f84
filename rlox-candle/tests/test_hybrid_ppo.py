"""HybridPPO: contract, exact resume, staleness, and learning like PPO."""

import pytest
import torch
from rlox.algorithms.hybrid_ppo import HybridPPO
from rlox.callbacks import Callback
from rlox.errors import ConfigError, EnvError
from rlox.testing import (
    check_config_documented,
    check_config_round_trip,
    check_spec,
    check_unknown_option,
)

SMALL = {"n_envs": 4, "n_steps": 32, "batch_size": 64, "n_epochs": 2}


@pytest.mark.parametrize(
    "check", [check_spec, check_config_documented, check_config_round_trip, check_unknown_option]
)
def test_the_declarations_conform(check):
    """The suite's checks that do not replace the env by a probe, as it must be native."""
    assert check("hybrid_ppo", "CartPole-v1", **SMALL) is None


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_a_training_counts_env_steps_and_reports_floats(env_id):
    """Whole iterations, every metric a float, and actions of the space."""
    layers = {"hidden": (8, 6, 5), "critic_hidden": (7,)}
    with HybridPPO(env_id, seed=0, **layers, **SMALL) as algorithm:
        metrics = algorithm.train(1_000)
        assert algorithm.clock.env_steps == 1_024
        assert all(isinstance(value, float) for value in metrics.values())
        assert metrics["weights_staleness"] == 0
        space = algorithm.collector.env.action_space
        assert space.contains(algorithm.predict(algorithm.collector.env.observation_space.sample()))


@pytest.mark.parametrize("overlap", [False, True])
def test_the_same_seed_gives_the_same_weights(overlap):
    """Bit for bit, also if the thread collects while torch learns; another seed differs."""

    def trained(seed):
        with HybridPPO("CartPole-v1", seed=seed, overlap=overlap, **SMALL) as algorithm:
            algorithm.train(1_024)
            return algorithm.optimizer.parameters.clone()

    assert torch.equal(trained(0), trained(0))
    assert not torch.equal(trained(0), trained(1))


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_a_resumed_training_ends_where_the_uninterrupted_one_does(tmp_path, env_id):
    """2N iterations equal N, save, restore and N, to the last bit."""
    path = tmp_path / "checkpoint.safetensors"
    with HybridPPO(env_id, seed=0, **SMALL) as whole:
        whole.train(1_024)
        expected = whole.optimizer.parameters.clone()
    with HybridPPO(env_id, seed=0, learning_rate=whole.config.learning_rate, **SMALL) as half:
        half.clock.target = 1_024
        _iterations(half, 4)
        half.save(path)
    with HybridPPO.from_checkpoint(path) as resumed:
        assert resumed.env_source == env_id
        resumed.save(tmp_path / "again.safetensors")  # before the first env step
    with HybridPPO.from_checkpoint(tmp_path / "again.safetensors") as resumed:
        resumed.train()
        assert torch.equal(resumed.optimizer.parameters, expected)


def _iterations(algorithm, count):
    """Train some iterations of a longer training."""

    class Stop(Callback):
        def on_iteration_end(self, **kwargs):
            return algorithm.clock.iterations < count

    algorithm.callbacks.callbacks.append(Stop())
    algorithm.train(1_024)


def test_an_overlapped_training_goes_on_with_new_episodes(tmp_path):
    """Its rollouts under way are not saved; policy, clock and statistics are."""
    path = tmp_path / "checkpoint.safetensors"
    with HybridPPO("CartPole-v1", seed=0, overlap=True, **SMALL) as algorithm:
        algorithm.train(1_024)
        algorithm.save(path)
        finished = algorithm.collector.statistics.finished
        parameters = algorithm.optimizer.parameters.clone()
    with HybridPPO.from_checkpoint(path) as resumed:
        assert torch.equal(resumed.optimizer.parameters, parameters)
        assert resumed.collector.statistics.finished == finished > 0
        assert resumed.train(1_024)["episodes"] > finished


def test_staleness_is_bounded_and_logged():
    """0 by default; with overlap 0 in the first iteration and 1 from then on."""

    class Record(Callback):
        def __init__(self):
            self.rows = []

        def on_iteration_end(self, **kwargs):
            self.rows.append(kwargs["metrics"]["weights_staleness"])
            return True

    for overlap, expected in ((False, [0.0] * 4), (True, [0.0, 1.0, 1.0, 1.0])):
        record = Record()
        with HybridPPO(
            "CartPole-v1", seed=0, overlap=overlap, callbacks=[record], **SMALL
        ) as algorithm:
            algorithm.train(4 * 128)
        assert record.rows == expected


def test_on_step_counts_every_vector_step():
    """T calls per rollout, each with N more env steps."""
    steps = []

    class Count(Callback):
        def on_step(self, **kwargs):
            steps.append(kwargs["step"])
            return True

    with HybridPPO("CartPole-v1", seed=0, callbacks=[Count()], **SMALL) as algorithm:
        algorithm.train(256)
    assert steps == list(range(4, 257, 4))


def test_a_policy_that_candle_sees_otherwise_is_an_error():
    """A network that differs from the one with these weights is reported at the first sync."""
    with HybridPPO("CartPole-v1", seed=0, **SMALL) as algorithm:
        forward = algorithm.policy.critic.forward
        algorithm.policy.critic.forward = lambda inputs: forward(inputs) + 1e-3
        with pytest.raises(RuntimeError, match="candle and torch disagree about the policy"):
            algorithm.train(128)


def test_the_first_advantages_are_the_policys():
    """The policy learns from its own actions: the ratio is 1 in the first minibatch."""
    with HybridPPO("Pendulum-v1", seed=0, n_envs=4, n_steps=16, batch_size=64, n_epochs=1) as one:
        assert one.train(64)["approx_kl"] == pytest.approx(0, abs=1e-6)
        assert one.train(64)["clip_fraction"] == 0


@pytest.mark.parametrize(
    ("env", "options", "error", "message"),
    [
        (lambda: None, {}, EnvError, "env must be the id of a native env, got function; PPO takes"),
        ("CartPole-v0", {}, EnvError, "CartPole-v0"),
        ("CartPole-v1", {"env_backend": "gymnasium"}, ConfigError, "env_backend"),
        ("CartPole-v1", {"recurrent": "lstm"}, ConfigError, "recurrent"),
        (
            "CartPole-v1",
            {"frame_stack": 2},
            ConfigError,
            "frame_stack must be 1, got 2: the collecting thread",
        ),
        ("CartPole-v1", {"overlaps": True}, ConfigError, "overlap"),
    ],
)
def test_what_it_cannot_do_is_refused(env, options, error, message):
    """Before any work starts."""
    with pytest.raises(error, match=message):
        HybridPPO(env, **SMALL | options)
