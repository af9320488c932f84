"""Properties of collecting, learning and windows for all sizes."""

from typing import Any

import pytest
import torch
from agents import KINDS, parameters, small
from hypothesis import given, settings
from hypothesis import strategies as st
from rlox_rl8.algorithms import RecurrentAlgorithmConfig
from rlox_rl8.env import ContinuousDummyEnv, DiscreteDummyEnv
from rlox_rl8.views import ViewRequirement
from tensordict import TensorDict

examples = settings(derandomize=True)


@pytest.mark.parametrize("kind", KINDS)
@examples
@given(
    env=st.sampled_from([DiscreteDummyEnv, ContinuousDummyEnv]),
    seed=st.integers(0, 1000),
    parts=st.sampled_from([2, 4, 8]),
    coeff=st.sampled_from([0.0, 0.01]),
    dual_clip=st.sampled_from([None, 2.0]),
    normalize=st.booleans(),
)
def test_accumulated_minibatches_make_the_gradient_of_all(
    kind: Any, env: Any, seed: int, parts: int, coeff: float, dual_clip: Any, normalize: bool
) -> None:
    """A step of any number of accumulated minibatches equals a step of the whole buffer."""
    samples = 4 * 8 // (4 if kind is RecurrentAlgorithmConfig else 1)
    found = []
    for more in ({}, {"accumulate_grads": True, "sgd_minibatch_size": samples // parts}):
        torch.manual_seed(seed)
        algorithm = small(
            kind, env, num_envs=4, num_sgd_iters=1, optimizer_cls=torch.optim.SGD,
            optimizer_config={"lr": 0.1}, dual_clip_param=dual_clip, entropy_coeff=coeff,
            normalize_rewards=normalize, **more,
        )  # fmt: skip
        before = parameters(algorithm)
        algorithm.collect()
        algorithm.step()
        found.append(parameters(algorithm))
        assert not torch.equal(before, found[-1])
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-5)


@examples
@given(
    rows=st.integers(1, 3),
    steps=st.integers(1, 6),
    shift=st.integers(1, 8),
    shape=st.sampled_from([(), (1,), (2, 3)]),
)
def test_windows_are_the_last_steps(
    rows: int, steps: int, shift: int, shape: tuple[int, ...]
) -> None:
    """Each window holds the preceding steps; the last window is that of the last step."""
    x = torch.randn(rows, steps, *shape, generator=torch.Generator().manual_seed(steps))
    padded = ViewRequirement(shift=shift)
    rolling = ViewRequirement(shift=shift, method="rolling_window")
    batch = TensorDict({"x": x, "nested": {"a": x}}, [rows, steps])
    every = padded.apply_all("x", batch).unflatten(0, (rows, steps))
    rolled = rolling.apply_all("x", batch).unflatten(0, (rows, steps))
    for t in range(steps):
        for place in range(shift + 1):
            source = t - shift + place
            missing = source < 0
            assert every["padding_mask"][:, t, place].all() == missing
            expected = torch.zeros_like(x[:, 0]) if missing else x[:, source]
            assert torch.equal(every["inputs"][:, t, place], expected)
            assert torch.equal(rolled[:, t, place], x[:, max(source, 0)])
        last = padded.apply_last("x", batch[:, : t + 1])
        nested = padded.apply_last("nested", TensorDict({"nested": batch[:, : t + 1]}))
        assert nested.batch_size == nested["x"].batch_size == last.batch_size
        assert torch.equal(last["inputs"], every["inputs"][:, t])
        assert torch.equal(last["padding_mask"], every["padding_mask"][:, t])
        assert torch.equal(rolling.apply_last("x", batch[:, : t + 1]), rolled[:, t])
    nested = padded.apply_all("nested", batch)
    assert torch.equal(nested["a", "inputs"], every["inputs"].flatten(0, 1))
