//! How long a vCenter takes.

use std::{fmt, str::FromStr};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Control;

/// How long calls and tasks take; `lab/vcenter/README.md` has the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Latency {
    /// No time at all.
    #[default]
    None,
    /// As [`Latency::Idle`], with quick creates.
    FastLab,
    /// As a vCenter with one operation at a time.
    Idle,
    /// As a vCenter with eight and more operations at once.
    Loaded,
}

impl Latency {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::FastLab, Self::Idle, Self::Loaded];

    /// The name of the profile, such as `fast-lab`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::FastLab => "fast-lab",
            Self::Idle => "idle",
            Self::Loaded => "loaded",
        }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Latency {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        let Some(known) = Self::ALL.into_iter().find(|one| one.name() == name) else {
            bail!("unknown latency profile; known are {}", Self::ALL.map(Self::name).join(", "))
        };
        Ok(known)
    }
}

impl Control {
    /// Changes how long calls and tasks take, from the next ones on.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn set_latency(&self, latency: Latency) -> Result<()> {
        self.post("/latency", json!({"profile": latency})).await.map(drop)
    }

    /// How long calls and tasks take.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn latency(&self) -> Result<Latency> {
        let mut answer = self.call("GET", "/latency", Value::Null).await?;
        serde_json::from_value(answer["profile"].take()).context("the latency has no profile")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_written_as_it_is_read() {
        for latency in Latency::ALL {
            assert_eq!(latency.to_string().parse::<Latency>().unwrap(), latency);
            assert_eq!(serde_json::to_value(latency).unwrap(), latency.name());
        }
        let unknown = "slow".parse::<Latency>().unwrap_err().to_string();
        assert!(unknown.contains("none, fast-lab, idle, loaded"), "{unknown}");
    }
}
