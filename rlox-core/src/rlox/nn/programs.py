"""Functions over fixed tensors, which a GPU replays as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch


class Program:
    """A function that a GPU replays without Python, and a CPU calls as it is.

    On a GPU the first call runs the function on a side stream, where libraries and optimisers make
    what they keep; the second captures it as a CUDA graph, and this and all later calls replay
    that. All calls do the same work.

    Args:
        function: reads and writes tensors that exist before the second call and keep their place.
            It asks the host for no value, so it has no branch and no shape that depends on one.
        generators: which it draws from, apart from torch's global one.
        captures: whether it is captured; otherwise it is called as it is.
    """

    def __init__(
        self,
        function: Callable[[], None],
        generators: Iterable[torch.Generator | None] = (),
        *,
        captures: bool,
    ) -> None:
        self._function, self.captures = function, captures
        self._generators = {g for g in generators if g is not None and g.device.type == "cuda"}
        self.forget()

    def forget(self) -> None:
        """Begin anew, because a tensor or a constant of the function was replaced."""
        self._graph: torch.cuda.CUDAGraph | None = None
        self._is_warm = False

    def __call__(self) -> None:
        """Call the function, or replay it."""
        if not self.captures:
            self._function()
        elif not self._is_warm:
            self._warm_up()
        else:
            if self._graph is None:
                self._graph = self._capture()
            self._graph.replay()

    def _warm_up(self) -> None:
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            self._function()
        here.wait_stream(aside)
        self._is_warm = True

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        torch.clear_autocast_cache()  # parameters converted before would not follow the originals
        with torch.cuda.graph(graph):
            self._function()
            torch.clear_autocast_cache()
        return graph
