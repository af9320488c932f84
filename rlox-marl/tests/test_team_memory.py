"""Teams with memories: their contents, replay, resuming and acting."""

from __future__ import annotations

import numpy as np
import pytest
import rlox
import torch
from games import Game
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from rlox.batches.transitions import split_sequences
from rlox.losses import evaluate_actions
from rlox_marl.envs import PettingZooVecEnv
from rlox_marl.ippo import IPPO
from rlox_marl.mappo import MAPPO
from scripted_teams import (
    AGENTS,
    PAYS,
    Life,
    ScriptedParallel,
    ScriptedTurns,
    Turn,
    by_turns,
    parallel,
)

SPREAD = "mpe2/simple_spread_v3"
SMALL = {
    "n_envs": 3, "n_steps": 8, "batch_size": 32, "n_epochs": 2, "hidden": 8, "memory_size": 8,
}  # fmt: skip
FACTORIES = {"parallel": parallel, "turns": by_turns}


class Interrupted(ScriptedParallel):
    """Episodes of four steps; the first env to reach its seventh step is interrupted, once."""

    def __init__(self, pending) -> None:
        super().__init__([dict.fromkeys(AGENTS, Life(0, 4, "truncated"))])
        self._pending, self._steps = pending, 0

    def step(self, actions):
        answer = super().step(actions)
        self._steps += 1
        if self._pending and self._steps == 7:
            self._pending.clear()
            raise KeyboardInterrupt
        return answer


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mappo", {"recurrent": "gru", "normalize_rewards": True, **SMALL}),
        (
            "vdn",
            {"n_envs": 3, "hidden": 8, "learning_starts": 24, "batch_size": 4,
             "steps_per_iteration": 24},
        ),
    ],
)  # fmt: skip
def test_all_envs_begin_new_episodes_after_an_interrupted_step(name, options) -> None:
    """One of them has moved on, and its new episode is not joined to the old rows."""
    pending = [True]
    with rlox.make(name, env=lambda: Interrupted(pending), seed=0, **options) as algorithm:
        with pytest.raises(KeyboardInterrupt):
            algorithm.train(72)
        algorithm.train(72)
        assert not pending
        running = algorithm.collector.envs
        seen = [int(each) for each in running.statistics.state_dict()[""]["lengths"]]
        assert set(seen) == {4}


@pytest.mark.parametrize(
    ("source", "recurrent", "values"),
    [(SPREAD, "gru", "popart"), (parallel, "lstm", "none"), (by_turns, "gru", "value_norm")],
)
def test_the_learner_replays_what_the_actor_found(source, recurrent, values) -> None:
    """Before the first gradient step of a rollout, probabilities and values are the actor's."""
    with MAPPO(source, seed=0, recurrent=recurrent, normalize_values=values, **SMALL) as algorithm:
        policies = algorithm.policies
        for _ in range(3):
            for name, batch in algorithm.collector.collect(policies, 8).items():
                policy = policies[name]
                rows = 0
                for part in batch.sample_minibatches(min(16, len(batch.returns))):
                    with torch.no_grad():
                        log_probs, _, found = evaluate_actions(policy, part)
                        if policy.value_norm is not None:
                            found = policy.value_norm.denormalize(found)
                    torch.testing.assert_close(log_probs, part.log_probs, atol=1e-5, rtol=1e-4)
                    torch.testing.assert_close(found, part.values, atol=1e-5, rtol=1e-4)
                    rows += len(part.returns)
                assert rows == len(batch.returns)
            algorithm.train(24)


@settings(max_examples=6)
@given(st.sampled_from(sorted(FACTORIES)), st.integers(1, 3), st.integers(0, 99))
def test_memories_are_those_of_agents_followed_one_by_one(factory, n_envs, seed) -> None:
    """An agent's memory covers the observations it acted on, and resets with its env's episode."""
    options = {**SMALL, "n_envs": n_envs, "recurrent": "lstm"}
    with IPPO(FACTORIES[factory], seed=seed, **options) as algorithm:
        collector, policies = algorithm.collector, algorithm.policies
        states = {}
        step_all, ended = collector.env.step_all, []

        def stepping(actions):
            step = step_all(actions)
            ended.append(step["episode_ended"])
            return step

        collector.env.step_all = stepping
        for _ in range(2):
            ended.clear()
            unrolls = collector.unroll(policies, 8)
            for view in collector.views:
                unroll, active = unrolls[view.name]
                policy, n = policies[view.name], len(view.columns)
                for c in range(active.shape[1]):
                    state = states.get((view.name, c), torch.zeros(1, policy.state_size))
                    for t in range(8):
                        if active[t, c]:
                            obs = {k: leaf[t, c : c + 1] for k, leaf in unroll.obs.items()}
                            masks = unroll.action_masks[t, c : c + 1]
                            with torch.no_grad():
                                distribution, value, state = policy.step(obs, state, masks)
                            action = unroll.actions[t, c : c + 1]
                            torch.testing.assert_close(
                                distribution.log_prob(action)[0], unroll.log_probs[t, c]
                            )
                            torch.testing.assert_close(value[0], unroll.values[t, c])
                        if ended[t][c // n]:
                            state = torch.zeros_like(state)
                    states[view.name, c] = state


class Echo(Game):
    """Each agent is rewarded for repeating its observation from two steps before.

    Only a policy with a memory can beat chance.
    """

    def __init__(self):
        super().__init__(["a", "b"], spaces.Box(0, 1, (2,), np.float32), spaces.Discrete(2))

    def reset(self, seed=None, options=None):
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._t = 0
        self._cue = {agent: int(self._rng.integers(2)) for agent in self.possible_agents}
        return self.begin({a: np.eye(2, dtype=np.float32)[c] for a, c in self._cue.items()})

    def step(self, actions):
        self._t += 1
        over = self._t == 3
        rewards = {a: float(over and actions[a] == self._cue[a]) for a in self.possible_agents}
        return self.answer(self.all(np.zeros(2, np.float32)), rewards, over)


def test_a_memory_is_learnt_to_be_used() -> None:
    """Agents repeat earlier observations, which requires a memory."""
    options = {
        "n_envs": 16, "n_steps": 12, "batch_size": 96, "hidden": 16, "learning_rate": 1e-2,
        "seed": 0, "recurrent": "gru", "memory_size": 16,
    }  # fmt: skip
    with MAPPO(Echo, **options) as algorithm:
        algorithm.train(4_500)  # after 3,000 steps rounding decides
        assert algorithm.evaluate(n_episodes=50).mean_return == 1.0


def test_who_waits_remembers_nothing_new() -> None:
    """As in a rollout, agents update their memory only on their own turns."""
    episodes = [[Turn(agent, PAYS, {}) for agent in (*AGENTS, *AGENTS)]]
    options = {**SMALL, "recurrent": "gru", "batch_size": 8}
    with IPPO(lambda: ScriptedTurns(episodes), seed=1, share_parameters="agent", **options) as ippo:
        for policy in ippo.policies.values():
            for parameter in policy.parameters():
                parameter.data.mul_(3)
        env = PettingZooVecEnv(lambda: ScriptedTurns(episodes))
        shown, starts = env.reset_all(0), np.ones(1, np.bool_)
        whole, alone, by_name = None, dict.fromkeys(AGENTS), None
        for _ in range(2 * len(AGENTS)):
            actions, whole = ippo.predict_team(shown, state=whole, episode_start=starts)
            (found,) = [one for one in env.groups if shown["active"][one.name].any()]
            group, column = found.name, int(shown["active"][found.name][0].argmax())
            agent = found.agents[column]
            own, alone[agent] = ippo.predict(
                shown["obs"][group][0, column],
                agent_idx=env.possible_agents.index(agent),
                state=alone[agent],
                action_masks=shown["masks"][group][0, column],
            )
            named, by_name = ippo.predict(
                {agent: shown["obs"][group][0, column]},
                state=by_name,
                action_masks={agent: shown["masks"][group][0, column]},
            )
            assert named == {agent: own}
            np.testing.assert_array_equal(by_name[agent]["memory"], alone[agent]["memory"])
            remembered = whole["memory"][agent][0]
            np.testing.assert_allclose(remembered, alone[agent]["memory"][0], atol=1e-6)
            assert own == actions[group][0, column]
            shown = env.step_all(actions)
            starts = shown["episode_ended"]


def test_sequences_of_one_row_are_joined_to_others() -> None:
    """A single advantage cannot be standardised."""

    class Batch:
        active = torch.tensor([[True, True, True], [True, False, False]]).flatten()
        n_steps, n_envs = 2, 3

    parts = split_sequences(Batch(), torch.tensor([0, 1, 2]), 1)
    assert [part.tolist() for part in parts] == [[0, 1, 2]]
    parts = split_sequences(Batch(), torch.tensor([1, 2, 0]), 2)
    assert [part.tolist() for part in parts] == [[1, 2], [0]]
    Batch.active = torch.tensor([True, False, False, False, False, False])
    assert [part.tolist() for part in split_sequences(Batch(), torch.arange(3), 1)] == [[0, 1, 2]]
