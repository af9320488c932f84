"""VDN, QMIX and independent Q-learning: losses, mixing, episodes with deaths and turns, games."""

from __future__ import annotations

import numpy as np
import pytest
import rlox
import torch
from games import Game, HigherNumber, PenaltyGame, TwoStepGame
from gymnasium import spaces
from hypothesis import example, given
from hypothesis import strategies as st
from rlox.errors import ConfigError, EnvError, SpaceError
from rlox.protocols import AgentGroup
from rlox_marl.action_values import (
    AgentValues,
    EpsilonGreedy,
    MonotoneMixing,
    NoMixing,
    SumMixing,
    TeamValues,
)
from rlox_marl.qmix import QMIX
from rlox_marl.team_replay import TeamSequences
from rlox_marl.value_learning import team_value_loss
from rlox_marl.vdn import VDN
from rlox_marl.views import PolicyView
from scripted_teams import Life, ScriptedParallel, ScriptedTurns, Turn

SPREAD = "mpe2/simple_spread_v3"
GAME = {
    "n_envs": 16, "train_freq": 16, "gradient_steps": 8, "batch_size": 32, "learning_starts": 160,
    "learning_rate": 5e-3, "hidden": 16, "buffer_size": 4_000, "target_update_interval": 25,
    "steps_per_iteration": 160,
}  # fmt: skip
SMALL = {
    "n_envs": 2, "train_freq": 4, "gradient_steps": 1, "batch_size": 4, "learning_starts": 8,
    "hidden": 8, "buffer_size": 200, "steps_per_iteration": 40,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "steps"),
    [("qmix", 8.0, 960), pytest.param("vdn", 7.0, 1_920, marks=pytest.mark.slow)],
)
def test_the_two_step_game_is_valued_as_in_the_paper(name, value, steps) -> None:
    """With uniform exploration, QMIX learns the second game's value of 8, VDN cannot."""
    options = {**GAME, "gamma": 1.0, "epsilon": 1.0}
    with rlox.make(name, env=TwoStepGame, seed=0, **options) as algorithm:
        algorithm.train(steps)
        found = algorithm.value(algorithm.collector.env.reset_all(0))
        assert found[0] == pytest.approx([value], abs=0.2)
        assert algorithm.evaluate(n_episodes=2).mean_return == value


def test_the_penalty_game_is_played_at_its_optimum() -> None:
    """Without a penalty, independent agents agree on a corner."""
    options = {**GAME, "epsilon": "linear(1, 0.05, 300)"}
    with rlox.make("independent_q", env=PenaltyGame, seed=0, **options) as algorithm:
        algorithm.train(480)
        assert algorithm.evaluate(n_episodes=2).mean_return == 10.0


@example(seed=265, n_agents=5, scale=27.0, hyper_size=0)
@given(seed=st.integers(0, 2**31), n_agents=st.integers(1, 5), scale=st.floats(0.1, 100.0),
       hyper_size=st.sampled_from([0, 5]))  # fmt: skip
def test_mixing_is_monotone(seed, n_agents, scale, hyper_size) -> None:
    """The team's value never falls when an agent's value grows, in any state."""
    generator = torch.Generator().manual_seed(seed)
    space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    mixing = MonotoneMixing(n_agents, space, 4, hyper_size=hyper_size, generator=generator)
    values = scale * torch.randn(6, n_agents, generator=generator)
    # mixed signs, as hidden units far below 0 have slope 0 in floating point
    values = torch.cat([values, -values]).requires_grad_()
    state = (scale * torch.randn(6, 3, generator=generator)).repeat(2, 1)
    (slopes,) = torch.autograd.grad(mixing(values, state).sum(), values)
    assert (slopes >= 0).all()
    assert (slopes > 0).any()


def two_groups():
    """Return views of a pair that shares a network, and of a third agent with other spaces."""
    pair = AgentGroup("pair", ("a", "b"), spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(3))
    alone = AgentGroup("alone", ("c",), spaces.Box(-9, 9, (1,), np.float32), spaces.Discrete(2))
    seen = spaces.Dict({"obs": pair.observation_space, "agent": spaces.Discrete(2)})
    return (
        PolicyView("pair", pair, (0, 1), seen, "local", (pair, alone)),
        PolicyView(
            "alone", alone, (0,), spaces.Dict({"obs": alone.observation_space}), "local",
            (pair, alone),
        ),
    )  # fmt: skip


def random_sequences(rng, size, length=5, n=3):
    """Return sequences of three agents, with rests, ends and beginnings."""
    shape = length, n, 3
    numbers = torch.arange(2).expand(length, n, -1)

    def obs():
        return {
            "pair": {
                "obs": torch.from_numpy(rng.normal(size=(length, n, 2, 2))).float(),
                "agent": numbers,
            },
            "alone": {"obs": torch.from_numpy(rng.normal(size=(length, n, 1, 1))).float()},
        }

    active = rng.random(shape) < 0.7
    active[..., 0] |= ~active.any(-1)
    masks = rng.random((length, n, 2, 3)) < 0.6
    masks[..., 1] |= ~masks.any(-1)
    actions = np.concatenate(
        [rng.integers(3, size=(length, n, 2)), rng.integers(2, size=(length, n, 1))], -1
    )
    return TeamSequences(
        obs=obs(),
        next_obs=obs(),
        next_masks={"pair": torch.from_numpy(masks)},
        memory={
            "pair": torch.from_numpy(rng.normal(size=(n, 2, size))).float(),
            "alone": torch.from_numpy(rng.normal(size=(n, 1, size))).float(),
        },
        starts=torch.from_numpy(rng.random((length, n)) < 0.3),
        actions=torch.from_numpy(actions),
        rewards=torch.from_numpy(rng.normal(size=shape)).float(),
        active=torch.from_numpy(active),
        terminated=torch.from_numpy(rng.random(shape) < 0.2),
        next_active=torch.from_numpy(rng.random(shape) < 0.6),
        state=torch.from_numpy(rng.normal(size=(length, n, 4))).float(),
        next_state=torch.from_numpy(rng.normal(size=(length, n, 4))).float(),
    )


def layers(module):
    """Return float64 weights and biases of a ReLU network."""
    return [
        (layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy())
        for layer in module.layers
    ]


def relu_network(module, x):
    """Return the outputs of a ReLU network for one input, by plain formulas."""
    *hidden, (weight, bias) = layers(module)
    for w, b in hidden:
        x = np.maximum(w @ x + b, 0)
    return weight @ x + bias


def one_agent(network, x, memory):
    """Return action values and the next memory of one agent, by the formulas of a GRU."""
    if network.memory is None:
        return relu_network(network.after, x), memory
    x = np.maximum(relu_network(network.before, x), 0)
    layer = network.memory.layer
    w_x, w_h, b_x, b_h = (
        getattr(layer, name).detach().double().numpy()
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    )
    (r_x, z_x, n_x), (r_h, z_h, n_h) = (
        np.split(w_x @ x + b_x, 3),
        np.split(w_h @ memory + b_h, 3),
    )
    reset, update = 1 / (1 + np.exp(-r_x - r_h)), 1 / (1 + np.exp(-z_x - z_h))
    memory = (1 - update) * np.tanh(n_x + reset * n_h) + update * memory
    return relu_network(network.after, memory), memory


def mixed(kind, mixing, values, state):
    """Return the learnt values, by the paper's formula."""
    if kind == "none":
        return values
    if kind == "sum":
        return values.sum(keepdims=True)
    size = layers(mixing.first_bias)[0][1].size
    weight = np.abs(relu_network(mixing.first_weight, state)).reshape(len(values), size)
    hidden = values @ weight + relu_network(mixing.first_bias, state)
    hidden = np.where(hidden > 0, hidden, np.exp(np.minimum(hidden, 0)) - 1)
    out = hidden @ np.abs(relu_network(mixing.second_weight, state))
    return out + relu_network(mixing.second_bias, state)


def slow_loss(kind, network, target, batch, gamma, team_reward, double_q):
    """Return the loss in float64, step by step and agent by agent."""
    agents = [("pair", 0), ("pair", 1), ("alone", 0)]
    errors = []

    def features(obs, name, column, t, b):
        x = obs[name]["obs"][t, b, column].double().numpy()
        return np.concatenate([np.eye(2)[column], x]) if name == "pair" else x  # leaves by name

    for b in range(batch.actions.shape[1]):
        memory = {
            which: [batch.memory[name][b, column].double().numpy() for name, column in agents]
            for which in ("network", "target")
        }
        for t in range(batch.actions.shape[0]):
            chosen, following = np.zeros(3), np.zeros(3)
            for i, (name, column) in enumerate(agents):
                found, then = {}, {}
                for which, values in (("network", network), ("target", target)):
                    one = values.agents[values.names.index(name)]
                    before = memory[which][i] * (0 if batch.starts[t, b] else 1)
                    found[which], memory[which][i] = one_agent(
                        one, features(batch.obs, name, column, t, b), before
                    )
                    then[which], _ = one_agent(
                        one, features(batch.next_obs, name, column, t, b), memory[which][i]
                    )
                if batch.active[t, b, i]:
                    chosen[i] = found["network"][batch.actions[t, b, i]]
                if batch.next_active[t, b, i]:
                    choosing = then["network" if double_q else "target"].copy()
                    if name in batch.next_masks:
                        choosing[~batch.next_masks[name][t, b, column].numpy()] = -np.inf
                    following[i] = then["target"][choosing.argmax()]
            total = mixed(kind, network.mixing, chosen, batch.state[t, b].double().numpy())
            after = mixed(kind, target.mixing, following, batch.next_state[t, b].double().numpy())
            paid = batch.rewards[t, b].double().numpy()
            common = {"mean": paid.mean(), "sum": paid.sum()}.get(team_reward)
            for k in range(len(total)):
                if kind == "none":
                    goes_on = not batch.terminated[t, b, k]
                    counts = bool(batch.active[t, b, k])
                else:
                    goes_on, counts = bool(batch.next_active[t, b].any()), True
                reward = paid[k] if common is None else common
                if counts:
                    errors.append(total[k] - (reward + gamma * goes_on * after[k]))
    return np.square(errors).mean()


@pytest.mark.parametrize(
    ("kind", "hyper_size", "size", "double_q"),
    [
        ("none", 0, 6, True),
        ("sum", 0, 0, True),
        ("monotone", 0, 6, False),
        ("monotone", 7, 0, True),
    ],
)
def test_the_loss_is_that_of_plain_formulas(kind, hyper_size, size, double_q) -> None:
    """With masks, resting agents, ends and memories, to 1e-5."""
    made = []
    for seed in (1, 2):
        own = {"generator": torch.Generator().manual_seed(seed)}
        agents = {v.name: AgentValues(v, hidden=5, memory_size=size, **own) for v in two_groups()}
        mixing = {"none": NoMixing(), "sum": SumMixing()}.get(kind)
        if mixing is None:
            space = spaces.Box(-9, 9, (4,), np.float32)
            mixing = MonotoneMixing(3, space, 3, hyper_size=hyper_size, **own)
        made.append(TeamValues(agents, mixing))
    batch = random_sequences(np.random.default_rng(3), size)
    rewards = "own" if kind == "none" else "mean" if double_q else "sum"
    loss, _ = team_value_loss(*made, batch, gamma=0.9, team_reward=rewards, double_q=double_q)
    expected = slow_loss(kind, *made, batch, 0.9, rewards, double_q)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_exploration_takes_possible_actions_only_and_says_how_likely_they_are() -> None:
    """Uniform actions come from the allowed ones, as often as their probability states."""
    values = torch.tensor([[0.0, 3.0, 2.0, 1.0]]).expand(40_000, -1)
    masks = torch.tensor([[True, False, True, True]]).expand(40_000, -1)
    chosen = EpsilonGreedy(values, masks, 0.3)
    actions, log_probs = chosen.sample(torch.Generator().manual_seed(0))
    shares = torch.bincount(actions, minlength=4) / len(actions)
    assert (chosen.mode() == 2).all()
    np.testing.assert_allclose(shares, [0.1, 0.0, 0.8, 0.1], atol=0.01)
    expected = torch.tensor([0.1, 0.0, 0.8, 0.1])[actions]
    np.testing.assert_allclose(log_probs.exp(), expected, rtol=1e-5)


EPISODES = [
    {"scout_0": Life(0, 3, "terminated"), "scout_1": Life(1, 5, "truncated"),
     "tank": Life(0, 4, "terminated")},
    {"scout_0": Life(0, 2, "terminated"), "scout_1": Life(0, 2, "terminated"),
     "tank": Life(0, 1, "truncated")},
]  # fmt: skip
AGENTS = ("scout_0", "scout_1", "tank")


@pytest.mark.parametrize(("name", "recurrent"), [("qmix", "gru"), ("independent_q", "none")])
def test_stored_steps_are_those_of_a_script(name, recurrent) -> None:
    """Deaths, late joins, truncations and masks give the script's rows."""
    options = {**SMALL, "n_envs": 1, "learning_starts": 200, "recurrent": recurrent}
    with rlox.make(name, env=lambda: ScriptedParallel(EPISODES), **options) as algorithm:
        algorithm.train(40)
        drawn = algorithm.collector.buffer.rows(0, 40)
    order = [agent for view in algorithm.views for agent in view.agents]
    assert sorted(order) == sorted(AGENTS)
    expected: dict[str, list] = {"start": [], "active": [], "terminated": [], "next_active": []}
    for k in range(100):
        lives = EPISODES[k % 2]
        length = max(life.ends for life in lives.values())
        for t in range(length):

            def alive(agent, at, lives=lives):
                return lives[agent].joins <= at < lives[agent].ends

            expected["start"].append(t == 0)
            expected["active"].append([alive(agent, t) for agent in order])
            expected["terminated"].append(
                [lives[a].ends == t + 1 and lives[a].how == "terminated" for a in order]
            )
            last = t + 1 == length
            expected["next_active"].append(
                [
                    (lives[a].ends == t + 1 and lives[a].how == "truncated")
                    or (not last and alive(a, t + 1))
                    for a in order
                ]
            )
    for key, rows in expected.items():
        np.testing.assert_array_equal(drawn[f"row {key}"], rows[:40], err_msg=key)


def test_teams_that_take_turns_learn() -> None:
    """Waiting agents count as 0 until their turn; masks are obeyed."""
    turns = [
        Turn(agent, dict.fromkeys(AGENTS, 1.0), {})
        for agent in ("scout_0", "tank", "scout_1", "tank")
    ]
    with VDN(lambda: ScriptedTurns([turns]), recurrent="gru", **SMALL) as one:
        metrics = one.train(80)
        assert np.isfinite(metrics["q_loss"])
        assert one.clock.gradient_steps > 0
        active = one.collector.buffer.rows(0, 80)["row active"]
        assert (active.sum(1) == 1).all()


@pytest.mark.parametrize(
    ("name", "env", "options", "warnings"),
    [
        ("qmix", HigherNumber, {}, 1),
        ("vdn", HigherNumber, {"team_reward": "mean"}, 0),
        ("vdn", PenaltyGame, {}, 0),
        ("independent_q", HigherNumber, {}, 0),
    ],
)
def test_agents_that_are_paid_differently_are_named_once(
    name, env, options, warnings, caplog
) -> None:
    """They learn from one reward, unless each learns on its own or the option was given."""
    with rlox.make(name, env=env, seed=0, **SMALL, **options) as algorithm:
        algorithm.train(40)
    assert caplog.text.count("agents are paid differently (player_0 ") == warnings
    assert caplog.text.count("the team learns from the mean of their rewards; take") == warnings


def test_agents_on_their_own_refuse_to_wait() -> None:
    """Independent Q-learning names the agent that waits for its turn."""
    turns = [Turn(agent, dict.fromkeys(AGENTS, 1.0), {}) for agent in ("scout_0", "tank")]
    with (
        rlox.make("independent_q", env=lambda: ScriptedTurns([turns]), **SMALL) as algorithm,
        pytest.raises(EnvError, match=r"'scout_0' of env 0 waits for its turn.*take vdn"),
    ):
        algorithm.train(40)


IMAGE = spaces.Box(0, 255, (8, 8, 1), np.uint8)


def images(actions=None):
    """Return an env without a state, whose agents see images."""
    return Game(["left", "right"], IMAGE, actions or spaces.Discrete(2))


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: QMIX(images), ConfigError, "needs an env with a state.*take vdn"),
        (lambda: VDN(lambda: images(spaces.Box(-1, 1, (2,), np.float32))), SpaceError,
         "those of left, right are Box.*take mappo or ippo"),
        (lambda: VDN("CartPole-v1"), ConfigError, "this env has one; take dqn"),
        (lambda: VDN(SPREAD, n_agents=5), ConfigError, "the env has 3 agents"),
        (lambda: VDN(SPREAD, team_reward="own"), ConfigError, "team_reward"),
        (lambda: VDN(SPREAD, memory_size=8), ConfigError, "recurrent='gru'"),
        (lambda: VDN(SPREAD, buffer_size=10, learning_starts=1), ConfigError,
         "holds no sequence of 1 steps"),
        (lambda: VDN(SPREAD, learning_starts=10**6), ConfigError, "exceeds buffer_size"),
    ],
)  # fmt: skip
def test_wrong_calls_are_one_clear_error(make, kind, message) -> None:
    """Each message states the given value and the remedy."""
    with pytest.raises(kind, match=message):
        make()
