"""Runtime checks of protocols that count forwarded members."""

from abc import ABCMeta
from typing import TYPE_CHECKING, Any, Protocol

__all__ = ["ForwardedMembers"]

if TYPE_CHECKING:
    ProtocolMeta = ABCMeta
else:
    ProtocolMeta = type(Protocol)


class ForwardedMembers(ProtocolMeta):
    """Metaclass of protocols that an object has if ``hasattr`` finds all members.

    Since Python 3.12 ``isinstance`` passes over members that ``__getattr__`` forwards: a wrapper of
    an env or buffer would lose its masks, its state or its priorities without a word.
    """

    def __instancecheck__(self, instance: Any) -> bool:
        """Return whether the instance has all members, forwarded ones included."""
        if super().__instancecheck__(instance):
            return True
        names = getattr(self, "__protocol_attrs__", None)  # Python 3.12 and later
        if names is None or not getattr(self, "_is_protocol", False):
            return False
        return all(hasattr(instance, name) for name in names)
