"""Cases with equal figures in rlox and rl8 1.0; ``rl8_numbers.json`` holds rl8's.

Torch draws nothing: weights, observations, and changes to the buffer that reach the loss's bounds
come from NumPy; actions are modes, and minibatches are not shuffled.

    PYTHONPATH=<folder with rl8> python rlox-rl8/tests/rl8_cases.py

writes that file.
"""

import importlib
import json
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from tensordict import TensorDict
from torchrl.data import Categorical, Unbounded

NUMBERS = Path(__file__).with_name("rl8_numbers.json")
KINDS = ("AlgorithmConfig", "RecurrentAlgorithmConfig")
ENVS, HORIZON, SEQUENCE = 16, 8, 4

OPTIONS = {
    "defaults": {},
    "dual clip": {"dual_clip_param": 1.1},
    "value clip": {"vf_clip_param": 0.3, "vf_coeff": 0.5},
    "entropy": {"entropy_coeff": 0.05},
    "minibatches": {"sgd_minibatch_size": 16},
    "accumulated minibatches": {"sgd_minibatch_size": 8, "accumulate_grads": True},
    "divergence at once": {"target_kl_div": 1e-3},
    "divergence later": {
        "target_kl_div": 0.08,
        "num_sgd_iters": 30,
        "optimizer_config": {"lr": 0.2},
    },
    "nothing normalised": {"normalize_advantages": False, "normalize_rewards": False},
    "gamma and lambda": {"gamma": 0.9, "gae_lambda": 0.8, "clip_param": 0.1},
    "short gradient": {"max_grad_norm": 0.01, "num_sgd_iters": 2},
    "two horizons a reset": {"horizons_per_env_reset": 2},
    "one reset": {"horizons_per_env_reset": -1},
    "Adam": {"optimizer_cls": torch.optim.Adam, "optimizer_config": {"lr": 1e-3}},
}
RECURRENT = {
    "states never reset": {"seqs_per_state_reset": -1, "horizons_per_env_reset": 2},
    "states reset in horizons": {"seqs_per_state_reset": 1},
    "states across horizons": {"seqs_per_state_reset": 4, "horizons_per_env_reset": 2},
    "short sequences": {"seq_len": 2, "seqs_per_state_reset": 4},
}  # fmt: skip

RESETTING = {KINDS[0]: ["defaults", "two horizons a reset", "one reset"]}
RESETTING[KINDS[1]] = [*RESETTING[KINDS[0]], *RECURRENT]
"""The options above that affect resets of envs and states, by kind."""


def drawn(name, shape, scale=1.0):
    """Return normal numbers determined by a name."""
    rng = np.random.default_rng(list(name.encode()))
    return torch.from_numpy(scale * rng.normal(size=tuple(shape))).float()


def line(base, discrete):
    """Return a class of envs with fixed resets: walkers on a line, paid by |position|."""

    class Line(base):
        def __init__(self, num_envs, /, horizon=None, *, device="cpu"):
            super().__init__(num_envs, horizon, device=device)
            one = torch.Size([1])
            self.observation_spec = Unbounded(one, device=device)
            kind = partial(Categorical, 3) if discrete else Unbounded
            self.action_spec = kind(shape=one, device=device)
            self.at = torch.zeros(num_envs, 1, device=device)
            self.resets = 0

        def reset(self, *, config=None):
            self.resets += 1
            self.at = drawn(f"reset {self.resets}", self.at.shape).to(self.at.device)
            return self.at.clone()

        def step(self, action):
            self.at = self.at + (0.3 * (action - 1).float() if discrete else 0.3 * action)
            out = {"obs": self.at.clone(), "rewards": 1 - self.at.abs()}
            return TensorDict(out, batch_size=[self.num_envs])

    return Line


def pieces(model):
    """Return the parameters in rl8's layout: one layer for the mean, one for the deviation."""
    parameters = [p.detach() for p in model.parameters()]
    if hasattr(model, "head") and not model.head.discrete:
        weight, bias = parameters[4:6]
        parameters[4:6] = [weight[:1], bias[:1], weight[1:], bias[1:]]
    return parameters


def set_weights(model):
    """Write weights determined by their positions."""
    for i, piece in enumerate(pieces(model)):
        piece.copy_(drawn(f"weight {i}", piece.shape, 0.4))


def made(package, kind, discrete, **options):
    """Return a small algorithm."""
    algorithms, env = (importlib.import_module(f"{package}.{n}") for n in ("algorithms", "env"))
    network = {"hiddens": (16, 16)} if kind == KINDS[0] else {"hidden_size": 16}
    given = {
        "num_envs": ENVS, "horizon": HORIZON, "device": "cpu", "shuffle_minibatches": False,
        "model_config": network, "optimizer_cls": torch.optim.SGD, "optimizer_config": {"lr": 0.05},
    }  # fmt: skip
    if kind == KINDS[1]:
        given |= {"seq_len": SEQUENCE, "seqs_per_state_reset": HORIZON // SEQUENCE}
    if (package, kind) == ("rlox.rl8", KINDS[0]):
        given["backend"] = "torch"
    return getattr(algorithms, kind)(**{**given, **options}).build(line(env.Env, discrete))


def round_figures(package, kind, discrete, options):
    """Return the statistics of three rounds of collecting and learning, and the weights after each.

    Each round begins with the same weights, so that rounding errors do not accumulate.
    """
    algorithm = made(package, kind, discrete, **options)
    # the packages' validations reset differently often
    algorithm.env.resets = 0
    figures = []
    for i in range(3):
        set_weights(algorithm.policy.model)
        collected = algorithm.collect(deterministic=True)
        buffer = algorithm.buffer
        found = {"scale": float(algorithm.state.reward_scale), "resets": algorithm.env.resets}
        for key in ("rewards", "logp", "values"):
            entry = buffer[key] if key == "values" else buffer[key][:, :-1]
            found[key] = float((entry * drawn(key, entry.shape)).sum())
        buffer["logp"][:, :-1] += drawn(f"logp {i}", buffer["logp"][:, :-1].shape, 0.2)
        buffer["values"] += drawn(f"values {i}", buffer["values"].shape, 0.3)
        learnt = algorithm.step()
        # rl8's recurrent kind leaves the first step out of its sums
        kept = {k: v for k, v in collected.items() if "rewards" in k or k.startswith("env/")}
        stats = {**(kept if kind == KINDS[0] else {}), **learnt}
        found |= {k: float(v) for k, v in stats.items() if not k.startswith("profiling")}
        weights = torch.cat([p.flatten() for p in pieces(algorithm.policy.model)])
        found["norm"] = float(weights.norm())
        found["weights"] = float(weights @ drawn("sum", weights.shape))
        figures.append(found)
    return figures


def call_figures(package, kind, options):
    """Return the number of calls in four rounds of methods replaced on env and policy."""
    algorithm = made(package, kind, True, **options)
    parts = [(algorithm.env, "reset"), (algorithm.env, "step")]
    parts += [(algorithm.policy, "init_states")] * (kind == KINDS[1])
    calls = {name: mock.Mock(side_effect=getattr(part, name)) for part, name in parts}
    for part, name in parts:
        setattr(part, name, calls[name])
    found = []
    for _ in range(4):
        algorithm.collect(deterministic=True)
        algorithm.step()
        found.append({name: call.call_count for name, call in calls.items()})
    return found


def schedule_figures(package):
    """Return values of both schedules at counts around their points."""
    module = importlib.import_module(f"{package}.schedulers")
    points = [(0, 1.0), (10, 2.0), (30, 0.5)]
    counts = (0, 5, 9, 10, 11, 20, 30, 99)
    found = {
        name: [getattr(module, name)(points).step(n) for n in counts]
        for name in ("StepScheduler", "InterpScheduler")
    }
    found["ConstantScheduler"] = [module.ConstantScheduler(3.0).step(n) for n in counts]
    for kind in ("step", "interp"):
        entropy = module.EntropyScheduler(9.0, schedule=points, kind=kind)
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=9.0)
        rate = module.LRScheduler(optimizer, schedule=points, kind=kind)
        found[kind] = []
        for n in counts:
            found[kind].append([entropy.step(n), entropy.coeff, rate.step(n)])
            found[kind].append([float(optimizer.param_groups[0]["lr"])] * 3)
    return found


def condition_figures(package):
    """Return the results of conditions on a series, call by call."""
    module = importlib.import_module(f"{package}.conditions")
    series = [5.0, 4.0, 4.0, 4.0, 4.001, 3.0, 3.5, 3.2, 3.0, 6.0, 6.0, 6.0, 6.0, 7.0]
    conditions = {
        "lower": lambda: module.HitsLowerBound("x", 3.0),
        "upper": lambda: module.HitsUpperBound("x", 6.0),
        "plateau": lambda: module.Plateaus("x", patience=2),
        "wide plateau": lambda: module.Plateaus("x", patience=2, rtol=0.2),
        "decrease": lambda: module.StopsDecreasing("x", patience=3),
        "increase": lambda: module.StopsIncreasing("x", patience=3),
        "and": lambda: module.And(
            [module.Plateaus("x", patience=2), module.HitsUpperBound("x", 5.0)]
        ),
    }
    found = {}
    for name, make in conditions.items():
        condition = make()
        found[name] = [bool(condition({"x": x})) for x in series]
    return found


def view_figures(package):
    """Return the padded windows of a model's views, of plain and of nested observations."""
    views, models = (importlib.import_module(f"{package}.{n}") for n in ("views", "models"))

    class Model(models.Model):
        def forward(self, batch):
            raise NotImplementedError

        def value_function(self):
            raise NotImplementedError

    spec = Unbounded(torch.Size([1]))
    found = {}
    x = torch.arange(20.0).reshape(2, 5, 2)
    for shift in (0, 1, 3, 6):
        model = Model(spec, spec)
        requirement = views.ViewRequirement(shift=shift)
        model.view_requirements = {"obs": requirement, ("nested", "obs"): requirement}
        batch = TensorDict({"obs": x, "nested": {"obs": -x}}, batch_size=[2, 5])
        for kind in ("all", "last"):
            out = model.apply_view_requirements(batch, kind=kind)
            leaves = out.flatten_keys("/").items()
            found[f"{kind} {shift}"] = {k: v.float().tolist() for k, v in sorted(leaves)}
    return found


def mask_figures(package):
    """Return sums under masks."""
    f = importlib.import_module(f"{package}.nn.functional")
    x = drawn("masked", (3, 4, 2))
    mask = f.mask_from_lengths(x, torch.tensor([1, 4, 2]))
    greatest, places = f.masked_max(x, mask=mask, dim=1)
    return {
        "mask": mask.float().tolist(),
        "mean": f.masked_avg(x, mask=mask, dim=1).tolist(),
        "max": greatest.tolist(),
        "places": places.float().tolist(),
        "softmax": f.masked_log_softmax(x[..., 0], mask=mask, dim=1).exp().tolist(),
    }


def module_figures(package):
    """Return modules' outputs, without dropout, with weights determined by their positions."""
    modules = importlib.import_module(f"{package}.nn.modules")
    attention = importlib.import_module(f"{package}.nn.modules.attention")
    x, y = drawn("x", (2, 5, 8)), drawn("y", (2, 3, 8))
    padding = torch.tensor([[False] * 5, [False, False, True, True, True]])
    forbidden = torch.tensor([[False, True, False, False, True]] * 3)
    square = torch.ones(5, 5, dtype=torch.bool).triu(1)
    pointed = torch.tensor([[[True, False, True, True, False]] * 3] * 2)
    layer = {"num_heads": 2, "hidden_dim": 12}
    found = {}

    def add(name, module, *inputs):
        with torch.no_grad():
            for i, parameter in enumerate(module.parameters()):
                parameter.copy_(drawn(f"{name} {i}", parameter.shape, 0.4))
            found[name] = module.eval()(*inputs).flatten()[::3].tolist()

    add("MLP", modules.MLP(8, (6, 4), activation_fn="tanh"), x)
    add("normalised MLP", modules.MLP(8, (6, 4, 3), norm_layer=torch.nn.LayerNorm, bias=False), x)
    add("places", modules.PositionalEmbedding(8, 7), x)
    add("squares", modules.SquaredReLU(), x)
    for kind in ("cat", "residual", None):
        skip = modules.SequentialSkipConnection(8, kind=kind)
        for _ in range(2):
            skip.append(torch.nn.Linear(8, 8))
        add(f"skip, {kind}", skip, x, x.flip(1))
        found[f"widths, {kind}"] = [skip.in_features, skip.out_features]
        cross = modules.CrossAttention(8, skip_kind=kind, **layer)
        add(f"cross attention, {kind}", cross, y, x, padding, forbidden)
        own = modules.SelfAttention(8, skip_kind=kind, activation_fn="gelu", **layer)
        add(f"self-attention, {kind}", own, x, padding, square)
    for shared in (True, False):
        stack = modules.SelfAttentionStack(
            modules.SelfAttention(8, **layer), 3, share_parameters=shared
        )
        add(f"stack, shared {shared}", stack, x, padding, None)
    add("perceiver", modules.PerceiverLayer(8, num_layers=2, **layer), y, x, padding, None)
    add("perceiver of outputs", modules.PerceiverIOLayer(8, 4, **layer), y, x, padding, forbidden)
    add("pointers", attention.PointerNetwork(8), y, x, pointed)
    return found


def function_figures(package):
    """Return advantages and losses of batches."""
    f = importlib.import_module(f"{package}.nn.functional")
    distributions = importlib.import_module(f"{package}.distributions")
    found = {}
    for name, options in {
        "defaults": {},
        "plain": {"normalize_advantages": False, "gamma": 0.9, "gae_lambda": 0.8},
        "scaled": {"reward_scale": 2.5},
    }.items():
        parts = {key: drawn(f"{name} {key}", (3, 6, 1)) for key in ("rewards", "values")}
        out = f.generalized_advantage_estimate(TensorDict(parts, [3, 6]), **options)
        for key in ("advantages", "returns"):
            found[f"{name}, {key}"] = out[key].flatten().tolist()
    features = TensorDict(
        {"mean": drawn("mean", (9, 2)), "log_std": drawn("log_std", (9, 2), 0.3)}, [9]
    )
    distribution = distributions.Normal(features, None)
    buffer = TensorDict(
        {key: drawn(key, (9, 2 if key == "actions" else 1)) for key in
         ("actions", "logp", "advantages", "returns")}, [9]
    )  # fmt: skip
    buffer["logp"] = distribution.logp(buffer["actions"]) + 0.3 * buffer["logp"]
    sampled = TensorDict({"values": drawn("values", (9, 1))}, [9])
    for name, options in {
        "defaults": {},
        "entropy": {"entropy_coeff": 0.1, "dual_clip_param": None, "vf_coeff": 0.5},
        "bounds": {"clip_param": 0.1, "vf_clip_param": 0.2, "dual_clip_param": 1.05},
    }.items():
        losses = f.ppo_losses(buffer, sampled, distribution, **options)
        found[f"losses, {name}"] = {key: float(losses[key]) for key in sorted(losses.keys())}
    for kind in ("cat", "residual", None):
        x, y = drawn("left", (2, 3)), drawn("right", (2, 3))
        found[f"skip, {kind}"] = f.skip_connection(x, y, kind=kind).tolist()
    lone = torch.tensor([[False, True, False], [False, False, True]])
    logits, places = f.masked_categorical_sample(drawn("logits", (2, 3)), mask=lone)
    found["the only choice"] = [places.flatten().tolist(), torch.isfinite(logits).all().item()]
    return found


CASES = {
    "functions": function_figures,
    "modules": module_figures,
    "schedules": schedule_figures,
    "conditions": condition_figures,
    "views": view_figures,
    "masks": mask_figures,
}
for _kind in KINDS:
    _recurrent = _kind == KINDS[1]
    for _name, _given in {**OPTIONS, **(RECURRENT if _recurrent else {})}.items():
        for _discrete in (True, False):
            CASES[f"{_kind}, {'discrete' if _discrete else 'continuous'}, {_name}"] = (
                lambda p, k=_kind, d=_discrete, o=_given: round_figures(p, k, d, o)
            )
    for _name in RESETTING[_kind]:
        CASES[f"{_kind}, calls, {_name}"] = lambda p, k=_kind, o={**OPTIONS, **RECURRENT}[_name]: (
            call_figures(p, k, o)
        )

if __name__ == "__main__":
    rows = (f"{json.dumps(name)}: {json.dumps(case('rl8'))}" for name, case in CASES.items())
    NUMBERS.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
