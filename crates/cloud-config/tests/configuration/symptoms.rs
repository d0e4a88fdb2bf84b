//! Complaints of upstream's users and defects found in its code, each by its symptom.

use cloud_config::{Accepted, CredentialSource, IpFamily, Logins, Problems, Reader, Subnet};
use secrecy::ExposeSecret;

fn read(text: &str) -> Result<Accepted, Problems> {
    Reader::default().read("vsphere.conf", text.as_bytes())
}

fn with(text: &str, variables: &[(&str, &str)]) -> Result<Accepted, Problems> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let reader = Reader { environment: variables.collect(), ..Reader::default() };
    reader.read("vsphere.conf", text.as_bytes())
}

fn password(accepted: &Accepted, at: usize) -> &str {
    match &accepted.config.vcenters[at].credentials {
        CredentialSource::Inline(inline) => inline.password.expose_secret(),
        other => panic!("{other:?}"),
    }
}

const INI: &str = "[Global]\nserver = vc.example\nuser = u\npassword = p\n";

#[test]
fn a_mistake_in_yaml_is_not_reported_as_one_of_ini() {
    let problems =
        read("vcenter:\n  east:\n    server: vc.example\n    password: x\n").unwrap_err();
    assert_eq!(
        problems.to_string(),
        "vsphere.conf:2:3: vcenter.east.user: the user is missing; \
         name a Secret with secretName and secretNamespace, or give user and password"
    );
}

#[test]
fn families_with_a_blank_after_the_comma_or_in_capitals_are_families() {
    for text in ["ipv4, ipv6", "IPv4,IPV6", " ipv4 ,, ipv6,ipv4 "] {
        let ini = read(&format!("{INI}ip-family = \"{text}\"\n")).unwrap();
        assert_eq!(ini.config.vcenters[0].ip_families, [IpFamily::V4, IpFamily::V6], "{text}");
    }
    let yaml =
        "global: {user: u, password: p, ipFamily: [IPv6, \" ipv4\"]}\nvcenter: {e: {server: a}}\n";
    assert_eq!(read(yaml).unwrap().config.vcenters[0].ip_families, [IpFamily::V6, IpFamily::V4]);
}

#[test]
fn a_list_of_one_text_with_commas_is_a_list_of_several_as_charts_write_it() {
    for list in ["[\"/dc1,/dc2\"]", "[/dc1, /dc2]", "\"/dc1, /dc2\""] {
        let text = format!(
            "global: {{server: a, user: u, password: p, datacenters: {list}, ipFamily: \"ipv6,ipv4\"}}\n"
        );
        let vcenter = &read(&text).unwrap().config.vcenters[0];
        assert_eq!(vcenter.datacenters, ["/dc1", "/dc2"], "{list}");
        assert_eq!(vcenter.ip_families, [IpFamily::V6, IpFamily::V4], "{list}");
    }
}

#[test]
fn a_family_in_yaml_is_validated_too() {
    let problems =
        read("global: {server: a, user: u, password: p, ipFamily: [ipv5]}\n").unwrap_err();
    assert_eq!(
        problems.to_string(),
        "vsphere.conf:1:54: global.ipFamily: \"ipv5\" is not a valid IP family; write ipv4, ipv6 or both"
    );
}

#[test]
fn two_families_need_no_alpha_switch() {
    assert!(read(&format!("{INI}ip-family = ipv4,ipv6\n")).unwrap().warnings.is_empty());
}

#[test]
fn a_bad_subnet_is_found_at_load_and_a_blank_after_a_comma_is_none() {
    let good =
        read(&format!("{INI}[Nodes]\ninternal-network-subnet-cidr = 10.0.0.0/8, fd00::/8\n"));
    let wanted: [Subnet; 2] = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
    assert_eq!(good.unwrap().config.nodes.internal.subnets, wanted);
    let bad = read(&format!("{INI}[Nodes]\ninternal-network-subnet-cidr = 10.0.0.0/8, 10.0.0\n"));
    assert!(bad.unwrap_err().to_string().starts_with(
        "vsphere.conf:6:32: [Nodes] internal-network-subnet-cidr: \"10.0.0\" is not a valid subnet"
    ));
}

#[test]
fn a_password_with_an_equals_sign_comes_through_the_environment() {
    let read = with(INI, &[("VSPHERE_PASSWORD", "a=b=c")]).unwrap();
    assert_eq!(password(&read, 0), "a=b=c");
}

#[test]
fn a_global_override_reaches_the_vcenters_of_the_file() {
    let text = "[Global]\nuser = u\npassword = old\n[VirtualCenter \"a\"]\n[VirtualCenter \"b\"]\n";
    let read = with(text, &[("VSPHERE_PASSWORD", "new")]).unwrap();
    assert_eq!([password(&read, 0), password(&read, 1)], ["new", "new"]);
}

#[test]
fn the_variable_of_the_port_defines_no_vcenter() {
    let read = with(INI, &[("VSPHERE_VCENTER_PORT", "444")]).unwrap();
    assert_eq!(read.config.vcenters.len(), 1);
    assert_eq!(read.config.vcenters[0].endpoint.port(), 444);
}

#[test]
fn a_vcenter_from_the_environment_has_families_and_flags() {
    let variables = [
        ("VSPHERE_VCENTER_W", "west"),
        ("VCENTER_W_INSECURE", "true"),
        ("VCENTER_W_IP_FAMILY", "ipv6"),
    ];
    let read = with(INI, &variables).unwrap();
    assert_eq!(read.config.vcenters[1].ip_families, [IpFamily::V6]);
    assert_eq!(read.config.vcenters[1].trust, vsphere::tls::Trust::Insecure);
    let plain = with(INI, &variables[..1]).unwrap();
    assert_eq!(plain.config.vcenters[1].ip_families, [IpFamily::V4]);
}

#[test]
fn vcenters_indented_below_global_are_noticed() {
    let text = "global:\n  user: u\n  password: p\n  vcenter:\n    east: {server: a}\n";
    let problems = read(text).unwrap_err().to_string();
    assert!(problems.contains("vcenter is a section; move it to the left margin"), "{problems}");
}

#[test]
fn the_charts_ca_file_in_yaml_is_noticed_and_refused_when_strict() {
    let text = "global: {server: a, user: u, password: p, ca-file: /ca.pem}\n";
    let warning = read(text).unwrap().warnings[0].to_string();
    assert_eq!(
        warning,
        "vsphere.conf:1:43: global.ca-file: there is no such key, so it is ignored; \
         in this format it is called caFile"
    );
    let strict = Reader { strict: true, ..Reader::default() };
    assert_eq!(
        strict.read("vsphere.conf", text.as_bytes()).unwrap_err().to_string(),
        "vsphere.conf:1:43: global.ca-file: there is no such key; in this format it is called caFile"
    );
}

#[test]
fn a_backslash_in_a_password_is_explained() {
    let problems = read("[Global]\npassword = a\\b\n").unwrap_err().list[0].to_string();
    assert_eq!(
        problems,
        "vsphere.conf:2:13: password: a backslash outside quotes must precede a double quote or end the line; \
         put the value in double quotes and write each backslash in it as \\\\"
    );
    let quoted = read("[Global]\nserver = a\nuser = u\npassword = \"a\\\\b\"\n").unwrap();
    assert_eq!(password(&quoted, 0), "a\\b");
}

#[test]
fn a_password_with_a_hash_outside_quotes_leads_to_a_hint() {
    let cut = read("[Global]\nserver = a\nuser = u\npassword = hunter#2\n").unwrap();
    assert_eq!(password(&cut, 0), "hunter");
    assert_eq!(
        cut.warnings[0].to_string(),
        "vsphere.conf:4:18: password: the value ends here, and a comment begins; \
         put the value in double quotes if this belongs to it, or a blank before it if not"
    );
    for harmless in ["p # a comment", "\"p\"# a comment", "\"p;2\"", "p ;", "#p"] {
        let text = format!("[Global]\nserver = a\nuser = u\nzone = {harmless}\npassword = p\n");
        let warnings = read(&text).unwrap().warnings;
        assert!(warnings.iter().all(|it| it.text != cut.warnings[0].text), "{harmless}");
    }
}

#[test]
fn a_line_end_behind_the_password_of_a_secret_does_not_count() {
    let entries: [(&str, &[u8]); 3] =
        [("server_0", b"fd00::1\n"), ("username_0", b"u\n"), ("password_0", b"p\r\n")];
    let (logins, warnings) = Logins::read("s", entries).unwrap();
    let cloud_config::Login::Password(inline) = logins.find("fd00::1").unwrap() else {
        panic!("no password")
    };
    assert_eq!((inline.user.as_str(), inline.password.expose_secret()), ("u", "p"));
    assert_eq!(warnings, []);
}

#[test]
fn a_note_in_the_secret_does_not_disable_all_vcenters() {
    let entries: [(&str, &[u8]); 3] =
        [("a.username", b"u"), ("a.password", b"p"), ("managed-by", b"an operator")];
    let (logins, warnings) = Logins::read("ns/s", entries).unwrap();
    assert!(logins.find("a").is_ok());
    assert_eq!(
        warnings[0].to_string(),
        "ns/s: managed-by: this key does not belong to a vCenter, so it is ignored; \
         keep it elsewhere if it is not needed here"
    );
}

#[test]
fn a_server_that_the_secret_does_not_have_is_named_with_those_it_has() {
    let entries: [(&str, &[u8]); 2] = [("a.username", b"u"), ("a.password", b"p")];
    let (logins, _) = Logins::read("ns/s", entries).unwrap();
    assert_eq!(
        logins.find("b").unwrap_err().to_string(),
        "there are no credentials for b, only for a; add b.username and b.password"
    );
    assert_eq!(
        logins.find("fd00::1").unwrap_err().to_string(),
        "there are no credentials for fd00::1, only for a; \
         add server_ID with the value fd00::1, username_ID and password_ID"
    );
}

#[test]
fn a_secret_wins_over_credentials_in_the_file_so_that_no_login_fails_on_purpose() {
    let read = read(&format!("{INI}secret-name = s\nsecret-namespace = ns\n")).unwrap();
    assert!(matches!(read.config.vcenters[0].credentials, CredentialSource::Secret(_)));
    assert_eq!(
        read.warnings[0].to_string(),
        "vsphere.conf:3:8: [Global] user: credentials come from the Secret ns/s, \
         and from here only if it has none for the server; remove user and password once it has"
    );
}

#[test]
fn a_secret_without_the_server_does_not_disable_working_credentials_of_the_file() {
    let config = read(&format!("{INI}secret-name = s\nsecret-namespace = ns\n")).unwrap().config;
    let vcenter = &config.vcenters[0];
    let logins = |server: &str| {
        let (user, password) = (format!("{server}.username"), format!("{server}.password"));
        let entries: [(&str, &[u8]); 2] = [(&user, b"secret-user"), (&password, b"p")];
        Logins::read("ns/s", entries).unwrap().0
    };
    let user = |logins: Option<&Logins>| match vcenter.login(logins).unwrap() {
        cloud_config::Login::Password(inline) => inline.user,
        other => panic!("{other:?}"),
    };
    assert_eq!(user(Some(&logins("vc.example"))), "secret-user");
    assert_eq!(user(Some(&logins("old.example"))), "u");
    assert_eq!(user(None), "u", "the Secret does not exist");

    let only_secret = "[Global]\nserver = vc.example\nsecret-name = s\nsecret-namespace = ns\n";
    let vcenter = &read(only_secret).unwrap().config.vcenters[0];
    let missing = vcenter.login(Some(&logins("old.example"))).unwrap_err().to_string();
    assert!(missing.starts_with("there are no credentials for vc.example"), "{missing}");
}

#[test]
fn a_password_is_what_was_written_whatever_yaml_takes_it_for() {
    for text in ["0123", "1e3", "true", "0x1F", "1_000", ".inf", "2026-11-16", "-1", "1.10"] {
        let read = read(&format!(
            "global: {{server: a, user: u}}\nvcenter:\n  a:\n    server: a\n    password: {text} # x\n"
        ));
        assert_eq!(password(&read.unwrap(), 0), text);
    }
}

#[test]
fn no_message_and_no_debug_output_has_a_password() {
    let texts = [
        "[Global]\nserver = a\nuser = u\npassword = hunter2\n".to_owned(),
        "[Global]\nserver = a\nuser = u\npassword = \"hunter2\n".to_owned(),
        "[Global]\nserver = a\nport = x\nuser = u\npassword = hunter2 \\x\n".to_owned(),
        "global: {server: a, user: u, password: hunter2}\n".to_owned(),
        "global:\n  password: hunter2: x\n".to_owned(),
        "global:\n  password: [hunter2]\n".to_owned(),
        "global:\n  password: {x: hunter2}\n".to_owned(),
        "global:\n  password: !!int hunter2\n".to_owned(),
        "global:\n  password: \"\\hunter2\"\n".to_owned(),
        "global:\n  password: &a hunter2\n  user: *b\n".to_owned(),
    ];
    for text in texts {
        let outcome = read(&text);
        let shown = match &outcome {
            Ok(accepted) => format!("{accepted:?}"),
            Err(problems) => format!("{problems} {problems:?}"),
        };
        assert!(!shown.contains("hunter2"), "{text}\n{shown}");
    }
}

#[test]
fn a_file_may_have_any_name_and_its_form_is_seen_from_its_text() {
    let yaml = "global: {server: vc.example, user: u, password: p}\n";
    for name in ["vsphere.conf", "cloud.yaml", "cloud.ini", "whatever"] {
        for text in [INI, yaml] {
            let accepted = Reader::default().read(name, text.as_bytes()).unwrap();
            assert_eq!(accepted.config.vcenters[0].server, "vc.example", "{name}: {text}");
        }
    }
}

#[test]
fn keys_that_the_go_program_ignores_change_nothing_when_only_the_image_is_swapped() {
    let plain = read(INI).unwrap();
    let old = read(&format!("{INI}datacenter = dc-1\n[Network]\npublic-network = VM Network\n"));
    let old = old.unwrap();
    assert_eq!(old.config, plain.config);
    let warnings: Vec<String> = old.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "vsphere.conf:5:1: [Global] datacenter: it has no effect: only the in-tree provider used it; \
             remove it, or write datacenters instead",
            "vsphere.conf:7:1: [Network] public-network: it has no effect: only the in-tree provider used it; \
             remove it, or write internal-vm-network-name and external-vm-network-name in [Nodes] instead",
        ]
    );
}
