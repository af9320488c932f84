"""Language models from the command line: training, resuming, evaluating, exporting."""

import json
import shlex
import signal
import sys

import pytest
import torch
from models import save_folder
from rlox.cli import main

transformers = pytest.importorskip("transformers")

REWARDS = """
import os, signal
calls = 0
def letters(completions, prompts, texts, answer=None):
    global calls
    calls += 1
    if calls == int(os.environ.get("STOP_AT", "0")):
        os.kill(os.getpid(), signal.SIGINT)
    return [float(text.count("a")) for text in texts]
def failing(completions, prompts, answer):
    return look_up(answer)
def look_up(answer):
    return {}["no"]
def of_trl(completions, answer, **kwargs):
    return [1.0 for _ in answer]
def more(pairs):
    return [int((b == 3).sum() > (a == 3).sum()) for a, b in pairs]
"""


@pytest.fixture(name="workplace")
def fixture_workplace(tmp_path, monkeypatch):
    """Return a working directory with a model, a dataset and reward functions."""
    save_folder(tmp_path / "model")
    rows = [{"prompt": "ab=", "answer": "ba"}, {"prompt": "cde=", "answer": "edc"}]
    rows = [{**row, "chosen": row["answer"], "rejected": "h", "completion": row["answer"]}
            for row in rows]  # fmt: skip
    lines = "\n".join(json.dumps(row) for row in rows)
    (tmp_path / "rows.jsonl").write_text(lines + "\n")
    (tmp_path / "letter_rewards.py").write_text(REWARDS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *(path for path in sys.path if path)])
    monkeypatch.delitem(sys.modules, "letter_rewards", raising=False)
    monkeypatch.delenv("STOP_AT", raising=False)
    return tmp_path


@pytest.fixture(name="rlox_command")
def fixture_rlox_command(monkeypatch, capsys):
    """Return a function that runs ``rlox`` and returns the exit code, stdout and stderr."""

    def run(text):
        monkeypatch.setattr(sys, "argv", ["rlox", *shlex.split(text)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


GRPO_COMMAND = (
    "train grpo --model model --dataset rows.jsonl --reward letter_rewards:letters "
    "--learning-rate 0.01 --max-new-tokens 3 --total-timesteps 4 --eval-freq 2 --eval-episodes 2 "
)


def final_state(run):
    """Return the tensors of a run's last checkpoint."""
    from rlox.training import checkpoint

    found = checkpoint.read(run / "checkpoints/final.safetensors")["state"]
    return found["algorithm"]["model"]["trained"]


def log_rows(run):
    """Return the rows of a run's log without its clocks."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timed = ("time", "gradient_steps_per_second", "seconds")
    return [{k: v for k, v in row.items() if k not in timed} for row in rows]


def test_an_interrupted_training_is_finished_as_if_nothing_had_happened(
    workplace, rlox_command, monkeypatch
):
    """The hint gives ``--reward`` again; parameters and log rows are those of one training."""
    code, out, err = rlox_command(GRPO_COMMAND + "--run-dir whole")
    assert code == 0, err
    assert "evaluation reward" in out
    assert "mean_reward 0" in out
    assert "evaluation at 2 gradient steps" in out
    monkeypatch.setenv("STOP_AT", "2")
    monkeypatch.delitem(sys.modules, "letter_rewards")
    code, out, err = rlox_command(GRPO_COMMAND + "--run-dir halves")
    assert code == 128 + signal.SIGINT
    hint = err[err.index("to finish: ") + len("to finish: ") :].splitlines()[0]
    assert "--reward letter_rewards:letters" in hint
    assert "letter_rewards" not in (workplace / "halves/run.json").read_text().replace(
        json.loads((workplace / "halves/run.json").read_text())["command"], ""
    )
    monkeypatch.setenv("STOP_AT", "0")
    code, _, err = rlox_command("resume halves")
    assert code == 2
    assert "'grpo' needs reward_fn=..., a function" in err
    assert "--reward module:function" in err
    code, _, err = rlox_command(hint.removeprefix("rlox "))
    assert code == 0, err
    whole, halves = (final_state(workplace / name) for name in ("whole", "halves"))
    assert whole.keys() == halves.keys()
    for name, array in whole.items():
        assert (array == halves[name]).all(), name
    assert log_rows(workplace / "whole") == log_rows(workplace / "halves")


def test_a_run_is_evaluated_and_exported(workplace, rlox_command):
    """The export equals the trained model with its adapter, and completes prompts."""
    command = GRPO_COMMAND + "--run-dir run --lora-rank 2"
    code, _, err = rlox_command(command)
    assert code == 0, err
    code, out, err = rlox_command("eval run --reward letter_rewards:letters --episodes 3")
    assert code == 0, err
    assert "tokens" in out
    assert "env" not in out.split()
    best = "eval run --best --reward letter_rewards:letters --json --stochastic"
    code, out, err = rlox_command(best)
    assert json.loads(out)["algorithm"] == "grpo"
    code, out, err = rlox_command("llm export run exported")
    assert code == 0, err
    model = transformers.AutoModelForCausalLM.from_pretrained("exported")
    tokenizer = transformers.AutoTokenizer.from_pretrained("exported")
    assert tokenizer("ab=")["input_ids"] == [3, 4, 2]

    import rlox
    from rlox_llm.models import CausalModel

    sys.path.insert(0, "")
    import letter_rewards

    trained = rlox.algorithms.GRPO.from_checkpoint(
        "run/checkpoints/final.safetensors", model="model", reward_fn=letter_rewards.letters
    )
    ids, mask = torch.tensor([[3, 4, 2, 4, 3]]), torch.ones(1, 2, dtype=torch.bool)
    with torch.no_grad(), trained.policy.mode(training=False):
        expected = trained.policy.logps([ids[0, :3]], ids[:, 3:], mask)
        found = CausalModel(model.eval(), "model").logps([ids[0, :3]], ids[:, 3:], mask)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    code, out, err = rlox_command("llm export run exported")
    assert code == 2
    assert "not empty" in err
    for source in ("exported", "run", "model"):
        code, out, err = rlox_command(
            f"llm generate {source} --prompt ab= --dataset rows.jsonl --best-of 5 "
            "--reward letter_rewards:letters",  # as many tokens as the context allows
        )  # fmt: skip
        assert code == 0, err
        assert len(out.splitlines()) == 3
        assert out.count("a") >= 1


def test_commands_name_what_is_missing(workplace, rlox_command):
    """Errors are one line with exit code 2."""
    cases = {
        "llm generate model": "there is nothing to complete",
        "llm generate model --prompt ab= --best-of 2": "--best-of needs --reward",
        "llm export nowhere folder": "does not exist",
        "train grpo --model model": "missing option '--reward'",
        GRPO_COMMAND.replace(":letters", ":failing"): "raised KeyError: 'no' in ",
        GRPO_COMMAND.replace(":letters", ":of_trl"): "write def of_trl(completions, prompts, ",
        "train grpo --model nowhere --reward letter_rewards:letters": "there is no folder",
    }
    for text, message in cases.items():
        code, _, err = rlox_command(text)
        assert code == 2, text
        assert message in err, err
        assert "Traceback" not in err


@pytest.mark.parametrize("name", ["sft", "dpo", "online_dpo"])
def test_the_others_train_from_files(name, workplace, rlox_command):
    """With the same folder and file."""
    judged = "--preference letter_rewards:more" if name == "online_dpo" else ""
    code, out, err = rlox_command(
        f"train {name} --model model --dataset rows.jsonl --total-timesteps 2 --run-dir run "
        f"--eval-episodes 2 {judged}",
    )  # fmt: skip
    assert code == 0, err
    assert "gradient steps" in out
    assert ("accuracy" in out) is (name == "dpo")
    assert (workplace / "run/checkpoints/final.safetensors").is_file()
