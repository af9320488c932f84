from rlox_onpolicy.hybrid_ppo import HybridPPO as HybridPPO
