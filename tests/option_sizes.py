"""Huge values for every whole-number option of an algorithm, each in a process of its own.

    python tests/option_sizes.py [ALGORITHM ...]

prints a line of JSON for each: algorithm, option, value, what came of it (the class of the error,
"trained", or "ended" by a signal), the error's text, and seconds.
"""

import json
import os
import resource
import signal
import sys
import time

import rlox
import torch
from rlox.registry import config_class
from small_algorithms import ALGORITHMS, ON_DATA, ON_ENVS, STEPS, build, dataset, env_of

ADDRESS_SPACE = 8 << 30

PATIENCE = 30
"""Seconds after which a process is ended."""

VALUES = (2**31 - 1, 2**62)

ASK_FOR_TIME = {"gradient_steps", "n_epochs", "num_sgd_iters", "steps_per_iteration"}
"""Options that only make an iteration longer; an interrupt ends them."""


def options_of(name):
    """Return the options that are sizes, of the algorithm ``name``."""
    fields = config_class(name).model_fields.items()
    kinds = {option: str(info.annotation) for option, info in fields}
    kinds = {option: kind for option, kind in kinds.items() if "Mapping" not in kind}
    return [
        option for option, kind in kinds.items()
        if "int" in kind and option not in {*ASK_FOR_TIME, "seed"}
    ]  # fmt: skip


def attempt(name, option, value):
    """Build and train with one option; return the outcome, its text and seconds."""
    small = ON_ENVS[name][1] if name in ON_ENVS else ON_DATA[name]
    source = {"dataset": dataset()} if name in ON_DATA else {"env": env_of(name)}
    began, outcome = time.perf_counter(), ["trained", ""]
    try:
        with rlox.make(name, **source, seed=0, **{**small, option: value}) as algorithm:
            algorithm.train(STEPS)
    except BaseException as error:
        outcome = [type(error).__name__, str(error)]
    return [*outcome, time.perf_counter() - began]


def attempts(name):
    """Yield the outcome of each option and value, from children of limited address space."""
    torch.set_num_threads(1)
    build(name).close()  # imports what the children share
    for option in options_of(name):
        for value in VALUES:
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
                signal.alarm(PATIENCE)
                os.write(writer, json.dumps(attempt(name, option, value)).encode())
                os._exit(0)
            os.close(writer)
            with open(reader, "rb") as answers:
                answer = answers.read()
            os.waitpid(child, 0)
            found = json.loads(answer) if answer else ["ended", "", PATIENCE]
            yield [name, option, value, *found]


if __name__ == "__main__":
    for each in sys.argv[1:] or ALGORITHMS:
        for found in attempts(each):
            print(json.dumps(found), flush=True)
