"""Samplers outside the training: the protocol, a fake vLLM, and a fake vLLM server."""

import copy
import dataclasses
import json
import sys
import threading
import types
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
import torch
from models import count_sevens, llama, make_grpo, sharpened, tiny_lm
from rlox.algorithms import BestOfN, OnlineDPO
from rlox.errors import BackendError, ConfigError
from rlox_llm.generation import Generator, Sampling
from rlox_llm.generators import RloxGenerator, TransformersGenerator
from rlox_llm.losses import grpo_loss
from rlox_llm.models import CausalModel
from rlox_llm.vllm import VLLMGenerator, VLLMServerGenerator

PROMPTS = torch.arange(12).reshape(4, 3)


class Engine:
    """A sampler with a copy of the weights and slightly wrong log-probabilities."""

    in_process = False

    def __init__(self, model, **defects):
        self.copy = copy.deepcopy(model)
        self.inner = RloxGenerator(CausalModel(self.copy, "engine"))
        self.defects = defects
        self.versions = []

    def sync(self, named_parameters, version):
        self.versions.append(version)
        if not self.defects.get("stale"):
            own = dict(self.copy.named_parameters())
            for name, parameter in named_parameters:
                own[name].data.copy_(parameter.data)
            self.inner.version = version

    def generate(self, prompts, n, params):
        done = self.inner.generate(prompts, n, params)
        shift = self.defects.get("shift", 0.0)
        logprobs = [[value + shift for value in row] for row in done.logprobs or ()]
        changed = {"logprobs": logprobs, **self.defects.get("changed", {})}
        return dataclasses.replace(done, **changed)


def test_transformers_samples_from_the_policy_alone():
    """The model's generation config is ignored, and restored afterwards."""
    model = sharpened(llama(eos_token_id=3, pad_token_id=0))
    given = [[1, 2, 4], [5]], 3, Sampling(max_new_tokens=6, eos=(3,), seed=5)
    expected = TransformersGenerator(CausalModel(model, "model")).generate(*given)
    model.generation_config.update(
        repetition_penalty=5.0, num_beams=2, min_new_tokens=5, suppress_tokens=[7], top_k=2
    )
    before = model.generation_config.to_dict()
    found = TransformersGenerator(CausalModel(model, "model")).generate(*given)
    assert found.token_ids == expected.token_ids
    assert model.generation_config.to_dict() == before


def grpo(**options):
    """Return a GRPO with an engine as its sampler."""
    model = tiny_lm()
    engine = Engine(model, **options.pop("defects", {}))
    return make_grpo(model, generator=engine, **options)


def require_same_rewards(one, other):
    """Train both, and return the last metrics of the first."""
    for _ in range(3):
        metrics = one.train_step(PROMPTS)
        assert metrics["mean_reward"] == other.train_step(PROMPTS)["mean_reward"]
    return metrics


def test_an_engine_samples_with_the_weights_of_now():
    """Learning equals that with rlox's own sampler; the ratio to the engine is logged."""
    by_engine = grpo(learning_rate=0.05)
    model = tiny_lm()
    alone = make_grpo(model, learning_rate=0.05)
    assert isinstance(by_engine.generator, Generator)
    metrics = require_same_rewards(by_engine, alone)
    assert metrics["engine_ratio"] == pytest.approx(1.0, abs=1e-4)
    assert by_engine.generator.versions == [0, 1, 2]
    for a, b in zip(by_engine.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_completions_that_an_engine_finds_too_unlikely_are_left_out():
    """Ratios up to 3 weight completions, as in TRL; beyond, the weight is 0."""
    algorithm = grpo(defects={"shift": -0.05})
    rollout = algorithm._roll_out(algorithm.parse(PROMPTS))
    expected = np.exp(0.05 * rollout.completions.lengths.numpy())
    np.testing.assert_allclose(rollout.engine_ratio.numpy(), expected, rtol=1e-4)
    far = grpo(defects={"shift": -1.0})
    assert far._roll_out(far.parse(PROMPTS)).engine_ratio.sum() == 0


def test_an_engines_ratio_weighs_the_loss_but_not_the_kl():
    """Loss and KL equal a computation by hand, for two completions of one token."""
    logps = torch.tensor([[-1.0], [-2.0]], dtype=torch.float64)
    ratio, advantages = torch.tensor([1.5, 0.0]).double(), torch.tensor([1.0, 2.0]).double()
    loss, _ = grpo_loss(logps, None, logps - 0.1, advantages, torch.ones(2, 1), beta=0.2,
                        engine_ratio=ratio)  # fmt: skip
    kl = np.exp(-0.1) + 0.1 - 1
    assert float(loss) == pytest.approx((-1.5 * 1 - 0 * 2) / 2 + 0.2 * kl)


@pytest.mark.parametrize(
    ("defects", "message"),
    [
        ({"stale": True}, "has the weights of gradient step 0, expected those of 1"),
        ({"changed": {"params": Sampling(8, temperature=0.5)}}, "temperature=0.5, expected 1.0"),
        ({"changed": {"params": Sampling(8, top_p=0.9)}}, "top_p=0.9, expected 1.0"),
        ({"changed": {"token_ids": [[1]]}}, "must return 16 completions, got 1"),
        ({"changed": {"token_ids": [[]] * 16}}, "completion 0 of the generator is empty"),
        ({"changed": {"logprobs": [[0.0]] * 16}}, "has 8 tokens and 1 log-probabilities"),
    ],
)
def test_an_engine_that_does_not_what_was_asked_is_refused(defects, message):
    """The error comes before any learning."""
    algorithm = grpo(defects=defects)
    if "stale" in defects:  # weights can be stale from the second step on
        algorithm.train_step(PROMPTS)
    with pytest.raises(ValueError, match=message):
        algorithm.train_step(PROMPTS)


@pytest.mark.parametrize("option", [{"top_p": 0.9}, {"top_k": 3}, {"loss_type": "vespo"}])
def test_options_that_do_not_go_with_an_engine_are_refused(option):
    """With them, an engine's log-probabilities are those of a part of the vocabulary."""
    with pytest.raises(ConfigError, match="engine"):
        grpo(**option)


def test_every_algorithm_takes_a_generator():
    """Online DPO and best-of-N too."""
    model = tiny_lm()
    online = OnlineDPO(model, tiny_lm(1), lambda pairs: [0] * len(pairs), generator=Engine(model))
    assert online.train_step(PROMPTS)["completions"] == 8
    best = BestOfN(model, count_sevens, generator=Engine(model))
    assert best.generate(PROMPTS).shape == (4, 11)


class FakeLLM:
    """The used parts of vLLM's ``LLM``, sampling with rlox."""

    def __init__(self, model, logprobs_mode="processed_logprobs"):
        self.copy = copy.deepcopy(model)
        config = types.SimpleNamespace(
            model_config=types.SimpleNamespace(logprobs_mode=logprobs_mode)
        )
        self.llm_engine = types.SimpleNamespace(vllm_config=config)
        self.loads = self.resets = 0

    def load_weights(self, pairs):
        self.loads += 1
        self.copy.load_state_dict(dict(pairs))

    def apply_model(self, function):
        return [function(self)]

    def reset_prefix_cache(self):
        self.resets += 1

    def generate(self, prompts, params, use_tqdm):
        assert not use_tqdm
        sampled = answers_of(self.copy, [p["prompt_token_ids"] for p in prompts], vars(params))
        found = [
            types.SimpleNamespace(
                token_ids=tuple(tokens),
                logprobs=[{t: types.SimpleNamespace(logprob=x), -1: None}
                          for t, x in zip(tokens, logprobs, strict=True)],
            )
            for tokens, logprobs in sampled
        ]  # fmt: skip
        n = params.n
        return [types.SimpleNamespace(outputs=found[i : i + n]) for i in range(0, len(found), n)]


def answers_of(model, prompts, asked):
    """Return tokens and log-probabilities for a request in vLLM's form."""
    params = Sampling(
        asked["max_tokens"], temperature=asked["temperature"], top_p=asked["top_p"],
        eos=tuple(asked["stop_token_ids"]), seed=asked["seed"],
    )  # fmt: skip
    done = RloxGenerator(CausalModel(model, "engine")).generate(prompts, asked["n"], params)
    return list(zip(done.token_ids, done.logprobs or (), strict=True))


@pytest.fixture(name="fake_vllm")
def fixture_fake_vllm(monkeypatch):
    """Replace the module ``vllm``."""
    fake = types.ModuleType("vllm")
    fake.SamplingParams = types.SimpleNamespace
    fake.LLM = lambda model, logprobs_mode: FakeLLM(llama(), logprobs_mode)
    monkeypatch.setitem(sys.modules, "vllm", fake)


@pytest.mark.usefixtures("fake_vllm")
def test_vllm_gets_token_ids_and_weights():
    """Learning from its completions equals learning from rlox's own."""
    model, other = llama(), llama()
    llm = FakeLLM(llama(3))
    by_vllm = make_grpo(model, generator=VLLMGenerator(llm))
    alone = make_grpo(other)
    require_same_rewards(by_vllm, alone)
    assert (llm.loads, llm.resets) == (3, 3)
    with pytest.raises(ConfigError, match="logprobs_mode='processed_logprobs', got 'raw_logprobs'"):
        VLLMGenerator(FakeLLM(model, "raw_logprobs"))
    assert isinstance(VLLMGenerator("folder"), Generator)
    adapted = make_grpo(llama(), lora_rank=2, generator=VLLMGenerator(llm))
    with pytest.raises(ConfigError, match="this one has an adapter"):
        adapted.train_step(PROMPTS)


@pytest.fixture(name="server")
def fixture_server():
    """Run a server with the used endpoints of ``vllm serve``."""
    transformers = pytest.importorskip("transformers")
    state = types.SimpleNamespace(model=llama(3), calls=[], token_ids=True)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.calls.append(self.path)
            answer = {}
            if self.path == "/collective_rpc":
                assert body["method"] == "reload_weights"
                path = body["kwargs"]["weights_path"]
                state.model = transformers.AutoModelForCausalLM.from_pretrained(path)
            elif self.path == "/v1/completions":
                sampled = answers_of(state.model, body["prompt"], body)
                answer["choices"] = [
                    {"index": i, "logprobs": {"token_logprobs": logprobs},
                     "token_ids": tokens if state.token_ids else None}
                    for i, (tokens, logprobs) in enumerate(sampled)
                ]  # fmt: skip
            elif self.path == "/fails/pause":
                self.send_error(500)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format, *args):  # noqa: A002
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_port}"
    yield state
    http.shutdown()
    http.server_close()
    thread.join()


def test_a_server_gets_token_ids_and_a_folder_of_weights(server, tmp_path):
    """Learning from its completions equals learning from rlox's own."""
    model = sharpened(llama(), 2.0)
    other = copy.deepcopy(model)
    engine = VLLMServerGenerator(server.url, model, tmp_path / "weights", name="policy")
    remote = make_grpo(model, generator=engine)
    alone = make_grpo(other)
    metrics = require_same_rewards(remote, alone)
    assert metrics["engine_ratio"] == pytest.approx(1.0, abs=1e-3)
    update = ["/pause", "/collective_rpc", "/reset_prefix_cache", "/resume", "/v1/completions"]
    assert server.calls == update * 3
    server.token_ids = False
    with pytest.raises(BackendError, match="returns no token ids"):
        remote.train_step(PROMPTS)


def test_a_server_that_fails_is_named(server, tmp_path):
    """The error names the server and the request."""
    engine = VLLMServerGenerator(f"{server.url}/fails", llama(), tmp_path, name="policy")
    with pytest.raises(BackendError, match="failed at /pause: HTTP Error 500"):
        engine.sync([], 0)
    with pytest.raises(ConfigError, match="must begin with http://"):
        VLLMServerGenerator("file:///x", llama(), tmp_path, name="policy").sync([], 0)
    with pytest.raises(ConfigError, match="a model of transformers without an adapter"):
        VLLMServerGenerator(server.url, tiny_lm(), tmp_path, name="policy")
