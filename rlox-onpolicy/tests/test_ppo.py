"""PPO as a whole: what it learns from, what it reports, what it refuses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from rlox.callbacks import Callback, EvalCallback
from rlox.errors import CheckpointError, ConfigError, EnvError, SpaceError
from rlox.losses import ClippedSurrogate
from rlox.networks.actor_critics import DiscretePolicy
from rlox.protocols import OnPolicyActor
from rlox.training.hooks import Hooks
from rlox.training.loop import run_iteration
from rlox_onpolicy.configs import PPOConfig
from rlox_onpolicy.ppo import PPO

SMALL = {"n_envs": 2, "n_steps": 16, "batch_size": 16, "n_epochs": 2}


def make(env: Any = "CartPole-v1", **options: Any) -> PPO:
    """Return a small PPO over gymnasium envs."""
    return PPO(env, **{**SMALL, "env_backend": "gymnasium", **options})


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_ratio_is_one_on_the_first_minibatch(env: str) -> None:
    """Before any update the policy is the one that acted, up to float rounding."""
    ppo = make(env, n_steps=64)
    batch = ppo.collector.collect(ppo.policy, 64)
    minibatch = next(batch.sample_minibatches(16))
    log_probs, _ = ppo.policy.get_logprob_and_entropy(minibatch.obs, minibatch.actions)
    torch.testing.assert_close(
        (log_probs - minibatch.log_probs).exp(), torch.ones(16), rtol=1e-5, atol=1e-5
    )


def test_iterations_of_ones_own_need_an_end_of_the_schedules() -> None:
    """A line to the end of a training is refused where none runs; else all rounds learn."""
    ppo = make(learning_rate="linear(1e-3, 0)")
    with pytest.raises(
        ConfigError, match=r"^learning_rate=linear\(0.001, 0.0\) goes on to the end"
    ):
        run_iteration(ppo)
    assert ppo.clock.env_steps == 0
    ppo.clock.extend(64)
    rates = [run_iteration(ppo)["learning_rate"] for _ in range(2)]
    assert rates == pytest.approx([1e-3, 5e-4])
    with pytest.raises(ConfigError, match="none runs"):
        run_iteration(ppo)


def test_same_seed_gives_the_same_parameters() -> None:
    """Two runs of one seed agree bit for bit, another seed does not."""
    runs = [make(seed=seed) for seed in (3, 3, 4)]
    for ppo in runs:
        ppo.train(96)
    first, second, other = (ppo.optimizer.parameters for ppo in runs)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_the_global_random_state_plays_no_part() -> None:
    """Seeding torch and NumPy globally changes nothing, nor does training change them."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = make()
    first.train(64)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    second = make()
    second.train(64)
    assert torch.equal(first.optimizer.parameters, second.optimizer.parameters)


def test_train_counts_env_steps_and_returns_the_last_metrics() -> None:
    """Training rounds up to whole iterations and goes on from where it was."""
    ppo = make()
    metrics = ppo.train(total_timesteps=33)
    assert ppo.clock.env_steps == 64
    assert ppo.clock.gradient_steps == 2 * 2 * 2
    assert {"mean_reward", "policy_loss", "value_loss", "entropy", "approx_kl"} <= set(metrics)
    assert all(isinstance(value, float) for value in metrics.values())
    ppo.train(32)
    assert ppo.clock.env_steps == 96


def test_mean_reward_is_the_mean_return_of_finished_episodes() -> None:
    """The reported mean is that of the episodes a callback sees end, not a rollout's sum."""

    class Watch(Callback):
        def __init__(self) -> None:
            self.returns: list[float] = []
            self.running = np.zeros(2)

        def on_rollout_end(self, **kwargs: Any) -> None:
            batch = kwargs["batch"]
            ended = (batch.terminated | batch.truncated).reshape(-1, 2).numpy()
            for rewards, done in zip(batch.rewards.reshape(-1, 2).numpy(), ended, strict=True):
                self.running += rewards
                self.returns += self.running[done].tolist()
                self.running[done] = 0

    watch = Watch()
    metrics = make(callbacks=[watch]).train(640)
    assert metrics["mean_reward"] == pytest.approx(np.mean(watch.returns[-100:]))


def test_learning_rate_falls_linearly_to_zero_by_default() -> None:
    """The rate of an iteration is the schedule's at the env steps before it."""
    rates: list[float] = []

    class Watch(Callback):
        def on_iteration_end(self, **kwargs: Any) -> None:
            rates.append(kwargs["metrics"]["learning_rate"])

    make(callbacks=[Watch()], learning_rate="linear(1.0, 0.0)").train(4 * 32)
    assert rates == pytest.approx([1.0, 0.75, 0.5, 0.25])


def test_a_schedule_may_be_a_callable() -> None:
    """``schedules`` wins over the config."""
    assert make(schedules={"learning_rate": lambda step: 0.5}).train(32)["learning_rate"] == 0.5


def test_an_unknown_schedule_is_refused() -> None:
    """A misspelt schedule name is an error with a suggestion, not ignored."""
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        make(schedules={"learning_rat": lambda step: 0.5})


def test_target_kl_stops_the_epochs() -> None:
    """A tiny target leaves fewer optimiser steps than the epochs would take."""
    ppo = make(target_kl=1e-9, learning_rate=0.1, n_epochs=8)
    ppo.train(32)
    assert 0 < ppo.clock.gradient_steps < 8 * 2


def test_zero_learning_rate_changes_no_parameter() -> None:
    """With a step size of 0 the parameters stay as they were."""
    ppo = make(learning_rate=0.0)
    before = ppo.optimizer.parameters.clone()
    ppo.train(64)
    assert torch.equal(ppo.optimizer.parameters, before)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_predict_takes_one_observation_or_a_batch(env: str) -> None:
    """One observation gives an int or an array, a batch an array; never a tensor."""
    ppo = make(env)
    space = ppo.collector.env.observation_space
    one, batch = space.sample(), np.stack([space.sample() for _ in range(5)])
    single, many = ppo.predict(one), ppo.predict(batch, deterministic=False)
    if env == "CartPole-v1":
        assert type(single) is int
        assert many.shape == (5,)
    else:
        assert single.shape == (1,)
        assert many.shape == (5, 1)
    assert ppo.collector.env.action_space.contains(single)
    assert isinstance(many, np.ndarray)


def test_predict_stays_within_asymmetric_bounds() -> None:
    """Sampled actions are clipped to the action space, dimension by dimension."""

    class Bounded(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-1, 1, (3,))
        action_space = gymnasium.spaces.Box(np.float32([0.0, -0.1]), np.float32([0.05, 3.0]))

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.zeros(3, np.float32), {}

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action)
            return np.zeros(3, np.float32), 0.0, False, False, {}

    ppo = PPO(Bounded, **SMALL)
    ppo.train(32)
    actions = ppo.predict(np.zeros((100, 3)), deterministic=False)
    assert all(ppo.collector.env.action_space.contains(action) for action in actions)


def test_a_single_env_trains_as_one_env() -> None:
    """An env instance cannot be copied, so it is stepped alone."""
    ppo = PPO(gymnasium.make("CartPole-v1"), n_steps=32, batch_size=16)
    assert ppo.collector.env.n_envs == 1
    ppo.train(32)
    assert ppo.clock.env_steps == 32


def test_a_vector_env_trains_with_its_own_number_of_envs() -> None:
    """A gymnasium vector env brings its size."""
    env = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    ppo = PPO(env, n_steps=16, batch_size=16)
    assert ppo.collector.env.n_envs == ppo.config.n_envs == 3


def test_batch_size_is_checked_against_the_real_number_of_envs() -> None:
    """A single env's rollout may be too short for the chosen minibatch."""
    with pytest.raises(ConfigError, match="batch_size 256 exceeds"):
        PPO(gymnasium.make("CartPole-v1"), n_steps=32, batch_size=256)
    assert PPO(gymnasium.make("CartPole-v1"), n_steps=32).config.batch_size == 32


@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_batch_size_left_out_fits_a_small_rollout(recurrent: str, tmp_path: Path) -> None:
    """The config holds the rollout's size, checkpoints too; a longer rollout has the default."""
    ppo = PPO("CartPole-v1", n_envs=2, n_steps=32, n_epochs=2, recurrent=recurrent)
    assert ppo.config.batch_size == 64
    ppo.train(128)
    assert ppo.clock.gradient_steps == 4
    ppo.save(tmp_path / "ppo.safetensors")
    assert PPO.from_checkpoint(tmp_path / "ppo.safetensors").config.batch_size == 64
    assert ppo.config.replace(n_steps=256).batch_size == 256


def test_a_single_env_keeps_the_rows_of_a_rollout() -> None:
    """By default one env takes as many steps as eight would together."""
    ppo = PPO(gymnasium.make("CartPole-v1"))
    assert (ppo.config.n_envs, ppo.config.n_steps) == (1, 1024)


def test_a_custom_policy_is_trained() -> None:
    """Any module with the actor's methods will do."""

    class Table(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = torch.nn.Parameter(torch.zeros(2))
            self.value = torch.nn.Parameter(torch.zeros(()))

        def get_action_and_logprob(self, obs: torch.Tensor) -> Any:
            actions = torch.zeros(len(obs), dtype=torch.int64)
            return actions, torch.log_softmax(self.logits, 0)[actions]

        def get_value(self, obs: torch.Tensor) -> torch.Tensor:
            return self.value.expand(len(obs))

        def get_logprob_and_entropy(self, obs: torch.Tensor, actions: torch.Tensor) -> Any:
            log_probs = torch.log_softmax(self.logits, 0)
            return log_probs[actions], -(log_probs.exp() * log_probs).sum().expand(len(obs))

        def deterministic(self, obs: torch.Tensor) -> torch.Tensor:
            return self.logits.argmax().expand(len(obs))

    policy = Table()
    assert isinstance(policy, OnPolicyActor)
    ppo = make(policy=policy)
    ppo.train(64)
    assert policy.value.item() != 0.0


def test_a_policy_may_be_made_from_the_spaces() -> None:
    """A callable gets the spaces of one env; what it returns must be a policy."""
    seen: list[Any] = []

    def make_it(observation_space: Any, action_space: Any) -> torch.nn.Module:
        seen.append((observation_space.shape, action_space.n))
        return DiscretePolicy(4, 2, 8)

    ppo = make(policy=make_it)
    assert seen == [((4,), 2)]
    ppo.train(32)
    with pytest.raises(TypeError, match="got Linear, which lacks get_action"):
        make(policy=lambda *_: torch.nn.Linear(4, 2))
    with pytest.raises(TypeError, match=r"methods of .*, got str"):
        make(policy="cnn")


def test_text_observations_are_refused() -> None:
    """The error says what would do, before any work."""

    class Reader(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Text(8)
        action_space = gymnasium.spaces.Discrete(2)

    with pytest.raises(SpaceError, match=r"observations must be Box, .* got Text"):
        PPO(Reader, **SMALL)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"clip_epss": 0.1},
            "unknown option 'clip_epss' for PPOConfig; did you mean 'clip_eps' or 'vf_clip_eps' "
            "or 'clip_rewards'?",
        ),
        ({"n_envs": 0}, "n_envs: expected greater than or equal to 1, got 0"),
        ({"gamma": 1.5}, "gamma: expected less than or equal to 1, got 1.5"),
        ({"gamma": float("nan")}, "gamma: expected a finite number, got nan"),
        ({"n_steps": True}, "n_steps: expected a number, not a truth value, got True"),
        ({"dual_clip": 0.5}, "dual_clip: expected greater than 1, got 0.5"),
        (
            {"n_envs": 1, "n_steps": 8, "batch_size": 64},
            "batch_size 64 exceeds the rollout's n_envs * n_steps = 1 * 8 = 8 rows; lower it or "
            "lengthen the rollout",
        ),
        (
            {"n_envs": 1, "n_steps": 17, "batch_size": 16},
            "batch_size 16 makes a minibatch of one of the rollout's 17 rows, whose advantage "
            "cannot be standardised; choose a divisor above 1 or turn normalize_advantages off",
        ),
        (
            {"n_envs": 1, "n_steps": 8, "batch_size": 1},
            "batch_size 1 makes a minibatch of one of the rollout's 8 rows, whose advantage "
            "cannot be standardised; choose a divisor above 1 or turn normalize_advantages off",
        ),
    ],
)
def test_wrong_options_are_refused_before_any_work(options: dict[str, Any], message: str) -> None:
    """The error names the value, what was expected, and the remedy."""
    with pytest.raises(ConfigError) as error:
        PPO("NoSuchEnv-v0", **options)
    assert str(error.value) == message


def test_an_unknown_env_is_refused() -> None:
    """The error has gymnasium's reason."""
    with pytest.raises(EnvError, match="NoSuchEnv"):
        PPO("NoSuchEnv-v0")


@pytest.mark.parametrize("total", [0, -5])
def test_total_timesteps_must_be_positive(total: Any) -> None:
    """Nothing is trained for a budget that makes no sense."""
    with pytest.raises(ValueError, match="total_timesteps must be at least 1"):
        make().train(total)


def test_checkpoint_restores_policy_config_and_clock(tmp_path: Path) -> None:
    """The env id comes from the file, and the restored agent acts alike."""
    ppo = make("Acrobot-v1", seed=5)
    ppo.train(64)
    ppo.save(tmp_path / "ppo.safetensors")
    restored = PPO.from_checkpoint(str(tmp_path / "ppo.safetensors"))
    assert restored.config == ppo.config
    assert restored.clock == ppo.clock
    obs = np.random.default_rng(0).normal(size=(9, 6))
    assert np.array_equal(restored.predict(obs), ppo.predict(obs))


def test_checkpoint_of_another_env_is_refused(tmp_path: Path) -> None:
    """A network that does not fit the env's spaces is named with both shapes."""
    ppo = make()
    ppo.save(tmp_path / "ppo.safetensors")
    with pytest.raises(CheckpointError, match="shape"):
        PPO.from_checkpoint(tmp_path / "ppo.safetensors", env_id="Acrobot-v1")


def test_checkpoint_of_a_callable_env_asks_for_it(tmp_path: Path) -> None:
    """An env without an id must be passed again."""
    ppo = make(lambda: gymnasium.make("CartPole-v1"))
    ppo.save(tmp_path / "ppo.safetensors")
    with pytest.raises(CheckpointError, match="pass it as env_id="):
        PPO.from_checkpoint(tmp_path / "ppo.safetensors")


def test_a_callback_stops_training_within_a_rollout() -> None:
    """Training ends at the vector step whose callback returned False."""

    class Stop(Callback):
        def on_step(self, **kwargs: Any) -> bool:
            return kwargs["step"] < 10

    ppo = make(callbacks=[Stop()])
    ppo.train(1000)
    assert ppo.clock.env_steps == 10
    assert ppo.clock.gradient_steps == 0


def test_normalised_advantages_have_no_influence_of_scale() -> None:
    """Multiplying advantages by a constant leaves the policy's gradient as it was."""
    ppo = make(n_epochs=1)
    batch = ppo.collector.collect(ppo.policy, 16)
    minibatch = next(batch.sample_minibatches(32, shuffle=False))
    scaled = type(minibatch)(**{**vars(minibatch), "advantages": minibatch.advantages * 7})
    objective = ClippedSurrogate(clip_eps=0.2, vf_coef=0.5, ent_coef=0.0)
    losses = [objective.loss(ppo.policy, m)[1].policy_loss for m in (minibatch, scaled)]
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-6)


def test_hooks_report_every_minibatch() -> None:
    """``on_train_batch`` gets floats and a growing gradient step."""
    seen: list[tuple[int, float]] = []

    class Watch(Callback):
        def on_train_batch(self, **kwargs: Any) -> None:
            seen.append((kwargs["gradient_step"], kwargs["metrics"]["approx_kl"]))

    ppo = make(callbacks=[Watch()])
    ppo.iterate(Hooks(ppo))
    assert [step for step, _ in seen] == [1, 2, 3, 4]
    assert all(isinstance(kl, float) for _, kl in seen)


def test_every_option_is_documented() -> None:
    """Each field has a sentence, a unit and a source."""
    for name, field in PPOConfig.model_fields.items():
        extra = field.json_schema_extra
        assert field.description, name
        assert isinstance(extra, dict), name
        assert extra["unit"], name
        assert extra["source"], name


def test_acting_with_samples_does_not_disturb_training() -> None:
    """``predict(deterministic=False)`` draws from a stream of its own."""
    quiet, watched = make(), make()
    for ppo in (quiet, watched):
        ppo.train(32)
    watched.predict(np.zeros((7, 4)), deterministic=False)
    watched.evaluate(n_episodes=2, deterministic=False)
    for ppo in (quiet, watched):
        ppo.train(32)
    assert torch.equal(quiet.optimizer.parameters, watched.optimizer.parameters)


def test_evaluation_results_survive_a_checkpoint(tmp_path: Path) -> None:
    """A resumed ``EvalCallback`` still knows the best model so far."""
    callback = EvalCallback(eval_freq=32, n_eval_episodes=1, verbose=False)
    ppo = make(callbacks=[callback])
    ppo.train(64)
    ppo.save(tmp_path / "ppo.safetensors")
    resumed = EvalCallback(eval_freq=32, n_eval_episodes=1, verbose=False)
    PPO.from_checkpoint(tmp_path / "ppo.safetensors", callbacks=[resumed])
    assert resumed.eval_results == callback.eval_results
    assert resumed.best_reward == callback.best_reward > 0


def test_an_interrupted_training_is_finished(tmp_path: Path) -> None:
    """``train()`` goes on to the target in the checkpoint, schedules included."""

    class Stop(Callback):
        def on_step(self, **kwargs: Any) -> bool:
            return kwargs["step"] < 64

    ppo = make(callbacks=[Stop()], learning_rate="linear(1.0, 0.0)")
    ppo.train(128)
    ppo.save(tmp_path / "ppo.safetensors")
    restored = PPO.from_checkpoint(tmp_path / "ppo.safetensors")
    metrics = restored.train()
    assert restored.clock.env_steps == 128
    assert metrics["learning_rate"] == pytest.approx(0.25)


def test_an_unusable_device_is_refused() -> None:
    """The error names the device before any work starts."""
    with pytest.raises(ConfigError, match="device 'abacus' cannot be used"):
        make(device="abacus")


def test_close_frees_the_envs_it_made_and_no_others() -> None:
    """Worker processes end; an env that the caller made stays usable."""
    ppo = make(vectorization="async", n_envs=2)
    ppo.train(32)
    pids = ppo.collector.env._processes.pids
    assert len(pids) == 2
    ppo.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    env = gymnasium.make("CartPole-v1")
    ppo = PPO(env, n_steps=32, batch_size=16)
    ppo.train(32)
    ppo.close()
    env.reset()
    env.step(0)


def test_metrics_do_not_depend_on_a_listening_callback() -> None:
    """Watching every optimiser step changes nothing."""

    class Watch(Callback):
        def on_train_batch(self, **kwargs: Any) -> None:
            pass

    silent, watched = make(), make(callbacks=[Watch()])
    one, other = silent.train(64), watched.train(64)
    one.pop("env_steps_per_second")
    other.pop("env_steps_per_second")
    assert one == pytest.approx(other, nan_ok=True)
