"""Sampling with vLLM, in this process or through its HTTP server."""

from __future__ import annotations

import importlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rlox.errors import BackendError, ConfigError, MissingDependencyError
from torch import Tensor

from rlox_llm.building import is_adapted
from rlox_llm.generation import Rollouts, Sampling

PROCESSED = "processed_logprobs"
"""Log-probabilities at the sampling temperature, which training compares with."""


class VLLMGenerator:
    """Sampling with a vLLM ``LLM`` in this process; weights are copied before each rollout.

    Args:
        llm: an ``LLM`` with ``logprobs_mode="processed_logprobs"``, or the folder of a model.
        options: options of ``vllm.LLM``, if ``llm`` is a folder.

    Raises:
        ConfigError: the ``LLM`` has another ``logprobs_mode``.
        MissingDependencyError: vLLM is not installed.
    """

    in_process = False

    def __init__(self, llm: Any, **options: Any) -> None:
        try:
            self._vllm: Any = importlib.import_module("vllm")
        except ModuleNotFoundError:
            raise MissingDependencyError(
                "VLLMGenerator needs vLLM, which no extra of rlox installs; run: pip install vllm"
            ) from None
        if isinstance(llm, (str, Path)):
            llm = self._vllm.LLM(model=str(llm), **{"logprobs_mode": PROCESSED, **options})
        mode = llm.llm_engine.vllm_config.model_config.logprobs_mode
        if mode != PROCESSED:
            raise ConfigError(
                f"vLLM must return log-probabilities at the sampling temperature; make the LLM "
                f"with logprobs_mode='{PROCESSED}', got '{mode}'"
            )
        self.llm = llm
        self.version = -1

    def sync(self, named_parameters: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Load the weights, unless that version is loaded.

        Raises:
            ConfigError: the model has a peft adapter, whose names vLLM does not know.
        """
        if version == self.version:
            return
        pairs = [(name, parameter.detach()) for name, parameter in named_parameters]
        if any("lora_" in name for name, _ in pairs):
            raise ConfigError(
                "vLLM needs the weights of a whole model, and this one has an adapter; sample with "
                "sampler='rlox'"
            )
        self.llm.apply_model(lambda model: model.load_weights(pairs))
        self.llm.reset_prefix_cache()
        self.version = version

    def generate(self, prompts: Sequence[Sequence[int]], n: int, params: Sampling) -> Rollouts:
        """Sample ``n`` completions of each prompt."""
        settings = self._vllm.SamplingParams(n=n, logprobs=0, detokenize=False, **_settings(params))
        given = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        answers = self.llm.generate(given, settings, use_tqdm=False)
        found = [each for answer in answers for each in answer.outputs]
        logprobs = [
            [step[token].logprob for token, step in zip(each.token_ids, each.logprobs, strict=True)]
            for each in found
        ]
        tokens = [list(each.token_ids) for each in found]
        return Rollouts(tokens, logprobs, params, self.version)


class VLLMServerGenerator:
    """Sampling with ``vllm serve`` over HTTP.

    Start the server with ``--logprobs-mode processed_logprobs`` and ``VLLM_SERVER_DEV_MODE=1``. It
    reads new weights from a folder that both processes can access.

    Args:
        url: the server's address, such as ``"http://localhost:8000"``.
        model: the trained module, with ``save_pretrained``.
        folder: folder for the weights.
        name: the server's name of the model.
        timeout: seconds to wait for an answer.

    Raises:
        ConfigError: the model cannot be saved, or has an adapter.
    """

    in_process = False

    def __init__(
        self, url: str, model: Any, folder: str | Path, *, name: str, timeout: float = 600.0
    ) -> None:
        if not hasattr(model, "save_pretrained") or is_adapted(model):
            raise ConfigError(
                f"VLLMServerGenerator needs a model of transformers without an adapter, got "
                f"{type(model).__name__}"
            )
        self.url = url.rstrip("/")
        self.model = model
        self.folder = Path(folder)
        self.name = name
        self.timeout = timeout
        self.version = -1

    def sync(self, named_parameters: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Write the weights for the server and let it read them, unless that version is loaded.

        Raises:
            BackendError: the server returns an error.
        """
        if version == self.version:
            return
        self.model.save_pretrained(str(self.folder))
        self._post("pause", {})
        self._post(
            "collective_rpc",
            {"method": "reload_weights", "kwargs": {"weights_path": str(self.folder.absolute())}},
        )
        self._post("reset_prefix_cache", {})
        self._post("resume", {})
        self.version = version

    def generate(self, prompts: Sequence[Sequence[int]], n: int, params: Sampling) -> Rollouts:
        """Sample ``n`` completions of each prompt.

        Raises:
            BackendError: the server returns an error, or no token ids.
        """
        answer = self._post(
            "v1/completions",
            {
                "model": self.name,
                "prompt": [list(prompt) for prompt in prompts],
                "n": n,
                "logprobs": 0,
                "return_token_ids": True,
                **_settings(params),
            },
        )
        choices = sorted(answer.get("choices", ()), key=lambda choice: choice["index"])
        if any(choice.get("token_ids") is None for choice in choices):
            raise BackendError(
                f"the server at {self.url} returns no token ids; use vLLM 0.10.2 or newer"
            )
        tokens = [list(choice["token_ids"]) for choice in choices]
        logprobs = [list(choice["logprobs"]["token_logprobs"]) for choice in choices]
        return Rollouts(tokens, logprobs, params, self.version)

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"the server's address must begin with http://, got '{self.url}'")
        request = urllib.request.Request(  # noqa: S310
            f"{self.url}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:  # noqa: S310
                text = response.read()
        except (urllib.error.URLError, OSError) as error:
            raise BackendError(
                f"the vLLM server at {self.url} failed at /{path}: {error}"
            ) from None
        return json.loads(text) if text.strip() else {}


def _settings(params: Sampling) -> dict[str, Any]:
    """Return sampling parameters under vLLM's names."""
    return {
        "max_tokens": params.max_new_tokens,
        "temperature": 0.0 if params.greedy else params.temperature,
        "top_k": params.top_k or -1,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "stop_token_ids": list(params.eos),
        "seed": params.seed,
        # override the model's generation config, which would sample from another policy
        "ignore_eos": True,
        "min_tokens": 0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }
