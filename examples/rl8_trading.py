"""Buy and sell one asset by the changes of its price: three models on ``rlox.rl8``.

python examples/rl8_trading.py [mlp | transformer | lstm]
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from rlox.rl8 import (
    AlgorithmConfig,
    Env,
    RecurrentAlgorithmConfig,
    RecurrentTrainer,
    Trainer,
)
from rlox.rl8.conditions import Plateaus
from rlox.rl8.models import Model, RecurrentModel
from rlox.rl8.nn import MLP, PositionalEmbedding, SelfAttention, SelfAttentionStack
from rlox.rl8.nn.functional import masked_avg
from rlox.rl8.views import ViewRequirement
from tensordict import TensorDict
from torch import Tensor, nn
from torchrl.data import Categorical, Composite, Unbounded

HOLD, BUY, SELL = range(3)
PERSISTENCE, NOISE, FEE = 0.8, 0.01, 0.001
CHANGES = 4
"""Of the price, which the models without a memory see."""


class Trading(Env):
    """An account that holds either money or one asset, whose changes of price persist.

    The change c of the logarithm of the price becomes 0.8 c + 0.01 ε with ε from a normal
    distribution. The reward is the change of the account's logarithm, less a fee of 0.001 for each
    trade. An action that is masked is to hold.
    """

    def __init__(
        self, num_envs: int, /, horizon: int | None = None, *, device: Any = "cpu"
    ) -> None:
        super().__init__(num_envs, horizon, device=device)
        one = torch.Size([1])
        mask = Unbounded(torch.Size([3]), device=device, dtype=torch.bool)
        self.observation_spec = Composite(
            change=Unbounded(one, device=device), held=Unbounded(one, device=device), mask=mask
        )
        self.action_spec = Categorical(3, shape=one, device=device)
        self.change = self.held = torch.zeros(num_envs, 1, device=device)

    def reset(self, *, config: dict[str, Any] | None = None) -> TensorDict:  # type: ignore[override]
        """Begin with money."""
        self.held = torch.zeros(self.num_envs, 1, device=self.device)
        self.change = NOISE * torch.randn_like(self.held)
        return self.obs()

    def obs(self) -> TensorDict:
        """Return the last change in units of the noise, what is held, and what can be done."""
        free = self.held == 0
        mask = torch.cat([torch.ones_like(free), free, ~free], -1)
        obs = {"change": self.change / NOISE, "held": self.held, "mask": mask}
        return TensorDict(obs, batch_size=[self.num_envs], device=self.device)

    def step(self, action: Tensor) -> TensorDict:  # type: ignore[override]
        """Trade, then let the price change."""
        trades = ((action == BUY) & (self.held == 0)) | ((action == SELL) & (self.held == 1))
        self.held = torch.where(trades, 1 - self.held, self.held)
        self.change = PERSISTENCE * self.change + NOISE * torch.randn_like(self.change)
        out = {"obs": self.obs(), "rewards": self.held * self.change - FEE * trades}
        return TensorDict(out, batch_size=[self.num_envs], device=self.device)


class Account(nn.Module):
    """Logits and values of what is known of the price, and of the account.

    Args:
        width: of what is known of the price.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.latents = nn.Sequential(MLP(width + 1, (64,)), nn.ReLU())
        self.policy, self.value = nn.Linear(64, 3), nn.Linear(64, 1)

    def forward(self, price: Tensor, held: Tensor, mask: Tensor) -> tuple[TensorDict, Tensor]:
        """Return features of N rows, in which what cannot be done has probability 0."""
        latents = self.latents(torch.cat([price, held], -1))
        logits = self.policy(latents).masked_fill(~mask, torch.finfo(torch.float32).min)
        return TensorDict({"logits": logits[:, None]}, batch_size=[len(logits)]), self.value(
            latents
        )


class Windowed(Model):
    """Sees the last changes of the price; a subclass makes one vector of them."""

    def __init__(self, *specs: Any, width: int) -> None:
        super().__init__(*specs)
        self.view_requirements = {
            ("obs", "change"): ViewRequirement(shift=CHANGES - 1),
            ("obs", "held"): ViewRequirement(),
            ("obs", "mask"): ViewRequirement(),
        }
        self.account = Account(width)

    def price(self, changes: Tensor, missing: Tensor) -> Tensor:
        """Return (N, width) of changes (N, 4, 1), of which some are before the first step."""
        raise NotImplementedError

    def forward(self, batch: TensorDict, /) -> TensorDict:
        """Return features of N rows."""
        obs = batch["obs"]
        price = self.price(obs["change"]["inputs"], obs["change"]["padding_mask"])
        features, self.values = self.account(price, obs["held"], obs["mask"])
        return features

    def value_function(self) -> Tensor:
        """Return the values (N, 1) of the last observations."""
        return self.values


class Perceptron(Windowed):
    """The changes as they are."""

    def __init__(self, *specs: Any) -> None:
        super().__init__(*specs, width=CHANGES)

    def price(self, changes: Tensor, missing: Tensor) -> Tensor:
        """Return the changes, 0 where there is none."""
        return changes.flatten(1)


class Transformer(Windowed):
    """Attention among the changes."""

    def __init__(self, *specs: Any, width: int = 16) -> None:
        super().__init__(*specs, width=width)
        self.embed = nn.Linear(1, width)
        self.place = PositionalEmbedding(width, CHANGES)
        self.attention = SelfAttentionStack(
            SelfAttention(width, hidden_dim=32, skip_kind="residual"), 1
        )

    def price(self, changes: Tensor, missing: Tensor) -> Tensor:
        """Return the mean over the changes that there are."""
        x = self.attention(self.place(self.embed(changes)), key_padding_mask=missing)
        return masked_avg(x, mask=~missing)


class LSTM(RecurrentModel):
    """A memory of the changes."""

    def __init__(self, *specs: Any, width: int = 32) -> None:
        super().__init__(*specs)
        shape = torch.Size([1, width])
        self.state_spec = Composite(hidden=Unbounded(shape), cell=Unbounded(shape))
        self.lstm = nn.LSTM(1, width, batch_first=True)
        self.account = Account(width)

    def forward(self, batch: TensorDict, states: TensorDict, /) -> tuple[TensorDict, TensorDict]:
        """Return features (B·T) and the states (B) after T steps."""
        obs = batch["obs"]
        before = [states[name].movedim(0, 1).contiguous() for name in ("hidden", "cell")]
        price, after = self.lstm(obs["change"], tuple(before))
        features, self.values = self.account(
            price.flatten(0, 1), obs["held"].flatten(0, 1), obs["mask"].flatten(0, 1)
        )
        named = {name: x.movedim(0, 1) for name, x in zip(("hidden", "cell"), after, strict=True)}
        return features, TensorDict(named, batch_size=[batch.shape[0]])

    def value_function(self) -> Tensor:
        """Return the values (B·T, 1) of the last observations."""
        return self.values


def main(kind: str = "mlp", steps: int = 60, num_envs: int = 64) -> float:
    """Train until returns stay the same, and return the mean return of the last evaluation."""
    torch.manual_seed(0)
    options: dict[str, Any] = {
        "num_envs": num_envs, "gamma": 0.9, "num_sgd_iters": 8, "optimizer_config": {"lr": 3e-3},
    }  # fmt: skip
    trainer: Any
    if kind == "lstm":
        recurrent = RecurrentAlgorithmConfig(
            model_cls=LSTM, sgd_minibatch_size=2 * num_envs, **options
        )
        trainer = RecurrentTrainer(recurrent.build(Trading))
    else:
        model = {"mlp": Perceptron, "transformer": Transformer}[kind]
        config = AlgorithmConfig(model_cls=model, sgd_minibatch_size=8 * num_envs, **options)
        trainer = Trainer(config.build(Trading))
    stats = trainer.run(
        steps_per_eval=5,
        stop_conditions=[Plateaus("returns/mean", patience=10, rtol=0.05)],
        max_steps=steps,
    )
    found = float(stats["eval/returns/mean"])
    print(f"{kind}, step {trainer.state['algorithm/steps']}: mean return {found:.3f}")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
