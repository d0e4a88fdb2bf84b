//! The example `inventory` as its users run it: what it prints, and what it says when something is wrong.

#![expect(clippy::unwrap_used, reason = "here a failure is a failed test")]

use std::{
    net::TcpListener,
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};

use lab::{
    VCenter, VCenterSpec,
    vcenter::{ADMINISTRATOR, Description, Power},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::ChildStdout,
};

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

const CPI: (&str, &str) = ("cpi@vsphere.local", "Lab-cpi-1!");
const NOBODY: (&str, &str) = ("nobody@vsphere.local", "Lab-nobody-1!");

/// The built program.
struct Example(PathBuf);

impl Example {
    /// Builds it, since `cargo test --tests` builds no examples.
    fn build() -> Self {
        let mut build = Command::new(env!("CARGO"));
        build.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--offline"]);
        build.args(["--package", "vsphere", "--example", "inventory", "--message-format", "json"]);
        // What cargo tells a test about its package would make it build others anew.
        let told =
            |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of| name.starts_with(of));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(told)) {
            build.env_remove(name);
        }
        let built = build.stderr(Stdio::inherit()).output().unwrap();
        assert!(built.status.success(), "the example does not build");
        let messages = String::from_utf8(built.stdout).unwrap();
        let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
        let mut programs = messages.filter_map(|message: serde_json::Value| {
            Some(PathBuf::from(message["executable"].as_str()?))
        });
        Self(programs.next_back().unwrap())
    }

    fn command(&self, server: &str, user: (&str, &str), arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.0);
        command.args(["--server", server, "--user", user.0]).args(arguments);
        command.env("VSPHERE_PASSWORD", user.1);
        command
    }

    fn run(&self, server: &str, user: (&str, &str), arguments: &[&str]) -> Output {
        self.command(server, user, arguments).output().unwrap()
    }

    /// What it says when it fails.
    fn failure(&self, server: &str, user: (&str, &str), arguments: &[&str]) -> String {
        let output = self.run(server, user, arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "{said}");
        assert!(said.contains("error: "), "{said}");
        said
    }
}

async fn vcenter() -> VCenter {
    VCenter::start(&VCenterSpec::default()).await.unwrap()
}

fn authority(vcenter: &VCenter) -> &str {
    vcenter.authority().to_str().unwrap()
}

/// A table without the widths of its columns.
fn words(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split_whitespace().collect()).collect()
}

/// Reads until there is a line of these words.
async fn until(lines: &mut Lines<BufReader<ChildStdout>>, words: &[&str]) {
    let reading = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.split_whitespace().eq(words.iter().copied()) {
                return true;
            }
        }
        false
    };
    let found = tokio::time::timeout(LIMIT, reading).await;
    assert_eq!(found.ok(), Some(true), "no line {words:?}");
}

#[tokio::test]
async fn it_prints_the_machines_with_zone_host_and_addresses() {
    let (example, vcenter) = (Example::build(), vcenter().await);
    let expected = [
        vec!["NAME", "POWER", "ZONE", "HOST", "ADDRESSES"],
        vec!["node-1", "on", "zone-1", "esx-1.lab.example", "10.99.0.11"],
        vec!["node-2", "on", "zone-1", "esx-2.lab.example", "10.99.0.12"],
        vec!["old-vm", "off", "-", "esx-5.lab.example", "-"],
    ];
    let trust = [
        ["--ca", authority(&vcenter)],
        ["--thumbprint", vcenter.thumbprint_sha1()],
        ["--thumbprint", vcenter.thumbprint_sha256()],
        ["--insecure", "--zone-category=k8s-zone"],
    ];
    for arguments in trust {
        let output = example.run(vcenter.url(), CPI, &arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments:?}: {said}");
        assert_eq!(words(&String::from_utf8(output.stdout).unwrap()), expected, "{arguments:?}");
        assert_eq!(said, "");
    }
    let sessions = vcenter.control().state().await.unwrap().sessions;
    assert_eq!(sessions, Vec::<serde_json::Value>::new(), "it logs out");
}

#[tokio::test]
async fn a_thumbprint_is_enough_where_there_are_no_authorities() {
    let (example, vcenter) = (Example::build(), vcenter().await);
    let alone = |arguments: &[&str]| {
        let mut command = example.command(vcenter.url(), CPI, arguments);
        command.env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", "/nowhere");
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (succeeded, said) = alone(&["--thumbprint", vcenter.thumbprint_sha256()]);
    assert!(succeeded, "{said}");
    let (succeeded, said) = alone(&[]);
    assert!(!succeeded && said.contains("give a CA file or a thumbprint"), "{said}");
}

#[tokio::test]
async fn it_follows_what_changes() {
    let (example, vcenter) = (Example::build(), vcenter().await);
    let command = example.command(vcenter.url(), CPI, &["--watch", "--ca", authority(&vcenter)]);
    let mut command = tokio::process::Command::from(command);
    let mut child = command.kill_on_drop(true).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    until(&mut lines, &["old-vm", "off", "-", "esx-5.lab.example", "-"]).await;
    vcenter.control().power("node-1", Power::Off).await.unwrap();
    until(&mut lines, &["node-1", "off", "zone-1", "esx-1.lab.example", "-"]).await;
    vcenter.control().unregister("node-1").await.unwrap();
    until(&mut lines, &["node-1", "is", "gone"]).await;
    child.kill().await.unwrap();
}

#[tokio::test]
async fn each_mistake_has_a_message_of_its_own_with_its_remedy() {
    let (example, vcenter) = (Example::build(), vcenter().await);
    let ca = ["--ca", authority(&vcenter)];
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody_listens = taken.local_addr().unwrap().to_string();
    drop(taken);
    let other = "00:".repeat(31) + "00";

    let host = example.failure("vcenter.invalid", ADMINISTRATOR, &ca);
    let port = example.failure(&nobody_listens, ADMINISTRATOR, &ca);
    let thumbprint = example.failure(vcenter.url(), ADMINISTRATOR, &["--thumbprint", &other]);
    let password = example.failure(vcenter.url(), (ADMINISTRATOR.0, "Lab-typo-1!"), &ca);
    let privilege = example.failure(vcenter.url(), NOBODY, &ca);

    let expected: [(&str, &[&str]); 5] = [
        (&host, &["vcenter.invalid cannot be found", "check its spelling", "DNS"]),
        (&port, &["no server answers", "check host and port", "443"]),
        (&thumbprint, &["is not trusted", "set the thumbprint to", vcenter.thumbprint_sha256()]),
        (&password, &["refused the login of administrator@vsphere.local", "VSPHERE_PASSWORD"]),
        (
            &privilege,
            &["nobody@vsphere.local", "Read-only", "Propagate to children", "System.View"],
        ),
    ];
    for (said, phrases) in expected {
        for phrase in phrases {
            assert!(said.contains(phrase), "{phrase:?} is not in: {said}");
        }
        let fits =
            expected.iter().filter(|(_, phrases)| phrases.iter().all(|one| said.contains(one)));
        assert_eq!(fits.count(), 1, "more than one remedy fits: {said}");
        assert!(!said.contains("Lab-"), "a password is in: {said}");
    }
}

#[tokio::test]
async fn an_empty_list_is_no_answer_to_who_may_see_nothing_below_the_root() {
    let world = "
name: vcenter
users:
  - name: cpi@vsphere.local
    password: Lab-cpi-1!
    permissions: [{role: ReadOnly, on: /, propagate: false}]
datacenters: [{name: dc, hosts: [{name: esx}], datastores: [{name: store, capacity: 1TiB}]}]
";
    let description = Description::Text(world.to_owned());
    let spec = VCenterSpec { description, ..VCenterSpec::default() };
    let vcenter = VCenter::start(&spec).await.unwrap();
    let example = Example::build();
    for watch in [&[][..], &["--watch"]] {
        let arguments = [&["--ca", authority(&vcenter)], watch].concat();
        let said = example.failure(vcenter.url(), CPI, &arguments);
        assert!(said.contains("shows no object") && said.contains("Read-only"), "{said}");
        assert!(said.contains("Propagate to children"), "{said}");
    }
}

#[tokio::test]
async fn it_says_how_to_give_the_password_and_what_an_address_looks_like() {
    let (example, vcenter) = (Example::build(), vcenter().await);
    let mut command =
        example.command(vcenter.url(), CPI, &["--password-env", "VSPHERE_PASSWORD_OF_NOBODY"]);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("set the environment variable VSPHERE_PASSWORD_OF_NOBODY"), "{said}");
    let output = example.run("http://vcenter.example", CPI, &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("https only") && said.contains("vcenter.example:443"), "{said}");
    assert!(!output.status.success());
}
