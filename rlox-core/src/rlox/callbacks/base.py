"""Callback events of a training run, and lists of callbacks."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from rlox.config.model import require_integer
from rlox.errors import FOREIGN, suggest

Phase = Literal["collect", "learn", "callbacks", "other"]
"""A training's current work: stepping envs and acting, learning from the collected data, calling
callbacks (including their evaluations), or anything else, such as logging."""


class Callback:
    """Base class: override the events of interest; the others do nothing.

    Every event gets ``step`` (env steps done so far; gradient steps if no env is stepped) and
    ``algo`` (the algorithm) as keywords, and those named below; accept ``**kwargs`` for additions
    of later versions. An event that can stop the training may return True, False or None, and only
    False stops; a number, such as 0, or an array is a TypeError.
    """

    saves_training: ClassVar[bool] = False
    """Whether ``on_iteration_end`` saves the training: it is then called after the other callbacks,
    so that it saves the results of their work on the iteration too."""

    if not TYPE_CHECKING:

        def __new__(cls, *_: Any, **given: Any) -> Callback:
            """Refuse other libraries' names of arguments."""
            if foreign := given.keys() & FOREIGN.keys() - {"env", "env_id"}:
                taken = inspect.signature(cls.__init__).parameters
                if all(each.kind is not each.VAR_KEYWORD for each in taken.values()):
                    for name in foreign - taken.keys():
                        raise TypeError(
                            f"{cls.__name__} has no argument '{name}'{suggest(name, ())}"
                        )
            return super().__new__(cls)

    def listens(self, event: str) -> bool:
        """Return whether it handles ``event`` of rlox's loop; events without handlers cost nothing.

        By default: whether the method of that name is overridden.
        """
        return getattr(type(self), event) is not getattr(Callback, event)

    def on_training_start(self, **kwargs: Any) -> None:
        """Handle the start, once, before the first env step."""

    def on_step(self, **kwargs: Any) -> bool:
        """Handle one vector step, N env steps of N envs; return False to stop training.

        If no env is stepped, it is called once for each gradient step.
        """
        return True

    def on_rollout_end(self, **kwargs: Any) -> None:
        """Handle the end of a rollout; also gets ``batch``."""

    def on_train_batch(self, **kwargs: Any) -> None:
        """Handle one minibatch's learning; also gets ``gradient_step`` and ``metrics``."""

    def on_iteration_end(self, **kwargs: Any) -> bool | None:
        """Handle the end of a collect-and-learn round; return False to stop training.

        Also gets ``metrics``.
        """
        return True

    def on_pulse(self, **kwargs: Any) -> None:
        """Handle a pulse, about once a second within an iteration, between two of its steps."""

    def on_phase(self, **kwargs: Any) -> None:
        """Handle the training's switch to another phase; also gets ``phase``."""

    def on_eval(self, **kwargs: Any) -> None:
        """Handle an evaluation; also gets ``result``, its ``EvaluationResult``."""

    def on_training_end(self, **kwargs: Any) -> None:
        """Handle the end, once, also after an error; also gets ``metrics``."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a resumed training, as nested dicts of arrays and plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""


def _stops(callback: Callback, event: str, answer: object) -> bool:
    """Return whether a callback's answer ends the training.

    Numbers and arrays are refused: 0 may be a count, and must not stop by equalling False.
    """
    if answer is True or answer is None:
        return False
    if isinstance(answer, (bool, np.bool_)):
        return not answer
    raise TypeError(
        f"{type(callback).__name__}.{event} must return True, False or None, got {answer!r}; "
        "False stops the training"
    )


class CallbackList(Callback):
    """Several callbacks in sequence.

    Args:
        callbacks: one or several, called in this order, but see :attr:`Callback.saves_training`;
            a :class:`CallbackList` among them is flattened.

    Raises:
        TypeError: something else is among them.
    """

    def __init__(self, callbacks: Iterable[Callback] | Callback | None = None) -> None:
        self.callbacks: list[Callback] = []
        given: Any = callbacks if isinstance(callbacks, Iterable) else [callbacks]
        for callback in () if callbacks is None else given:
            if not isinstance(callback, Callback):
                kind = type(callback).__name__
                if isinstance(callback, type):
                    kind = f"the class {callback.__name__}; make an object of it"
                raise TypeError(f"callbacks must be rlox.callbacks.Callback objects, got {kind}")
            inner = callback.callbacks if isinstance(callback, CallbackList) else [callback]
            self.callbacks += inner

    def listens(self, event: str) -> bool:
        """Return whether any callback handles ``event``."""
        return any(callback.listens(event) for callback in self.callbacks)

    def _each(self, event: str, kwargs: Mapping[str, Any]) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(**kwargs)

    def on_training_start(self, **kwargs: Any) -> None:
        """Call every callback."""
        self._each("on_training_start", kwargs)

    def on_step(self, **kwargs: Any) -> bool:
        """Call every callback; False if any returned False."""
        # a list, not a generator: every callback is called even after one said stop
        stops = [_stops(c, "on_step", c.on_step(**kwargs)) for c in self.callbacks]
        return True not in stops

    def on_rollout_end(self, **kwargs: Any) -> None:
        """Call every callback."""
        self._each("on_rollout_end", kwargs)

    def on_train_batch(self, **kwargs: Any) -> None:
        """Call every callback."""
        self._each("on_train_batch", kwargs)

    def on_iteration_end(self, **kwargs: Any) -> bool:
        """Call every callback, saving ones last; False if any returned False."""
        ordered = sorted(self.callbacks, key=lambda callback: callback.saves_training)
        stops = [_stops(c, "on_iteration_end", c.on_iteration_end(**kwargs)) for c in ordered]
        return True not in stops

    def on_pulse(self, **kwargs: Any) -> None:
        """Call every callback, saving ones last."""
        for callback in sorted(self.callbacks, key=lambda callback: callback.saves_training):
            callback.on_pulse(**kwargs)

    def on_phase(self, **kwargs: Any) -> None:
        """Call every callback."""
        self._each("on_phase", kwargs)

    def on_eval(self, **kwargs: Any) -> None:
        """Call every callback."""
        self._each("on_eval", kwargs)

    def on_training_end(self, **kwargs: Any) -> None:
        """Call every callback."""
        self._each("on_training_end", kwargs)

    def state_dict(self) -> dict[str, Any]:
        """Return every callback's state under its class name, numbered if it occurs again."""
        return {name: callback.state_dict() for name, callback in self._named()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the callbacks that have a saved state; others start afresh."""
        for name, callback in self._named():
            if name in state:
                callback.load_state_dict(state[name])

    def _named(self) -> Iterator[tuple[str, Callback]]:
        seen: Counter[str] = Counter()
        for callback in self.callbacks:
            name = type(callback).__name__
            seen[name] += 1
            yield f"{name}-{seen[name]}", callback


class Multiples:
    """Detects when another multiple of a frequency has been reached or passed.

    A vector step advances the clock by N and an iteration by T*N env steps, so that most multiples
    are passed rather than met.

    Args:
        name: of the option that sets the frequency, for the error's text.
        frequency: in the training's steps, :attr:`rlox.training.hooks.Progress.unit`.

    Raises:
        TypeError: ``frequency`` is not an integer.
        ValueError: it is not positive.
    """

    def __init__(self, name: str, frequency: int) -> None:
        self._frequency = require_integer(name, frequency, at_least=1)
        self._step = 0
        self._next = self._frequency

    def step_of(self, event: Mapping[str, Any]) -> int:
        """Return the ``step`` of an ``on_step``; if missing, the last one plus 1."""
        self._step = event.get("step", self._step + 1)
        return self._step

    def count_from(self, step: int) -> None:
        """Mark the multiples up to env step ``step`` as done."""
        self._step = step
        self._next = (step // self._frequency + 1) * self._frequency

    def reached(self, step: int) -> bool:
        """Return whether ``step`` reaches or passes a multiple not yet done, and mark it done."""
        if step < self._next:
            return False
        self.count_from(step)
        return True


def require_at_least(bound: float, **values: float) -> None:
    """Raise a ``ValueError`` for any value, given by its name, below ``bound`` or NaN."""
    for name, value in values.items():
        if not value >= bound:
            raise ValueError(f"{name} must be at least {bound:g}, got {value}")
