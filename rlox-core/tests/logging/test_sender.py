"""Loggers whose server or disk does not answer delay no training, end none, and send later."""

import importlib.util
import socket
import time

import pytest
from rlox.errors import LoggerError
from rlox.logging import MLflowLogger, TensorBoardLogger, sender
from rlox.logging.sender import Sender


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(sender, "RETRY_SECONDS", 0.01)


def test_calls_are_made_in_turn_until_each_succeeds():
    """One that fails for a while is repeated before the next; one that is refused is dropped."""
    made, failures = [], [OSError("no route"), OSError("no route"), ValueError("not a number")]

    def call(number):
        if number == 2 and failures:
            raise failures.pop(0)
        made.append(number)

    link = Sender("a server", lambda error: isinstance(error, OSError))
    for number in (1, 2, 3):
        last = link.push(lambda number=number: call(number))
    last.result(5.0)
    with pytest.warns(RuntimeWarning, match="^a server: not a number; the run goes on"):
        link.push(lambda: call(4))
    link.push(lambda: call(2))  # and warns no more
    for _ in range(2):
        link.close(lambda: call(5))
    assert made == [1, 3, 4, 2, 5]
    with pytest.raises(LoggerError, match="a server: the logger was closed"):
        link.push(lambda: call(6))


@pytest.mark.skipif(not importlib.util.find_spec("mlflow"), reason="needs mlflow")
def test_a_silent_server_delays_nothing(monkeypatch):
    """It is warned of once; a row costs a push, and the end a little time."""
    for module in ("sender", "trackers"):
        monkeypatch.setattr(f"rlox.logging.{module}.PATIENCE", 0.3)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")  # of the thread that is left behind
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    import mlflow  # noqa: F401, takes seconds that are not the logger's

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        start = time.monotonic()
        with pytest.warns(RuntimeWarning, match="MLflow: no answer; the run goes on"):
            logger = MLflowLogger(tracking_uri=address)
        logger.on_train_step(8, {"loss": 0.5})  # and warns no more
        logger.close()
    assert time.monotonic() - start < 5.0


# the thread of tensorboard's that the full disk ends says so itself
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_rows_of_a_full_disk_are_written_later(tmp_path, monkeypatch):
    """The training goes on, and readers find every row once there is room."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    files = pytest.importorskip("tensorboard.compat.tensorflow_stub.io.gfile")
    write, full = files.LocalFileSystem._write, [OSError(28, "No space left on device")] * 3

    def fails_at_first(*arguments):
        if full:
            raise full.pop()
        write(*arguments)

    logger = TensorBoardLogger(tmp_path)
    logger.on_train_step(8, {"loss": 0.5})
    monkeypatch.setattr(files.LocalFileSystem, "_write", fails_at_first)
    for step in (16, 24):
        logger.on_train_step(step, {"loss": 0.25})
    logger.close()
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [8, 16, 24]
