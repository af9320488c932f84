"""Exported policies of batched envs act like their agents."""

import numpy as np
import pytest
import rlox
import torch
from rlox.errors import ExportError
from rlox_rl8.distributions import SquashedNormal
from rlox_rl8.env import ContinuousDummyEnv, DiscreteDummyEnv
from tensordict import TensorDict

OPTIONS = {"n_envs": 8, "horizon": 32, "seed": 0}


@pytest.mark.parametrize(("env", "layers"), [(DiscreteDummyEnv, 1), (ContinuousDummyEnv, 2)])
def test_memory_is_that_of_the_agent(env, layers, tmp_path):
    """Actions agree over episodes of 20 observations in 16 envs, of both kinds."""
    parts = {"model_config": {"hidden_size": 16, "num_layers": layers}}
    with rlox.make("rl8_recurrent_ppo", env=env, parts=parts, **OPTIONS) as algorithm:
        algorithm.train(64)
        rlox.export(algorithm, tmp_path / "policy.rlox")
        policy, agent = rlox.load_policy(tmp_path / "policy.rlox"), algorithm.agent
        states, memory = agent.policy.init_states(16), None
        rng = np.random.default_rng(1)
        for _ in range(20):
            obs = rng.normal(size=(16, *agent.env.observation_spec.shape)).astype(np.float32)
            batch = TensorDict({"obs": torch.from_numpy(obs)[:, None]}, [16, 1])
            out, states = agent.policy.sample(batch, states, deterministic=True)
            actions, memory = policy.predict(obs, state=memory)
            np.testing.assert_allclose(actions, out["actions"].numpy(), rtol=1e-5, atol=1e-5)


def test_another_distribution_is_refused(tmp_path):
    """The error names the distribution; no file is written."""
    parts = {"distribution_cls": SquashedNormal}
    with (
        rlox.make("rl8_ppo", env=ContinuousDummyEnv, parts=parts, **OPTIONS) as algorithm,
        pytest.raises(ExportError, match="DefaultContinuousModel with SquashedNormal"),
    ):
        rlox.export(algorithm, tmp_path / "policy.rlox")
    assert not list(tmp_path.iterdir())
