"""Offline agents go on as online ones."""

import copy

import numpy as np
import pytest
import rlox
from rlox.registry.table import algorithm_class
from rlox_offline.datasets import record


@pytest.mark.parametrize(("offline", "online"), [("cql", "sac"), ("td3_bc", "td3")])
def test_online_agent_begins_where_the_offline_one_ended(offline, online, tmp_path):
    """Same actions and values at first; then it learns, and the offline agent stays as it was."""
    dataset = record(None, "Pendulum-v1", 400, n_envs=2, normalize=False)
    trained = rlox.make(offline, dataset=dataset, env="Pendulum-v1", hidden=16, batch_size=32)
    trained.train(10)
    trained.save(tmp_path / "offline.safetensors")
    agent = algorithm_class(offline).from_checkpoint(tmp_path / "offline.safetensors")
    obs = dataset.columns["obs"][:8]
    before = agent.predict(obs)
    going_on = rlox.make(
        online,
        env="Pendulum-v1",
        policy=copy.deepcopy(agent.policy),
        critic=copy.deepcopy(agent.critic),
        learning_starts=0,
        batch_size=32,
        steps_per_iteration=20,
    )
    np.testing.assert_array_equal(going_on.predict(obs), before)
    going_on.train(20)
    assert (going_on.predict(obs) != before).any()
    np.testing.assert_array_equal(agent.predict(obs), before)
