"""The teams' loss against plain formulas, and their critics' inputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlox.batches.rollout import RolloutBatch
from rlox.losses import ClippedSurrogate
from rlox_marl.collector import estimate_team_advantages
from rlox_marl.envs import PettingZooVecEnv, SimpleSpreadVecEnv
from rlox_marl.mappo import MAPPO, TeamSurrogate
from rlox_marl.policies import TeamPolicy
from rlox_marl.views import make_views
from scripted_teams import parallel

SPREAD = "mpe2/simple_spread_v3"


def plain_huber(errors, delta):
    """Return e² up to δ, and its tangent beyond."""
    if delta is None:
        return errors**2
    return np.array([e * e if abs(e) <= delta else delta * (2 * abs(e) - delta) for e in errors])


@given(
    seed=st.integers(0, 10_000),
    delta=st.sampled_from([None, 0.1, 10.0]),
    value_clip=st.sampled_from([None, 0.2]),
    dual_clip=st.sampled_from([None, 3.0]),
    values=st.sampled_from(["none", "value_norm", "popart"]),
    normalize=st.booleans(),
)
def test_the_loss_is_that_of_plain_formulas(
    seed, delta, value_clip, dual_clip, values, normalize
) -> None:
    """Ratios, Huber errors, clips and normalised targets, to 1e-5."""
    rng = np.random.default_rng(seed)
    (view,) = make_views(SimpleSpreadVecEnv(1), "state", "group")
    generator = torch.Generator().manual_seed(seed)
    policy = TeamPolicy(view, hidden=8, normalize_values=values, generator=generator)
    n = 24
    obs = {
        "agent": torch.arange(n) % 3,
        "critic": torch.from_numpy(rng.normal(size=(n, 54))).float(),
        "obs": torch.from_numpy(rng.normal(size=(n, 18))).float(),
    }
    obs = {name: obs[name] for name in view.leaf_names}
    actions = torch.from_numpy(rng.integers(5, size=n))
    masks = torch.from_numpy(rng.random((n, 5)) < 0.6)
    masks[torch.arange(n), actions] = True

    def numbers(scale=1.0):
        return torch.from_numpy(scale * rng.normal(size=n)).float()

    log_probs = policy.get_logprob_and_entropy(obs, actions, masks)[0].detach()
    batch = RolloutBatch(
        obs=obs, actions=actions, log_probs=log_probs + numbers(0.3), values=numbers(3.0),
        rewards=numbers(), terminated=torch.zeros(n, dtype=torch.bool),
        truncated=torch.zeros(n, dtype=torch.bool), advantages=numbers(2.0),
        returns=numbers(3.0) + 5.0, n_steps=n, n_envs=1, action_masks=masks,
    )  # fmt: skip
    surrogate = ClippedSurrogate(0.2, 0.5, 0.01, value_clip, dual_clip, normalize)
    loss, terms = TeamSurrogate(surrogate, delta).loss(policy, batch)

    new, entropy, outputs = (
        part.detach().double().numpy()
        for part in (
            *policy.get_logprob_and_entropy(obs, actions, masks),
            policy.value(obs),
        )
    )
    advantages = batch.advantages.double().numpy()
    if normalize:
        advantages = (advantages - advantages.mean()) / (advantages.std(ddof=1) + 1e-8)
    returns, before = batch.returns.double().numpy(), batch.values.double().numpy()
    if values != "none":  # the first moments equal this batch's, debiased
        mean, deviation = returns.mean(), np.sqrt(max(returns.var(), 1e-2))
        returns, before = (returns - mean) / deviation, (before - mean) / deviation
    gains = []
    for ratio, advantage in zip(
        np.exp(new - batch.log_probs.double().numpy()), advantages, strict=True
    ):
        gain = min(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
        if dual_clip is not None and advantage < 0:
            gain = max(gain, dual_clip * advantage)
        gains.append(gain)
    errors = plain_huber(outputs - returns, delta)
    if value_clip is not None:
        near = before + np.clip(outputs - before, -value_clip, value_clip)
        errors = np.maximum(errors, plain_huber(near - returns, delta))
    expected = -np.mean(gains) + 0.5 * errors.mean() - 0.01 * entropy.mean()
    assert loss.item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert terms.policy_loss.item() == pytest.approx(-np.mean(gains), rel=1e-4, abs=1e-5)
    assert terms.value_loss.item() == pytest.approx(errors.mean(), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("values", ["none", "value_norm", "popart"])
def test_rows_that_rest_weigh_nothing(values) -> None:
    """Observations, actions and values of resting agents do not reach the batch."""
    options = {"n_envs": 3, "n_steps": 11, "batch_size": 8, "n_epochs": 1, "hidden": 8}
    with MAPPO(parallel, seed=1, normalize_values=values, **options) as algorithm:
        policies = algorithm.policies
        for _ in range(3):
            unrolls = algorithm.collector.unroll(policies, 11)
            for name, (unroll, active) in unrolls.items():
                given = unroll, active, policies[name], 0.99, 0.95
                batch = estimate_team_advantages(*given)
                rest = torch.from_numpy(~active)
                for leaf in unroll.obs.values():
                    if leaf.is_floating_point():
                        leaf[:-1][rest] = 1e6
                unroll.actions[rest] = 0
                unroll.log_probs[rest] = -1e6
                again = estimate_team_advantages(*given)
                assert len(batch.returns) == active.sum()
                assert torch.equal(batch.advantages, again.advantages)
                assert torch.equal(batch.returns, again.returns)
                assert torch.equal(batch.log_probs, again.log_probs)


@pytest.mark.parametrize(
    ("critic", "share"),
    [("state", "group"), ("observations", "agent"), ("agent_state", "group"), ("local", "agent")],
)
def test_critics_see_what_their_kind_says(critic, share) -> None:
    """The actor sees its observation and index; the critic the state, all observations, or less."""
    env = PettingZooVecEnv(SPREAD, 2)
    shown = env.reset_all(3)
    obs = shown["obs"]["agent"]
    for view in make_views(env, critic, share):
        seen = view.see(shown["obs"], shown["state"])
        rows = [(i, column) for i in range(2) for column in view.columns]
        np.testing.assert_array_equal(seen["obs"], [obs[i, column] for i, column in rows])
        identity = ["agent"] if share == "group" else []
        assert sorted(view.actor_space.spaces) == [*identity, "obs"]
        if identity:
            assert seen["agent"].tolist() == [0, 1, 2, 0, 1, 2]
        beyond = {
            "state": [shown["state"][i] for i, _ in rows],
            "agent_state": [shown["state"][i] for i, _ in rows],
            "observations": [obs[i].reshape(-1) for i, _ in rows],
        }
        own = [] if critic in ("state", "observations") else ["obs"]
        other = ["critic"] if critic in beyond else []
        assert sorted(view.critic_space.spaces) == sorted([*identity, *own, *other])
        if critic in beyond:
            np.testing.assert_array_equal(seen["critic"], beyond[critic])
    env.close()


def test_actors_are_blind_to_what_only_critics_see() -> None:
    """A different state changes values, never actions or their probabilities."""
    (view,) = make_views(SimpleSpreadVecEnv(1), "state", "group")
    policy = TeamPolicy(view, generator=torch.Generator().manual_seed(0))
    obs = {
        name: torch.zeros(6, dtype=torch.long) if name == "agent" else torch.randn(6, size)
        for name, size in (("agent", 0), ("critic", 54), ("obs", 18))
    }
    other = {**obs, "critic": torch.randn(6, 54)}
    actions = torch.arange(6) % 5
    for before, after in zip(
        policy.get_logprob_and_entropy(obs, actions),
        policy.get_logprob_and_entropy(other, actions),
        strict=True,
    ):
        assert torch.equal(before, after)
    assert not torch.equal(policy.get_value(obs), policy.get_value(other))
