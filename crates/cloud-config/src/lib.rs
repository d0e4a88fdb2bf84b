//! The configuration file of the drivers and the Secrets with their credentials.
//!
//! ```text
//! text ─ detect ─┬─ gcfg.rs ─┐
//!                └─ yaml.rs ─┴─► document.rs ◄─ environment.rs ─► ccm.rs ─► Config ─► render.rs
//!                                    keys.rs (the table of all keys)
//! ```
//!
//! - **The format is detected, not tried.** The first line that is neither blank nor a comment
//!   decides: one that begins with `[`, or with a name and `=`, is INI; one that begins with `{`, `---` or
//!   `%`, or has a name and a colon, is YAML; anything else is neither. A mistake is then reported for that
//!   format, at its line and column.
//! - **All problems at once**, each with place, key, reason and remedy. Unknown keys are warned
//!   about with the name that was probably meant; [`Strictness::Strict`] refuses them.
//! - **What is accepted is valid.** A [`Config`] holds parsed addresses, subnets and thumbprints; nothing
//!   fails later, at the first node.
//! - **Secrets stay secret**: not in `Debug`, not in messages, not in rendered YAML.
//!
//! ```
//! let text = "global: {user: admin, password: secret}\nvcenter: {east: {server: vc.example}}\n";
//! let accepted = cloud_config::Reader::new().read("vsphere.conf", text.as_bytes())?;
//! assert_eq!(accepted.config.vcenters[0].endpoint.host(), "vc.example");
//! # Ok::<(), cloud_config::Problems>(())
//! ```
//!
//! Beyond upstream's rules: families are normalised; a Secret wins over credentials in the file; several
//! families need no switch. What the Go program ignores has no effect here either, so that swapping the
//! image changes nothing; a warning names the key that has.

mod ccm;
mod config;
mod document;
mod environment;
mod gcfg;
mod keys;
mod nearest;
mod problem;
#[cfg(test)]
mod reference;
mod render;
mod secret;
mod yaml;

use std::{collections::BTreeMap, path::PathBuf};

pub use config::{
    AddressRules, Config, CredentialSource, Inline, InvalidSubnet, IpFamily, Labels, Nodes,
    SecretName, Subnet, VCenter,
};
pub use keys::Format;
pub use problem::{Position, Problem, Problems, Strictness};
pub use render::{Written, write};
pub use secret::{Login, Logins, MissingLogin};

use document::Document;
use problem::{Place, Report};

/// A configuration that can be used.
#[derive(Debug)]
pub struct Accepted {
    /// With all values valid.
    pub config: Config,
    /// As detected.
    pub format: Format,
    /// What works, but perhaps not as intended.
    pub warnings: Vec<Problem>,
}

/// Reads configuration files, with what they depend on besides their text. Not `Debug`, because variables may
/// hold passwords.
#[derive(Default)]
pub struct Reader {
    strictness: Strictness,
    environment: BTreeMap<String, String>,
    secrets_directory: Option<PathBuf>,
    ignore_load_balancing: bool,
}

impl Reader {
    /// Tolerant, without an environment.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether unknown keys are refused.
    #[must_use]
    pub fn strictness(self, strictness: Strictness) -> Self {
        Self { strictness, ..self }
    }

    /// Variables that override the file; those of other programs are ignored.
    #[must_use]
    pub fn environment(self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { environment: variables.into_iter().collect(), ..self }
    }

    /// The directory with credentials if none are configured. Callers pass `/etc/cloud/secrets` if it exists.
    #[must_use]
    pub fn secrets_directory(self, directory: Option<PathBuf>) -> Self {
        Self { secrets_directory: directory, ..self }
    }

    /// Accepts files that configure load balancing or routing by NSX-T, which is then ignored.
    #[must_use]
    pub fn ignore_load_balancing(self, ignore: bool) -> Self {
        Self { ignore_load_balancing: ignore, ..self }
    }

    /// Reads a file; its name is for messages only.
    pub fn read(&self, file: &str, bytes: &[u8]) -> Result<Accepted, Problems> {
        let mut report = Report::new(file, self.strictness);
        let Some((format, text)) = decode(bytes, &mut report) else {
            return report.finish(None).map(|(accepted, _)| accepted);
        };
        let blocks = match format {
            Format::Ini => gcfg::parse(text, &mut report),
            Format::Yaml => yaml::parse(text, &mut report),
        };
        let mut document = Document::new(format, blocks, self.ignore_load_balancing, &mut report);
        environment::apply(&mut document, &self.environment, &mut report);
        let config = ccm::build(&document, self.secrets_directory.as_deref(), &mut report);
        let (config, warnings) = report.finish(config)?;
        Ok(Accepted { config, format, warnings })
    }
}

/// The format and the text, without a byte order mark.
fn decode<'a>(bytes: &'a [u8], report: &mut Report) -> Option<(Format, &'a str)> {
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            report.refuse(
                Place::File(Position::after(&good)),
                "",
                "the text is not encoded as UTF-8",
                "save the file as UTF-8",
            );
            return None;
        }
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match detect(text) {
        Ok(format) => Some((format, text)),
        Err(None) => {
            report.refuse(
                Place::Whole,
                "",
                "the configuration is empty",
                "name at least one vCenter, as docs/user/configuration.md shows",
            );
            None
        }
        Err(Some(position)) => {
            report.refuse(
                Place::File(position),
                "",
                "this is neither YAML nor INI",
                "begin the file with `global:` or `vcenter:` for YAML, or with [Global] for INI",
            );
            None
        }
    }
}

/// The format of the first line that is neither blank nor a comment; otherwise its position, if there is one.
fn detect(text: &str) -> Result<Format, Option<Position>> {
    for (number, line) in text.lines().enumerate() {
        let content = line.trim_start();
        let column = line.chars().count() - content.chars().count() + 1;
        let name = content.trim_start_matches(|letter: char| {
            letter.is_alphanumeric() || "-_.\"'".contains(letter)
        });
        return match content.chars().next() {
            None | Some('#' | ';') => continue,
            Some('[') => Ok(Format::Ini),
            Some('{' | '%') => Ok(Format::Yaml),
            Some(_) if content.starts_with("---") => Ok(Format::Yaml),
            Some(_) if name.trim_start().starts_with('=') => Ok(Format::Ini),
            Some(_) if name.trim_start().starts_with(':') => Ok(Format::Yaml),
            Some(_) => Err(Some(Position { line: number + 1, column })),
        };
    }
    Err(None)
}
