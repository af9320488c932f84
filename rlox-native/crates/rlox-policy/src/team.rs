//! The policies of several agents.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result, damaged};
use crate::file;
use crate::policy::{Policy, PolicyData};
use crate::tree::Node;

/// The trained policies of a team, one for each agent or shared by agents of equal spaces.
#[derive(Clone, Debug)]
pub struct Team {
    agents: Vec<(String, Policy)>,
    remembers_rests: bool,
}

impl Team {
    /// Read a file that `rlox export` wrote of a team.
    ///
    /// # Errors
    /// As [`Policy::open`]; [`Error::OtherKind`]: it is of one policy.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_bytes(&file::bytes(path.as_ref())?)
    }

    /// Read the bytes of such a file.
    ///
    /// # Errors
    /// See [`Team::open`].
    pub fn from_bytes(content: &[u8]) -> Result<Self> {
        let content = file::read(content)?;
        let root = content.root();
        if root.find("policy").is_some() {
            return Err(Error::OtherKind("the file is of one policy; open it as a Policy"));
        }
        Self::read(&root.get("team")?, content.numbers())
    }

    fn read(node: &Node<'_>, in_arrays: usize) -> Result<Self> {
        let mut policies = BTreeMap::new();
        for (name, policy) in node.get("policies")?.entries()? {
            policies.insert(name, Arc::new(PolicyData::read(&policy, in_arrays)?));
        }
        let mut agents = Vec::new();
        for (agent, of_agent) in node.get("agents")?.entries()? {
            let [name, number] = of_agent.pair()?;
            let Some(shared) = policies.get(name.text()?) else {
                return name.expected("the name of a policy");
            };
            #[allow(clippy::cast_precision_loss)] // agents can be counted
            let number = number.size()? as f64;
            agents.push((agent.to_owned(), Policy::new(Arc::clone(shared), Some(number))?));
        }
        let mut grouped = Vec::new();
        for (_, group) in node.get("groups")?.entries()? {
            for agent in group.list()? {
                grouped.push(agent.text()?);
            }
        }
        let mut names: Vec<&str> = agents.iter().map(|(agent, _)| agent.as_str()).collect();
        grouped.sort_unstable();
        names.sort_unstable();
        if grouped != names {
            return damaged("its groups are not of its agents");
        }
        Ok(Self { agents, remembers_rests: node.get("remembers_rests")?.flag()? })
    }

    /// Each agent and its policy, in the env's order.
    #[must_use]
    pub fn agents(&self) -> &[(String, Policy)] {
        &self.agents
    }

    /// The policy of an agent.
    #[must_use]
    pub fn agent(&self, name: &str) -> Option<&Policy> {
        self.agents.iter().find(|(agent, _)| agent == name).map(|(_, policy)| policy)
    }

    /// Whether memories go on while an agent rests: then let its policy act then too, and drop the
    /// action. Else leave its memory as it is.
    #[must_use]
    pub fn remembers_rests(&self) -> bool {
        self.remembers_rests
    }
}
