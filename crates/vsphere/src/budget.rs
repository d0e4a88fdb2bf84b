//! The budget of failed logins, which keeps a process from locking an account.
//!
//! SSO locks an account after five failed logins within three minutes, and an account that a driver locked is
//! locked for everybody who uses it. So every login of a process, at SOAP, REST and the token service, spends from
//! one [`LoginBudget`]: credentials that were refused are not tried again for five minutes, and no more than three
//! logins of one user fail within five minutes, however many credentials, connections, reloads and names of the same
//! vCenter there are. The last of the three is for credentials that were not refused yet, so that old ones, refused by
//! two services, and mistyped ones leave a login for the corrected ones. A user without a role is held for a minute and not counted: the password is right, the login futile.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    authorization::Principal,
    error::{Cause, Error, Failure, Remedy},
    fault::Fault,
    session::{Credentials, Digest},
    wire::Wire,
};

/// How long a failed login counts, and how long the same credentials are not tried again.
const WINDOW: Duration = Duration::from_secs(300);
/// How long a user without a role is held: nothing was counted, and somebody may be about to grant the role.
const NO_ROLE: Duration = Duration::from_secs(60);
/// Failed logins of one user within the window.
const MOST: usize = 3;
/// The calls that check a password.
pub(crate) const LOGINS: [&str; 4] = ["Login", "LoginByToken", "session.create", "Issue"];

/// The failed logins of a process, by vCenter and user. Clones share them: give one to all connections.
#[derive(Clone, Default)]
pub struct LoginBudget {
    accounts: Arc<Mutex<Accounts>>,
}

/// By the instance id of the vCenter, because it may have several names, and by user.
type Accounts = HashMap<(Arc<str>, Principal), SharedAccount>;
/// Locked while a login is on the way, so that its result is known before the next one.
type SharedAccount = Arc<tokio::sync::Mutex<Account>>;

/// The services that check a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    Soap,
    Rest,
    Tokens,
}

#[derive(Default)]
struct Account {
    /// Those that still count, oldest first.
    failed: Vec<Failed>,
    /// The credentials that were accepted last.
    accepted: Option<Digest>,
}

struct Failed {
    until: Instant,
    door: Door,
    credentials: Digest,
    /// None if there was no answer: vCenter may have counted the login as failed.
    refusal: Option<Refusal>,
}

/// Why vCenter refused a login.
enum Refusal {
    Credentials,
    NoRole(Box<Fault>),
}

impl Refusal {
    fn of(error: &Error) -> Option<Self> {
        match error.remedy {
            Remedy::Login => Some(Self::Credentials),
            Remedy::NoPermission { .. } => Some(Self::NoRole(Box::new(error.fault()?.clone()))),
            _ => None,
        }
    }

    fn cause(&self, user: &str, held: Duration) -> Cause {
        match self {
            Self::Credentials => Cause::Credentials { user: user.to_owned(), held },
            Self::NoRole(fault) => Cause::NoRole { fault: fault.clone(), held },
        }
    }
}

impl fmt::Debug for LoginBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginBudget").finish_non_exhaustive()
    }
}

impl LoginBudget {
    /// Fails if a login would be held back now. Does not wait for one that is on the way.
    pub(crate) fn check(&self, wire: &Wire, credentials: &Credentials) -> Result<(), Error> {
        let account = self.account(wire, credentials);
        account.try_lock().map_or(Ok(()), |mut it| it.check(wire, Door::Soap, credentials))
    }

    /// Makes a login if the budget allows it, and charges it if it fails. Others wait for its result, by whatever
    /// name of the vCenter: together they could fail more often than is allowed.
    pub(crate) async fn attempt<T>(
        &self,
        wire: &Wire,
        door: Door,
        credentials: &Credentials,
        login: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let Some(digest) = credentials.digest() else { return login.await };
        let account = self.account(wire, credentials);
        let mut account = account.lock().await;
        account.check(wire, door, credentials)?;
        let failed = |window, refusal| {
            let until = Instant::now() + window;
            Failed { until, door, credentials: digest, refusal }
        };
        // Charged until it is answered: nobody learns the result of a login that is dropped on the way.
        let charged = account.failed.len();
        if account.accepted != Some(digest) {
            account.failed.push(failed(WINDOW, None));
        }
        let answered = login.await;
        account.failed.truncate(charged);
        let Err(error) = answered else {
            account.accepted = Some(digest);
            return answered;
        };
        let refusal = Refusal::of(&error);
        let window = if matches!(refusal, Some(Refusal::NoRole(_))) { NO_ROLE } else { WINDOW };
        let user = credentials.user();
        let cause = refusal.as_ref().map(|refusal| refusal.cause(user, window));
        if refusal.is_some() || account.may_have_failed(&error, digest) {
            account.failed.push(failed(window, refusal));
        }
        let Some(cause) = cause else { return Err(error) };
        if error.remedy == Remedy::Login {
            account.accepted = None;
        }
        let error = Error::from(Failure { cause, ..error.failure().clone() });
        wire.metrics().login("refused");
        tracing::error!(vcenter = %wire.name(), user, %error, "login refused");
        Err(error)
    }

    fn account(&self, wire: &Wire, credentials: &Credentials) -> SharedAccount {
        let vcenter = Arc::clone(wire.instance.get().unwrap_or(wire.name()));
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(accounts.entry((vcenter, Principal::from(credentials.user()))).or_default())
    }
}

impl Account {
    fn check(&mut self, wire: &Wire, door: Door, credentials: &Credentials) -> Result<(), Error> {
        let user = credentials.user();
        let held = |digest| self.hold(user, door, digest, Instant::now());
        let Some(cause) = credentials.digest().and_then(held) else { return Ok(()) };
        wire.metrics().login("held");
        Err(wire.error("Login", cause))
    }

    /// Why no login with these credentials is made now.
    fn hold(&mut self, user: &str, door: Door, credentials: Digest, now: Instant) -> Option<Cause> {
        self.failed.retain(|failed| now < failed.until);
        let held = |failed: &Failed| failed.until - now;
        // SOAP decides for all; a refusal of another service may have a reason of that service alone.
        let same = |failed: &&Failed| {
            failed.credentials == credentials && (failed.door == door || failed.door == Door::Soap)
        };
        let refused = |failed: &Failed| Some(failed.refusal.as_ref()?.cause(user, held(failed)));
        if let Some(cause) = self.failed.iter().rev().filter(same).find_map(refused) {
            return Some(cause);
        }
        let counts = |failed: &&Failed| !matches!(failed.refusal, Some(Refusal::NoRole(_)));
        let refused_elsewhere = |failed: &Failed| {
            failed.credentials == credentials
                && matches!(failed.refusal, Some(Refusal::Credentials))
        };
        let most = if self.failed.iter().any(refused_elsewhere) { MOST - 1 } else { MOST };
        let held = self.failed.iter().rev().filter(counts).nth(most - 1).map(held)?;
        Some(Cause::LoginsSpent { user: user.to_owned(), held })
    }

    /// Whether a login without an answer must be counted. Credentials that were accepted before are not doubted.
    fn may_have_failed(&self, error: &Error, credentials: Digest) -> bool {
        let Failure { method, cause, .. } = error.failure();
        let unanswered = matches!(
            cause,
            Cause::Timeout(_) | Cause::Broken { .. } | Cause::Status(_) | Cause::Malformed(_)
        );
        LOGINS.contains(method) && unanswered && self.accepted != Some(credentials)
    }
}

#[cfg(test)]
mod tests {
    use super::{Account, Door, Failed, Instant, MOST, Refusal, WINDOW};
    use crate::error::Cause;

    fn failed(at: Instant, door: Door, credentials: u8) -> Failed {
        let (until, credentials) = (at + WINDOW, [credentials; 32]);
        Failed { until, door, credentials, refusal: Some(Refusal::Credentials) }
    }

    fn held(account: &mut Account, door: Door, credentials: u8, now: Instant) -> bool {
        account.hold("csi", door, [credentials; 32], now).is_some()
    }

    #[test]
    fn old_and_new_credentials_are_held_beside_each_other() {
        let start = Instant::now();
        let mut account = Account::default();
        account.failed.push(failed(start, Door::Soap, 1));
        account.failed.push(failed(start, Door::Soap, 2));
        let later = start + WINDOW / 2;
        assert!(held(&mut account, Door::Soap, 1, later));
        assert!(held(&mut account, Door::Soap, 2, later));
        assert!(held(&mut account, Door::Rest, 1, later), "refused by SOAP is refused by all");
        assert!(!held(&mut account, Door::Soap, 3, later), "corrected ones are tried at once");
        assert!(!held(&mut account, Door::Soap, 1, start + WINDOW));
    }

    #[test]
    fn a_refusal_of_rest_does_not_hold_logins_of_soap() {
        let start = Instant::now();
        let mut account = Account::default();
        account.failed.push(failed(start, Door::Rest, 1));
        assert!(held(&mut account, Door::Rest, 1, start));
        assert!(!held(&mut account, Door::Soap, 1, start));
    }

    #[test]
    fn the_last_login_is_kept_for_credentials_that_were_not_refused_yet() {
        let start = Instant::now();
        let mut account = Account::default();
        account.failed.push(failed(start, Door::Soap, 2));
        account.failed.push(failed(start, Door::Rest, 1));
        assert!(held(&mut account, Door::Soap, 1, start), "refused by REST, and one login is left");
        assert!(!held(&mut account, Door::Soap, 3, start), "corrected ones are tried at once");
    }

    #[test]
    fn three_failed_logins_hold_all_credentials_until_the_first_is_five_minutes_old() {
        let start = Instant::now();
        let step = WINDOW / 10;
        let mut account = Account::default();
        for number in 0..3 {
            let now = start + step * u32::from(number);
            assert!(!held(&mut account, Door::Soap, number, now));
            account.failed.push(failed(now, Door::Soap, number));
        }
        assert_eq!(account.failed.len(), MOST);
        let cause = account.hold("csi", Door::Soap, [9; 32], start + step * 3);
        assert!(
            matches!(cause, Some(Cause::LoginsSpent { held, .. }) if held == WINDOW - step * 3),
            "{cause:?}"
        );
        assert!(held(&mut account, Door::Soap, 9, start + WINDOW - step / 10));
        assert!(!held(&mut account, Door::Soap, 9, start + WINDOW));
    }
}
