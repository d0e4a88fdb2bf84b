//! Which controllers run, in the syntax of Kubernetes' components.

use std::str::FromStr;

/// Names with their aliases.
const NODES: [&str; 2] = ["cloud-node-controller", "cloud-node"];
const LIFECYCLE: [&str; 2] = ["cloud-node-lifecycle-controller", "cloud-node-lifecycle"];
const SERVICE: [&str; 2] = ["service-lb-controller", "service"];
const ROUTE: [&str; 2] = ["node-route-controller", "route"];
const ALL: [[&str; 2]; 4] = [NODES, LIFECYCLE, SERVICE, ROUTE];

/// The controllers that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Controllers {
    /// Whether Nodes are initialised and updated.
    pub nodes: bool,
    /// Whether Nodes are tainted and deleted.
    pub lifecycle: bool,
    /// Whether load balancers or routes are wanted, which this program does not serve.
    pub unserved: bool,
}

/// A list that names an unknown controller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a known controller; these are: {}", known())]
pub struct InvalidControllers {
    name: String,
}

fn known() -> String {
    ALL.map(|[name, alias]| format!("{name} ({alias})")).join(", ")
}

impl Controllers {
    /// The names of those that run, as in `/healthz`.
    pub fn names(self) -> Vec<&'static str> {
        let all = [(self.nodes, NODES[0]), (self.lifecycle, LIFECYCLE[0])];
        all.into_iter().filter(|(runs, _)| *runs).map(|(_, name)| name).collect()
    }
}

impl FromStr for Controllers {
    type Err = InvalidControllers;

    fn from_str(text: &str) -> Result<Self, InvalidControllers> {
        let words: Vec<&str> =
            text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        for word in &words {
            let name = word.strip_prefix('-').unwrap_or(word);
            if name != "*" && !ALL.iter().flatten().any(|known| *known == name) {
                return Err(InvalidControllers { name: name.to_owned() });
            }
        }
        let runs = |names: [&str; 2]| {
            let first = words.iter().find(|word| {
                let name = word.strip_prefix('-').unwrap_or(word);
                names.contains(&name)
            });
            match first {
                Some(word) => !word.starts_with('-'),
                None => words.contains(&"*"),
            }
        };
        let unserved = runs(SERVICE) || runs(ROUTE);
        Ok(Self { nodes: runs(NODES), lifecycle: runs(LIFECYCLE), unserved })
    }
}
