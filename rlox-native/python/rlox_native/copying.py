"""Errors of copying or pickling a Rust object."""

import copyreg
from typing import Any, NoReturn


def refuse_copies(*classes: type[Any], instead: str) -> None:
    """Make ``copy`` and ``pickle`` of classes raise an error with an alternative.

    Args:
        classes: the objects' classes.
        instead: the alternative, which ends the message.
    """

    def refuse(instance: object) -> NoReturn:
        name = type(instance).__name__
        raise TypeError(f"this {name} cannot be copied or pickled; {instead}")

    for cls in classes:
        copyreg.pickle(cls, refuse)
