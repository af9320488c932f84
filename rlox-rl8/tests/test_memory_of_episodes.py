"""Recurrent policies on envs whose episodes end, at any step of a sequence."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import rlox
import torch
from gymnasium import spaces
from rlox.testing import check_algorithm
from rlox_rl8.algorithms import RecurrentAlgorithmConfig
from rlox_rl8.vec_envs import tensor_env
from tensordict import TensorDict

SMALL = {"n_envs": 4, "horizon": 16, "sgd_minibatch_size": 8, "seq_len": 8}


class Recall(gymnasium.Env[Any, Any]):
    """Shows a number once, then asks for it; ends and cuts come in turn, after 2 to 4 steps."""

    observation_space: ClassVar[Any] = spaces.Box(0, 1, (4,), np.float32)
    action_space: ClassVar[Any] = spaces.Discrete(3)
    episodes = 0

    def reset(self, *, seed=None, options=None):
        """Show a number."""
        super().reset(seed=seed)
        self.shown = int(self.np_random.integers(3))
        self.steps, self.episodes = 0, self.episodes + 1
        return np.eye(4, dtype=np.float32)[self.shown], {}

    def step(self, action):
        """Ask for it."""
        self.steps += 1
        over, cut = self.steps == 2 + self.episodes % 3, self.episodes % 2 == 0
        reward = float(action == self.shown)
        return np.eye(4, dtype=np.float32)[3], reward, over and not cut, over and cut, {}


def collected(**options):
    """Return an agent after two horizons, so that episodes reach from one into the other."""
    torch.manual_seed(0)
    agent = RecurrentAlgorithmConfig(
        num_envs=4, horizon=16, horizons_per_env_reset=-1, seqs_per_state_reset=-1, seq_len=8,
        model_config={"hidden_size": 8}, device="cpu", **options,
    ).build(tensor_env(Recall))  # fmt: skip
    with torch.no_grad():
        agent.policy.model.head.linear.weight.mul_(1e3)  # so that the memory matters
    agent.collect()
    before = agent._states.clone()
    agent.collect()
    return agent, before


def test_states_begin_with_episodes():
    """Values and final values equal those of stepping one env at a time by hand."""
    agent, states = collected()
    store, model = agent._storage, agent.policy.model
    assert store["terminated"][:-1].any()
    assert store["truncated"][:-1].any()
    for env in range(4):
        # the previous horizon's flags are gone
        state = agent._starts[0][env : env + 1]
        carried = states[env : env + 1]
        assert torch.equal(state["cell_states"], carried["cell_states"]) or not (
            state["cell_states"].any()
        )
        for t in range(16):
            with torch.no_grad():
                seen = TensorDict({"obs": store["obs"][t, env][None, None]}, [1, 1])
                _, state = model(seen, state)
                value = model.value_function()
            torch.testing.assert_close(value[0], store["values"][t, env], atol=1e-6, rtol=1e-5)
            if store["truncated"][t, env]:
                final = TensorDict({"obs": torch.eye(4)[3][None, None]}, [1, 1])
                with torch.no_grad():
                    model(final, state)
                found = store["final_values"][t, env]
                torch.testing.assert_close(model.value_function()[0], found, atol=1e-6, rtol=1e-5)
            if store["truncated"][t, env] or store["terminated"][t, env]:
                state = model.init_states(1)


def test_the_learner_replays_what_was_remembered():
    """The first gradient's divergence is 0; ignoring ends would make it positive."""
    agent, _ = collected(num_sgd_iters=1)
    assert abs(agent.step()["monitors/kl_div"]) < 1e-8
    agent, _ = collected(num_sgd_iters=1)
    ends = agent.ends.ended
    agent.ends.ended = lambda t: torch.zeros_like(ends(t))
    assert agent.step()["monitors/kl_div"] > 1e-4


def test_contract_on_a_gymnasium_env():
    """Training, saving, resuming, predicting and seeding."""
    check_algorithm("rl8_recurrent_ppo", "CartPole-v1", **SMALL)


@pytest.mark.slow
def test_what_must_be_remembered_is_learnt():
    """Without a memory a third of actions is right; episodes are truncated and terminated."""
    options = {**SMALL, "n_envs": 16, "gamma": 0.5, "learning_rate": 5e-3, "num_sgd_iters": 8}
    parts = {"model_config": {"hidden_size": 32}}
    with rlox.make("rl8_recurrent_ppo", env=Recall, seed=0, parts=parts, **options) as training:
        assert training.config.seqs_per_state_reset == -1
        training.train(8_192)
        assert training.evaluate(n_episodes=60).mean_return > 2.5


def test_predict_carries_states():
    """Single steps give the states of one call over all steps; a new episode resets them."""
    with rlox.make("rl8_recurrent_ppo", env="CartPole-v1", seed=0, **SMALL) as training:
        obs = np.random.default_rng(0).normal(size=(6, 3, 4)).astype(np.float32)
        state = None
        for x in obs:
            actions, state = training.predict(x, state=state)
        assert actions.shape == (3,)
        batch = TensorDict({"obs": torch.tensor(obs).transpose(0, 1)}, [3, 6])
        _, whole = training.agent.policy.sample(batch, deterministic=True)
        torch.testing.assert_close(state["hidden_states"], whole["hidden_states"])
        _, state = training.predict(obs[0], state=state, episode_start=[True, False, True])
        _, fresh = training.predict(obs[0], state=None)
        same = (state["hidden_states"] == fresh["hidden_states"]).flatten(1).all(1)
        assert same.tolist() == [True, False, True]
        assert training.predict(obs[0, 0], state=None)[0] == training.predict(obs[0, 0])
        with pytest.raises(ValueError, match="state must have 2 rows, one per obs, got 3"):
            training.predict(obs[0, :2], state=state)
