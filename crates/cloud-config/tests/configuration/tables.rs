//! Runs the tables in `tests/data`.
//!
//! A case is `=== name`, then lines such as `env NAME=value`, `strict` or `of the manager`, an empty line, the text, a line `--->` and
//! what becomes of it: every vCenter in a line, or every problem. In texts `⇥` is a tab.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use cloud_config::{
    Accepted, AddressRules, Config, CredentialSource, Login, Logins, Problem, Reader, VCenter,
};
use secrecy::ExposeSecret;

use crate::csi;

pub(crate) struct Case {
    pub(crate) name: String,
    settings: Vec<String>,
    pub(crate) text: String,
    wanted: String,
}

pub(crate) fn cases(table: &str) -> Vec<Case> {
    let text = fs::read_to_string(path(table)).unwrap();
    let mut cases = Vec::new();
    for case in text.split("\n=== ").skip(1) {
        let (input, wanted) = case.split_once("\n--->\n").expect(case);
        let (header, text) = input.split_once("\n\n").unwrap_or((input, ""));
        let mut lines = header.lines();
        cases.push(Case {
            name: lines.next().unwrap().to_owned(),
            settings: lines.map(str::to_owned).collect(),
            text: text.replace('⇥', "\t"),
            wanted: wanted.trim_end().to_owned(),
        });
    }
    assert!(!cases.is_empty(), "{table} has no case");
    cases
}

fn path(table: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(table)
}

impl Case {
    pub(crate) fn reader(&self) -> Reader {
        let variables = self.settings.iter().filter_map(|line| {
            let (name, value) = line.strip_prefix("env ")?.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
        let set = |setting: &str| self.settings.iter().any(|line| line == setting);
        let directory = set("default directory exists");
        Reader {
            strict: set("strict"),
            environment: variables.collect(),
            secrets_directory: directory.then(|| PathBuf::from("/etc/cloud/secrets")),
            ignore_load_balancing: set("ignore load balancing"),
        }
    }

    fn csi_outcome(&self) -> String {
        let read = if self.settings.iter().any(|line| line == "of the manager") {
            self.reader().read_shared("vsphere.conf", self.text.as_bytes())
        } else {
            self.reader().read_csi("csi-vsphere.conf", self.text.as_bytes())
        };
        match read {
            Ok(Accepted { config, warnings, .. }) => csi::describe(&config) + &list(&warnings),
            Err(problems) => problems.to_string(),
        }
    }

    fn outcome(&self) -> String {
        match self.reader().read("vsphere.conf", self.text.as_bytes()) {
            Ok(Accepted { config, warnings, .. }) => describe(&config) + &list(&warnings),
            Err(problems) => problems.to_string(),
        }
    }
}

fn list(warnings: &[Problem]) -> String {
    warnings.iter().fold(String::new(), |text, warning| format!("{text}warning: {warning}\n"))
}

pub(crate) fn describe_vcenter(vcenter: &VCenter) -> String {
    let credentials = match &vcenter.credentials {
        CredentialSource::Inline(inline) => {
            format!("inline {:?} {:?}", inline.user, inline.password.expose_secret())
        }
        CredentialSource::Secret(name) => format!("Secret {name}"),
        CredentialSource::Directory(path) => format!("directory {}", path.display()),
    };
    let families: Vec<String> = vcenter.ip_families.iter().map(ToString::to_string).collect();
    format!(
        "{}: {} | {}:{} | {:?} | {:?} | {credentials} | {}\n",
        vcenter.name,
        vcenter.server,
        vcenter.endpoint.host(),
        vcenter.endpoint.port(),
        vcenter.trust,
        vcenter.datacenters,
        families.join(" ")
    )
}

fn describe(config: &Config) -> String {
    let mut text: String = config.vcenters.iter().map(describe_vcenter).collect();
    let labels = &config.labels;
    if labels.zone.is_some() || labels.region.is_some() {
        writeln!(text, "labels: zone {:?}, region {:?}", labels.zone, labels.region).unwrap();
    }
    for (name, rules) in
        [("internal", &config.nodes.internal), ("external", &config.nodes.external)]
    {
        if *rules != AddressRules::default() {
            let join = |subnets: &[cloud_config::Subnet]| {
                subnets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            };
            writeln!(
                text,
                "{name}: in [{}], on {:?}, not in [{}]",
                join(&rules.subnets),
                rules.network,
                join(&rules.excluded)
            )
            .unwrap();
        }
    }
    text
}

/// Compares all cases with what the table says, or writes what is.
fn check(table: &str, outcome: impl Fn(&Case) -> String) {
    let cases = cases(table);
    let mut differences = String::new();
    let source = fs::read_to_string(path(table)).unwrap();
    let mut written = source.split("\n=== ").next().unwrap().to_owned();
    for case in &cases {
        let found = outcome(case).trim_end().to_owned();
        if found != case.wanted {
            let (name, wanted) = (&case.name, &case.wanted);
            write!(differences, "\n{name}\n  wanted:\n{wanted}\n  found:\n{found}\n").unwrap();
        }
        let header = [std::slice::from_ref(&case.name), &case.settings].concat().join("\n");
        let text = case.text.replace('\t', "⇥");
        write!(written, "\n=== {header}\n\n{text}\n--->\n{found}\n").unwrap();
    }
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path(table), written).unwrap();
    } else {
        assert!(differences.is_empty(), "{table}:\n{differences}");
    }
}

#[test]
fn files_of_the_oracle_are_read_as_upstream_reads_them_or_better() {
    check("oracle.txt", Case::outcome);
}

#[test]
fn files_of_the_in_tree_provider_are_accepted_and_explained() {
    check("in-tree.txt", Case::outcome);
}

#[test]
fn a_new_users_mistake_leads_to_the_fix() {
    check("mistakes.txt", Case::outcome);
}

#[test]
fn the_environment_has_the_last_word() {
    check("environment.txt", Case::outcome);
}

#[test]
fn secrets_of_the_oracle_are_read_as_upstream_reads_them_or_better() {
    check("secrets.txt", |case| {
        let entries: Vec<(String, String)> = case
            .text
            .lines()
            .map(|line| {
                let (key, value) = line.split_once(" = ").expect(line);
                (key.to_owned(), value.replace("\\n", "\n"))
            })
            .collect();
        let borrowed = entries.iter().map(|(key, value)| (key.as_str(), value.as_bytes()));
        match Logins::read("kube-system/vc", borrowed) {
            Ok((logins, warnings)) => {
                let text = logins.iter().fold(String::new(), |text, (server, login)| {
                    let login = match login {
                        Login::Password(inline) => {
                            format!("{:?} {:?}", inline.user, inline.password.expose_secret())
                        }
                        Login::SharedSession { url, token } => format!(
                            "session from {url} with {:?}",
                            token.as_ref().map(ExposeSecret::expose_secret)
                        ),
                    };
                    format!("{text}{server}: {login}\n")
                });
                text + &list(&warnings)
            }
            Err(problems) => problems.to_string(),
        }
    });
}

#[test]
fn the_csi_drivers_files_are_read_as_the_go_driver_reads_them_or_better() {
    check("csi.txt", Case::csi_outcome);
}

#[test]
fn the_managers_file_serves_the_csi_driver_too() {
    check("shared.txt", Case::csi_outcome);
}
