//! The CSI driver's configuration: what it means, and that what is accepted can be written and read again.

use std::{fmt::Write as _, time::Duration};

use cloud_config::{
    Accepted, ClusterIdProblem, CsiConfig, Login, Logins, NetPermission, Reader, write_csi,
};
use proptest::{collection::vec, option, prelude::*};

use crate::{round_trip, tables};

/// What differs from the defaults.
pub(crate) fn describe(config: &CsiConfig) -> String {
    let mut text = String::new();
    for csi in &config.vcenters {
        text += &tables::describe_vcenter(&csi.vcenter);
        if let Some(url) = &csi.migration_datastore_url {
            writeln!(text, "  in-tree StorageClasses: {url}").unwrap();
        }
    }
    if let Some(id) = &config.cluster_id {
        writeln!(text, "cluster: {id}").unwrap();
    }
    if let Some(name) = &config.cluster_distribution {
        writeln!(text, "distribution: {name}").unwrap();
    }
    for category in &config.topology {
        writeln!(text, "topology: {} as {}", category.name, category.label).unwrap();
    }
    if config.nearest_tag {
        writeln!(text, "nearest tag").unwrap();
    }
    if config.intervals.tags != Duration::from_secs(60) {
        writeln!(text, "tags: every {:?}", config.intervals.tags).unwrap();
    }
    for it in config.net_permissions.iter().filter(|it| **it != NetPermission::default()) {
        let squash = if it.root_squash { ", root is nobody" } else { "" };
        writeln!(text, "{:?}: {} for {}{squash}", it.name, it.access.name(), it.ips).unwrap();
    }
    let limits = &config.snapshots;
    if (limits.per_volume, limits.vsan, limits.vvol) != (3, None, None) {
        let (all, vsan, vvol) = (limits.per_volume, limits.vsan, limits.vvol);
        writeln!(text, "snapshots: {all}, vSAN {vsan:?}, vVol {vvol:?}").unwrap();
    }
    if (config.query_limit, config.list_volume_threshold) != (10_000, 50) {
        let (page, threshold) = (config.query_limit, config.list_volume_threshold);
        writeln!(text, "lists: {page} a page, {threshold} may be missing").unwrap();
    }
    let every = &config.intervals;
    let minutes = [
        every.auth_check,
        every.preferred_datastores,
        every.operation_cleanup,
        every.migration_cleanup,
    ]
    .map(|interval| interval.as_secs() / 60);
    if minutes != [5, 5, 15, 120] {
        writeln!(text, "minutes: {minutes:?}").unwrap();
    }
    text
}

fn read(text: &str) -> Accepted<CsiConfig> {
    Reader::default()
        .read_csi("csi-vsphere.conf", text.as_bytes())
        .unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

/// Writes and reads; credentials that had to move into a Secret are taken from there.
pub(crate) fn again(config: &CsiConfig) -> CsiConfig {
    let written = write_csi(config, &round_trip::wanted_secret());
    let accepted = Reader { strict: true, ..Reader::default() }
        .read_shared("written.yaml", written.yaml.as_bytes())
        .unwrap_or_else(|problems| panic!("{problems}\n{}", written.yaml));
    assert_eq!(accepted.warnings, [], "{}", written.yaml);
    let mut config = accepted.config;
    for csi in &mut config.vcenters {
        round_trip::restore_credentials(&mut csi.vcenter, &written.secrets);
    }
    config
}

pub(crate) fn without_fallback(mut config: CsiConfig) -> CsiConfig {
    config.vcenters.iter_mut().for_each(|csi| csi.vcenter.fallback = None);
    config
}

const MINIMAL: &str =
    "[VirtualCenter \"vc.example\"]\nuser = csi@vsphere.local\npassword = hunter2\n";

#[test]
fn the_cluster_id_comes_from_the_file_or_the_config_map_and_never_from_two_that_differ() {
    let without = read(MINIMAL).config;
    let with = read(&format!("[Global]\ncluster-id = mine\n{MINIMAL}")).config;
    let id = |config: &CsiConfig, recorded: Option<&str>| {
        config.resolve_cluster_id(recorded).map(|id| id.map(|id| id.to_string()))
    };
    assert_eq!(id(&without, None), Ok(None), "to be generated");
    assert_eq!(id(&without, Some("recorded")), Ok(Some("recorded".to_owned())));
    assert_eq!(id(&with, None), Ok(Some("mine".to_owned())));
    assert_eq!(id(&with, Some("mine")), Ok(Some("mine".to_owned())));
    let conflict = id(&with, Some("recorded")).unwrap_err();
    assert!(matches!(conflict, ClusterIdProblem::Conflict { .. }));
    assert_eq!(
        conflict.to_string(),
        "the cluster id is mine in the configuration and recorded in the ConfigMap vsphere-csi-cluster-id; \
         remove it from the configuration to keep the cluster's volumes, or delete the ConfigMap if it has none yet"
    );
    for broken in [0, 65].map(|length| "x".repeat(length)) {
        assert!(
            matches!(id(&with, Some(&broken)), Err(ClusterIdProblem::Invalid(_))),
            "{broken:?}"
        );
    }
    assert_eq!(id(&without, Some(&"x".repeat(64))), Ok(Some("x".repeat(64))));
}

#[test]
fn one_file_and_one_secret_serve_both_programs_and_neither_is_warned_of_the_others_keys() {
    let text = "
global: {secretName: vc, secretNamespace: kube-system, clusterId: one, queryLimit: 100}
vcenter:
  east: {server: vc.example, ipFamily: [ipv6], migrationDatastoreUrl: \"ds:///vmfs/volumes/a/\"}
labels: {zone: k8s-zone, region: k8s-region, topologyCategories: [rack], nearestTag: true, tagsInterval: 30}
nodes: {internalVmNetworkName: inside}
snapshot: {globalMaxSnapshotsPerBlockVolume: 9}
netPermissions: {all: {ips: 10.0.0.0/8}}
";
    let reader = Reader { strict: true, ..Reader::default() };
    let manager = reader.read("vsphere.conf", text.as_bytes()).unwrap();
    let driver = reader.read_shared("vsphere.conf", text.as_bytes()).unwrap();
    assert_eq!((&manager.warnings, &driver.warnings), (&vec![], &vec![]));
    assert_eq!(manager.config.vcenters[0], driver.config.vcenters[0].vcenter);
    assert_eq!(driver.config.query_limit, 100);
    assert!(manager.config.labels.nearest && driver.config.nearest_tag);
    assert_eq!(driver.config.intervals.tags, Duration::from_secs(30));
    assert_eq!(driver.config.topology[0].label, "topology.csi.vmware.com/rack");

    let entries: [(&str, &[u8]); 2] =
        [("vc.example.username", b"u"), ("vc.example.password", b"p")];
    let (logins, _) = Logins::read("kube-system/vc", entries).unwrap();
    let logins = Some(&logins);
    let login = driver.config.vcenters[0].vcenter.login(logins).unwrap();
    assert_eq!(login, manager.config.vcenters[0].login(logins).unwrap());
    assert!(matches!(login, Login::Password(_)));
}

#[test]
fn a_mistake_in_the_csi_drivers_sections_does_not_stop_the_manager() {
    let text = "
global: {user: u, password: p, clusterId: {}, queryLimit: many}
vcenter: {east: {server: vc.example}}
netPermissions: everybody
snapshot: [1]
topologyCategory: {zone: x}
";
    assert!(Reader::default().read("vsphere.conf", text.as_bytes()).unwrap().warnings.is_empty());
    let problems = Reader::default().read_shared("vsphere.conf", text.as_bytes()).unwrap_err();
    assert_eq!(problems.list.len(), 5, "{problems}");
}

#[test]
fn no_message_and_no_debug_output_of_the_csi_driver_has_a_password() {
    let mistakes = [
        "",
        "user = nobody\n",
        "password = \"hunter2\n",
        "port = x\nquery-limit = hunter\n",
        "vc-session-manager-token = hunter2\n",
        "secret-name = s\nsecret-namespace = n\n",
        "passwort = hunter2\n",
    ];
    for mistake in mistakes {
        let text = format!("{MINIMAL}{mistake}");
        let shown = match Reader::default().read_csi("f", text.as_bytes()) {
            Ok(accepted) => {
                let written = write_csi(&accepted.config, &round_trip::wanted_secret());
                format!("{accepted:?} {written:?} {}", written.yaml)
            }
            Err(problems) => format!("{problems} {problems:?}"),
        };
        assert!(!shown.contains("hunter2"), "{text}\n{shown}");
    }
}

#[test]
fn every_accepted_file_of_the_tables_survives_being_written_for_the_csi_driver() {
    let mut accepted = 0;
    for table in ["csi.txt", "shared.txt", "oracle.txt", "in-tree.txt", "environment.txt"] {
        for case in tables::cases(table) {
            let own = case.reader().read_csi("csi-vsphere.conf", case.text.as_bytes());
            let shared = case.reader().read_shared("vsphere.conf", case.text.as_bytes());
            for read in [own, shared].into_iter().flatten() {
                let config = without_fallback(read.config);
                assert_eq!(again(&config), config, "{table}: {}", case.name);
                accepted += 1;
            }
        }
    }
    assert!(accepted > 80, "only {accepted} files were accepted");
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..4u32, any::<u32>()]
}

proptest! {
    #[test]
    fn a_csi_configuration_with_any_text_in_it_survives_being_written(
        hosts in vec(round_trip::server(), 1..6),
        account in (round_trip::anything(), round_trip::anything()),
        texts in (option::of("[ -~]{1,64}"), option::of(round_trip::anything())),
        categories in vec("[a-z\\\\\"#{} :-]{1,6}", 0..5),
        legacy in option::of((round_trip::anything(), round_trip::anything(), any::<bool>())),
        numbers in vec(number(), 9),
        permissions in vec((round_trip::anything(), round_trip::anything(), 0..3usize, any::<bool>()), 0..4),
    ) {
        let mut hosts = hosts;
        hosts.sort();
        hosts.dedup();
        if legacy.is_some() || categories.iter().all(|category| category.trim().is_empty()) {
            hosts.truncate(1);
        }
        let quoted = round_trip::quoted;
        let header = |text: &str| text.replace(['\n', '\r'], "").replace('\\', "\\\\").replace('"', "\\\"");
        let mut text = String::from("[Global]\n");
        let (cluster, distribution) = texts;
        for (key, value) in [("cluster-id", cluster), ("cluster-distribution", distribution)] {
            if let Some(value) = value {
                text += &format!("{key} = {}\n", quoted(&value));
            }
        }
        let keys = [
            "csi-auth-check-intervalinmin",
            "csi-fetch-preferred-datastores-intervalinmin",
            "cnsvolumeoperationrequest-cleanup-intervalinmin",
            "volumemigration-cr-cleanup-intervalinmin",
            "query-limit",
            "list-volume-threshold",
        ];
        for (key, number) in keys.iter().zip(&numbers) {
            text += &format!("{key} = {number}\n");
        }
        text += &format!("[Snapshot]\nglobal-max-snapshots-per-block-volume = {:#x}\n", numbers[6]);
        text += &format!("granular-max-snapshots-per-block-volume-vsan = {}\n", numbers[7]);
        text += &format!("granular-max-snapshots-per-block-volume-vvol = {}\n", numbers[8]);
        let (user, password) = account;
        for host in &hosts {
            text += &format!("[VirtualCenter \"{host}\"]\nuser = {}\n", quoted(&format!("u{user}@vsphere.local")));
            text += &format!("password = {}\nmigration-datastore-url = ds:///{host}/\n", quoted(&password));
        }
        text += &format!("[Labels]\nnearest-tag = {}\ntags-interval = {}\n", hosts.len() % 2 == 0, numbers[5]);
        if let Some((zone, region, own)) = legacy {
            text += &format!("zone = {}\nregion = {}\n", quoted(&format!("z{zone}")), quoted(&format!("r{region}")));
            if own {
                text += &format!("[TopologyCategory \"z{}\"]\nlabel = topology.kubernetes.io/zone\n", header(zone.trim_end()));
            }
        } else {
            text += &format!("topology-categories = {}\n", quoted(&categories.join(",")));
        }
        for (name, ips, access, squash) in &permissions {
            let access = ["READ_WRITE", "READ_ONLY", "NO_ACCESS"][*access];
            text += &format!("[NetPermissions \"x{}\"]\nips = {}\n", header(name), quoted(ips));
            text += &format!("permissions = {access}\nrootsquash = {squash}\n");
        }
        let config = read(&text).config;
        prop_assert_eq!(config.vcenters.len(), hosts.len());
        let minutes = if numbers[0] == 0 { 5 } else { numbers[0] };
        prop_assert_eq!(config.intervals.auth_check, Duration::from_secs(60 * u64::from(minutes)));
        prop_assert_eq!(again(&config), config);
    }
}
