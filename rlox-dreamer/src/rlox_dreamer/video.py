"""Videos of a world model's open-loop predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.callbacks import Callback
from rlox.callbacks.base import Multiples, require_at_least
from rlox.config.model import require_integer
from rlox.errors import SpaceError, suggest
from rlox.nn import torch_threads
from rlox.spaces.rows import map_leaves
from torch import Tensor

from rlox_dreamer.dreamer import DreamerV3
from rlox_dreamer.experience import SequenceBatch
from rlox_dreamer.networks import Networks
from rlox_dreamer.observations import Leaf, by_name
from rlox_dreamer.rssm import Latent


class OpenLoopVideo(Callback):
    """Log DreamerV3's predictions of replayed images next to the true ones.

    A video is due at the end of the iteration that reaches or passes a multiple of ``every``, and
    waits until the replay has sequences long enough. It does not affect the training, because its
    draws have their own seed. It is logged as ``open_loop/<leaf>``, or ``open_loop`` if an
    observation is a single image.

    Args:
        every: env steps between videos.
        n_sequences: replayed sequences, shown next to each other.
        context: first steps, which the model observes and reconstructs.
        horizon: further steps, which it imagines from the recorded actions alone.
        leaf: name of the image in nested observations; ``None``: the first image.
        fps: frames per second.
        seed: fixes the drawn sequences and the model's samples.

    Raises:
        TypeError: a count is not an integer.
        ValueError: an option is out of range.

    Source:
        Hafner et al. 2025, figure 4.
    """

    def __init__(
        self,
        every: int = 10_000,
        n_sequences: int = 4,
        context: int = 5,
        horizon: int = 15,
        *,
        leaf: str | None = None,
        fps: float = 8,
        seed: int = 0,
    ) -> None:
        self.n_sequences = require_integer("n_sequences", n_sequences, at_least=1)
        self.context = require_integer("context", context, at_least=1)
        self.horizon = require_integer("horizon", horizon, at_least=1)
        require_at_least(1, fps=fps)
        self.every, self.leaf, self.fps = every, leaf, fps
        self.seed = require_integer("seed", seed, at_least=0)
        self._due = Multiples("every", every)
        self._waiting = False

    def on_training_start(self, **kwargs: Any) -> None:
        """Count from the algorithm's current env step.

        Raises:
            SpaceError: the decoder reconstructs no image.
            TypeError: the algorithm is not DreamerV3.
            ValueError: there is no logger, no such leaf, or the replay is too small.
        """
        algo = kwargs["algo"]
        self._image(algo)
        if algo.logger is None:
            raise ValueError(
                "OpenLoopVideo logs videos, and the training has no logger; pass one as logger=, "
                "such as rlox.logging.TensorBoardLogger('runs/first')"
            )
        steps, n_envs = self.context + self.horizon, algo.replay.env.n_envs
        if algo.config.buffer_size // n_envs <= steps:
            raise ValueError(
                f"context + horizon must be less than the rows of an env in the replay, got "
                f"{steps} with buffer_size={algo.config.buffer_size} for {n_envs} envs"
            )
        self._due.count_from(kwargs["step"])
        self._waiting = False

    def on_iteration_end(self, **kwargs: Any) -> None:
        """Log a video if one is due and the replay has sequences long enough."""
        algo, step = kwargs["algo"], kwargs["step"]
        self._waiting |= self._due.reached(step)
        if self._waiting and algo.replay.has_sequences(self.context + self.horizon):
            self._waiting = False
            name = self._image(algo).name
            algo.logger.on_video(
                step, f"open_loop/{name}" if name else "open_loop", self.film(algo), self.fps
            )

    def film(self, algo: DreamerV3) -> npt.NDArray[np.uint8]:
        """Return the frames (context + horizon, 3 height, n_sequences width, 3), RGB.

        From top to bottom: the true image, the model's, and half their difference around grey. From
        stacked frames the last one is shown.

        Raises:
            SpaceError: the decoder reconstructs no image.
            TypeError: ``algo`` is not DreamerV3.
            ValueError: there is no such leaf, or the replay has no sequences of this length yet.
        """
        leaf, net, objective = self._image(algo), algo.model, algo.objective
        steps, device = self.context + self.horizon, algo.parts.device
        precision = objective.precision(device)
        with torch.no_grad(), torch_threads(algo.config.torch_threads), precision:
            batch = algo.replay.draw_sequences(self.n_sequences, steps, self.seed)
            start = objective.start(net, batch)
            generator = torch.Generator().manual_seed(self.seed)
            noise = torch.rand((steps, self.n_sequences, net.rssm.stoch), generator=generator)
            latents = predict_open_loop(net, start, batch, self.context, noise.to(device))
            model = net.decoder(latents.features().flatten(0, 1))[leaf.name]
            true = leaf.image(by_name(batch.obs)[leaf.name].flatten(0, 1))
            stacked = torch.cat([true, model, (model - true + 1) / 2], -2)
        # (T B, C, 3 H, W) to (T, 3 H, B W, 3)
        shown = stacked[:, -3:] if leaf.channels % 3 == 0 else stacked[:, -1:].expand(-1, 3, -1, -1)
        frames = shown.reshape(steps, self.n_sequences, *shown.shape[1:]).permute(0, 3, 1, 4, 2)
        pixels: npt.NDArray[np.uint8] = (
            (frames.flatten(2, 3) * 255).round().to(torch.uint8).cpu().numpy()
        )
        return pixels

    def _image(self, algo: object) -> Leaf:
        """Return the leaf to show."""
        if not isinstance(algo, DreamerV3):
            raise TypeError(
                f"OpenLoopVideo needs the world model of DreamerV3, got {type(algo).__name__}"
            )
        leaves = algo.model.decoder.leaves
        images: dict[str, Leaf] = {leaf.name: leaf for leaf in leaves if leaf.kind == "image"}
        if not images:
            raise SpaceError(
                "OpenLoopVideo needs an image (uint8) that the decoder reconstructs, got only "
                f"{[(leaf.name, leaf.kind, leaf.shape) for leaf in leaves]}; remove the callback, "
                "or observe images, as with gymnasium.wrappers.AddRenderObservation"
            )
        if self.leaf is None:
            return next(iter(images.values()))
        if self.leaf not in images:
            raise ValueError(
                f"leaf must be one of the reconstructed images {sorted(images)}, got '{self.leaf}'"
                f"{suggest(self.leaf, images)}"
            )
        return images[self.leaf]


def predict_open_loop(
    net: Networks, start: Latent, batch: SequenceBatch, context: int, noise: Tensor
) -> Latent:
    """Return the states of T steps, where only the first ones observe.

    An episode that begins later starts from the initial state, as in learning.

    Args:
        net: the world model.
        start: initial states of the B sequences.
        batch: T steps of the sequences.
        context: number of observed steps, at least 1.
        noise: (T, B, S) uniform in [0, 1).
    """
    actions, is_first = batch.actions, batch.is_first
    tokens = net.encode(map_leaves(lambda leaf: leaf[:context], batch.obs))
    seen, _ = net.rssm.observe(
        start, tokens, actions[:context], is_first[:context], noise[:context]
    )
    latents = [Latent(*parts) for parts in zip(*seen, strict=True)]
    for t in range(context, len(actions)):
        keep = (~is_first[t]).to(actions.dtype)
        latents.append(
            net.rssm.imagine_step(latents[-1].masked(keep), actions[t] * keep[:, None], noise[t])
        )
    deters, stochs = zip(*latents, strict=True)
    return Latent(torch.stack(deters), torch.stack(stochs))
