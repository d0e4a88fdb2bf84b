//! Calls and tasks that are held back, lost or cut off.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Control;

impl Control {
    /// Delays one call of `method`, after `skip` others, before it is carried out; returns the number of the rule.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn delay_one(&self, method: &str, skip: u64, milliseconds: u32) -> Result<u64> {
        let delay = json!({"method": method, "skip": skip, "delay_ms": milliseconds, "count": 1});
        let answer = self.post("/delays", delay).await?;
        answer["id"].as_u64().context("the armed delay has no number")
    }

    /// Carries out one call of `method`, after `skip` others, and never answers; returns the number of the rule.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn hang_one(&self, method: &str, skip: u64) -> Result<u64> {
        let hang = json!({"method": method, "skip": skip, "kind": "hang", "count": 1});
        let answer = self.post("/http", hang).await?;
        answer["id"].as_u64().context("the armed fault has no number")
    }

    /// Lets the work of tasks begin that is held back, and returns when it is done.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn release_tasks(&self) -> Result<()> {
        self.post("/tasks/release", Value::Null).await.map(drop)
    }

    /// Forgets tasks that ended.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn forget_tasks(&self) -> Result<()> {
        self.call("DELETE", "/tasks", Value::Null).await.map(drop)
    }

    /// Restarts CNS alone: its running tasks fail; `work` (`done`, `half` or `none`) is what becomes of theirs.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn restart_cns(&self, down_milliseconds: u32, work: &str) -> Result<()> {
        let body = json!({"down_ms": down_milliseconds, "work": work});
        self.post("/cns/restart", body).await.map(drop)
    }
}
