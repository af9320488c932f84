"""Saved policies act as before, and hold no code."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rlox.errors import CheckpointError, ConfigError
from rlox_rl8 import _specs as specs
from rlox_rl8.distributions import Normal, SquashedNormal
from rlox_rl8.models import DefaultContinuousModel
from rlox_rl8.policies import Policy, RecurrentPolicy
from tensordict import TensorDict

VECTOR = specs.Unbounded(torch.Size([3]))
SPECS = {
    "choices": (VECTOR, specs.Categorical(4, shape=torch.Size([2]))),
    "numbers": (specs.Bounded(-torch.ones(3), torch.ones(3)), specs.Unbounded(torch.Size([2]))),
    "bounds": (specs.Binary(3), specs.Bounded(torch.zeros(2), torch.tensor([1.0, 5.0]))),
    "nested": (
        specs.Composite(a=VECTOR, b=specs.Categorical(3, torch.Size([1]))),
        specs.MultiCategorical([2, 3]),
    ),
    "image": (specs.Unbounded(torch.Size([36, 36, 3]), dtype=torch.uint8), specs.Binary(2)),
}
KINDS = {Policy: {"hiddens": [8]}, RecurrentPolicy: {"hidden_size": 8}}


class Own(DefaultContinuousModel):
    """A custom model."""


def batch_of(spec, rows=4, steps=3):
    """Return random observations (B, T)."""
    torch.manual_seed(1)
    return TensorDict({"obs": spec.expand(rows, steps, *spec.shape).rand()}, [rows, steps])


def act(policy, batch):
    """Return the most probable actions of all steps, their log-probabilities, and values."""
    more = {"kind": "all"} if isinstance(policy, Policy) else {}
    out = policy.sample(batch, deterministic=True, return_logp=True, return_values=True, **more)
    out = out[0] if isinstance(out, tuple) else out
    return {key: out[key] for key in ("actions", "logp", "values")}


@pytest.mark.parametrize(
    ("kind", "name"), [*((Policy, name) for name in SPECS), (RecurrentPolicy, "nested")]
)
def test_a_saved_policy_acts_as_before(kind, name, tmp_path):
    """For every spec, with specs and configuration from the file."""
    observations, actions = SPECS[name]
    policy = kind(observations, actions, model_config=KINDS[kind])
    policy.save(tmp_path / "policy")
    again = kind.load(tmp_path / "policy")
    assert again.observation_spec == observations
    assert again.action_spec == actions
    batch = batch_of(observations)
    for key, value in act(policy, batch).items():
        assert torch.equal(act(again, batch)[key], value)


def test_classes_of_ones_own_are_passed_in(tmp_path):
    """The file names custom classes, but no name in a file is imported."""
    own = (VECTOR, specs.Unbounded(torch.Size([2])))
    policy = Policy(*own, model_cls=Own, model_config={"hiddens": [8]})
    policy.save(tmp_path / "policy")
    with pytest.raises(ConfigError, match=r"model class 'Own'.*pass model_cls="):
        Policy.load(tmp_path / "policy")
    batch = batch_of(VECTOR)
    for again in (
        Policy.load(tmp_path / "policy", model_cls=Own),
        Policy.load(tmp_path / "policy", model=Own(*own, hiddens=[8])),
    ):
        assert isinstance(again.model, Own)
        assert torch.equal(act(again, batch)["actions"], act(policy, batch)["actions"])
    squashed = Policy.load(tmp_path / "policy", model_cls=Own, distribution_cls=SquashedNormal)
    assert squashed.distribution_cls is SquashedNormal
    assert Policy.load(tmp_path / "policy", model_cls=Own).distribution_cls is Normal


def test_wrong_files_are_reported(tmp_path):
    """Missing, truncated or foreign files, and files of the other kind or another model."""
    path = tmp_path / "policy"
    Policy(VECTOR, specs.Categorical(2, torch.Size([1])), model_config={"hiddens": [8]}).save(path)
    with pytest.raises(CheckpointError, match="holds a Policy, not a RecurrentPolicy"):
        RecurrentPolicy.load(path)
    larger = DefaultContinuousModel(VECTOR, specs.Unbounded(torch.Size([2])), hiddens=[16])
    with pytest.raises(CheckpointError, match="belongs to another model"):
        Policy.load(path, model=larger)
    for content in (path.read_bytes()[:200], b"", b"\x80\x04."):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"is not an rlox\.rl8 policy"):
            Policy.load(tmp_path / "other")
    with pytest.raises(CheckpointError, match=r"is not an rlox\.rl8 policy"):
        Policy.load(tmp_path / "none")


@pytest.mark.parametrize("kind", KINDS)
def test_models_for_mlflow_predict_any_number_of_rows(kind, tmp_path):
    """B·T rows, and for a memory the next states, which can be passed back."""
    pytest.importorskip("pandas")
    policy = kind(VECTOR, specs.Categorical(4, torch.Size([1])), model_config=KINDS[kind])
    model = policy.save(tmp_path / "policy")
    model.load_context(SimpleNamespace(artifacts={"policy": str(tmp_path / "policy")}))
    batch = batch_of(VECTOR)
    obs = batch["obs"].numpy()
    found = model.predict(None, {"obs": obs})
    frame = found if kind is Policy else found[0]
    assert list(frame.columns) == ["actions", "logp", "values"]
    expected = act(policy, batch)["values"]
    np.testing.assert_allclose(np.stack(frame["values"]), expected.detach(), rtol=1e-5, atol=1e-6)
    if kind is Policy:
        return
    assert len(found[1]) == 4
    first = model.predict(None, {"obs": obs[:, :2]})
    rest = model.predict(None, {"obs": obs[:, 2:], "states": first[1]})
    whole = np.stack(frame["values"]).reshape(4, 3)
    np.testing.assert_allclose(np.stack(rest[0]["values"])[:, 0], whole[:, 2], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_mlflow_saves_and_loads_the_model(tmp_path):
    """Saving and loading go through MLflow's own files."""
    mlflow = pytest.importorskip("mlflow.pyfunc")
    pytest.importorskip("pandas")
    policy = Policy(VECTOR, specs.Categorical(4, torch.Size([1])), model_config={"hiddens": [8]})
    path = tmp_path / "policy"
    mlflow.save_model(
        path=str(tmp_path / "model"), python_model=policy.save(path),
        artifacts={"policy": str(path)}, pip_requirements=[],
    )  # fmt: skip
    loaded = mlflow.load_model(str(tmp_path / "model"))
    batch = batch_of(VECTOR)
    frame = loaded.predict({"obs": batch["obs"].numpy()})
    expected = act(policy, batch)["logp"].detach()
    np.testing.assert_allclose(np.stack(frame["logp"]), expected, rtol=1e-5, atol=1e-6)
