//! What the simulator assumes about real vCenters, and which of it a test has made it consult.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Control;

/// An assumption in one vCenter; `lab/vcenter/README.md` lists all.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Assumption {
    /// As in the simulator's README.
    pub name: String,
    /// What holds now.
    pub value: Value,
    /// What holds in this release if nobody sets it.
    pub default: Value,
    /// All values that a walk tries.
    pub choices: Vec<Value>,
    /// Whether something depended on the value while nobody had set it.
    pub consulted: bool,
}

impl Control {
    /// Switches an assumption about real vCenters.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn assume(&self, name: &str, value: Value) -> Result<()> {
        self.post("/assumptions", json!({name: value})).await.map(drop)
    }

    /// Reads an assumption.
    ///
    /// # Errors
    /// As [`Control::state`], and when there is none of this name.
    pub async fn assumption(&self, name: &str) -> Result<Assumption> {
        let all = self.call("GET", "/assumptions", Value::Null).await?;
        let all: Vec<Assumption> = serde_json::from_value(all)?;
        let found = all.into_iter().find(|one| one.name == name);
        found.with_context(|| format!("the simulator has no assumption {name}"))
    }
}
