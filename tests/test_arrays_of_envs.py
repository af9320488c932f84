"""Every algorithm on envs that reuse arrays, show odd numbers and leave few rows.

By default each shape of loop meets them in a conformance test of its family.
"""

import numpy as np
import pytest
import rlox
from rlox.testing import (
    ScriptedVecEnv,
    check_few_rows,
    check_odd_numbers,
    check_rewritten_arrays,
)
from rlox_testing.arrays import ODD_NUMBERS
from small_algorithms import ON_ENVS, TEAMS, env_of

pytestmark = pytest.mark.slow

ALONE = [name for name in ON_ENVS if name not in TEAMS]
CHECKS = (check_rewritten_arrays, check_odd_numbers, check_few_rows)
OF_RL8 = ("a horizon cannot leave them out", "observations of MultiDiscrete")
"""Why checks do not apply to its algorithms."""


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("check", CHECKS)
def test_every_algorithm_conforms(check, name, backend):
    """With either learner."""
    if name == "rl8_recurrent_ppo":
        env, options = "CartPole-v1", {"n_envs": 4, "horizon": 8, "seq_len": 4}
    else:
        env, options = env_of(name), dict(ON_ENVS[name][1])
    if not name.startswith("rl8_") and name != "dreamer_v3":
        options["backend"] = backend
    reason = check(name, env, **options)
    assert reason is None or (name.startswith("rl8_") and any(part in reason for part in OF_RL8))


@pytest.mark.parametrize("suffix", ["rlox", "onnx"])
@pytest.mark.parametrize(("space", "odd", "at"), ODD_NUMBERS)
@pytest.mark.parametrize("name", ALONE)
def test_exported_policies_refuse_odd_numbers(name, space, odd, at, suffix, tmp_path):
    """As the algorithm does, in which a cast would change them or an encoding misread them."""
    if name == "rl8_recurrent_ppo" or (name == "rl8_ppo" and "Multi" in str(space)):
        pytest.skip("it takes no such observations")
    options = ON_ENVS[name][1]
    acted = env_of(name)().action_space
    with rlox.make(
        name, env=ScriptedVecEnv(options.get("n_envs", 1), space, acted), seed=0, **options
    ) as algorithm:
        algorithm.train(1)
        rlox.export(algorithm, tmp_path / f"policy.{suffix}")
    policy = rlox.load_policy(tmp_path / f"policy.{suffix}")
    policy.predict(np.zeros(space.shape))
    with pytest.raises(ValueError, match=f"^obs has {odd}, which"):
        policy.predict(np.full(space.shape, odd))
