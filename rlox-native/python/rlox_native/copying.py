"""What copying or pickling an object of Rust answers."""

import copyreg
from typing import Any, NoReturn

__all__ = ["refuse_copies"]


def refuse_copies(*classes: type[Any]) -> None:
    """Have ``copy`` and ``pickle`` of classes with a state say what to do instead."""
    for cls in classes:
        copyreg.pickle(cls, _refuse)


def _refuse(instance: object) -> NoReturn:
    name = type(instance).__name__
    raise TypeError(
        f"a {name} cannot be copied or pickled; give its state() to the set_state() of another one "
        "that was made with the same arguments"
    )
