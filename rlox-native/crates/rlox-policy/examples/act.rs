//! Act with a policy file: observations as lines of JSON on stdin, actions as lines on stdout.
//!
//! ```sh
//! echo '{"obs": [[0.1, 0.0, -0.1, 0.0]]}' | cargo run --release -p rlox-policy --example act -- policy.rlox
//! ```
//!
//! A line holds `obs`, a batch, and if wanted `episode_start` (a bool for each), `action_masks` (a
//! list of bools for each) and, for a team, `agent`. What is remembered of an agent lasts from line
//! to line.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};

use rlox_policy::{Given, Memory, Policy, Team};
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: act POLICY < observations > actions")?;
    let agents: BTreeMap<String, Policy> = match Policy::open(&path) {
        Ok(policy) => BTreeMap::from([(String::new(), policy)]),
        Err(rlox_policy::Error::OtherKind(_)) => {
            Team::open(&path)?.agents().iter().cloned().collect()
        }
        Err(error) => return Err(error.into()),
    };
    let mut memories: BTreeMap<String, Memory> = BTreeMap::new();
    let mut out = stdout().lock();
    for line in stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line?)?;
        let agent = line.get("agent").and_then(Value::as_str).unwrap_or("");
        let Some(policy) = agents.get(agent) else {
            let names: Vec<_> = agents.keys().collect();
            return Err(format!("there is no agent '{agent}'; the agents are {names:?}").into());
        };
        let obs = policy.observation_space().from_json(&line["obs"])?;
        let [starts, masks] = ["episode_start", "action_masks"].map(|key| line.get(key).map(bools));
        let given = Given { episode_start: starts.as_deref(), action_masks: masks.as_deref() };
        let memory = memories.entry(agent.to_owned()).or_default();
        let actions = policy.predict(&obs, memory, given)?;
        writeln!(out, "{}", policy.action_space().to_json(&actions))?;
    }
    Ok(())
}

/// All bools of nested lists.
fn bools(value: &Value) -> Vec<bool> {
    match value {
        Value::Array(values) => values.iter().flat_map(bools).collect(),
        other => other.as_bool().into_iter().collect(),
    }
}
