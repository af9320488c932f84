from rlox_llm.dpo import DPO as DPO
