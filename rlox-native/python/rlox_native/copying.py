"""Errors of copying or pickling an object of Rust."""

import copyreg
from typing import Any, NoReturn


def refuse_copies(*classes: type[Any], instead: str) -> None:
    """Have ``copy`` and ``pickle`` of classes say what to do instead.

    Args:
        classes: of the objects.
        instead: the end of the message.
    """

    def refuse(instance: object) -> NoReturn:
        name = type(instance).__name__
        raise TypeError(f"this {name} cannot be copied or pickled; {instead}")

    for cls in classes:
        copyreg.pickle(cls, refuse)
