"""Numbers of torchrl's DreamerV3 functions on small inputs.

Run as a program, with torchrl installed, it writes ``torchrl_numbers.json`` again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS = Path(__file__).with_name("torchrl_numbers.json")


def inputs() -> dict[str, Any]:
    """Return inputs, time-major as (T, B, ...), rounded to 4 digits."""
    rng = np.random.default_rng(0)
    steps, count = 6, 3
    terminal = np.zeros((steps, count), bool)
    last = np.zeros((steps, count), bool)
    terminal[3, 0] = last[3, 0] = True  # the task ends
    last[2, 1] = True  # a time limit
    arrays = {
        "post_logits": rng.normal(0, 1.5, (4, 3, 5)),
        "prior_logits": rng.normal(0, 1.5, (4, 3, 5)),
        "near_logits": rng.normal(0, 0.1, (4, 3, 5)),
        "head_logits": rng.normal(0, 1, (8, 255)),
        "targets": np.array([0.0, 0.3, -0.7, 1.0, 25.0, -4e3, 2e6, -1e7]),
        "rewards": rng.normal(0, 1, (steps, count)),
        "values": rng.normal(3, 2, (steps, count)),
        "discounts": rng.uniform(0.8, 1, (steps, count)),
        "returns": rng.normal(5, 20, (12, 30)),
    }
    rounded = {name: np.round(array, 4).tolist() for name, array in arrays.items()}
    return {**rounded, "terminal": terminal.tolist(), "last": last.tolist()}


def torchrl_numbers(given: dict[str, Any]) -> dict[str, Any]:
    """Return what torchrl computes of the inputs."""
    import torch
    from torchrl.modules.functional import symexp, symlog
    from torchrl.modules.models import model_based
    from torchrl.objectives import dreamer_v3

    x = {name: torch.tensor(value) for name, value in given.items()}
    bins = symexp(torch.linspace(-20, 20, 255))
    numbers: dict[str, Any] = {
        "symlog": symlog(x["targets"]).tolist(),
        "two_hot_mean": model_based.two_hot_decode(x["head_logits"], bins).tolist(),
        "two_hot_loss": model_based.two_hot_cross_entropy(
            x["head_logits"], x["targets"], bins
        ).tolist(),
    }
    for name in ("prior_logits", "near_logits"):
        post = (x["post_logits"] if name == "prior_logits" else 0 * x[name]).requires_grad_()
        prior = x[name].clone().requires_grad_()
        dyn, rep = dreamer_v3.categorical_kl_terms(post, prior, 1.0, 0.01)
        (of_prior,) = torch.autograd.grad(dyn, prior)
        (of_post,) = torch.autograd.grad(rep, post)
        numbers[f"kl_{name}"] = {
            "dynamics": dyn.item(), "representation": rep.item(),
            "gradient_of_prior": of_prior.tolist(), "gradient_of_posterior": of_post.tolist(),
        }  # fmt: skip
    replayed = dreamer_v3._replay_value_target(
        *(x[name].T for name in ("rewards", "last", "terminal", "values")), 333.0, 0.95
    )
    numbers["replay_returns"] = replayed.T.tolist()
    scale, scales = dreamer_v3.PercentileValueNorm(rate=0.01, min_scale=1.0), []
    for batch in x["returns"]:
        scale.update(batch.unsqueeze(-1))
        scales.append(scale.scale().item())
    numbers["return_scale"] = scales
    return numbers


if __name__ == "__main__":
    import torchrl

    given = inputs()
    numbers = torchrl_numbers(given)
    content = {"torchrl": torchrl.__version__, "inputs": given, "numbers": numbers}
    NUMBERS.write_text(json.dumps(content) + "\n")
