"""Numbers of rl8 1.0.0, if it is installed beside this distribution."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rlox_rl8 import algorithms
from rlox_rl8 import env as our_env

rl8 = pytest.importorskip("rl8", reason="rl8 is not installed")

OPTIONS: dict[str, Any] = {"num_envs": 16, "horizon": 8, "entropy_coeff": 0.01,
                           "dual_clip_param": 3.0, "device": "cpu"}  # fmt: skip


def parameters(theirs: Any, ours: Any) -> list[torch.Tensor]:
    """Return rl8's parameters; its layers of mean and deviation are one layer of ours."""
    rest = list(theirs.policy.model.parameters())
    if len(rest) > len(list(ours.policy.model.parameters())):
        rest[4:8] = [torch.cat([rest[4], rest[6]]), torch.cat([rest[5], rest[7]])]
    return rest


def copied(theirs: Any, ours: Any) -> None:
    """Copy parameters, in the order of their modules."""
    rest = parameters(theirs, ours)
    mine = list(ours.policy.model.parameters())
    assert [p.shape for p in rest] == [p.shape for p in mine]
    with torch.no_grad():
        for to, source in zip(mine, rest, strict=True):
            to.copy_(source)


@pytest.mark.parametrize("env", ["DiscreteDummyEnv", "ContinuousDummyEnv"])
@pytest.mark.parametrize("kind", ["AlgorithmConfig", "RecurrentAlgorithmConfig"])
def test_collect_and_step_equal(kind: str, env: str) -> None:
    """Rewards, values, log-probabilities, scale, losses, divergence and weights of one round."""
    options = dict(OPTIONS)
    if kind == "RecurrentAlgorithmConfig":
        options["seqs_per_state_reset"] = 2
    theirs = getattr(rl8, kind)(**options).build(getattr(rl8.env, env))
    ours = getattr(algorithms, kind)(**options).build(getattr(our_env, env))
    copied(theirs, ours)
    for algorithm in (theirs, ours):
        torch.manual_seed(7)
        algorithm.env.reset()
        algorithm.collect()
    for key in ("obs", "rewards", "logp", "values", "actions"):
        steps = slice(None) if key in ("obs", "values") else slice(-1)
        torch.testing.assert_close(
            ours.buffer[key][:, steps], theirs.buffer[key][:, steps], atol=1e-5, rtol=1e-5
        )
    assert ours.state.reward_scale == pytest.approx(float(theirs.state.reward_scale), rel=1e-5)
    a, b = ours.step(), theirs.step()
    for key in a.keys() - {"profiling/step_ms"}:
        assert a[key] == pytest.approx(float(b[key]), abs=1e-5, rel=1e-4), key
    for p, q in zip(ours.policy.model.parameters(), parameters(theirs, ours), strict=True):
        torch.testing.assert_close(p, q, atol=1e-5, rtol=1e-3)
