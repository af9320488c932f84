"""PPO on batched envs: numbers, rl8's defects, and rlox's contract."""

import numpy as np
import pytest
import rlox
import torch
from agents import KINDS, Windows, small
from rlox_rl8.algorithms import AlgorithmConfig, RecurrentAlgorithmConfig
from rlox_rl8.conditions import HitsUpperBound, StopsDecreasing
from rlox_rl8.env import ContinuousDummyEnv, DiscreteDummyEnv
from rlox_rl8.models import DefaultDiscreteModel, DefaultDiscreteRecurrentModel
from rlox_rl8.trainers import RecurrentTrainer, Trainer
from tensordict import TensorDict


class Dropping(DefaultDiscreteModel):
    """Drops three units in ten."""

    def __init__(self, *specs):
        super().__init__(*specs, hiddens=(16,))
        self.latents = torch.nn.Sequential(self.latents, torch.nn.Dropout(0.3))


def test_dropout_keeps_the_ratio_at_one():
    """Collecting and learning run the model in the same mode, and restore its own."""
    algorithm = small(AlgorithmConfig, model_cls=Dropping, model_config=None, num_sgd_iters=1)
    algorithm.collect()
    assert abs(algorithm.step()["monitors/kl_div"]) < 1e-6
    assert algorithm.policy.model.training


@pytest.mark.parametrize("kind", KINDS)
def test_rewards_are_scaled_by_sums_that_begin_after_learning(kind):
    """A horizon's scale hardly depends on the number of horizons since the reset, as in rl8.

    Without learning, sums go on: two horizons equal one long horizon.
    """
    algorithm = small(kind, horizons_per_env_reset=-1, gamma=1.0)
    sums = []
    for learn in (True, False, False):
        algorithm.collect()
        kept = algorithm.buffer["reversed_discounted_returns"]
        assert algorithm.state.reward_scale == pytest.approx(float(kept[:, 1:].std()), rel=1e-5)
        sums.append((kept[:, 0].clone(), algorithm.buffer["rewards"][:, :-1].sum(1)))
        if learn:
            algorithm.step()
    assert (sums[1][0] == 0).all()
    torch.testing.assert_close(sums[2][0], sums[1][1])


def test_recurrent_statistics_count_the_first_step():
    """Both kinds sum the rewards of all steps."""
    for kind in KINDS:
        algorithm = small(kind, ContinuousDummyEnv)
        stats = algorithm.collect()
        rewards = algorithm.buffer["rewards"][:, :-1]
        assert stats["returns/mean"] == pytest.approx(float(rewards.sum(1).mean()), rel=1e-5)
        assert stats["env/steps"] == 128


def test_schedules_count_env_steps():
    """A change at 128 env steps takes effect after one iteration of 16 envs and 8 steps."""
    algorithm = small(
        AlgorithmConfig, lr_schedule=[(0, 1e-3), (128, 1e-4)],
        entropy_coeff_schedule=[(0, 0.0), (256, 1.0)], entropy_coeff_schedule_kind="interp",
    )  # fmt: skip
    algorithm.collect()
    algorithm.collect()  # not learnt from
    algorithm.step()
    assert algorithm.lr_scheduler.coeff == 1e-4
    assert algorithm.entropy_scheduler.coeff == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"amp_dtype": "float16", "device": "cpu"}, "amp_dtype 'float16' needs a GPU"),
        ({"amp_dtype": "half"}, "amp_dtype: expected"),
        ({"clip_param": 1.0}, "clip_param: expected less than 1"),
        ({"num_envs": 0}, "num_envs must be positive"),
        ({"horizons_per_env_reset": 0}, "horizons_per_env_reset must be positive, or negative"),
        ({"sgd_minibatch_size": 7}, "must divide the buffer's 128"),
        ({"accumulate_grads": True}, "needs several minibatches"),
        ({"target_kl_div": 0.1, "accumulate_grads": True}, "exclude each other"),
        ({"lr_schedule": [(1, 0.1)]}, "must start at 0"),
        ({"entropy_coeff_schedule": [(1, 0.1)]}, "must start at 0"),
        ({"lr_schedule": [(0, float("nan"))]}, "finite and at least 0, got .nan."),
        ({"entropy_coeff": -1.0}, "finite and at least 0, got .-1.0."),
        ({"lr_schedule_kind": "cubic"}, "kind must be 'interp' or 'step'"),
    ],
)
def test_wrong_numbers_are_refused(options, message):
    """Before anything is collected."""
    with pytest.raises(ValueError, match=message):
        small(AlgorithmConfig, **options)


def test_negative_state_resets_mean_never():
    """Any negative number works; sequences must divide the horizon."""
    algorithm = small(RecurrentAlgorithmConfig, seqs_per_state_reset=-3)
    calls = []
    init = algorithm.policy.init_states
    algorithm.policy.init_states = lambda n: calls.append(n) or init(n)
    for _ in range(3):
        algorithm.collect()
    assert calls == [16]
    for length, message in ((3, "seq_len must divide"), (0, "seq_len: expected")):
        with pytest.raises(ValueError, match=message):
            small(RecurrentAlgorithmConfig, seq_len=length)


class Remembering(DefaultDiscreteRecurrentModel):
    """Begins with states of its own."""

    def __init__(self, *specs):
        super().__init__(*specs, hidden_size=8)
        self.first = torch.nn.Parameter(torch.ones(1, 1, 8))

    def init_states(self, n, /):
        """Return views of one parameter."""
        first = self.first.expand(n, 1, 8)
        return TensorDict({"hidden_states": first, "cell_states": first}, [n])


def test_first_states_are_the_models():
    """Nothing is written into what the model returns."""
    algorithm = small(RecurrentAlgorithmConfig, model_cls=Remembering, model_config=None)
    for _ in range(2):
        algorithm.collect()
        algorithm.step()
    assert (algorithm.policy.model.first == 1).all()
    assert (algorithm._states["cell_states"] != 1).any()


@pytest.mark.parametrize("method", ["rolling_window", "padded_rolling_window"])
def test_views_train(method):
    """A model can learn from windows."""
    model = type("Model", (Windows,), {"method": method})
    algorithm = small(AlgorithmConfig, model_cls=model, model_config=None, num_sgd_iters=1)
    algorithm.collect()
    assert abs(algorithm.step()["monitors/kl_div"]) < 1e-6


@pytest.mark.parametrize("name", ["rl8_ppo", "rl8_recurrent_ppo"])
def test_resumed_runs_are_the_same(name, tmp_path):
    """N + N = 2N bit for bit, across a horizon, and the caller's random stream is left alone."""
    options = {
        "n_envs": 8, "horizon": 8, "horizons_per_env_reset": 3, "seed": 1,
    }  # fmt: skip
    if name == "rl8_recurrent_ppo":
        options["seqs_per_state_reset"] = 6
    env = "rlox_rl8.env:DiscreteDummyEnv"
    torch.manual_seed(5)
    before = torch.get_rng_state()
    whole = rlox.make(name, env=env, **options)
    whole.train(4 * 64)
    half = rlox.make(name, env=DiscreteDummyEnv, **options)
    half.train(2 * 64)
    half.save(tmp_path / "half.ckpt")
    resumed = type(half).from_checkpoint(tmp_path / "half.ckpt", DiscreteDummyEnv)
    resumed.train(2 * 64)
    assert torch.equal(before, torch.get_rng_state())
    for a, b in zip(
        whole.agent.policy.model.parameters(), resumed.agent.policy.model.parameters(), strict=True
    ):
        assert torch.equal(a, b)
    found = resumed.evaluate(n_episodes=3)
    assert found.lengths.tolist() == [24, 24, 24]
    assert found.returns.tolist() == whole.evaluate(n_episodes=3).returns.tolist()
    assert resumed.predict(np.zeros((4, 1), np.float32)).shape == (4, 1)


def test_trainers():
    """Two trainers in one process; evaluations coincide with resets, and conditions end the run."""
    trainer = Trainer(small(AlgorithmConfig))
    stats = trainer.run(steps_per_eval=2, stop_conditions=[HitsUpperBound("env/steps", 512)])
    assert stats["env/steps"] == 512
    assert stats["algorithm/collects"] == 6
    assert "eval/returns/mean" in stats
    key = "eval/returns/mean"
    for condition, steps in ((HitsUpperBound(key, -1e9), 2), (StopsDecreasing(key, patience=1), 3)):
        found = Trainer(small(AlgorithmConfig)).run(steps_per_eval=2, stop_conditions=[condition])
        assert found["algorithm/steps"] == steps
    configs = []

    class Seen(DiscreteDummyEnv):
        def reset(self, *, config=None):
            configs.append(config)
            return super().reset(config=config)

    Trainer(AlgorithmConfig(num_envs=4).build(Seen)).run(
        env_config={"bounds": 9.0}, steps_per_eval=1, max_steps=1
    )
    assert configs[1:] == [{"bounds": 9.0}] * 2  # also in the evaluation, as in rl8
    other = RecurrentTrainer(small(RecurrentAlgorithmConfig))
    assert other.run(max_steps=1)["env/steps"] == 128
    with pytest.raises(ValueError, match="multiple of horizons_per_env_reset"):
        Trainer(small(AlgorithmConfig, horizons_per_env_reset=2)).run(steps_per_eval=3, max_steps=1)


def test_stopped_collecting_begins_with_a_reset():
    """A horizon stopped by a callback is not learned from."""
    from rlox.callbacks import Callback

    class Stop(Callback):
        def on_step(self, **kwargs):
            return kwargs["step"] < 24

    algorithm = rlox.make(
        "rl8_ppo", env=DiscreteDummyEnv, n_envs=8, horizon=8, seed=0, callbacks=Stop()
    )
    algorithm.train(64)
    assert algorithm.clock.env_steps == 24
    assert algorithm.agent.collect()["env/resets"] == 8
