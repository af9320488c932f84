from rlox_llm.sft import SFT as SFT
