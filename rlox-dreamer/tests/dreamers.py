"""Options of a small DreamerV3."""

SMALL = {
    "deter_dim": 16, "stoch_dim": 3, "stoch_classes": 4, "hidden": 8, "units": 8, "depth": 2,
    "blocks": 4, "encoder_layers": 1, "head_layers": 1, "bins": 11, "batch_size": 4, "seq_len": 5,
    "imagination_horizon": 3, "buffer_size": 400, "learning_starts": 20, "train_ratio": 10.0,
    "steps_per_iteration": 20,
}  # fmt: skip
