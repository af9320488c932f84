"""Policies of teams learnt in Rust and in torch: the same steps, up to rounding."""

from functools import partial

import numpy as np
import pytest
import rlox
from gymnasium import spaces
from rlox.errors import BackendError
from rlox.nn import module_state

pytest.importorskip("rlox_native")
pytest.importorskip("pettingzoo")
from equal_updates import TOLERANCE, relative_error
from errand_team import NESTED, TORQUES, Errand

SMALL = {
    "n_envs": 4,
    "n_steps": 24,
    "batch_size": 64,
    "n_epochs": 4,
    "hidden": (16, 24, 8),
    "seed": 3,
}
SPREAD = "mpe2/simple_spread_v3"
MASKED = partial(Errand, masks=True)
NUMBERS = partial(Errand, acted=TORQUES)
CASES = {
    "state": ("mappo", SPREAD, {}),
    "observations": (
        "mappo",
        SPREAD,
        {
            "critic": "observations",
            "dual_clip": 3.0,
            "critic_hidden": (20, 9),
            "activation": "relu",
        },
    ),
    "agent_state": ("mappo", SPREAD, {"critic": "agent_state", "vf_clip_eps": 0.1}),
    "local": ("ippo", SPREAD, {"share_parameters": "agent"}),
    "masks and deaths": ("mappo", MASKED, {"critic": "observations"}),
    "nested": ("ippo", partial(Errand, observed=NESTED), {"frame_stack": 2}),
    "numbers": ("mappo", NUMBERS, {"normalize_observations": True}),
    "several choices": ("mappo", partial(Errand, acted=spaces.MultiDiscrete([2, 3])), {}),
    "kl": ("mappo", SPREAD, {"target_kl": 1e-3, "learning_rate": 1e-2}),
}


def learnt(case, backend):
    """Return all parameters after three iterations, and the rows of metrics."""
    name, env, options = CASES[case]
    with rlox.make(name, env=env, backend=backend, **(SMALL | options)) as algorithm:
        assert algorithm.learner.backend == backend
        rows = [algorithm.train(96) for _ in range(3)]
        policies = algorithm.policies
        return {name: module_state(one) for name, one in policies.items()}, rows


@pytest.mark.parametrize("case", CASES)
def test_both_backends_learn_the_same(case):
    """With critics of every kind, masks, deaths, nested observations, numbers, several choices."""
    (ours, our_rows), (theirs, their_rows) = (learnt(case, one) for one in ("native", "torch"))
    assert list(ours) == list(theirs)
    for name, state in ours.items():
        for key, value in state.items():
            assert relative_error(value, theirs[name][key]) < TOLERANCE, key
    for terms in ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"):
        found, expected = ([row[terms] for row in rows] for rows in (our_rows, their_rows))
        np.testing.assert_allclose(found, expected, rtol=5e-3, atol=5e-4, err_msg=terms)


def test_rust_is_taken_where_it_can_be():
    """By auto; and what it cannot do is done in torch, with the reason."""
    with rlox.make("mappo", env=SPREAD, **SMALL) as algorithm:
        assert str(algorithm.learner) == "native (the fastest there is)"
    image = partial(Errand, observed=spaces.Box(0, 255, (12, 12, 3), np.uint8))
    switches = partial(Errand, acted=spaces.MultiBinary(3))
    for env, options, reason in (
        (SPREAD, {"normalize_values": "value_norm"}, "objectives ClippedSurrogate and"),
        (SPREAD, {"recurrent": "gru"}, "not RecurrentTeamPolicy"),
        (SPREAD, {"critic_learning_rate": 1e-3}, "one optimiser, not by a ActorCriticOptimizer"),
        (image, {}, "policies of vectors"),
        (switches, {}, "choices or numbers, not actions of MultiBinary(3)"),
    ):
        given = SMALL | ({"batch_size": 96} if "recurrent" in options else {}) | options
        with rlox.make("mappo", env=env, **given) as algorithm:
            assert algorithm.learner.backend == "torch"
            assert reason in str(algorithm.learner)
            algorithm.train(96)
        with pytest.raises(BackendError, match="the learner backend 'native' cannot do this"):
            rlox.make("mappo", env=env, backend="native", **given)


def test_a_subclass_and_a_hook_are_left_to_torch():
    """They may compute anything."""
    from rlox_marl.policies import TeamPolicy

    class Own(TeamPolicy):
        pass

    with rlox.make("mappo", env=SPREAD, **SMALL) as algorithm:
        (view,) = algorithm.views
    made = []

    def own(observed, acted):
        made.append(Own(view, hidden=16))
        return made[-1]

    def hooked(observed, acted):
        made.append(TeamPolicy(view, hidden=16))
        made[-1].register_forward_hook(lambda *_: None)
        return made[-1]

    options = {name: value for name, value in SMALL.items() if name != "hidden"}
    for policy, reason in ((own, "Own derives from one"), (hooked, "it knows nothing of hooks")):
        with rlox.make("mappo", env=SPREAD, policy=policy, **options) as algorithm:
            assert reason in str(algorithm.learner)
    assert len(made) == 2
