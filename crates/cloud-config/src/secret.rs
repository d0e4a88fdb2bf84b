//! The Secrets with credentials, and directories that look like one.
//!
//! Two forms, which may be mixed: `<server>.username` and `<server>.password`; and, because a Secret's key
//! cannot have a colon, `server_<id>`, `username_<id>` and `password_<id>`. A server may have
//! `<server>.vc-session-manager-url` and `<server>.vc-session-manager-token` instead, which lead to a
//! session that another service opened and win over a user and a password. One line end after a value is
//! removed: files and editors leave it there.
//!
//! A key that fits neither form is refused if it looks like one of ours, because a misspelt password is a
//! failed login later. Anything else (`ca.crt`, notes of an operator) is warned about and left alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use secrecy::{ExposeSecret, SecretString};

use crate::{
    config::Inline,
    nearest::nearest,
    problem::{Place, Problem, Problems, Report},
};

const USER: &str = "username";
const PASSWORD: &str = "password";
const SESSION_URL: &str = "vc-session-manager-url";
const SESSION_TOKEN: &str = "vc-session-manager-token";
const SERVER: &str = "server";
const DOTTED: [&str; 4] = [USER, PASSWORD, SESSION_URL, SESSION_TOKEN];
const NUMBERED: [&str; 3] = [SERVER, USER, PASSWORD];

/// How to get a session at one vCenter.
#[derive(Debug, Clone)]
pub enum Login {
    /// With a user and a password, or a certificate and its key.
    Password(Inline),
    /// With a session that a service opened.
    SharedSession {
        /// The address of the service.
        url: String,
        /// The bearer token for the service; the ServiceAccount's own token if absent.
        token: Option<SecretString>,
    },
}

impl PartialEq for Login {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Password(one), Self::Password(other)) => one == other,
            (Self::SharedSession { url, token }, Self::SharedSession { url: to, token: with }) => {
                let [token, with] = [token, with].map(|token| token.as_ref().map(expose));
                (url, token) == (to, with)
            }
            _ => false,
        }
    }
}

impl Eq for Login {}

/// What a Secret holds: a login for each server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Logins(BTreeMap<String, Login>);

/// A server without credentials in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there are no credentials for {server}, only for {known}; add {keys}")]
pub struct MissingLogin {
    server: String,
    known: String,
    keys: String,
}

impl Logins {
    /// Reads a Secret's data; its name is for messages only.
    pub fn read<'a>(
        name: &str,
        entries: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<(Self, Vec<Problem>), Problems> {
        let mut report = Report::new(name, false);
        let mut sets: BTreeMap<Owner, Fields> = BTreeMap::new();
        let mut empty = true;
        for (key, value) in entries {
            empty = false;
            let (known, text) = match owner(key) {
                Some(known) => (Some(known), value_of(key, value, &mut report)),
                // The key that was probably meant is not reported as missing as well.
                None => (unknown(key, &mut report).and_then(|meant| owner(&meant)), None),
            };
            let Some((owner, field)) = known else { continue };
            let set = sets.entry(owner).or_default();
            match text {
                Some(text) => _ = set.texts.insert(field, text),
                None => _ = set.unreadable.insert(field),
            }
        }
        if empty {
            let remedy = "add <server>.username and <server>.password for each vCenter";
            report.refuse(Place::Whole, "", "user and password are missing: it is empty", remedy);
        }
        let mut logins = BTreeMap::new();
        for (owner, set) in sets {
            if let Some((server, login)) = login(&owner, set, &mut report) {
                logins.insert(server, login);
            }
        }
        report.finish(Some(Self(logins)))
    }

    /// The login for a server, which is named exactly as in the configuration.
    pub fn find(&self, server: &str) -> Result<&Login, MissingLogin> {
        self.0.get(server).ok_or_else(|| {
            let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
            let known = if names.is_empty() { "no server".to_owned() } else { names.join(", ") };
            let keys = if is_key(server) {
                format!("{server}.username and {server}.password")
            } else {
                format!("server_ID with the value {server}, username_ID and password_ID")
            };
            MissingLogin { server: server.to_owned(), known, keys }
        })
    }

    /// In the order of the servers' names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Login)> {
        self.0.iter().map(|(server, login)| (server.as_str(), login))
    }
}

/// What the keys of one server have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// `<server>.…`
    Server(String),
    /// `…_<id>`
    Id(String),
}

impl Owner {
    /// The key of one of its fields.
    fn key(&self, field: &str) -> String {
        match self {
            Self::Server(server) => format!("{server}.{field}"),
            Self::Id(id) => format!("{field}_{id}"),
        }
    }
}

#[derive(Default)]
struct Fields {
    texts: BTreeMap<&'static str, String>,
    /// Fields whose values were already reported.
    unreadable: BTreeSet<&'static str>,
}

fn owner(key: &str) -> Option<(Owner, &'static str)> {
    let dotted = DOTTED.into_iter().find_map(|field| {
        let server = key.strip_suffix(field)?.strip_suffix('.')?;
        Some((Owner::Server(server.to_owned()), field)).filter(|_| !server.is_empty())
    });
    dotted.or_else(|| {
        NUMBERED.into_iter().find_map(|field| {
            let id = key.strip_prefix(field)?.strip_prefix('_')?;
            Some((Owner::Id(id.to_owned()), field)).filter(|_| !id.is_empty())
        })
    })
}

/// A key of neither form; the one that was meant, if that is clear.
fn unknown(key: &str, report: &mut Report) -> Option<String> {
    let last = key.rsplit_once('.').map_or(key, |(_, last)| last);
    let numbered =
        key.split_once('_').and_then(|(first, id)| Some((nearest(first, NUMBERED)?, id)));
    let (meant, clear) = if let Some((field, id)) = numbered {
        (format!("{field}_{}", if id.is_empty() { "<id>" } else { id }), !id.is_empty())
    } else if let Some(field) = nearest(last, DOTTED) {
        let server = key.rsplit_once('.').map(|(server, _)| server).filter(|it| !it.is_empty());
        (format!("{}.{field}", server.unwrap_or("<server>")), server.is_some())
    } else if key.parse::<IpAddr>().is_ok() {
        (format!("{key}.username or {key}.password"), false)
    } else {
        let text = "this key does not belong to a vCenter, so it is ignored";
        report.warn(Place::Whole, key, text, "keep it elsewhere if it is not needed here");
        return None;
    };
    let remedy = format!("did you mean {meant}?");
    report.refuse(Place::Whole, key, "there is no such key", remedy);
    Some(meant).filter(|_| clear)
}

fn value_of(key: &str, value: &[u8], report: &mut Report) -> Option<String> {
    let Ok(text) = str::from_utf8(value) else {
        let remedy = "store the text itself; kubectl encodes it as base64 where that is needed";
        report.refuse(Place::Whole, key, "the value is not encoded as UTF-8", remedy);
        return None;
    };
    let line = text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let text = line.unwrap_or(text);
    if text.trim() != text && !text.starts_with("-----BEGIN") {
        let text = "the value begins or ends with a blank, which is part of the value";
        report.warn(Place::Whole, key, text, "remove it if it is there by accident");
    }
    Some(text.to_owned())
}

fn login(owner: &Owner, mut set: Fields, report: &mut Report) -> Option<(String, Login)> {
    let mut take = |field| set.texts.remove(field).filter(|text| !text.is_empty());
    let server = match owner {
        Owner::Server(server) => Some(server.clone()),
        Owner::Id(_) => take(SERVER),
    };
    let (user, password) = (take(USER), take(PASSWORD));
    let (url, token) = (take(SESSION_URL), take(SESSION_TOKEN));
    let mut missing = |field: &'static str, text: &str| {
        if !set.unreadable.contains(field) {
            let key = owner.key(field);
            let remedy = format!("add {key} to the Secret");
            report.refuse(Place::Whole, &key, text, remedy);
        }
    };
    let Some(server) = server else {
        missing(SERVER, "credentials are incomplete: their server is missing");
        return None;
    };
    if let Some(url) = url {
        let token = token.map(SecretString::from);
        return Some((server, Login::SharedSession { url, token }));
    }
    if user.is_none() {
        missing(USER, "the user is missing");
    }
    if password.is_none() {
        missing(PASSWORD, "the password is missing");
    }
    let (user, password) = user.zip(password.map(SecretString::from))?;
    Some((server, Login::Password(Inline { user, password })))
}

/// Puts credentials into a Secret's data; false if it has others for this server.
pub(crate) fn put(
    entries: &mut BTreeMap<String, SecretString>,
    server: &str,
    credentials: &Inline,
) -> bool {
    let user = written(&credentials.user);
    let password = written(expose(&credentials.password));
    let mut fields = vec![(USER, user), (PASSWORD, password)];
    let owner = if is_key(server) && owner(&format!("{server}.{USER}")).is_some() {
        Owner::Server(server.to_owned())
    } else {
        fields.push((SERVER, SecretString::from(server.to_owned())));
        let taken = |id: &usize| {
            let key = Owner::Id(id.to_string()).key(SERVER);
            entries.get(&key).is_some_and(|known| expose(known) != server)
        };
        Owner::Id((0..).find(|id| !taken(id)).unwrap_or_default().to_string())
    };
    let differs = |(field, value): &(&str, SecretString)| {
        entries.get(&owner.key(field)).is_some_and(|known| expose(known) != expose(value))
    };
    if fields.iter().any(differs) {
        return false;
    }
    entries.extend(fields.into_iter().map(|(field, value)| (owner.key(field), value)));
    true
}

/// Whether a text may be part of a key of a Secret.
fn is_key(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
}

/// What a value is written as. Readers take one line's end off, which must then not be the value's own.
fn written(text: &str) -> SecretString {
    let end = if text.ends_with('\n') { "\n" } else { "" };
    SecretString::from(format!("{text}{end}"))
}

fn expose(secret: &SecretString) -> &str {
    secret.expose_secret()
}
