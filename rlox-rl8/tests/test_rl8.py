"""PPO on batched envs: numbers, defects that rl8 has, and rlox's contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rlox
import torch
from rlox_rl8.algorithms import AlgorithmConfig, RecurrentAlgorithmConfig
from rlox_rl8.conditions import And, HitsUpperBound, Plateaus, StopsDecreasing, StopsIncreasing
from rlox_rl8.env import ContinuousDummyEnv, DiscreteDummyEnv
from rlox_rl8.losses import clipped_losses, estimate_advantages
from rlox_rl8.models import DefaultDiscreteModel, DefaultDiscreteRecurrentModel
from rlox_rl8.schedulers import InterpScheduler, StepScheduler
from rlox_rl8.trainers import RecurrentTrainer, TrainConfig, Trainer
from rlox_rl8.views import ViewRequirement
from tensordict import TensorDict

KINDS = {"rl8_ppo": AlgorithmConfig, "rl8_recurrent_ppo": RecurrentAlgorithmConfig}
ENVS = (DiscreteDummyEnv, ContinuousDummyEnv)
SMALL: dict[str, Any] = {"horizon": 8, "num_envs": 16}


def small(kind: Any, env: Any = DiscreteDummyEnv, **options: Any) -> Any:
    """Return a small algorithm of a kind."""
    if kind is AlgorithmConfig:
        options.setdefault("model_config", {"hiddens": (16, 16)})
    else:
        options.setdefault("seqs_per_state_reset", 2)
        options.setdefault("model_config", {"hidden_size": 16})
    return kind(**{**SMALL, **options}).build(env)


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("kind", KINDS.values())
def test_first_divergence_is_zero(kind: Any, env: Any) -> None:
    """The first minibatch is learnt from with the policy that acted: the ratio is 1."""
    algorithm = small(kind, env, num_sgd_iters=1)
    algorithm.collect()
    assert abs(algorithm.step()["monitors/kl_div"]) < 1e-6


class Dropping(DefaultDiscreteModel):
    """Drops three units in ten."""

    def __init__(self, *specs: Any) -> None:
        super().__init__(*specs, hiddens=(16,))
        self.latents = torch.nn.Sequential(self.latents, torch.nn.Dropout(0.3))


class Forgetting(DefaultDiscreteRecurrentModel):
    """Drops three in ten of what one layer gives to the next."""

    def __init__(self, *specs: Any) -> None:
        super().__init__(*specs, hidden_size=16, num_layers=2)
        self.lstm.dropout = 0.3


@pytest.mark.parametrize("model", [Dropping, Forgetting])
def test_dropout_keeps_the_ratio_at_one(model: Any) -> None:
    """Collecting and learning run the model in the same mode, and leave its own."""
    kind = AlgorithmConfig if model is Dropping else RecurrentAlgorithmConfig
    algorithm = small(kind, model_cls=model, model_config={}, num_sgd_iters=1)
    algorithm.collect()
    assert abs(algorithm.step()["monitors/kl_div"]) < 1e-6
    assert algorithm.policy.model.training


@pytest.mark.parametrize("kind", KINDS.values())
def test_accumulated_minibatches_make_the_full_gradient(kind: Any) -> None:
    """One step of four accumulated minibatches is one step of the whole buffer."""
    found = []
    for options in ({}, {"accumulate_grads": True, "sgd_minibatch_size": 8}):
        torch.manual_seed(0)
        algorithm = small(kind, num_sgd_iters=1, optimizer_cls=torch.optim.SGD, **options)
        algorithm.collect()
        algorithm.step()
        found.append(torch.cat([p.flatten() for p in algorithm.policy.model.parameters()]))
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_split_horizon_is_one_long_one(kind: Any) -> None:
    """Two horizons of 4 without a reset between them collect what one of 8 does."""
    torch.manual_seed(3)
    long = small(kind)
    torch.manual_seed(3)
    split = small(kind, horizon=4, horizons_per_env_reset=2)
    split.policy.model.load_state_dict(long.policy.model.state_dict())
    torch.manual_seed(4)
    long.collect()
    torch.manual_seed(4)
    parts = []
    for _ in range(2):
        torch.set_rng_state(torch.get_rng_state())
        split.collect()
        parts.append(split.buffer["rewards"][:, :-1].clone())
    torch.testing.assert_close(torch.cat(parts, 1), long.buffer["rewards"][:, :-1])
    torch.testing.assert_close(
        split.buffer["reversed_discounted_returns"][:, -1],
        long.buffer["reversed_discounted_returns"][:, -1],
    )


@pytest.mark.parametrize("kind", KINDS.values())
def test_rewards_are_scaled_by_sums_that_begin_after_learning(kind: Any) -> None:
    """The scale of a horizon hardly depends on how many came since the reset, as in rl8.

    Without learning, sums go on: two horizons are one long one.
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


def test_recurrent_statistics_count_the_first_step() -> None:
    """Both kinds sum the rewards of all steps."""
    for kind in KINDS.values():
        algorithm = small(kind, ContinuousDummyEnv)
        stats = algorithm.collect()
        rewards = algorithm.buffer["rewards"][:, :-1]
        assert stats["returns/mean"] == pytest.approx(float(rewards.sum(1).mean()), rel=1e-5)
        assert stats["env/steps"] == 128


def test_schedules_count_env_steps() -> None:
    """A change at 128 env steps comes after one iteration of 16 envs and 8 steps."""
    algorithm = small(
        AlgorithmConfig, lr_schedule=[(0, 1e-3), (128, 1e-4)],
        entropy_coeff_schedule=[(0, 0.0), (256, 1.0)], entropy_coeff_schedule_kind="interp",
    )  # fmt: skip
    algorithm.collect()
    algorithm.collect()  # not learnt from
    algorithm.step()
    assert algorithm.lr_scheduler.coeff == 1e-4
    assert algorithm.entropy_scheduler.coeff == 0.5


def test_large_divergence_stops_before_a_step() -> None:
    """Nothing is learnt from a minibatch above 1.5 times the target."""
    algorithm = small(AlgorithmConfig, target_kl_div=1e-9)
    algorithm.collect()
    before = [p.clone() for p in algorithm.policy.model.parameters()]
    algorithm.buffer["logp"].sub_(1.0)
    stats = algorithm.step()
    assert stats["monitors/kl_div"] == pytest.approx(np.e - 2, rel=1e-4)
    assert all(map(torch.equal, before, algorithm.policy.model.parameters()))


def test_step_needs_a_collect() -> None:
    """As in rl8."""
    with pytest.raises(RuntimeError, match="Algorithm is not buffered"):
        small(AlgorithmConfig).step()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip_param": 1.0}, "clip_param must lie in"),
        ({"dual_clip_param": 1.0}, "dual_clip_param must exceed 1"),
        ({"amp_dtype": "float16", "device": "cpu"}, "amp_dtype 'float16' needs a GPU"),
        ({"amp_dtype": "half"}, "amp_dtype must be one of"),
        ({"gamma": 0.0}, "gamma must lie in"),
        ({"gae_lambda": 1.1}, "gae_lambda must lie in"),
        ({"horizon": 0}, "horizon must be positive"),
        ({"horizons_per_env_reset": 0}, "horizons_per_env_reset must be positive"),
        ({"max_grad_norm": 0.0}, "max_grad_norm must be positive"),
        ({"num_sgd_iters": 0}, "num_sgd_iters must be positive"),
        ({"sgd_minibatch_size": 0}, "sgd_minibatch_size must be positive"),
        ({"sgd_minibatch_size": 7}, "must divide the buffer's 128"),
        ({"accumulate_grads": True}, "needs several minibatches"),
        ({"target_kl_div": 0.1, "accumulate_grads": True}, "exclude each other"),
        ({"vf_clip_param": 0.0}, "vf_clip_param must be positive"),
        ({"lr_schedule": [(1, 0.1)]}, "must start at 0"),
        ({"lr_schedule_kind": "cubic"}, "kind must be 'interp' or 'step'"),
    ],
)
def test_wrong_numbers_are_refused(options: dict[str, Any], message: str) -> None:
    """Before anything is collected."""
    with pytest.raises(ValueError, match=message):
        AlgorithmConfig(**{**SMALL, **options}).build(DiscreteDummyEnv)


def test_negative_state_resets_mean_never() -> None:
    """Any negative number; sequences must divide the horizon."""
    algorithm = small(RecurrentAlgorithmConfig, seqs_per_state_reset=-3)
    calls = []
    init = algorithm.policy.init_states
    algorithm.policy.init_states = lambda n: calls.append(n) or init(n)
    for _ in range(3):
        algorithm.collect()
    assert calls == [16]
    for length, message in ((3, "seq_len must divide"), (0, "seq_len must be positive")):
        with pytest.raises(ValueError, match=message):
            RecurrentAlgorithmConfig(**SMALL, seq_len=length).build(DiscreteDummyEnv)


def test_advantages_leave_rewards_as_they_are() -> None:
    """By hand: δ = (1 / 2 + 0.5 · 1 - 1, 1 / 2 + 0.5 · 1 - 1) = 0 at scale 2 and V = 1."""
    rewards, values = torch.ones(2, 1), torch.ones(3, 1)
    found = estimate_advantages(rewards, values, gamma=0.5, gae_lambda=0.5, reward_scale=2.0)
    torch.testing.assert_close(found, torch.zeros(2, 1))
    assert torch.equal(rewards, torch.ones(2, 1))


def test_dual_clip_and_value_clip() -> None:
    """By hand: A = -1, r = e² is cut at 3; the value loss of 9.5 is cut at 5, without gradient."""
    values = torch.zeros(1, 1, requires_grad=True)
    losses = clipped_losses(
        torch.full((1, 1), 2.0), values, None, torch.zeros(1, 1), -torch.ones(1, 1),
        torch.full((1, 1), 10.0), clip_param=0.2, vf_clip_param=5.0, vf_coeff=1.0,
        dual_clip_param=3.0,
    )  # fmt: skip
    assert losses.policy.item() == -3.0
    assert losses.total.item() == 8.0
    losses.total.backward()
    assert values.grad is not None
    assert values.grad.item() == 0.0


def test_schedules() -> None:
    """Jump and hold, or interpolate and hold at the end."""
    points = [(0, 1.0), (10, 2.0)]
    assert [StepScheduler(points).step(n) for n in (0, 9, 10, 11)] == [1, 1, 2, 2]
    assert [InterpScheduler(points).step(n) for n in (0, 5, 20)] == [1, 1.5, 2]


def test_conditions() -> None:
    """Patience counts steps in a row."""
    rows = [{"x": float(v)} for v in (1, 2, 2, 2)]
    assert [Plateaus("x", patience=2)(rows[0])] == [False]
    for made, expected in (
        (Plateaus("x", patience=2), [False, False, False, True]),
        (StopsDecreasing("x", patience=3), [False, False, False, True]),
        (StopsIncreasing("x", patience=2), [False, False, False, True]),
        (And([HitsUpperBound("x", 2), HitsUpperBound("x", 1)]), [False, True, True, True]),
    ):
        assert [made(row) for row in rows] == expected


@pytest.mark.parametrize("method", ["rolling_window", "padded_rolling_window"])
def test_views_train(method: Any) -> None:
    """Windows at the last step are those of all steps, and a model can learn from them."""
    requirement = ViewRequirement(shift=2, method=method)
    x = torch.arange(10.0).reshape(2, 5, 1)
    every = requirement.apply_all("x", TensorDict({"x": x}, [2, 5]))
    for t in range(5):
        last = requirement.apply_last("x", TensorDict({"x": x[:, : t + 1]}, [2, t + 1]))
        if method == "rolling_window":
            assert torch.equal(every.unflatten(0, (2, 5))[:, t], last)
        else:
            for key in ("inputs", "padding_mask"):
                assert torch.equal(every[key].unflatten(0, (2, 5))[:, t], last[key])

    class Model(DefaultDiscreteModel):
        def __init__(self, *specs: Any) -> None:
            super().__init__(*specs, hiddens=(8,))
            self.view_requirements["obs"] = requirement

        def forward(self, batch: Any) -> Any:
            seen = batch["obs"]
            seen = seen if method == "rolling_window" else seen["inputs"]
            return super().forward({"obs": seen.mean(1)})

    algorithm = small(AlgorithmConfig, model_cls=Model, model_config={}, num_sgd_iters=1)
    algorithm.collect()
    assert abs(algorithm.step()["monitors/kl_div"]) < 1e-6


def test_the_printed_call_on_the_class_builds() -> None:
    """``RecurrentAlgorithmConfig.build(Env)`` uses the defaults."""
    algorithm = RecurrentAlgorithmConfig.build(
        type("Few", (DiscreteDummyEnv,), {"max_num_envs": 4})
    )
    assert algorithm.hparams.num_envs == 4


def test_wrong_envs_name_the_method() -> None:
    """Shapes and NaN."""

    class Flat(DiscreteDummyEnv):
        def reset(self, *, config: Any = None) -> Any:
            return super().reset(config=config)[:, 0]

    class Unknown(DiscreteDummyEnv):
        def step(self, action: Any) -> Any:
            out = super().step(action)
            out["rewards"] = out["rewards"] * float("nan")
            return out

    for env, message in ((Flat, "Flat.reset must have shape"), (Unknown, "Unknown.step rewards")):
        with pytest.raises(ValueError, match=message):
            small(AlgorithmConfig, env)


@pytest.mark.parametrize("name", KINDS)
def test_resumed_runs_are_the_same(name: str, tmp_path: Path) -> None:
    """N + N = 2N bit for bit, across a horizon, and the caller's random stream is left alone."""
    options: dict[str, Any] = {
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


def test_trainers() -> None:
    """Two in one process; evaluation falls on resets, and conditions end the run."""
    trainer = Trainer(small(AlgorithmConfig))
    stats = trainer.run(steps_per_eval=2, stop_conditions=[HitsUpperBound("env/steps", 512)])
    assert stats["env/steps"] == 512
    assert stats["algorithm/collects"] == 6
    assert "eval/returns/mean" in stats
    other = RecurrentTrainer(small(RecurrentAlgorithmConfig))
    assert other.run(max_steps=1)["env/steps"] == 128
    with pytest.raises(ValueError, match="multiple of horizons_per_env_reset"):
        Trainer(small(AlgorithmConfig, horizons_per_env_reset=2)).run(steps_per_eval=3, max_steps=1)


def test_train_config_reads_files(tmp_path: Path) -> None:
    """Classes are dotted names."""
    path = tmp_path / "train.json"
    path.write_text(
        json.dumps(
            {
                "env_cls": "rlox_rl8.env.DiscreteDummyEnv",
                "algorithm_config": {
                    "num_envs": 4, "horizon": 8, "optimizer_cls": "torch.optim.SGD",
                },
            }
        )
    )  # fmt: skip
    trainer = TrainConfig.from_file(path).build()
    assert isinstance(trainer.algorithm.optimizer, torch.optim.SGD)


def test_facade_is_the_family() -> None:
    """``rlox.rl8`` hands on the family's own modules."""
    import rlox.rl8
    import rlox.rl8.env

    assert rlox.rl8.env.DiscreteDummyEnv is DiscreteDummyEnv
    assert rlox.rl8.AlgorithmConfig is AlgorithmConfig


def test_learns_to_hold_a_position() -> None:
    """The mean return of the discrete dummy rises; a random policy's does not."""
    algorithm = rlox.make("rl8_ppo", env=ContinuousDummyEnv, n_envs=256, seed=0, horizon=16)
    before = algorithm.evaluate(n_episodes=256, seed=1).mean_return
    algorithm.train(25 * 256 * 16)
    assert algorithm.evaluate(n_episodes=256, seed=1).mean_return > before + 40


def test_configs_agree() -> None:
    """Rlox's options have the names and defaults of rl8's numbers."""
    from rlox_rl8.configs import RL8PPOConfig, RL8RecurrentPPOConfig

    for ours, theirs in (
        (RL8PPOConfig, AlgorithmConfig),
        (RL8RecurrentPPOConfig, RecurrentAlgorithmConfig),
    ):
        named = {"n_envs": "num_envs"}
        defaults = vars(theirs())
        found = ours().to_dict()
        for name in found.keys() - {"seed", "preset", "learning_rate", "env_backend", "env_kwargs"}:
            assert found[name] == defaults[named.get(name, name)], name
        left = defaults.keys() - {named.get(name, name) for name in found}
        assert left == {
            "model", "model_cls", "model_config", "distribution_cls", "optimizer_cls",
            "optimizer_config", "lr_schedule", "entropy_coeff_schedule",
        }  # fmt: skip


def test_the_command_line_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an env as module:Class; the run folder has a final checkpoint."""
    from rlox.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "sys.argv",
        ["rlox", "train", "rl8_ppo", "--env", "rlox_rl8.env:DiscreteDummyEnv", "--n-envs", "8",
         "--horizon", "8", "--total-timesteps", "128", "--run-dir", "run", "--quiet"],
    )  # fmt: skip
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert list((tmp_path / "run").rglob("final*"))


def test_stopped_collecting_begins_with_a_reset() -> None:
    """A callback that stops a horizon leaves no half of it to learn from."""
    from rlox.callbacks import Callback

    class Stop(Callback):
        def on_step(self, **kwargs: Any) -> bool:
            return kwargs["step"] < 24

    algorithm = rlox.make(
        "rl8_ppo", env=DiscreteDummyEnv, n_envs=8, horizon=8, seed=0, callbacks=Stop()
    )
    algorithm.train(64)
    assert algorithm.clock.env_steps == 24
    assert algorithm.agent.collect()["env/resets"] == 8
