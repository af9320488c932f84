"""Decoding on a GPU with CUDA graphs, one per step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlox_llm.generation import Sampled, Sampling
from rlox_llm.layouts import fixed_layers, prefill
from rlox_llm.models import CausalModel

WIDTH = 64
"""Prompts are padded to a multiple of this number of tokens, so that others fit the same graph."""

GRAPHS = 2
"""Number of graphs to keep: for learning and for evaluation."""

LOOKS = 16
"""Steps between checks whether all completions have ended."""

SHARE = 0.1
"""Share of the GPU's memory: graphs with a larger cache are not kept for the next rollout."""


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """Take a step once, and return a function that replays it as one CUDA graph."""
    here: Any = torch.cuda.current_stream()
    aside: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(here)
    with torch.cuda.stream(aside):  # libraries allocate memory in a stream's first calls
        step()
    here.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # others may use the device
        step()
    return graph.replay


class GraphDecoder:
    """Samples completions of a transformers model, replaying one graph per token.

    A graph has fixed shapes and addresses: ended completions stay in it, and attention covers all
    positions of the cache through a mask. If graph and model disagree on the first two tokens, or
    the model's step cannot be captured, graphs are not used again.

    Args:
        model: a model with a cache of keys and values.
        capture: turns a step into a graph; tests pass a function that returns the step.
    """

    def __init__(
        self,
        model: CausalModel,
        capture: Callable[[Callable[[], None]], Callable[[], None]] = captured,
    ) -> None:
        self._model = model
        self._capture = capture
        self._graphs: dict[Any, _Graph] = {}
        self._width = 0
        self._usable = True

    def decode(self, prompts: Sequence[Tensor], n: int, made: Sampled) -> bool:
        """Sample completions, ignoring any EOS; return whether the model supports graphs.

        Args:
            prompts: rows of token ids.
            n: completions of each.
            made: receives the completions.
        """
        if not self._usable:
            return False
        try:
            graph = self._graph_for(prompts, n, made)
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
            self._usable = False
            self._graphs.clear()
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            warnings.warn(
                f"the {self._model.name} is sampled without CUDA graphs, which is slower: {reason}",
                RuntimeWarning,
                stacklevel=2,
            )
            return False
        graph.run(made)
        if graph.is_large():
            self._graphs.clear()
        return True

    def _graph_for(self, prompts: Sequence[Tensor], n: int, made: Sampled) -> _Graph:
        """Return a graph prepared for the prompts' completions."""
        model, params, draws = self._model, made.params, made.draws
        longest = max(len(prompt) for prompt in prompts) - 1
        self._width = max(self._width, -(-max(longest, 1) // WIDTH) * WIDTH)
        held = (*model.module.parameters(), *model.module.buffers())
        key = (draws.shape, self._width, replace(params, seed=0), *(x.data_ptr() for x in held))
        graph = self._graphs.pop(key, None)
        index = torch.arange(len(prompts), device=draws.device).repeat_interleave(n)
        last = torch.stack([prompt[-1] for prompt in prompts])[index][:, None]
        if graph is None:
            while len(self._graphs) >= GRAPHS:
                del self._graphs[next(iter(self._graphs))]
            room = len(draws)
            cache, seen, starts = prefill(model, prompts, index, room, width=self._width)
            graph = _Graph(model, params, cache, draws)
            graph.begin(seen, starts, last, draws)
            graph.require_agreement([prompt for prompt in prompts for _ in range(n)])
            graph.begin(seen, starts, last, draws)
            graph.replay = self._capture(graph.step)
        else:
            rows = torch.arange(len(prompts), device=draws.device)
            cache, seen, starts = prefill(model, prompts, rows, width=self._width)
            graph.refill(cache, index)
            seen, starts = seen[index], starts[index]
        graph.begin(seen, starts, last, draws)
        self._graphs[key] = graph  # the newest comes last
        return graph


class _Graph:
    """A step of decoding N rows, and the tensors that it reads and writes.

    Args:
        model: the sampled model.
        params: sampling parameters.
        cache: cache of N rows, with room for T tokens behind W positions.
        draws: (T, N, 1).
    """

    replay: Callable[[], None]

    def __init__(self, model: CausalModel, params: Sampling, cache: Any, draws: Tensor) -> None:
        self._model, self._params, self._cache = model, params, cache
        self._layers = fixed_layers(cache)
        steps, n = draws.shape[:2]
        device = draws.device
        self._width = self._layers[0].get_seq_length()
        dtype = torch.bfloat16 if model.bf16 else next(model.module.parameters()).dtype
        self._never = torch.finfo(dtype).min
        self._draws = torch.empty_like(draws)
        self._tokens = torch.zeros(n, steps, dtype=torch.long, device=device)
        self._logps = torch.zeros(n, steps, device=device)
        self._last = torch.zeros(n, 1, dtype=torch.long, device=device)
        self._positions = torch.zeros_like(self._last)
        shape = (n, 1, 1, self._width + steps)
        self._blocked = torch.zeros(shape, dtype=dtype, device=device)
        self._taken = torch.zeros(1, dtype=torch.long, device=device)
        self._place = torch.zeros_like(self._taken)

    def is_large(self) -> bool:
        """Return whether the cache takes more than ``SHARE`` of a GPU's memory."""
        if self._draws.device.type != "cuda":
            return False
        size: int = sum(2 * layer.keys.nbytes for layer in self._layers)
        whole: int = torch.cuda.get_device_properties(self._draws.device).total_memory
        return size > SHARE * whole

    def refill(self, cache: Any, index: Tensor) -> None:
        """Copy the keys and values of other prompts: rows of ``cache`` at ``index`` (N,)."""
        for layer, new in zip(self._layers, cache.layers, strict=True):
            layer.refill(new, index)

    def begin(self, seen: Tensor, starts: Tensor, last: Tensor, draws: Tensor) -> None:
        """Reset all tensors except the cache to their state before the first token.

        Args:
            seen: (N, W) positions of the cache that hold a token.
            starts: (N,) the position of each prompt's last token.
            last: (N, 1) those tokens.
            draws: (T, N, 1).
        """
        self._draws.copy_(draws)
        self._last.copy_(last)
        self._positions.copy_(starts[:, None])
        self._blocked.fill_(self._never)
        self._blocked[:, 0, 0, : self._width].masked_fill_(seen, 0.0)
        self._taken.zero_()
        self._place.fill_(self._width)
        for layer in self._layers:
            layer.fix(self._place)

    def step(self) -> None:
        """Sample a token of each row."""
        output = self._model.forward(
            self._last, self._blocked.index_fill_(3, self._place, 0.0), use_cache=True,
            position_ids=self._positions, past_key_values=self._cache,
        )  # fmt: skip
        # logits_of is avoided, because its checks wait for the device
        logits: Tensor = output.logits[:, -1]
        scaled = logits.to(torch.promote_types(logits.dtype, torch.float32))
        scaled = scaled / self._params.temperature
        drawn = self._params.draw(scaled, self._draws.index_select(0, self._taken)[0])[:, None]
        chosen = scaled.gather(1, drawn) - scaled.logsumexp(1, keepdim=True)
        self._tokens.index_copy_(1, self._taken, drawn)
        self._logps.index_copy_(1, self._taken, chosen.to(self._logps))
        self._last.copy_(drawn)
        for count in (self._positions, self._place, self._taken):
            count.add_(1)

    def require_agreement(self, prompts: Sequence[Tensor]) -> None:
        """Sample two tokens of each row, and check that the model gives them the same scores.

        Args:
            prompts: N rows of token ids; completions of one prompt share one tensor.

        Raises:
            ValueError: the scores differ.
        """
        steps = min(2, len(self._draws))
        for _ in range(steps):
            self.step()
        tokens, found = self._tokens[:, :steps], self._logps[:, :steps]
        everywhere = torch.ones_like(tokens, dtype=torch.bool)
        expected = self._model.logps(prompts, tokens, everywhere, self._params.temperature)
        off = float((expected - found).abs().mean(0).max())
        if not off < (1e-2 if self._blocked.dtype.itemsize >= 4 else 0.1):
            raise ValueError(
                f"log-probabilities of its first tokens differ by {off:.2g} on average"
            )

    def run(self, made: Sampled) -> None:
        """Sample completions; tokens after a row's first EOS are meaningless."""
        steps = made.tokens.shape[1]
        done = 0
        while done < steps:
            self.replay()
            done += 1
            if self._params.eos and done % LOOKS == 0:
                ends = self._params.ends(self._tokens[:, :done])
                if bool(ends.any(1).all()):
                    break
        made.tokens.copy_(self._tokens)
        made.logps.copy_(self._logps)
        made.lengths.fill_(done)
