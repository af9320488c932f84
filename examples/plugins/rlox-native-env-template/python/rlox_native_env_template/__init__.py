"""An env in Rust for rlox."""
