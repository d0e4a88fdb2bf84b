//! Our requests against those of govmomi's client, as text.
//!
//! `tests/golden` has what govmomi sends (see "What govmomi's client does" in `lab/vcenter/README.md`). The
//! same calls are written here with our types; order, names, types and values must agree. What may differ
//! is listed below, each with its reason, and a difference that is not needed any more is a mistake, too.
#![cfg(test)]

mod cns;
mod normal;
mod others;
mod vim;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use vsphere::{
    reference::{IsA, Ref},
    soap::preview,
    version::Release,
    xml::Method,
};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

/// Files that are compared where tokens and tags are made, or that we have no call for.
const ELSEWHERE: &[(&str, &str)] = &[
    ("LoginByToken-holder-of-key", "its header is made by sts"),
    ("SsoAddUsersToLocalGroup", "we add one user at a time, with AddUserToLocalGroup"),
    ("StsIssue-bearer", "not a call of a managed object: made by sts"),
    ("StsIssue-holder-of-key", "not a call of a managed object: made by sts"),
    ("rest-attached-tags", "REST: made by tags"),
    ("rest-attached-tags-on-objects", "REST: made by tags"),
    ("rest-categories", "REST: made by tags"),
    ("rest-category", "REST: made by tags"),
    ("rest-session-create", "REST: made by tags"),
    ("rest-session-delete", "REST: made by tags"),
    ("rest-tag", "REST: made by tags"),
    ("rest-tags-of-category", "REST: made by tags"),
];

/// Where only one side writes `xsi:type`: element, its type, and why it says nothing new.
const TYPES: &[(&str, &str, &str)] = &[
    ("activeClusters", "ManagedObjectReference", "the declared type, which has no subtypes"),
    (
        "filter",
        "CnsQueryFilter",
        "the declared type; govmomi writes it in one of three calls, we always",
    ),
    ("netPermission", "VsanFileShareNetPermission", "the declared type, which has no subtypes"),
    ("permission", "VsanFileShareNetPermission", "the declared type, which has no subtypes"),
    ("permissions", "VsanFileShareAccessType", "an enumeration, which has no subtypes"),
];

/// Lines that only govmomi writes.
const ONLY_GOVMOMI: &[(&str, &str, &str)] = &[(
    "CnsCreateVolume-block",
    r#"<hosts type="HostSystem">host-1</hosts>"#,
    "vCenter's own tables do not have the field",
)];

/// A request as the newest server gets it.
fn request<M: Method, K: IsA<M::On>>(on: &Ref<K>, method: &M) -> String {
    preview(Release::NEWEST, on, method)
}

fn ours() -> BTreeMap<&'static str, String> {
    let mut requests = BTreeMap::new();
    for (name, request) in [vim::requests(), cns::requests(), others::requests()].concat() {
        assert!(requests.insert(name, request).is_none(), "{name} twice");
    }
    requests
}

/// The committed files by name, without what is behind the dot.
fn golden() -> BTreeMap<String, String> {
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(&path).unwrap())
    };
    fs::read_dir(Path::new(GOLDEN)).unwrap().map(entry).collect()
}

#[test]
fn every_golden_request_is_compared_here_or_listed_with_the_place_where_it_is() {
    let golden = golden();
    let files: BTreeSet<&str> = golden.keys().map(String::as_str).collect();
    let ours = ours();
    let elsewhere: BTreeSet<&str> = ELSEWHERE.iter().map(|(name, _)| *name).collect();
    let here: BTreeSet<&str> = ours.keys().copied().collect();
    assert_eq!(here.intersection(&elsewhere).count(), 0);
    assert_eq!(files, here.union(&elsewhere).copied().collect());
}

#[test]
fn our_requests_are_those_of_govmomi() {
    let golden = golden();
    let (mut problems, mut used) = (Vec::new(), BTreeSet::new());
    for (name, request) in ours() {
        let (header, mut theirs) = normal::without_header(&golden[name]);
        for (_, line, _) in ONLY_GOVMOMI.iter().filter(|(file, ..)| *file == name) {
            assert!(theirs.iter().any(|of| of.trim() == *line), "{name} has no {line}");
            theirs.retain(|of| of.trim() != *line);
        }
        let (our_header, request) = normal::without_header(&normal::normalised(&request));
        // Security headers are made by sts, and compared there.
        if header.iter().all(|line| !line.contains("Security")) {
            assert_eq!(our_header, header, "{name}");
        }
        problems.extend(differences(name, &theirs, &request, &mut used));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let listed: BTreeSet<_> = TYPES.iter().map(|(element, ..)| *element).collect();
    assert_eq!(used, listed, "a listed difference is none");
}

fn differences(
    name: &str,
    theirs: &[String],
    ours: &[String],
    used: &mut BTreeSet<&'static str>,
) -> Vec<String> {
    let mut problems = Vec::new();
    for at in 0..theirs.len().max(ours.len()) {
        let theirs = theirs.get(at).map_or("nothing", String::as_str);
        let ours = ours.get(at).map_or("nothing", String::as_str);
        if theirs == ours {
            continue;
        }
        let allowed = TYPES.iter().find(|(element, declared, _)| {
            let (open, typed) = (format!("<{element}"), format!(r#" xsi:type="{declared}""#));
            theirs.trim_start().starts_with(&open)
                && theirs.replacen(&typed, "", 1) == ours.replacen(&typed, "", 1)
        });
        match allowed {
            Some((element, ..)) => drop(used.insert(*element)),
            None => {
                problems.push(format!("{name}:\n  govmomi: {theirs}\n  ours:    {ours}"));
                // What follows is only shifted.
                break;
            }
        }
    }
    problems
}

#[test]
fn the_golden_requests_are_what_govmomi_sends_today() {
    let program = lab::components::binary("govmomi-requests").unwrap();
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sent: BTreeMap<String, String> = serde_json::from_slice(&output.stdout).unwrap();
    let golden = golden();
    assert_eq!(golden.keys().collect::<Vec<_>>(), sent.keys().collect::<Vec<_>>());
    for (name, text) in &sent {
        assert_eq!(&golden[name], text, "{name}: write it anew as lab/vcenter/README.md says");
    }
}
