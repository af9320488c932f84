"""Registry entries: resolution of plugin references, and their errors.

Errors raised here name the plugin: kind, name and distribution.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, cast

from rlox.errors import MissingDependencyError, PluginError, RloxError
from rlox.registry.references import resolve

__all__ = ["Registration", "kind_of"]

OWN = ", and the keyword options if the spec names a model of them"

PARTS: dict[str, tuple[str, str | None]] = {
    "rlox_env_backends": ("(env_id, *, n_envs, env_kwargs)" + OWN, "rlox.protocols:VecEnv"),
    "rlox_buffers": ("(asked)" + OWN, None),
    "rlox_learner_backends": ("(task)", None),
    "rlox_actor_backends": ("(plan, index)" + OWN, None),
    "rlox_policy_losses": ("(batch)" + OWN, None),
    "rlox_preference_losses": ("(batch)" + OWN, None),
    "rlox_loggers": ("(log_dir)", "rlox.logging:LoggerCallback"),
    "rlox_callbacks": ("(), or with (log_dir) if in_folder is set", "rlox.callbacks:Callback"),
    "rlox_commands": ("()", "typer:Typer"),
    "rlox_places": ("(address)", None),
}
"""How the factories of each hook are called, and the class of what they return, if it has one."""


def kind_of(hook: str) -> str:
    """Return what a hook registers, in words."""
    plural = hook.removeprefix("rlox_").replace("_", " ")
    return plural.removesuffix("es" if plural.endswith("sses") else "s")


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
            raise self.broken(str(error)) from None
        except RloxError:
            raise
        except Exception as error:
            raise self.broken(
                f"'{reference}' cannot be imported: {type(error).__name__}: {error}"
            ) from error
        if base is not None and not (isinstance(found, type) and issubclass(found, resolve(base))):
            raise self.broken(
                f"{field} must name a subclass of {_dotted(base)}, but '{reference}' is {found!r}"
            )
        return found

    @property
    def described(self) -> str:
        """Kind, name and distribution, in words."""
        return (
            f"the {kind_of(self.hook)} '{self.spec.name}' of the distribution '{self.distribution}'"
        )

    def options_model(self) -> type[Any] | None:
        """Return the model of the plugin's own options, a :class:`rlox.Config`, if it has one."""
        if getattr(self.spec, "options", None) is None:
            return None
        return cast("type[Any]", self.load("options", base="rlox:Config"))

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Call the factory.

        One that has options of its own gets their defaults unless ``options`` is given. What the
        factory itself raises goes on as it is.

        Raises:
            MissingDependencyError: a module is not installed.
            PluginError: it cannot be imported, takes other arguments or returns something else.
        """
        factory = self.load()
        model = self.options_model()
        if kwargs.get("options") is None:
            kwargs.pop("options", None)
            if model is not None:
                kwargs["options"] = model()
        call, product = PARTS[self.hook]
        if getattr(self.spec, "teams", False):
            product = "rlox.protocols:MultiAgentVecEnv"
        try:
            inspect.signature(factory).bind(*args, **kwargs)
        except TypeError as error:
            raise self.broken(
                f"'{self.spec.factory}' must be callable with {call}: {error}"
            ) from None
        except ValueError:
            pass  # compiled code need not expose its signature
        made = factory(*args, **kwargs)
        if product is not None and not isinstance(made, resolve(product)):
            raise self.broken(
                f"'{self.spec.factory}' must return a {_dotted(product)}, got {type(made).__name__}"
            )
        return made

    def broken(self, reason: str) -> PluginError:
        """Return an error that names the plugin as the one at fault."""
        return PluginError(f"{self.described} is broken: {reason}")


def _dotted(reference: str) -> str:
    return reference.replace(":", ".")
