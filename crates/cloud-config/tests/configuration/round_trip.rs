//! What is accepted can be written, and what is written reads the same.

use std::{collections::BTreeMap, path::PathBuf};

use cloud_config::{
    Config, CredentialSource, Format, Inline, Login, Logins, Reader, SecretName, VCenter, write,
};
use proptest::{collection::vec, option, prelude::*};
use secrecy::{ExposeSecret, SecretString};

use crate::tables;

pub(crate) fn wanted_secret() -> SecretName {
    SecretName { namespace: "kube-system".to_owned(), name: "migrated".to_owned() }
}

/// Writes and reads; credentials that had to move into a Secret are taken from there.
pub(crate) fn again(config: &Config) -> Config {
    let written = write(config, &wanted_secret());
    let accepted = Reader { strict: true, ..Reader::default() }
        .read("written.yaml", written.yaml.as_bytes())
        .unwrap_or_else(|problems| panic!("{problems}\n{}", written.yaml));
    assert_eq!(accepted.format, Format::Yaml);
    assert_eq!(accepted.warnings, []);
    let mut config = accepted.config;
    for vcenter in &mut config.vcenters {
        restore_credentials(vcenter, &written.secrets);
    }
    config
}

/// Takes credentials that had to move into a Secret from there.
pub(crate) fn restore_credentials(
    vcenter: &mut VCenter,
    secrets: &BTreeMap<SecretName, BTreeMap<String, SecretString>>,
) {
    let CredentialSource::Secret(name) = &vcenter.credentials else { return };
    let Some(entries) = secrets.get(name) else { return };
    let entries =
        entries.iter().map(|(key, value)| (key.as_str(), value.expose_secret().as_bytes()));
    let (logins, _) = Logins::read(&name.to_string(), entries).unwrap();
    let Login::Password(inline) = logins.find(&vcenter.server).unwrap() else {
        panic!("a password became a session")
    };
    vcenter.credentials = CredentialSource::Inline(inline.clone());
}

/// Passwords are not written, so a Secret that is written needs no fallback.
pub(crate) fn without_fallback(mut config: Config) -> Config {
    config.vcenters.iter_mut().for_each(|vcenter| vcenter.fallback = None);
    config
}

#[test]
fn every_accepted_file_of_the_tables_survives_being_written_as_yaml() {
    let mut accepted = 0;
    for table in ["oracle.txt", "in-tree.txt", "mistakes.txt", "environment.txt"] {
        for case in tables::cases(table) {
            if let Ok(read) = case.reader().read("vsphere.conf", case.text.as_bytes()) {
                let config = without_fallback(read.config);
                assert_eq!(again(&config), config, "{table}: {}", case.name);
                accepted += 1;
            }
        }
    }
    assert!(accepted > 40, "only {accepted} files were accepted");
}

#[test]
fn both_formats_of_the_same_file_say_the_same() {
    let cases = tables::cases("oracle.txt");
    let config = |name: &str| {
        let case = cases.iter().find(|case| case.name == name).unwrap();
        case.reader().read("vsphere.conf", case.text.as_bytes()).unwrap().config
    };
    assert_eq!(config("appendix C in INI"), config("appendix C in YAML"));
    assert_eq!(config("INI with tenants"), config("YAML with tenants"));
    assert_eq!(config("INI with a global server"), config("the same in YAML"));
}

#[test]
fn a_migrated_file_has_no_password_and_names_the_secret_that_has() {
    let file =
        "[Global]\nserver = fd00::1\nuser = admin\npassword = \"hunter2\\n\"\ndatacenters = dc 1\n";
    let config = Reader::default().read("vsphere.conf", file.as_bytes()).unwrap().config;
    let written = write(&config, &wanted_secret());
    assert_eq!(
        written.yaml,
        "vcenter:\n  \"fd00::1\":\n    server: fd00::1\n    datacenters:\n    - dc 1\n    \
         secretName: migrated\n    secretNamespace: kube-system\n"
    );
    let secret = &written.secrets[&wanted_secret()];
    assert_eq!(secret.keys().collect::<Vec<_>>(), ["password_0", "server_0", "username_0"]);
    assert_eq!(secret["password_0"].expose_secret(), "hunter2\n\n");
    assert!(!format!("{config:?} {written:?}").contains("hunter2"));
    assert_eq!(again(&config), config);
}

/// Texts that people and programs put into such files, hostile ones included.
pub(crate) fn anything() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9@._/-]{1,12}",
        "[ -~]{1,12}",
        "[a\\\\\"'#;: =\n\t{}%é🙂\u{85}\u{feff}-]{1,12}",
        Just("true".to_owned()),
        Just("0123".to_owned()),
        Just("~".to_owned()),
        "\\PC{1,8}",
    ]
}

/// A value as gcfg wants it in quotes.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

pub(crate) fn server() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z][a-z0-9.-]{0,10}[a-z0-9]", "10\\.0\\.0\\.[1-9]", Just("fd00::10".to_owned())]
}

proptest! {
    #[test]
    fn ini_with_any_text_in_it_survives_being_written_as_yaml(
        sections in vec((anything(), server(), anything(), anything()), 1..4),
        datacenter in option::of("[a-zA-Z /]{1,8}"),
        port in option::of(1..=65535u16),
        secret in option::of(("[a-z]{1,5}", "[a-z]{1,5}")),
        labels in (anything(), option::of(anything())),
        directory in any::<bool>(),
    ) {
        let mut text = String::from("[Global]\n");
        if let Some(port) = port {
            text += &format!("port = {port}\n");
        }
        if directory {
            text += "secrets-directory = /var/run/secrets\n";
        }
        if let Some(name) = datacenter {
            text += &format!("datacenters = {}\n", quoted(&name));
        }
        for (at, (name, server, user, password)) in sections.iter().enumerate() {
            // A header takes its name as it is, but for quotes and backslashes.
            let name = name.replace(['\n', '\r'], "").replace('\\', "\\\\").replace('"', "\\\"");
            text += &format!("[VirtualCenter \"x{name}\"]\nserver = {server}\n");
            text += &format!("user = {}\npassword = {}\n", quoted(user), quoted(password));
            if let Some((namespace, name)) = secret.as_ref().filter(|_| at == 0) {
                text += &format!("secret-name = {name}\nsecret-namespace = {namespace}\n");
            }
        }
        let (zone, region) = labels;
        text += &format!("[Labels]\nzone = {}\nnearest-tag = {directory}\n", quoted(&zone));
        if let Some(region) = region {
            text += &format!("region = {}\n", quoted(&region));
        }
        let read = Reader::default().read("vsphere.conf", text.as_bytes());
        let config = read.unwrap_or_else(|problems| panic!("{problems}\n{text}")).config;
        let config = without_fallback(config);
        let zone = zone.replace('\r', "");
        prop_assert_eq!(config.labels.zone.as_deref(), Some(zone.as_str()));
        prop_assert_eq!(again(&config), config);
    }

    #[test]
    fn two_tenants_of_one_server_keep_their_own_credentials(
        users in vec((anything(), anything()), 1..4),
        server in server(),
    ) {
        let text = "[Global]\nserver = vc.example\nuser = u\npassword = p\n";
        let mut config = Reader::default().read("vsphere.conf", text.as_bytes()).unwrap().config;
        let template = config.vcenters.remove(0);
        for (at, (user, password)) in users.into_iter().enumerate() {
            let mut vcenter = template.clone();
            vcenter.name = format!("tenant-{at}");
            vcenter.server = server.clone();
            vcenter.endpoint = server.parse().unwrap();
            let password = SecretString::from(password);
            vcenter.credentials = CredentialSource::Inline(Inline { user, password });
            config.vcenters.push(vcenter);
        }
        config.vcenters.push(VCenter {
            name: "directory".to_owned(),
            credentials: CredentialSource::Directory(PathBuf::from("/a b")),
            ..template
        });
        prop_assert_eq!(again(&config), config);
    }
}
