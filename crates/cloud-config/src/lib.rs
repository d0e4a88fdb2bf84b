//! The configuration file of the drivers and the Secrets with their credentials.
//!
//! ```text
//! text ─ detect ─┬─ gcfg.rs ─┐
//!                └─ yaml.rs ─┴─► document.rs ◄─ environment.rs ─┬─► ccm.rs ─► Config ────┬─► render.rs
//!                                    keys.rs (all keys)         └─► csi.rs ─► CsiConfig ─┘
//! ```
//!
//! - **The format is detected, not tried.** The first line that is neither blank nor a comment
//!   decides: one that begins with `[`, or with a name and `=`, is INI; one that begins with `{`, `---` or
//!   `%`, or has a name and a colon, is YAML; anything else is neither. A mistake is then reported for that
//!   format, at its line and column.
//! - **All problems at once**, each with place, key, reason and remedy. Unknown keys are warned
//!   about with the name that was probably meant; [`Reader::strict`] refuses them.
//! - **What is accepted is valid.** A [`Config`] holds parsed addresses, subnets and thumbprints; nothing
//!   fails later, at the first node.
//! - **Secrets stay secret**: not in `Debug`, not in messages, not in rendered YAML.
//!
//! ```
//! let text = "global: {user: admin, password: secret}\nvcenter: {east: {server: vc.example}}\n";
//! let accepted = cloud_config::Reader::default().read("vsphere.conf", text.as_bytes())?;
//! assert_eq!(accepted.config.vcenters[0].endpoint.host(), "vc.example");
//! # Ok::<(), cloud_config::Problems>(())
//! ```
//!
//! Beyond upstream's rules: families are normalised; a Secret wins over credentials in the manager's file; several
//! families need no switch. What the Go program ignores has no effect here either, so that swapping the
//! image changes nothing; a warning names the key that has.

mod ccm;
mod config;
mod csi;
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
mod values;
mod vcenters;
mod yaml;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

pub use config::{
    Access, AddressRules, ClusterId, ClusterIdProblem, Config, CredentialSource, CsiConfig,
    CsiVCenter, Inline, Intervals, InvalidClusterId, InvalidSubnet, IpFamily, Labels,
    NetPermission, Nodes, SecretName, SnapshotLimits, Subnet, TopologyCategory, VCenter,
};
pub use keys::Format;
pub use problem::{Position, Problem, Problems};
pub use render::{Written, write, write_csi};
pub use secret::{Login, Logins, MissingLogin};

use document::Document;
use keys::FileKind;
use problem::{Mistake, Place, Report};

/// A configuration that can be used.
#[derive(Debug)]
pub struct Accepted<C = Config> {
    /// With all values valid.
    pub config: C,
    /// As detected.
    pub format: Format,
    /// What works, but perhaps not as intended.
    pub warnings: Vec<Problem>,
}

/// Reads configuration files, with what they depend on besides their text. Not `Debug`, because variables may
/// hold passwords.
#[derive(Default)]
pub struct Reader {
    /// Refuses unknown keys instead of warning about them.
    pub strict: bool,
    /// Variables that override the file; those of other programs are ignored.
    pub environment: BTreeMap<String, String>,
    /// The directory with credentials if none are configured. Callers pass `/etc/cloud/secrets` if it exists.
    pub secrets_directory: Option<PathBuf>,
    /// Accepts files that configure load balancing or routing by NSX-T, which is then ignored.
    pub ignore_load_balancing: bool,
}

impl Reader {
    /// Reads the cloud controller manager's file; its name is for messages only.
    pub fn read(&self, file: &str, bytes: &[u8]) -> Result<Accepted, Problems> {
        self.read_as(|_| FileKind::Ccm, ccm::build, file, bytes)
    }

    /// Reads the CSI driver's file, which may be empty if the environment has everything. YAML, which the Go driver does
    /// not know, has the manager's names.
    pub fn read_csi(&self, file: &str, bytes: &[u8]) -> Result<Accepted<CsiConfig>, Problems> {
        let kind = |format| match format {
            Format::Ini => FileKind::Csi,
            Format::Yaml => FileKind::Shared,
        };
        self.read_as(kind, csi::build, file, bytes)
    }

    /// Reads the cloud controller manager's file for the CSI driver: one configuration for both.
    pub fn read_shared(&self, file: &str, bytes: &[u8]) -> Result<Accepted<CsiConfig>, Problems> {
        self.read_as(|_| FileKind::Shared, csi::build, file, bytes)
    }

    fn read_as<C>(
        &self,
        kind: impl Fn(Format) -> FileKind,
        build: impl Fn(&Document, Option<&Path>, &mut Report) -> Option<C>,
        file: &str,
        bytes: &[u8],
    ) -> Result<Accepted<C>, Problems> {
        let mut report = Report::new(file, self.strict);
        let (format, text) = match decode(bytes) {
            Ok((Some(format), text)) => (format, text),
            // The Go CSI driver works from the environment alone.
            Ok((None, text)) if kind(Format::Ini) == FileKind::Csi => (Format::Ini, text),
            Ok((None, _)) => {
                let remedy = "name at least one vCenter, as docs/user/configuration.md shows";
                report.refuse(Place::Whole, "", "the configuration is empty", remedy);
                return report.finish(None).map(|(accepted, _)| accepted);
            }
            Err(mistake) => {
                report.refuse_mistake("", mistake);
                return report.finish(None).map(|(accepted, _)| accepted);
            }
        };
        let kind = kind(format);
        let blocks = match format {
            Format::Ini => gcfg::parse(text, &mut report),
            Format::Yaml => yaml::parse(text, kind, &mut report),
        };
        let ignore = self.ignore_load_balancing;
        let mut document = Document::new(format, kind, blocks, ignore, &mut report);
        environment::apply(&mut document, &self.environment, &mut report);
        let config = build(&document, self.secrets_directory.as_deref(), &mut report);
        let (config, warnings) = report.finish(config)?;
        Ok(Accepted { config, format, warnings })
    }
}

/// The format, if there is more than comments, and the text, without a byte order mark.
fn decode(bytes: &[u8]) -> Result<(Option<Format>, &str), Mistake> {
    let text = str::from_utf8(bytes).map_err(|error| {
        let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        let at = Place::File(Position::after(&good));
        Mistake { at, text: "the text is not encoded as UTF-8", remedy: "save the file as UTF-8" }
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Ok((detect(text)?, text))
}

/// The format of the first line that is neither blank nor a comment.
fn detect(text: &str) -> Result<Option<Format>, Mistake> {
    for (number, line) in text.lines().enumerate() {
        let content = line.trim_start();
        let column = line.chars().count() - content.chars().count() + 1;
        let name = content.trim_start_matches(|letter: char| {
            letter.is_alphanumeric() || "-_.\"'".contains(letter)
        });
        return match content.chars().next() {
            None | Some('#' | ';') => continue,
            Some('[') => Ok(Some(Format::Ini)),
            Some('{' | '%') => Ok(Some(Format::Yaml)),
            Some(_) if content.starts_with("---") => Ok(Some(Format::Yaml)),
            Some(_) if name.trim_start().starts_with('=') => Ok(Some(Format::Ini)),
            Some(_) if name.trim_start().starts_with(':') => Ok(Some(Format::Yaml)),
            Some(_) => Err(Mistake {
                at: Place::File(Position { line: number + 1, column }),
                text: "this is neither YAML nor INI",
                remedy: "begin the file with `global:` or `vcenter:` for YAML, or with [Global] for INI",
            }),
        };
    }
    Ok(None)
}
