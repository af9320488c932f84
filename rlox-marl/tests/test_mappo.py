"""MAPPO on teams, and on one agent, where it is PPO."""

from __future__ import annotations

import dataclasses
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import rlox
import torch
from games import Game, PenaltyGame
from gymnasium import spaces
from rlox.errors import BackendError, CheckpointError, ConfigError, EnvError, UnknownNameError
from rlox.networks import ActorCriticPolicy
from rlox.nn import ConvolutionalEncoder, make_encoder
from rlox_marl.collector import RunningTeams
from rlox_marl.envs import SimpleSpreadVecEnv
from rlox_marl.ippo import IPPO
from rlox_marl.mappo import MAPPO
from rlox_testing.probes import first_difference
from scripted_teams import AGENTS, by_turns, parallel

SPREAD = "mpe2/simple_spread_v3"
SMALL = {"n_envs": 4, "n_steps": 8, "batch_size": 32, "n_epochs": 2, "hidden": 8}


def rows_of(metrics):
    """Return metrics without the speed."""
    return {name: value for name, value in metrics.items() if not name.endswith("_per_second")}


@pytest.fixture(scope="module")
def plain():
    """Return the parameters after 64 steps with the defaults."""
    with rlox.make("mappo", env=SPREAD, seed=1, **SMALL) as algorithm:
        algorithm.train(64)
        return algorithm.state_dict()


@pytest.mark.parametrize(
    "options",
    [
        {"share_parameters": "agent"},
        {"team_reward": "mean"},
        {"team_reward": "sum", "normalize_values": "value_norm", "huber_delta": 10.0},
        {"normalize_values": "popart", "vf_clip_eps": 0.2, "critic_learning_rate": 1e-3},
        {"huber_delta": 1.0, "dual_clip": 3.0, "target_kl": 0.1},
    ],
)
def test_options_train_a_team(plain, options) -> None:
    """Every option changes the parameters, and the training stays finite."""
    with rlox.make("mappo", env=SPREAD, seed=1, **SMALL, **options) as algorithm:
        metrics = algorithm.train(64)
        assert algorithm.clock.env_steps == 64
        for key, value in metrics.items():
            assert np.isfinite(value) or key.startswith(("return", "mean_", "episodes")), key
        assert first_difference(algorithm.state_dict(), plain) is not None


@pytest.mark.parametrize(
    ("backend", "env_id", "more"),
    [
        ("torch", "CartPole-v1", {"normalize_rewards": True, "frame_stack": 2, "vf_clip_eps": 0.2}),
        ("auto", "Pendulum-v1", {}),
        ("torch", "Pendulum-v1", {"recurrent": "lstm", "memory_size": 8}),
        (
            "auto",
            "CartPole-v1",
            {"recurrent": "gru", "memory_size": 8, "normalize_observations": True},
        ),
    ],
)
def test_one_agent_is_ppo(backend, env_id, more) -> None:
    """With one agent, all parameters, moments and log rows equal PPO's, with any learner."""
    ppo = rlox.make("ppo", env=env_id, seed=5, backend=backend, **SMALL, **more)
    options = {
        k: v for k, v in ppo.config.to_dict().items() if k in MAPPO.config_class.model_fields
    }
    mappo = MAPPO(env_id, n_agents=1, **options)
    for _ in range(3):
        assert first_difference(rows_of(ppo.train(1)), rows_of(mappo.train(1))) is None
    assert first_difference(ppo.state_dict(), mappo.state_dict()) is None
    assert ppo.learner.backend == mappo.learner.backend
    obs = np.zeros(ppo.collector.env.observation_space.shape, np.float32)
    assert np.array_equal(ppo.predict(obs), mappo.predict(obs, agent_idx=0))


def test_the_penalty_game_is_played_at_its_optimum() -> None:
    """Without a penalty both agents agree on a corner."""
    options = {**SMALL, "n_envs": 16, "batch_size": 64, "n_epochs": 4, "learning_rate": 5e-3}
    with MAPPO(PenaltyGame, seed=0, **options) as algorithm:
        algorithm.train(1_280)
        assert algorithm.evaluate(n_episodes=2).mean_return == 10.0


class Shown(Game):
    """Two agents with given spaces, for four steps; the action's size is the cost."""

    def __init__(self, observation_space, action_space):
        super().__init__(["a", "b"], observation_space, action_space)

    def reset(self, seed=None, options=None):
        self.observation_space("a").seed(seed)
        self._t = 0
        return self.begin({a: self.observation_space(a).sample() for a in self.possible_agents})

    def step(self, actions):
        for agent, action in actions.items():
            assert self.action_space(agent).contains(action), (agent, action)
        self._t += 1
        obs = {a: self.observation_space(a).sample() for a in self.agents}
        rewards = {a: -float(np.square(actions[a]).sum()) for a in self.agents}
        return self.answer(obs, rewards, self._t == 4)


IMAGE = spaces.Box(0, 255, (36, 36, 3), np.uint8)
NESTED = spaces.Dict({"x": spaces.Box(-1, 1, (3,), np.float32), "kind": spaces.Discrete(3)})


@pytest.mark.parametrize(
    ("seen", "acts"),
    [
        (NESTED, spaces.Box(np.float32([-1, 0]), np.float32([1, 4]), dtype=np.float32)),
        (IMAGE, spaces.MultiDiscrete([2, 3, 4])),
        (NESTED, spaces.MultiBinary(3)),
    ],
    ids=["continuous", "multi_discrete", "multi_binary"],
)
def test_spaces_of_any_kind_are_trained(seen, acts) -> None:
    """Images and dicts work as observations, and actions of every kind fit the env."""
    options = {**SMALL, "n_epochs": 1, "normalize_values": "value_norm"}
    with MAPPO(lambda: Shown(seen, acts), seed=0, **options) as algorithm:
        metrics = algorithm.train(64)
        assert np.isfinite(metrics["policy_loss"])
        assert metrics["approx_kl"] >= 0.0
        obs = seen.sample()
        assert acts.contains(algorithm.predict(obs, agent_idx=1))


def test_all_encoders_compute_in_bfloat16() -> None:
    """Those of the actor and of the critic."""
    acts, options = spaces.MultiDiscrete([2, 3]), {**SMALL, "compute_dtype": "bfloat16"}
    with MAPPO(lambda: Shown(IMAGE, acts), seed=0, **options) as algorithm:
        (policy,) = algorithm.policies.values()
        encoders = [one for one in policy.modules() if isinstance(one, ConvolutionalEncoder)]
        assert len(encoders) == 3  # the actor's one, and the critic's two, one per agent
        assert {one.compute_dtype for one in encoders} == {torch.bfloat16}
        assert np.isfinite(algorithm.train(64)["policy_loss"])


def test_the_first_ratio_is_one() -> None:
    """The first policy to learn assigns actions the probabilities they were sampled with."""
    for env in (parallel, by_turns):
        with MAPPO(env, **{**SMALL, "n_epochs": 1, "learning_rate": 0.0}) as algorithm:
            metrics = algorithm.train(32)
            assert abs(metrics["approx_kl"]) < 1e-6
            assert metrics["clip_fraction"] == 0.0


def test_envs_without_a_state_begin_new_episodes_and_say_so(tmp_path, caplog) -> None:
    """PettingZoo envs cannot be restored: training continues with new episodes."""
    algorithm = MAPPO(env_fn=parallel, **SMALL)
    algorithm.train(32)
    algorithm.save(tmp_path / "one.rlox")
    with pytest.raises(CheckpointError, match="pass it as env_id="):
        MAPPO.from_checkpoint(tmp_path / "one.rlox")
    with caplog.at_level(logging.INFO, "rlox"):
        again = MAPPO.from_checkpoint(tmp_path / "one.rlox", env_fn=parallel)
    assert "new episodes begin" in caplog.text
    assert again.clock.env_steps == 32
    assert np.isfinite(again.train(32)["policy_loss"])


def test_predict_takes_agents_batches_and_masks() -> None:
    """Ints for one observation, arrays for batches, dicts for dicts by agent, within masks."""
    with rlox.make("mappo", env=SPREAD, share_parameters="agent", **SMALL) as algorithm:
        rng = np.random.default_rng(0)
        obs = rng.normal(size=(12, 18)).astype(np.float32)
        who = np.arange(12) % 3
        together = algorithm.predict(obs, agent_idx=who)
        alone = [algorithm.predict(one, agent_idx=int(i)) for one, i in zip(obs, who, strict=True)]
        assert together.tolist() == alone
        assert type(alone[0]) is int
        mask = np.eye(5, dtype=bool)[3]
        assert algorithm.predict(obs[0], action_masks=mask) == 3
        named = {"agent_2": obs[2], "agent_0": obs[0]}
        assert algorithm.predict(named) == {"agent_2": alone[2], "agent_0": alone[0]}
        assert algorithm.predict(named, action_masks={"agent_2": mask})["agent_2"] == 3
        with pytest.raises(ValueError, match=r"^obs must be a dict by agent, agent_0.*'agent_9'"):
            algorithm.predict(named | {"agent_9": obs[0]})
        with pytest.raises(ValueError, match=r"^action_masks must be a dict by agent, .*ndarray"):
            algorithm.predict(named, action_masks=mask)
        with pytest.raises(ValueError, match=r"agent_idx must lie in \[0, 2\], got 3; the agents"):
            algorithm.predict(obs[0], agent_idx=3)
        with pytest.raises(ValueError, match="agent_idx must be integers"):
            algorithm.predict(obs[0], agent_idx="agent_0")


def test_an_own_policy_learns() -> None:
    """A callable makes a policy for each view; its parameters move."""
    made = []

    def make(observation_space, action_space):
        assert set(observation_space.spaces) == {"obs", "agent", "critic"}
        made.append(ActorCriticPolicy(make_encoder(observation_space), action_space, (8,)))
        return made[-1]

    with rlox.make("mappo", env=SPREAD, policy=make, n_envs=4, n_steps=8, batch_size=32) as one:
        before = [p.detach().clone() for p in made[0].parameters()]
        one.train(32)
        assert any(not torch.equal(a, b) for a, b in zip(before, made[0].parameters(), strict=True))


WRONG = [
    ({"n_agents": 2}, SPREAD, ConfigError, "n_agents is 2, but the env has 3 agents"),
    ({"n_agents": 2}, "CartPole-v1", ConfigError, "n_agents is 2, but the env has one agent"),
    ({"critic": "state"}, "CartPole-v1", ConfigError, "critic='state' needs an env of several"),
    ({"critic": "state"}, by_turns, ConfigError, "needs an env with a state"),
    ({"team_reward": "mean"}, "CartPole-v1", ConfigError, "team_reward='mean' needs an env"),
    ({"critic_learning_rate": 2.0}, SPREAD, ConfigError, r"values in \[0.0, 1.0\]"),
    ({"backend": "native", "recurrent": "gru", "n_steps": 32}, SPREAD, (BackendError, LookupError),
     "learner backend"),
    ({"recurrent": "gru", "n_steps": 100}, SPREAD, ConfigError, "not a multiple of n_steps 100"),
    ({"vectorization": "async", "env_backend": "vectorized"}, SPREAD, ConfigError, "is of Petting"),
    ({"vectorization": "async"}, SimpleSpreadVecEnv(4), ConfigError, "got a SimpleSpreadVecEnv"),
    ({"policy": torch.nn.Linear(1, 1)}, SPREAD, TypeError, "policy must be a callable"),
    ({"policy": lambda *_: torch.nn.Linear(1, 1)}, SPREAD, TypeError, "which lacks"),
    ({"env_backend": "vectorised"}, SPREAD, UnknownNameError, "did you mean 'vectorized'"),
    ({"env_backend": "gymnasium"}, SPREAD, EnvError, "simple_spread"),
    ({}, None, ConfigError, "there is no env"),
    ({"n_envs": 4}, SimpleSpreadVecEnv(2), EnvError, "n_envs is 4, but the vector env has 2 envs"),
    ({}, 3, EnvError, "int"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "env", "error", "text"), WRONG)
def test_wrong_calls_are_reported(options, env, error, text) -> None:
    """Options that contradict the env or each other are errors before any work."""
    with pytest.raises(error, match=text):
        MAPPO(env, **options)


class Mine(MAPPO):
    """With an argument and a method of its own."""

    def __init__(self, env_id=None, *, mine=0, **options):
        super().__init__(env_id, **options)
        self.mine = mine

    def extra(self):
        return self.mine


def test_subclasses_of_teams() -> None:
    """They may extend a team's training; for one agent they may only set class attributes."""
    assert Mine(SPREAD, mine=3, **SMALL).extra() == 3
    for options in ({}, {"mine": 3}):
        with pytest.raises(ConfigError, match=r"Mine defines __init__, .*derive from rlox"):
            Mine("CartPole-v1", **options)
    named = type("Named", (MAPPO,), {"name": "named", "config_class": IPPO.config_class})
    one = named("CartPole-v1", **SMALL)
    assert isinstance(one, named)
    assert one.name == "named"


def test_other_wrong_calls_are_reported(tmp_path) -> None:
    """Policies of teams refuse other teams."""
    with pytest.raises(ConfigError, match="critic: expected"):
        IPPO(SPREAD, critic="state")
    algorithm = MAPPO(SPREAD, **SMALL)
    with pytest.raises(ValueError, match="obs must have shape"):
        algorithm.evaluate("CartPole-v1", n_episodes=1)
    algorithm.train(32)
    algorithm.save(tmp_path / "spread.rlox")
    with pytest.raises(ConfigError, match="n_agents is 3, but the env has"):
        MAPPO.from_checkpoint(tmp_path / "spread.rlox", "mpe2/simple_tag_v3")
    with pytest.raises(CheckpointError, match="holds the policies agent"):
        MAPPO.from_checkpoint(tmp_path / "spread.rlox", share_parameters="agent")


@pytest.mark.parametrize(
    ("critic", "source"),
    [
        ("state", parallel),
        ("agent_state", parallel),
        ("observations", by_turns),
        ("local", by_turns),
    ],
)
def test_agents_that_die_join_and_wait_are_trained(critic, source):
    """Groups of several spaces, deaths, late joiners, turns and masks need no special case."""
    with MAPPO(source, critic=critic, seed=3, **SMALL) as algorithm:
        metrics = algorithm.train(64)
        assert set(algorithm.policies) == {"scout", "tank"}
        assert all(np.isfinite(metrics[f"return/{agent}"]) for agent in AGENTS)
        assert np.isfinite(metrics["policy_loss"])
        result = algorithm.evaluate(n_episodes=4)
        returns = [result.agent_returns[agent] for agent in AGENTS]
        np.testing.assert_allclose(np.mean(returns, axis=0), result.returns)
        of_team, by_agent = (
            rlox.evaluate(policy, source(), n_episodes=2).returns
            for policy in (algorithm, SimpleNamespace(predict=algorithm.predict))
        )
        np.testing.assert_array_equal(of_team, by_agent)


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("options", [{}, {"recurrent": "gru", "batch_size": 3}])
@pytest.mark.parametrize("source", [parallel, by_turns])
def test_agents_that_act_once_alone_leave_metrics_finite(source, options, backend):
    """A single advantage has no deviation, and becomes 0."""
    small = {"n_envs": 1, "n_steps": 3, "batch_size": 2, "hidden": 8, "share_parameters": "agent"}
    with MAPPO(source, seed=3, backend=backend, **small | options) as algorithm:
        for _ in range(8):
            metrics = algorithm.train(1)
            learnt = {k: v for k, v in metrics.items() if not k.startswith(("mean_", "return/"))}
            assert np.isfinite(list(learnt.values())).all(), learnt


def test_numbers_that_a_teams_space_does_not_hold_are_refused():
    """Also from a user's vector env, which has no checks of its own."""

    class Odd(SimpleSpreadVecEnv):
        def reset_all(self, seed=None):
            return {**super().reset_all(seed), "obs": {"agent": np.full((4, 3), 2.5)}}

    env = Odd(4)
    env.groups = (dataclasses.replace(env.groups[0], observation_space=spaces.Discrete(4)),)
    with pytest.raises(EnvError, match=r"^env 0 returned an observation with 2.5, which Discrete"):
        _ = RunningTeams(env).obs


FULL = (4, 3)
WRONG_STEPS = [
    ({"truncated": None}, "must return a dict with obs, active, .*; it has no truncated"),
    ({"rewards": {"agent": np.full(FULL, np.nan)}}, "env 0 returned the reward nan; rewards must"),
    ({"rewards": {"agent": np.ones(4)}}, r"rewards\['agent'\] of .*step_all .* shape \(4, 3\)"),
    ({"active": {"agent": np.ones(FULL)}}, r"active\['agent'\] of .* of bool, got .* float64"),
    ({"obs": {"agents": np.ones((*FULL, 18))}}, r"obs\['agent'\] of .* got NoneType"),
    ({"final_obs": {"agent": np.ones((*FULL, 3))}}, r"final_obs\['agent'\] .* \(4, 3, 18\)"),
    ({"final_obs": {"agent": np.full((*FULL, 18), np.nan)}}, "observation that is not finite"),
    ({"episode_ended": np.ones(1, np.bool_)}, r"episode_ended of .* of shape \(4,\) of bool"),
]


@pytest.mark.parametrize(("change", "message"), WRONG_STEPS)
def test_wrong_step_of_a_teams_vector_env_names_what_is_wrong(change, message):
    """Training and evaluation both report the error."""

    class Odd(SimpleSpreadVecEnv):
        def step_all(self, actions):
            step = {**super().step_all(actions), **change}
            return {key: value for key, value in step.items() if value is not None}

    team = RunningTeams(Odd(4))
    assert team.obs
    with pytest.raises(EnvError, match=message):
        team.step({"agent": np.zeros(FULL, np.int64)})
    with MAPPO(SimpleSpreadVecEnv(4)) as trained, pytest.raises(EnvError, match=message):
        rlox.evaluate(trained, Odd(4), n_episodes=1)
