from rlox_llm.grpo import GRPO as GRPO
