"""Registry entries: resolution of plugin references, and their errors.

Errors raised here name the plugin: kind, name and distribution.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from rlox.errors import MissingDependencyError, PluginError, RloxError
from rlox.registry.specs import resolve

__all__ = ["Registration", "kind_of"]

PARTS: dict[str, tuple[str, str | None]] = {
    "rlox_env_backends": ("(env_id, *, n_envs, env_kwargs)", "rlox.protocols:VecEnv"),
    "rlox_buffers": ("(options)", None),
    "rlox_learner_backends": ("(task)", None),
    "rlox_loggers": ("(log_dir)", "rlox.logging:LoggerCallback"),
    "rlox_callbacks": ("(), or with (log_dir) where in_folder is set", "rlox.callbacks:Callback"),
    "rlox_commands": ("()", "typer:Typer"),
}
"""How the factories of each hook are called, and the class of what they return, if it has one."""


def kind_of(hook: str) -> str:
    """Return what a hook registers, in words."""
    return hook.removeprefix("rlox_").rstrip("s").replace("_", " ")


@dataclass(frozen=True)
class Registration:
    """One spec together with the distribution and hook that brought it."""

    spec: Any
    hook: str
    distribution: str

    def load(
        self, field: str = "factory", *, base: str | None = None, remedy: str | None = None
    ) -> Any:
        """Import what a field of the spec names.

        Args:
            field: of the spec.
            base: ``"module:Class"`` that it must be a subclass of; ``None`` allows anything.
            remedy: what to install if a module is missing; ``None`` names the distribution.

        Raises:
            MissingDependencyError: a module is not installed.
            PluginError: the import fails otherwise, or gives something else.
        """
        reference = getattr(self.spec, field)
        try:
            found = resolve(reference)
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"the {kind_of(self.hook)} '{self.spec.name}' needs the module '{error.name}', "
                f'which is not installed; run: pip install "{remedy or self.distribution}"'
            ) from error
        except PluginError as error:
            raise self._broken(str(error)) from None
        except RloxError:
            raise
        except Exception as error:
            raise self._broken(
                f"'{reference}' cannot be imported: {type(error).__name__}: {error}"
            ) from error
        if base is not None and not (isinstance(found, type) and issubclass(found, resolve(base))):
            raise self._broken(
                f"{field} must name a subclass of {_dotted(base)}, but '{reference}' is {found!r}"
            )
        return found

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Call the factory.

        What the factory itself raises goes on as it is.

        Raises:
            MissingDependencyError: a module is not installed.
            PluginError: it cannot be imported, takes other arguments or returns something else.
        """
        factory = self.load()
        call, product = PARTS[self.hook]
        if getattr(self.spec, "teams", False):
            product = "rlox.protocols:MultiAgentVecEnv"
        try:
            inspect.signature(factory).bind(*args, **kwargs)
        except TypeError as error:
            raise self._broken(
                f"'{self.spec.factory}' must be callable with {call}: {error}"
            ) from None
        except ValueError:
            pass  # compiled code need not expose its signature
        made = factory(*args, **kwargs)
        if product is not None and not isinstance(made, resolve(product)):
            raise self._broken(
                f"'{self.spec.factory}' must return a {_dotted(product)}, got {type(made).__name__}"
            )
        return made

    def _broken(self, reason: str) -> PluginError:
        return PluginError(
            f"the {kind_of(self.hook)} '{self.spec.name}' of the distribution "
            f"'{self.distribution}' is broken: {reason}"
        )


def _dotted(reference: str) -> str:
    return reference.replace(":", ".")
