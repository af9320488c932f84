"""What all loggers do, and what the console shows."""

import json
import sys

import pytest
from rlox.errors import MissingDependencyError
from rlox.logging import (
    ConsoleLogger,
    JsonlLogger,
    LoggerList,
    MLflowLogger,
    TensorBoardLogger,
    WandbLogger,
)


def test_list_passes_on_to_every_logger(tmp_path, write):
    """All loggers of a list write the same rows and are closed."""
    write(LoggerList(JsonlLogger(tmp_path / "a"), JsonlLogger(tmp_path / "b")))
    texts = {(tmp_path / name / "metrics.jsonl").read_text() for name in "ab"}
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("logger", "module", "extra"),
    [
        (MLflowLogger, "mlflow", "mlflow"),
        (WandbLogger, "wandb", "wandb"),
        (TensorBoardLogger, "torch.utils.tensorboard", "tensorboard"),
    ],
)
def test_missing_library_names_the_extra(monkeypatch, logger, module, extra):
    """The error has the command that installs it."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError) as caught:
        logger("unused")
    assert str(caught.value) == (
        f"{logger.__name__} needs a distribution that is not installed; "
        f'run: pip install "rlox-core[{extra}]"'
    )


def test_console_prints_at_its_interval(capsys):
    """Lines of training are at least the interval apart, evaluations always shown."""
    logger = ConsoleLogger(log_interval=100)
    for step in (40, 80, 120, 140, 180, 260):
        logger.on_train_step(step, {"loss": 1 / 3})
    logger.on_eval(260, {"mean_reward": 1234.5})
    assert capsys.readouterr().out.splitlines() == [
        "train step=40 loss=0.3333",
        "train step=140 loss=0.3333",
        "train step=260 loss=0.3333",
        "eval step=260 mean_reward=1234",
    ]


COMPLETIONS = {"prompt": ["2+2=", "1+1="], "reward": [1.0, 0.0]}


def test_jsonl_keeps_tables_beside_the_metrics(tmp_path):
    """A line each; rewinding drops what comes again."""
    logger = JsonlLogger(tmp_path)
    for step in (1, 2, 3):
        logger.on_train_step(step, {"loss": 0.5})
        logger.on_table(step, "completions", COMPLETIONS)
    logger.close()
    path = tmp_path / "tables.jsonl"
    assert json.loads(path.read_text().splitlines()[0]) == {
        "name": "completions", "step": 1, "columns": COMPLETIONS,
    }  # fmt: skip
    resumed = JsonlLogger(tmp_path)
    resumed.rewind(2)
    resumed.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]


def test_columns_of_different_lengths_are_refused(tmp_path):
    """The text has the lengths."""
    logger = JsonlLogger(tmp_path)
    with pytest.raises(ValueError, match="'completions' must be equally long"):
        logger.on_table(0, "completions", {"prompt": ["a"], "reward": []})
    logger.close()


def test_tensorboard_writes_text(tmp_path):
    """Under a tag of its own."""
    pytest.importorskip("tensorboard")
    pytest.importorskip("torch")
    from rlox.logging import TensorBoardLogger
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = TensorBoardLogger(tmp_path)
    logger.on_table(5, "completions", COMPLETIONS)
    logger.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert events.Tags()["tensors"] == ["tables/completions/text_summary"]


def test_tensorboard_writes_scalars(tmp_path, write):
    """The event file, read back, has every finite value under its tag and env step."""
    pytest.importorskip("torch")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write(TensorBoardLogger(tmp_path / "run"))
    events = accumulator.EventAccumulator(str(tmp_path / "run"))
    events.Reload()
    scalars = {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }
    assert scalars == {
        "train/loss": [(8, 0.5), (16, 0.25)],
        "train/mean_reward": [(16, 3.25)],
        "eval/mean_reward": [(8, 12.0)],
    }


def test_tensorboard_ignores_what_was_rewound(tmp_path, write):
    """Readers of the folder see each env step once, as the resumed run logged it."""
    pytest.importorskip("torch")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write(TensorBoardLogger(tmp_path))
    logger = TensorBoardLogger(tmp_path)
    logger.rewind(8)
    logger.on_train_step(16, {"loss": 0.125})
    logger.close()
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(8, 0.5), (16, 0.125)]
    assert [e.step for e in events.Scalars("eval/mean_reward")] == [8]
