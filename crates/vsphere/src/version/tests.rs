//! That fields are left out for servers that are too old, by our own tables and by those of the simulator.

use std::collections::BTreeMap;

use super::{Line, Release, Since, Version};
use crate::{
    reference::Ref,
    soap::preview,
    types::{
        CnsAttachVolume, CnsBlockBackingDetails, CnsContainerCluster, CnsCreateVolume,
        CnsKubernetesEntityMetadata, CnsKubernetesEntityReference, CnsQueryFilter, CnsQueryVolume,
        CnsSnapshotVolumeSource, CnsVolumeAttachDetachSpec, CnsVolumeCreateSpec, CnsVolumeId,
        CnsVolumeManager, CnsVolumeMetadata, CnsVolumeType, VirtualMachineDefinedProfileSpec,
    },
};

/// What the documents of the releases list: vim, vSAN.
const RELEASES: [(&str, &[&str], &[&str]); 5] = [
    ("6.7U3", &["6.7.3", "6.7"], &["vSAN 6.7U3", "6.7", "6.6"]),
    ("7.0U3", &["7.0.3.0", "6.7.3"], &["vSAN 7.0U3", "vSAN 6.7U3"]),
    ("8.0U3", &["8.0.3.0", "7.0.3.0"], &["8.0.3.0", "vSAN 7.0U3", "vSAN 6.7U3"]),
    ("9.0", &["9.0.0.0", "8.0.3.0"], &["9.0.0.0", "8.0.3.0", "vSAN 7.0U3"]),
    ("9.1", &["9.1.0.0", "9.0.0.0"], &["9.1.0.0", "9.0.0.0"]),
];

fn release(name: &str) -> Release {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let (_, vim, vsan) = RELEASES.iter().find(|(release, ..)| *release == name).unwrap();
    let chosen =
        [Version::newest(Line::Vim, &owned(vim)), Version::newest(Line::Vsan, &owned(vsan))];
    chosen.iter().flatten().fold(Release::OLDEST, Release::with)
}

#[test]
fn a_server_gets_the_newest_version_that_it_lists_and_our_tables_know() {
    let name = |line, listed: &[&str]| {
        let listed: Vec<String> = listed.iter().map(|name| (*name).to_owned()).collect();
        Version::newest(line, &listed).map(|version| version.name)
    };
    for (release, vim, vsan) in RELEASES {
        // The first is the newest; for 8.0U3 the document of vSAN names one that no table has.
        assert_eq!(name(Line::Vim, vim).as_deref(), Some(vim[0]), "{release}");
        assert_eq!(name(Line::Vsan, vsan).as_deref(), Some(vsan[0]), "{release}");
    }
    assert_eq!(release("8.0U3").version(Line::Vsan), "8.0.0.4", "fields are those of the tables");
    // A server that is newer than the tables is called in a version that it lists, too.
    let newer = ["10.2.0.0", "8.0.2.0", "7.0.3.0"];
    assert_eq!(name(Line::Vim, &newer).as_deref(), Some("8.0.2.0"));
    for unknown in ["10.2.0.0", "next", "5.5"] {
        assert_eq!(name(Line::Vim, &[unknown]), None);
    }
    assert_eq!(name(Line::Vsan, &["11.0", "vSAN 12", "6.6"]), None);
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// Volumes with every field that came later.
fn creation() -> CnsCreateVolume {
    let cluster = CnsContainerCluster {
        cluster_flavor: text("VANILLA"),
        cluster_distribution: text("kubeadm"),
        delete: Some(false),
        ..CnsContainerCluster::default()
    };
    let entity = CnsKubernetesEntityMetadata {
        cluster_id: text("cluster-1"),
        referred_entity: vec![CnsKubernetesEntityReference::default()],
        ..CnsKubernetesEntityMetadata::default()
    };
    let block = CnsBlockBackingDetails {
        capacity_in_mb: Some(1),
        backing_disk_id: text("id"),
        backing_disk_url_path: text("url"),
        backing_disk_path: text("path"),
        backing_disk_object_id: text("object"),
        used_capacity_in_mb: Some(2),
        aggregated_snapshot_capacity_in_mb: Some(3),
    };
    let source =
        CnsSnapshotVolumeSource { linked_clone: Some(true), ..CnsSnapshotVolumeSource::default() };
    CnsCreateVolume {
        create_specs: vec![CnsVolumeCreateSpec {
            name: "pvc-1".to_owned(),
            volume_type: CnsVolumeType::Block,
            volume_id: Some(CnsVolumeId::default()),
            datastores: vec![Ref::new("datastore-1")],
            metadata: Some(CnsVolumeMetadata {
                container_cluster: cluster.clone(),
                entity_metadata: vec![entity.into()],
                container_cluster_array: vec![cluster],
            }),
            backing_object_details: block.into(),
            profile: vec![VirtualMachineDefinedProfileSpec::default().into()],
            active_clusters: vec![Ref::new("domain-c1")],
            create_spec: None,
            volume_source: Some(source.into()),
        }],
    }
}

#[test]
fn a_request_leaves_out_what_the_server_is_too_old_for() {
    let manager = Ref::<CnsVolumeManager>::new("cns-volume-manager");
    let attach = CnsAttachVolume {
        attach_specs: vec![CnsVolumeAttachDetachSpec {
            disk_mode: text("persistent"),
            sharing: text("sharingNone"),
            controller_key: Some(1000),
            unit_number: Some(3),
            ..CnsVolumeAttachDetachSpec::default()
        }],
    };
    let filter = CnsQueryFilter { health_status: text("green"), ..CnsQueryFilter::default() };
    let query = CnsQueryVolume { filter: filter.into(), selection: Some(Default::default()) };
    let always = ["name", "volumeType", "datastores", "clusterId", "capacityInMb", "profileId"];
    // The first release of the simulator that has it.
    let later = [
        ("clusterFlavor", "7.0U3"),
        ("clusterDistribution", "7.0U3"),
        ("containerClusterArray", "7.0U3"),
        ("referredEntity", "7.0U3"),
        ("volumeSource", "7.0U3"),
        ("healthStatus", "7.0U3"),
        ("selection", "7.0U3"),
        ("backingDiskUrlPath", "7.0U3"),
        ("backingDiskPath", "7.0U3"),
        ("backingDiskObjectId", "7.0U3"),
        ("delete", "8.0U3"),
        ("usedCapacityInMb", "8.0U3"),
        ("aggregatedSnapshotCapacityInMb", "9.0"),
        ("linkedClone", "9.1"),
        ("activeClusters", "9.1"),
        ("diskMode", "9.1"),
        ("sharing", "9.1"),
        ("controllerKey", "9.1"),
        ("unitNumber", "9.1"),
    ];
    let order = |name: &str| RELEASES.iter().position(|(release, ..)| *release == name).unwrap();
    for (name, ..) in RELEASES {
        let release = release(name);
        let requests = [
            preview(release, &manager, &creation()),
            preview(release, &manager, &attach),
            preview(release, &manager, &query),
        ]
        .concat();
        let has = |element: &str| {
            requests.contains(&format!("<{element}>")) || requests.contains(&format!("<{element} "))
        };
        for element in always {
            assert!(has(element), "{element} for {name}");
        }
        for (element, first) in later {
            assert_eq!(has(element), order(name) >= order(first), "{element} for {name}");
        }
    }
}

const TABLES: [&str; 2] = [
    include_str!("../../../../lab/vcenter/internal/strict/schema/table.txt"),
    include_str!("../../../../lab/vcenter/internal/strict/schema/overlay.txt"),
];
const VERSIONS: &str = include_str!("../types/versions.rs");
const TYPES: [&str; 4] = [
    include_str!("../types/vim.rs"),
    include_str!("../types/cns.rs"),
    include_str!("../types/pbm.rs"),
    include_str!("../types/vslm.rs"),
];

/// A line and a rank in it; nothing is as old as we support.
type Mark = Option<(&'static str, usize)>;

/// The simulator's tables: since when there are types and methods, and their fields if that is later.
#[derive(Default)]
struct Table {
    things: BTreeMap<&'static str, Mark>,
    fields: BTreeMap<(&'static str, &'static str), Mark>,
}

fn history(line: &str) -> &'static [&'static str] {
    match line {
        "vim" => crate::types::versions::VIM,
        "vsan" => crate::types::versions::VSAN,
        other => panic!("no line {other}"),
    }
}

fn mark(text: &'static str) -> Mark {
    let (line, version) = text.split_once(':')?;
    let version = version.replace('_', " ");
    let rank = history(line).iter().position(|known| *known == version);
    Some((line, rank.unwrap_or_else(|| panic!("{text} is not in our tables"))))
}

impl Table {
    fn read() -> Self {
        let mut table = Self::default();
        for line in TABLES.iter().flat_map(|table| table.lines()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (name, since, fields) = match words.as_slice() {
                ["type", name, _, since, fields @ ..] => (*name, Some(*since), fields),
                ["method", name, _, _, since, fields @ ..] => (*name, Some(*since), fields),
                ["fields", name, fields @ ..] => (*name, None, fields),
                _ => continue,
            };
            if let Some(since) = since {
                table.things.insert(name, mark(since));
            }
            for field in fields {
                let wire = field.split(['?', '=', '@', '+']).next().unwrap();
                let since = field.split_once('=').and_then(|(_, rest)| rest.split('@').next());
                table.fields.insert((name, wire), since.and_then(mark));
            }
        }
        table
    }
}

/// A field in our generated source.
struct Generated {
    owner: &'static str,
    wire: &'static str,
    declared: &'static str,
    since: Mark,
}

/// The fields of all generated types and methods, and for every type those it inherits from.
fn generated() -> (Vec<Generated>, BTreeMap<&'static str, Vec<&'static str>>) {
    let (mut fields, mut bases) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
    let (mut owner, mut base) = ("", None);
    for line in TYPES.iter().flat_map(|source| source.lines()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, "=", wire, "on", ..] => (owner, base) = (wire.trim_matches('"'), None),
            [_, "of", of, ..] => base = Some(*of),
            [name, "{"] => (owner, base) = (*name, None),
            [variant] if base.is_some() && variant.ends_with(',') => {
                bases.entry(variant.trim_end_matches(',')).or_default().extend(base);
            }
            [field, .., "=", wire] if field.ends_with(':') => {
                fields.push(one_field(owner, line, wire, None));
            }
            [field, .., "=", wire, "since", since] if field.ends_with(':') => {
                fields.push(one_field(owner, line, wire, constant(since.trim_end_matches(','))));
            }
            _ => {}
        }
    }
    (fields, bases)
}

fn one_field(
    owner: &'static str,
    line: &'static str,
    wire: &'static str,
    since: Mark,
) -> Generated {
    let declared = line.split_once(": ").unwrap().1.split_once(" = ").unwrap().0;
    let declared = declared.rsplit('<').next().unwrap().trim_end_matches('>');
    let declared = declared.strip_prefix("Any").unwrap_or(declared);
    Generated { owner, wire: wire.trim_end_matches(',').trim_matches('"'), declared, since }
}

/// What a constant in versions.rs stands for.
fn constant(name: &str) -> Mark {
    let wanted = format!("const {name}: Since = Since::new(Line::");
    let rest = VERSIONS.split_once(&wanted).unwrap().1;
    let (line, rank) = rest.split_once(");").unwrap().0.split_once(", ").unwrap();
    let line = if line == "Vim" { "vim" } else { "vsan" };
    Some((line, rank.parse().unwrap()))
}

/// The later of two marks; the first one if they are of different lines.
fn later(one: Mark, other: Mark) -> Mark {
    match (one, other) {
        (Some((line, rank)), Some((same, more))) if line == same => Some((line, rank.max(more))),
        (one, other) => one.or(other),
    }
}

#[test]
fn every_field_is_as_new_as_the_simulator_thinks() {
    let table = Table::read();
    let (fields, bases) = generated();
    let (mut compared, mut marked, mut problems) = (0, 0, Vec::new());
    for Generated { owner, wire, declared, since } in fields {
        // Types that no request can have are not in the table.
        let Some(of_owner) = table.things.get(owner) else { continue };
        let own = std::iter::once(&owner);
        let inherited = bases.get(owner).into_iter().flatten();
        let of_field = own
            .chain(inherited)
            .find_map(|owner| table.fields.get(&(*owner, wire)).copied())
            .flatten();
        let of_type = table.things.get(declared).copied().flatten();
        let theirs = later(*of_owner, later(of_field, of_type));
        let ours = later(*of_owner, since);
        compared += 1;
        marked += usize::from(since.is_some());
        if ours != theirs {
            problems.push(format!("{owner}.{wire}: ours {ours:?}, simulator {theirs:?}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    // The reading above must not have missed everything.
    assert!(compared > 100 && marked > 15, "{compared} compared, {marked} of them marked");
}

#[test]
fn every_method_is_as_new_as_the_simulator_thinks() {
    let table = Table::read();
    let mut compared = 0;
    for line in TYPES.iter().flat_map(|source| source.lines()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "=", name, "on", _, "at", _, rest @ ..] = words.as_slice() else { continue };
        let since = match rest {
            ["since", since, ..] => constant(since),
            _ => None,
        };
        let name = name.trim_matches('"');
        assert_eq!(table.things.get(name), Some(&since), "{name}");
        compared += 1;
    }
    assert!(compared > 60, "{compared}");
}

#[test]
fn the_histories_are_those_of_the_simulator() {
    for line in TABLES[0].lines().filter_map(|line| line.strip_prefix("versions ")) {
        let (line, versions) = line.split_once(' ').unwrap();
        let versions: Vec<String> =
            versions.split_whitespace().map(|version| version.replace('_', " ")).collect();
        assert_eq!(history(line), versions);
    }
}

#[test]
fn a_version_says_its_name() {
    let since = crate::types::versions::VSAN_7_0U3;
    assert_eq!(since.to_string(), "vSAN API vSAN 7.0U3");
    assert_eq!(Since::new(Line::Vim, usize::MAX).to_string(), "vCenter API unknown");
}
