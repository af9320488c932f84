from rlox_llm.online_dpo import OnlineDPO as OnlineDPO
