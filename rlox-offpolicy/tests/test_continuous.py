"""SAC, TD3 and DDPG as a whole: acting, learning, saving and errors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.config.model import UNSET
from rlox.errors import ConfigError, SpaceError
from rlox.learners.transitions import StepResult
from rlox.testing import check_algorithm, check_resume
from rlox_offpolicy.configs import SACConfig
from rlox_offpolicy.ddpg import DDPG
from rlox_offpolicy.discrete_sac import DiscreteSAC
from rlox_offpolicy.sac import SAC
from rlox_offpolicy.td3 import TD3

SMALL: dict[str, Any] = {
    "hidden": 8, "buffer_size": 200, "learning_starts": 8, "train_freq": 4, "gradient_steps": 2,
    "batch_size": 16, "steps_per_iteration": 16, "env_backend": "gymnasium",
}  # fmt: skip


class Lever(gymnasium.Env[Any, Any]):
    """Two levers of different ranges; the reward is the first; episodes of three steps are cut."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,))
    action_space = spaces.Box(np.float32([0.0, -3.0]), np.float32([0.5, 1.0]))

    def __init__(self) -> None:
        self.taken: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        super().reset(seed=seed)
        self.left = 3
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        """Refuse an action out of bounds."""
        assert self.action_space.contains(action), action
        self.taken.append(action)
        self.left -= 1
        obs = np.array([self.left, 1.0], np.float32)
        return obs, float(action[0]), False, self.left == 0, {}


ALL = [SAC, TD3, DDPG]


def test_passes_the_conformance_suite() -> None:
    """Every check of rlox.testing passes; resuming with the buffer is exact."""
    options = {"save_replay_buffer": True, "n_envs": 3, "buffer": "prioritized", "n_step": 3}
    assert check_algorithm("sac", env="Pendulum-v1", **SMALL, **options) == {}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("td3", {"n_envs": 2, "exploration": "ornstein-uhlenbeck", "policy_delay": 3}),
        ("ddpg", {}),
        ("crossq", {"n_envs": 3, "critic_hidden": 12, "renorm_warm_up": 3}),
    ],
)
def test_resuming_is_exact(name: str, options: dict[str, Any]) -> None:
    """Noise, target networks, statistics of batches and the buffer included."""
    arguments = {**SMALL, "save_replay_buffer": True, **options}
    assert check_resume(name, env="Pendulum-v1", **arguments) is None


@pytest.mark.parametrize("algorithm", [SAC, TD3])
def test_actions_use_every_dimensions_own_range(algorithm: Any) -> None:
    """The env gets both bounds of both levers; the buffer holds the same actions in [-1, 1]."""
    env = Lever()
    trained = algorithm(env, **SMALL)
    trained.train(48)
    taken, stored = np.array(env.taken), trained.replay.buffer.state()["actions"]
    assert np.abs(stored).max() <= 1
    low, high = env.action_space.low, env.action_space.high
    np.testing.assert_allclose(taken, low + (stored + 1) / 2 * (high - low), rtol=1e-5, atol=1e-6)
    assert (taken[:8].max(0) > low + 0.6 * (high - low)).all()
    assert (taken[:8].min(0) < low + 0.4 * (high - low)).all()
    for obs in (np.zeros(2), np.zeros((5, 2))):
        for deterministic in (True, False):
            action = np.atleast_2d(trained.predict(obs, deterministic=deterministic))
            assert ((low <= action) & (action <= high)).all()


def test_sac_samples_its_policy_and_td3_adds_noise_of_its_deviation() -> None:
    """Around a policy with constant actions in the middle, TD3's deviate by noise_std."""
    td3 = TD3(Lever(), **{**SMALL, "learning_starts": 0, "noise_std": 0.2}, seed=1)
    with torch.no_grad():
        for parameter in td3.policy.parameters():
            parameter.zero_()
    with torch.no_grad():
        actions = [td3._act(torch.zeros(1, 2)) for _ in range(5000)]
    assert np.std(actions) == pytest.approx(0.2, rel=0.03)
    assert np.array_equal(td3.predict(np.zeros(2)), td3.predict(np.zeros(2), deterministic=False))
    sac = SAC(Lever(), **SMALL)
    assert not np.array_equal(
        sac.predict(np.zeros(2), deterministic=False), sac.predict(np.zeros(2), deterministic=False)
    )


def test_td3_delays_policy_and_targets() -> None:
    """With a delay of 3, both change only in every third gradient step."""
    td3 = TD3(Lever(), **{**SMALL, "learning_starts": 0, "policy_delay": 3})
    learner, seen = td3.learner, []

    def watch(name: str, *arguments: Any) -> Any:
        if name == "learn_values":
            networks = td3.policy, td3.policy_target, td3.critic_target
            flat = [torch.cat([p.flatten() for p in n.parameters()]).clone() for n in networks]
            seen.append(flat)
        return learner.step(name, *arguments)

    td3.learner = SimpleNamespace(step=watch, takes_arrays=learner.takes_arrays)
    td3.train(32)
    for part in range(3):
        changes = [
            i for i in range(1, len(seen)) if not torch.equal(seen[i][part], seen[i - 1][part])
        ]
        assert changes == [3, 6, 9, 12, 15]


def test_learnt_temperature_moves_towards_the_target_entropy() -> None:
    """It falls above the target entropy, rises below it, and can be fixed."""
    for target, sign in ((-50.0, -1), (50.0, 1)):
        sac = SAC(Lever(), **SMALL, target_entropy=target)
        sac.train(32)
        assert np.sign(sac.alpha.value().item() - 1.0) == sign
    fixed = SAC(Lever(), **SMALL, auto_entropy=False, alpha=0.3)
    assert fixed.train(32)["alpha"] == pytest.approx(0.3)
    assert SAC(Lever(), **SMALL).objective.target_entropy == -2


@pytest.mark.parametrize(("algorithm", "env"), [(SAC, "Pendulum-v1"), (DiscreteSAC, "CartPole-v1")])
def test_a_fixed_temperature_is_the_configs_whatever_was_saved(
    algorithm: Any, env: str, tmp_path: Path
) -> None:
    """A learnt one continues from its saved value."""
    for auto_entropy, expected in ((False, 0.1), (True, 0.5)):
        trained = algorithm(env, **SMALL, auto_entropy=auto_entropy, alpha=0.5)
        trained.save(tmp_path / "saved.rlox")
        restored = algorithm.from_checkpoint(tmp_path / "saved.rlox", alpha=0.1)
        assert restored.alpha.value().item() == pytest.approx(expected)


def test_sac_maximises_reward_and_entropy_of_a_bandit() -> None:
    """One step, reward a: the soft-optimal density is exp(a/α), known in closed form.

    With α = 1 its mean on [-1, 1] is coth(1) - 1 = 0.313.
    """

    class Bandit(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-1, 1, (1,))
        action_space = gymnasium.spaces.Box(-1, 1, (1,))

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            return np.zeros(1, np.float32), float(action[0]), True, False, {}

    sac = SAC(
        Bandit(), hidden=32, learning_rate=3e-3, auto_entropy=False, alpha=1.0, tau=0.05,
        learning_starts=200, gradient_steps=1, batch_size=128, env_backend="gymnasium",
    )  # fmt: skip
    sac.train(2_000)
    actions = sac.predict(np.zeros((20_000, 1)), deterministic=False)
    assert actions.mean() == pytest.approx(1 / np.tanh(1.0) - 1, abs=0.08)
    assert actions.std() > 0.4


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"env": "CartPole-v1"}, SpaceError, r"needs continuous actions, a Box, got Discrete\(2\)"),
        ({"exploration": object()}, ConfigError, "exploration must be a name or have explore"),
        ({"exploration": "none", "noise_std": 0.7}, ConfigError, "noise_std needs exploration="),
        ({"schedules": {"tau": lambda step: 0.1}}, ConfigError, "no schedule is named 'tau'"),
        ({"buffer": 3, "buffer_size": UNSET}, ConfigError, "got int without push_batch"),
    ],
)
def test_bad_input_is_named_before_any_work(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """The error names the value, the expected ones and the remedy."""
    arguments = {**SMALL, **options}
    with pytest.raises(error, match=message):
        TD3(arguments.pop("env", "Pendulum-v1"), **arguments)


def test_options_of_one_algorithm_that_contradict_are_refused() -> None:
    """A target entropy without use, another algorithm's option, unbounded actions."""
    with pytest.raises(ConfigError, match="target_entropy needs auto_entropy=True"):
        SAC("Pendulum-v1", auto_entropy=False, target_entropy=-3.0)
    with pytest.raises(ConfigError, match="unknown option 'policy_delay' for DDPGConfig"):
        DDPG("Pendulum-v1", policy_delay=2)

    class Unbounded(Lever):
        action_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))

    for algorithm in ALL:
        with pytest.raises(SpaceError, match=r"must be bounded, got .*TransformAction"):
            algorithm(Unbounded())


def test_a_config_object_leaves_the_number_of_envs_to_a_vector_env() -> None:
    """An unset default counts as not given, as in a mapping of options."""
    for config in (SMALL, SACConfig(**SMALL)):
        envs = gymnasium.make_vec("Pendulum-v1", num_envs=3, vectorization_mode="sync")
        assert SAC(envs, config=config).config.n_envs == 3


def test_priorities_are_the_critics_mean_absolute_errors() -> None:
    """For two critics with errors 1 and -3, the priority is 2 to the power α."""
    sac = SAC(Lever(), **SMALL, buffer="prioritized")
    sac.train(16)
    batch = sac.replay.draw()
    errors = torch.tensor([[1.0], [-3.0]]).expand(2, len(batch.rewards))
    drawn = np.unique(np.asarray(batch.indices, np.int64))
    sac.replay.give_back(batch, StepResult({}, errors))
    assert sac.replay.buffer.state()["priorities"][drawn] == pytest.approx(2**0.6, rel=1e-4)
