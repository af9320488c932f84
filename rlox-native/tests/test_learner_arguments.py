"""Arguments that would destroy parameters are refused by name and change nothing."""

import numpy as np
import pytest
import rlox_native

ADAM = {"step": 3, "betas": (0.9, 0.999), "eps": 1e-8, "max_grad_norm": None}
BATCH = {
    "obs": np.ones((4, 3)),
    "actions": np.array([[0], [1], [1], [0]]),
    "rewards": np.arange(4.0),
    "next_obs": np.ones((4, 3)),
    "discounts": np.ones(4),
    "weights": None,
}
NAN, INF = float("nan"), float("inf")
LARGEST = r"1\.7976931348623157e308"


def learnt(n, **constants):
    """Parameters with the moments and the constants of Adam."""
    arrays = {
        name: np.full(n, 0.1, np.float32)
        for name in ("parameters", "first_moments", "second_moments")
    }
    return {**arrays, **ADAM, **constants}


def update(**changes):
    """Return the parameters after PPO's update."""
    learner = rlox_native.ActorCriticLearner(3, (4,), n_actions=2)
    adam = learnt(learner.n_parameters)
    arguments = {
        "obs": BATCH["obs"],
        "actions": BATCH["actions"][:, 0],
        "log_probs": np.full(4, -0.7),
        "values": np.zeros(4),
        "advantages": np.arange(4.0),
        "returns": np.arange(4.0),
        "order": [[0, 1, 2, 3]],
        "batch_size": 2,
        "learning_rate": 1e-3,
        "vf_coef": 0.5,
        "ent_coef": 0.01,
        "normalize_advantages": True,
        "clip_eps": 0.2,
        **{name: adam[name] for name in ("first_moments", *ADAM)},
        **changes,
    }
    try:
        learner.update(adam["parameters"], adam["second_moments"], **arguments)
    except (ValueError, TypeError):
        for name in ("parameters", "first_moments", "second_moments"):
            assert (adam[name] == np.float32(0.1)).all()
        raise
    return adam["parameters"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_grad_norm": -1.0}, r"^max_grad_norm must lie in \[0, inf\], got -1$"),
        ({"max_grad_norm": NAN}, r"^max_grad_norm must lie in \[0, inf\], got NaN$"),
        ({"betas": (1.0, 1.0)}, r"^betas\[0\] must lie in \[0, 1\), got 1$"),
        ({"betas": (0.9, NAN)}, r"^betas\[1\] must lie in \[0, 1\), got NaN$"),
        ({"betas": None, "alpha": 1.5, "first_moments": None}, r"^alpha must lie in \[0, 1\], got"),
        ({"eps": -1.0}, rf"^eps must lie in \[0, {LARGEST}\], got -1$"),
        ({"step": 2**64 - 1}, r"^step must lie in \[0, 9007199254740992\], got 1\.84.*e19$"),
        ({"step": -1}, r"^step must be at least 0, got -1"),
        ({"step": 2**64}, r"^step must be at most 18446744073709551615, got 18446744073709551616"),
        ({"learning_rate": NAN}, rf"^learning_rate must lie in \[0, {LARGEST}\], got NaN$"),
        ({"learning_rate": -1e-3}, r"^learning_rate must lie in "),
        ({"ent_coef": NAN}, r"^ent_coef must lie in "),
        ({"vf_coef": INF}, r"^vf_coef must lie in "),
        ({"clip_eps": -1.0}, rf"^clip_eps must lie in \[0, {LARGEST}\], got -1$"),
        ({"clip_eps": NAN}, r"^clip_eps must lie in "),
        ({"dual_clip": -1.0}, r"^dual_clip must lie in \[1, inf\], got -1$"),
        ({"vf_clip_eps": NAN}, r"^vf_clip_eps must lie in \[0, inf\], got NaN$"),
        ({"target_kl": -1.0}, r"^target_kl must lie in \[0, inf\], got -1$"),
        ({"action_masks": np.array([[1, 1], [1, 1], [0, 0], [1, 1]])}, r"^action_masks\[2\] allow"),
        ({"actions": [0, 1, 1, 0], "action_masks": np.array([[1, 1], [1, 0], [1, 0], [1, 1]])},
         r"^action_masks\[1\] does not allow actions\[1\] = 1$"),
        ({"actions": np.array([0, 1, 0.5, 0])}, r"^actions must fit int64, got 0\.5 at index 2$"),
        ({"order": [[0, 0.5]]}, r"^order must fit int64, got 0\.5 at index 1$"),
        ({"order": [[-1, 0]]}, r"^order\[0\] must lie in \[0, 4\), got -1$"),
    ],
)  # fmt: skip
def test_an_update_that_would_destroy_the_parameters_is_refused(changes, message):
    """For every argument; the error has its name, value and allowed range."""
    with pytest.raises(ValueError, match=message):
        update(**changes)


def test_a_step_that_is_no_integer_is_refused():
    """By every learner."""
    with pytest.raises(TypeError, match=r"^step must be an integer, got float"):
        update(step=1.5)
    with pytest.raises(TypeError, match=r"^step must be an integer, got float"):
        step_of_values(step=1.5)


def test_decays_may_be_a_list():
    """As from a config file; the step equals the tuple's."""
    for step in (update, step_of_values):
        np.testing.assert_array_equal(step(betas=[0.8, 0.99]), step(betas=(0.8, 0.99)))
        with pytest.raises((TypeError, ValueError), match=r"length 2|two real numbers"):
            step(betas=[0.8])


def test_whole_floats_are_discrete_actions():
    """As from a buffer that stores float32."""
    expected = update()
    np.testing.assert_array_equal(update(actions=np.array([0.0, 1, 1, 0])), expected)
    assert np.isfinite(expected).all()
    assert (expected != np.float32(0.1)).any()


def step_of_values(changes=(), rate=1e-3, **constants):
    """DQN's step of some parameters."""
    learner = rlox_native.QLearner(3, (4,), 2)
    adam = learnt(learner.n_parameters, **constants)
    target, batch = adam["parameters"].copy(), {**BATCH, **dict(changes)}
    try:
        learner.step(adam, target, batch, learning_rate=rate, double=True, huber=True)
    except ValueError:
        assert (adam["parameters"] == target).all()
        raise
    return adam["parameters"]


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"max_grad_norm": -1.0}, r"^max_grad_norm must lie in \[0, inf\], got -1$"),
        ({"betas": (0.9, 1.0)}, r"^betas\[1\] must lie in \[0, 1\), got 1$"),
        ({"step": 2**64 - 1}, r"^step must lie in \[0, 9007199254740992\], got 1\.84.*e19$"),
        ({"step": -1}, r"^step must be at least 0, got -1$"),
        ({"rate": NAN}, r"^learning_rate must lie in "),
    ],
)  # fmt: skip
def test_a_step_of_values_that_would_destroy_the_parameters_is_refused(constants, message):
    """The error names the argument."""
    with pytest.raises(ValueError, match=message):
        step_of_values(**constants)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("betas", 0.9, r"^learnt\['betas'\] must be two real numbers, got float$"),
        ("max_grad_norm", "a", r"^learnt\['max_grad_norm'\] must be .* number or None, got str"),
        ("eps", None, r"^eps must be a real number, got NoneType$"),
    ],
)  # fmt: skip
def test_a_constant_of_the_wrong_type_is_refused_by_its_name(key, value, message):
    """The error names its dict too."""
    with pytest.raises(TypeError, match=message):
        step_of_values(**{key: value})


def test_fractions_are_no_discrete_actions():
    """They are refused; whole floats convert."""
    with pytest.raises(ValueError, match=r"^actions must fit int64, got 0\.7 at index 0$"):
        step_of_values({"actions": np.full((4, 1), 0.7)})
    whole = step_of_values({"actions": BATCH["actions"].astype(np.float32)})
    np.testing.assert_array_equal(whole, step_of_values())


@pytest.mark.parametrize(
    ("learner", "parameters", "more"),
    [
        (rlox_native.QLearner(3, (4,), 2), 26, ()),
        (rlox_native.ContinuousLearner(3, 1, (4,), 2), 21, (None,)),
    ],
    ids=["discrete", "continuous"],
)
def test_acting_refuses_what_does_not_fit(learner, parameters, more):
    """It accepts zero observations and convertible values."""
    weights = np.ones(parameters)
    assert len(learner.act(weights, np.zeros((0, 3)), *more)) == 0
    assert learner.act(weights, np.zeros((2, 3), np.int64), *more).shape[0] == 2
    with pytest.raises(ValueError, match=r"^obs must have shape \(2, 3\) like the "):
        learner.act(weights, np.zeros((2, 4)), *more)
    with pytest.raises(ValueError, match=r"^obs must have 2 dimensions, got 1$"):
        learner.act(weights, np.zeros(3), *more)
    with pytest.raises(ValueError, match=rf"^\w+ must have length {parameters} like the "):
        learner.act(weights[1:], np.zeros((2, 3)), *more)


def test_a_gaussian_policy_acts_by_noise():
    """One number per component of each action."""
    learner = rlox_native.ContinuousLearner(3, 2, (4,), 2, log_std_bounds=(-5, 2))
    weights, obs = np.ones(learner.n_policy_parameters), np.zeros((2, 3))
    assert learner.act(weights, obs, np.zeros((2, 2))).shape == (2, learner.act_dim)
    for noise in (None, np.zeros((2, 1)), np.zeros((3, 2))):
        with pytest.raises(ValueError, match="noise"):
            learner.act(weights, obs, noise)


@pytest.mark.parametrize("tau", [0, 0.005, 0.5, 0.7, 1])
def test_a_target_goes_a_part_of_the_way(tau):
    """0 changes nothing and 1 copies, bit for bit."""
    learner = rlox_native.ContinuousLearner(3, 1, (4,), 2)
    target, learns = np.random.default_rng(0).normal(size=(2, 42)).astype(np.float32)
    expected = (1 - tau) * target + tau * learns
    learner.follow(target, learns, tau=tau, rows=256)
    if tau in {0, 1}:
        np.testing.assert_array_equal(target, expected)
    np.testing.assert_allclose(target, expected, rtol=0, atol=5e-7)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tau": -0.1}, r"^tau must lie in \[0, 1\], got -0\.1"),
        ({"tau": NAN}, r"^tau must lie in \[0, 1\], got NaN"),
        ({"target": np.zeros(3, np.float32)}, r"^target must have "),
    ],
)
def test_a_target_that_cannot_follow_is_left(changed, message):
    """For another size or a number out of range."""
    learner = rlox_native.ContinuousLearner(3, 1, (4,), 2)
    arguments = {"target": np.zeros(4, np.float32), "tau": 0.5, **changed}
    with pytest.raises(ValueError, match=message):
        learner.follow(parameters=np.ones(4, np.float32), rows=256, **arguments)
    assert not arguments["target"].any()


@pytest.mark.parametrize("bounds", [(2, -5), (NAN, 1), (-5, INF)])
@pytest.mark.parametrize("kind", ["ContinuousLearner", "ImplicitLearner"])
def test_bounds_of_deviations_are_an_interval(kind, bounds):
    """Two finite numbers, the smaller first."""
    message = r"^log_std_bounds must be finite and the first at most the second, got \("
    with pytest.raises(ValueError, match=message):
        getattr(rlox_native, kind)(3, 1, (4,), 2, log_std_bounds=bounds)


@pytest.mark.parametrize("name", ["learning_rate", "alpha", "scale", "penalty_weight"])
@pytest.mark.parametrize("value", [NAN, -1.0])
def test_a_step_of_critics_takes_weights_only(name, value):
    """Finite and not negative."""
    learner = rlox_native.ContinuousLearner(3, 1, (4,), 2)
    critics = learnt(learner.n_critic_parameters)
    target, policy = critics["parameters"].copy(), np.zeros(learner.n_policy_parameters)
    options = {"learning_rate": 1e-3, "alpha": 0.0, "scale": 1.0, name: value}
    if name == "penalty_weight":
        noise = np.zeros((2, 4, 1))
        learner.penalize(critics["parameters"], policy, BATCH, noise, noise, noise)
    with pytest.raises(ValueError, match=rf"^{name} must lie in \[0, {LARGEST}\], got (NaN|-1)$"):
        learner.step_values(critics, target, policy, BATCH, None, **options)
    np.testing.assert_array_equal(critics["parameters"], target)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": NAN}, r"^learning_rate must lie in "),
        ({"alpha": -1.0}, r"^alpha must lie in "),
        ({"cloning": (np.zeros((4, 1)), NAN)}, r"^cloning\[1\] must lie in "),
        ({"cloning": (np.zeros((3, 1)), 2.5)}, "actions"),
    ],
)
def test_a_step_of_a_policy_takes_weights_only(options, message):
    """Finite and not negative."""
    learner = rlox_native.ContinuousLearner(3, 1, (4,), 2)
    policy, critics = learnt(learner.n_policy_parameters), np.zeros(learner.n_critic_parameters)
    arguments = {"learning_rate": 1e-3, "alpha": 0.0, **options}
    with pytest.raises(ValueError, match=message):
        learner.step_policy(policy, critics, BATCH["obs"], None, **arguments)
    assert (policy["parameters"] == np.float32(0.1)).all()


def test_a_penalty_fits_its_batch_and_counts_once():
    """A weighted step requires a penalty computed since the last step."""
    learner = rlox_native.ContinuousLearner(3, 1, (4,), 2)
    critics, policy = learnt(learner.n_critic_parameters), np.zeros(learner.n_policy_parameters)

    def penalize(n_actions, bounds=None):
        actions = [np.zeros((n_actions, 4, 1))] * 3
        learner.penalize(critics["parameters"], policy, BATCH, *actions, bounds)

    def step():
        options = {"learning_rate": 1e-3, "alpha": 0.0, "scale": 1.0, "penalty_weight": 2.5}
        target = critics["parameters"].copy()
        return learner.step_values(critics, target, policy, BATCH, None, **options)

    with pytest.raises(ValueError, match=r"random actions must lie in \[1, 85\], got 90"):
        penalize(90)
    with pytest.raises(ValueError, match="lower_bounds"):
        penalize(2, np.zeros(3))
    with pytest.raises(ValueError, match="penalty"):
        step()
    penalize(2)
    assert np.isfinite(step()[0])
    with pytest.raises(ValueError, match="penalty"):
        step()


@pytest.mark.parametrize("name", ["learning_rate", "policy_learning_rate"])
def test_a_step_of_implicit_q_learning_takes_finite_rates_only(name):
    """For the policy and for the others."""
    learner = rlox_native.ImplicitLearner(3, 1, (4,), 2, log_std_bounds=(-5, 2))
    parts = [learnt(n) for n in learner.n_parameters]
    rates = {"learning_rate": 1e-3, "policy_learning_rate": 1e-3, name: NAN}
    losses = {"expectile": 0.7, "temperature": 3.0, "max_weight": 100.0}
    with pytest.raises(ValueError, match=r"^learning_rate must lie in "):
        learner.step(*parts, parts[2]["parameters"].copy(), BATCH, **rates, **losses)
    assert all((part["parameters"] == np.float32(0.1)).all() for part in parts)
