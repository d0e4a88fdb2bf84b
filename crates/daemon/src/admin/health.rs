//! Named checks and the answers to health requests.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex},
};

use super::lock;

/// What a failing check means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The process cannot recover: Kubernetes should restart it.
    Life,
    /// The process cannot work at the moment.
    Readiness,
    /// Nothing by itself; shown only, such as the state of one vCenter of several.
    Detail,
}

#[derive(Debug)]
struct State {
    weight: Weight,
    /// The detail of a passing check, or the reason of a failing one.
    standing: Result<String, String>,
}

/// The checks of a program.
#[derive(Clone, Debug, Default)]
pub struct Checks(Arc<Mutex<BTreeMap<String, State>>>);

/// One check, reported by its owner. Dropping it removes the check.
#[derive(Debug)]
pub struct Check {
    name: String,
    checks: Checks,
}

impl Checks {
    /// Adds a check, or takes over the one with the same name. It fails until its owner reports.
    #[must_use = "dropping a check removes it"]
    pub fn register(&self, name: &str, weight: Weight) -> Check {
        let state = State { weight, standing: Err("not started yet".to_owned()) };
        lock(&self.0).insert(name.to_owned(), state);
        Check { name: name.to_owned(), checks: self.clone() }
    }

    /// Whether all is well, and the text in the form of Kubernetes' components. The endpoint is `healthz`, `livez`
    /// or `readyz`. `only` selects one check; `None` is returned if there is none with this name. Without
    /// `details` the text has names and results only.
    pub(crate) fn answer(
        &self,
        endpoint: &str,
        only: Option<&str>,
        verbose: bool,
        details: bool,
    ) -> Option<(bool, String)> {
        let checks = lock(&self.0);
        let mut well = true;
        let mut lines = String::from(if only.is_none() { "[+]ping ok\n" } else { "" });
        let mut found = only.is_none() || only == Some("ping");
        for (name, state) in checks.iter() {
            let concerned = state.weight == Weight::Life || endpoint == "readyz";
            if !concerned || only.is_some_and(|only| only != name) {
                continue;
            }
            found = true;
            let line = match &state.standing {
                Ok(detail) if details && !detail.is_empty() => format!("[+]{name} ok: {detail}"),
                Ok(_) => format!("[+]{name} ok"),
                Err(reason) => {
                    let fails = state.weight != Weight::Detail;
                    well &= !fails;
                    let reason = if details { reason } else { "reason withheld" };
                    format!("[{}]{name} failed: {reason}", if fails { '-' } else { '!' })
                }
            };
            writeln!(lines, "{line}").unwrap_or_default();
        }
        let text = match (well, verbose) {
            (true, false) => "ok".to_owned(),
            (true, true) => format!("{lines}{endpoint} check passed\n"),
            (false, _) => format!("{lines}{endpoint} check failed\n"),
        };
        found.then_some((well, text))
    }
}

impl Check {
    /// Reports that all is well; the detail may be empty.
    pub fn pass(&self, detail: impl Into<String>) {
        self.set(Ok(detail.into()));
    }

    /// Reports what is wrong. Everybody who may read metrics can read it: no secrets.
    pub fn fail(&self, reason: impl Into<String>) {
        self.set(Err(reason.into()));
    }

    fn set(&self, standing: Result<String, String>) {
        if let Some(state) = lock(&self.checks.0).get_mut(&self.name) {
            state.standing = standing;
        }
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        lock(&self.checks.0).remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_fails_the_questions_that_it_concerns() {
        let table = [
            (Weight::Life, [false, false, false]),
            (Weight::Readiness, [true, true, false]),
            (Weight::Detail, [true, true, true]),
        ];
        for (weight, expected) in table {
            let checks = Checks::default();
            let _check = checks.register("inventory", weight);
            let asked = ["healthz", "livez", "readyz"];
            let well = asked.map(|endpoint| checks.answer(endpoint, None, false, true).unwrap().0);
            assert_eq!(well, expected, "{weight:?}");
        }
    }

    #[test]
    fn the_text_explains_itself() {
        let checks = Checks::default();
        let lease = checks.register("leaderElection", Weight::Life);
        lease.pass("");
        let vcenter = checks.register("vcenter/east", Weight::Detail);
        vcenter.fail("the password was refused");
        let answer = |only, verbose| checks.answer("readyz", only, verbose, true);
        assert_eq!(answer(None, false), Some((true, "ok".to_owned())));
        let all = "[+]ping ok\n[+]leaderElection ok\n[!]vcenter/east failed: the password was refused\n\
                   readyz check passed\n";
        assert_eq!(answer(None, true), Some((true, all.to_owned())));
        let plain = "[+]ping ok\n[+]leaderElection ok\n[!]vcenter/east failed: reason withheld\n\
                     readyz check passed\n";
        let withheld = checks.answer("readyz", None, true, false);
        assert_eq!(withheld, Some((true, plain.to_owned())));
        assert_eq!(answer(Some("leaderElection"), false), Some((true, "ok".to_owned())));
        assert_eq!(answer(Some("nothing"), false), None);
        lease.fail("not renewed");
        let (well, text) = answer(None, false).unwrap();
        assert!(!well && text.contains("[-]leaderElection failed: not renewed\n"), "{text}");
        drop(lease);
        assert!(answer(None, false).unwrap().0, "a check that is gone fails nothing");
    }
}
