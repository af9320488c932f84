"""Sizes of DreamerV3 and its small-task options, as rlox and as sheeprl 0.8.4 name them."""

from __future__ import annotations

from typing import Any

Sizes = dict[str, Any]

ONE_M: Sizes = {
    "deter": 512, "hidden": 64, "stoch": 32, "classes": 4, "units": 64, "depth": 4, "bins": 255,
    "horizon": 15, "batch": 16, "length": 64, "images": False,
}  # fmt: skip
TWELVE_M: Sizes = {
    **ONE_M, "deter": 2048, "hidden": 256, "classes": 16, "units": 256, "depth": 16, "images": True,
}  # fmt: skip
"""On 64×64 images; too large for a CPU."""
SIZES: dict[str, Sizes] = {
    "debug": {
        "deter": 64, "hidden": 64, "stoch": 8, "classes": 8, "units": 64, "depth": 8, "bins": 63,
        "horizon": 5, "batch": 32, "length": 16, "images": False,
    },
    "1m": ONE_M,
    "images": {**ONE_M, "images": True},
}  # fmt: skip
"""``debug`` and ``1m`` on vectors of 4 numbers, and ``1m`` on 64×64 images."""


def sheeprl_options(sizes: Sizes, key: str) -> list[str]:
    """Return overrides for ``exp=dreamer_v3_5``, the architecture of the authors' latest code.

    Args:
        sizes: an entry of :data:`SIZES`.
        key: name of the observation.
    """
    seen, other = ("cnn", "mlp") if sizes["images"] else ("mlp", "cnn")
    world = "algo.world_model."
    options = {
        "exp": "dreamer_v3_5", "env": "gym", "fabric.accelerator": "cpu",
        "algo.per_rank_batch_size": sizes["batch"],
        "algo.per_rank_sequence_length": sizes["length"],
        "algo.horizon": sizes["horizon"], "algo.dense_units": sizes["units"],
        "algo.critic.bins": sizes["bins"], world + "reward_model.bins": sizes["bins"],
        world + "stochastic_size": sizes["stoch"], world + "discrete_size": sizes["classes"],
        world + "recurrent_model.recurrent_state_size": sizes["deter"],
        world + "recurrent_model.hidden_size": sizes["hidden"],
        "algo.cnn_channels_multiplier": sizes["depth"],
        f"algo.{seen}_keys.encoder": f"[{key}]", f"algo.{other}_keys.encoder": "[]",
    }  # fmt: skip
    return [f"{name}={value}" for name, value in options.items()]
