//! The CSI driver's configuration, from its own file or from the cloud controller manager's.
//!
//! In its own file, `csi-vsphere.conf`, the names of the sections are the hosts, and user and password stand in the
//! file, as the Go driver has it; a Secret is read only if they do not. The manager's file keeps its own rules, and may
//! have the driver's keys and sections besides, which the manager ignores.

use std::{mem, path::Path, time::Duration};

use crate::{
    config::{
        Access, ClusterId, CsiConfig, CsiVCenter, Intervals, NetPermission, SnapshotLimits,
        TopologyCategory, VCenter,
    },
    document::{Document, Part, key_label},
    keys::{FileKind, Id, Key, Section},
    problem::{Place, Report},
    values::Values,
    vcenters,
};

/// Domains of labels that Kubernetes and the driver know.
const DOMAINS: [&str; 3] =
    ["topology.csi.vmware.com", "topology.kubernetes.io", "failure-domain.beta.kubernetes.io"];
/// The usual label of a zone.
pub(crate) const ZONE_LABEL: &str = "failure-domain.beta.kubernetes.io/zone";
/// The usual label of a region.
pub(crate) const REGION_LABEL: &str = "failure-domain.beta.kubernetes.io/region";
/// Categories that the driver takes at most.
const MOST: usize = 5;

/// The configuration, if it is valid; problems go into the report.
pub(crate) fn build(
    document: &Document,
    default_directory: Option<&Path>,
    report: &mut Report,
) -> Option<CsiConfig> {
    let empty = Part::new(Section::Global, None, Place::Whole);
    let section = |section| document.section(section).unwrap_or(&empty);
    let vcenters = vcenters::build(document, default_directory, report);
    let vcenters = with_datastores(document, vcenters, report);
    let topology = topology(document, section(Section::Labels), report);
    let mut labels = Values { part: section(Section::Labels), report };
    let nearest_tag = labels.flag(Id::NearestTag);
    let tags = Duration::from_secs(labels.number(Id::TagsInterval).into());
    if vcenters.len() > 1 {
        require_topology(document, &topology, report);
    }
    let net_permissions = net_permissions(document, report);
    let mut global = Values { part: section(Section::Global), report };
    let remedy = "write a shorter one, or remove the key to have one generated";
    let cluster_id =
        global.parsed(Id::Cluster, |text| ClusterId::try_from(text.to_owned()), remedy);
    let cluster_distribution = global.text(Id::ClusterDistribution);
    let query_limit = global.number(Id::QueryLimit);
    let list_volume_threshold = global.number(Id::ListVolumeThreshold);
    let mut minutes = |id| Duration::from_secs(60 * u64::from(global.number(id)));
    let intervals = Intervals {
        tags,
        auth_check: minutes(Id::AuthCheckInterval),
        preferred_datastores: minutes(Id::PreferredDatastoresInterval),
        operation_cleanup: minutes(Id::OperationCleanupInterval),
        migration_cleanup: minutes(Id::MigrationCleanupInterval),
    };
    let mut limits = Values { part: section(Section::Snapshot), report };
    let mut granular = |id| Some(limits.number(id)).filter(|limit| *limit != 0);
    let snapshots = SnapshotLimits {
        vsan: granular(Id::MaxSnapshotsVsan),
        vvol: granular(Id::MaxSnapshotsVvol),
        per_volume: limits.number(Id::MaxSnapshots),
    };
    Some(CsiConfig {
        vcenters: vcenters.into_iter().collect::<Option<_>>()?,
        cluster_id,
        cluster_distribution,
        topology,
        nearest_tag,
        net_permissions,
        snapshots,
        query_limit,
        list_volume_threshold,
        intervals,
    })
}

fn with_datastores(
    document: &Document,
    vcenters: Vec<Option<VCenter>>,
    report: &mut Report,
) -> Vec<Option<CsiVCenter>> {
    let mut known: Vec<(String, (String, u16))> = Vec::new();
    let mut add = |vcenter: VCenter| {
        let part = vcenter_parts(document).find(|part| part.name.as_ref() == Some(&vcenter.name));
        let (host, name) = (vcenter.endpoint.host().to_lowercase(), vcenter.name.clone());
        let endpoint = (host, vcenter.endpoint.port());
        if let Some((other, _)) = known.iter().find(|(_, other)| *other == endpoint) {
            let (at, label) = part.map_or((Place::Whole, name.clone()), |part| {
                (part.at, part.label(document.format))
            });
            let text = format!("it is the same vCenter as {other}");
            let remedy = "keep one of them, with an account for all datacenters; \
                          if the cloud controller manager needs both, give the CSI driver a file of its own";
            report.refuse(at, &label, text, remedy);
        }
        known.push((name, endpoint));
        let url = part.and_then(|part| Values { part, report }.text(Id::MigrationDatastoreUrl));
        CsiVCenter { vcenter, migration_datastore_url: url }
    };
    vcenters.into_iter().map(|vcenter| vcenter.map(&mut add)).collect()
}

fn vcenter_parts(document: &Document) -> impl Iterator<Item = &Part> {
    document.parts.iter().filter(|part| part.section == Section::VirtualCenter)
}

fn net_permissions(document: &Document, report: &mut Report) -> Vec<NetPermission> {
    let parts = document.parts.iter().filter(|part| part.section == Section::NetPermissions);
    let read = |part: &Part| {
        let mut values = Values { part, report };
        let parse = |text: &str| {
            let known = Access::NAMES.iter().find(|(_, name)| name.eq_ignore_ascii_case(text));
            known.map(|(access, _)| *access).ok_or(format!("{text:?} is not a valid permission"))
        };
        let access =
            values.parsed(Id::Permissions, parse, "write READ_WRITE, READ_ONLY or NO_ACCESS");
        NetPermission {
            name: part.name().to_owned(),
            ips: values.text(Id::Ips).unwrap_or_else(|| "*".to_owned()),
            access: access.unwrap_or(Access::ReadWrite),
            root_squash: values.flag(Id::RootSquash),
        }
    };
    let permissions: Vec<NetPermission> = parts.map(read).collect();
    if permissions.is_empty() { vec![NetPermission::default()] } else { permissions }
}

/// Several vCenters are told apart by categories, of which every node has tags. The Go driver wants them in
/// `topology-categories`.
fn require_topology(document: &Document, topology: &[TopologyCategory], report: &mut Report) {
    let labels = document.section(Section::Labels);
    let given = labels.is_some_and(|part| part.get(Id::TopologyCategories).is_some());
    if !given && (topology.is_empty() || document.kind == FileKind::Csi) {
        let row = Key::of(Section::Labels, Id::TopologyCategories);
        let name = row.and_then(|row| row.name(document.format)).unwrap_or_default();
        let label = key_label(document.format, Section::Labels, None, &name);
        let remedy =
            "name the categories whose tags tell nodes and datastores of the vCenters apart";
        let at = labels.map_or(Place::Whole, |part| part.at);
        report.refuse(at, &label, "it is missing, and there are several vCenters", remedy);
    }
}

fn topology(document: &Document, labels: &Part, report: &mut Report) -> Vec<TopologyCategory> {
    let overrides = label_overrides(document, report);
    let mut values = Values { part: labels, report };
    let mut categories: Vec<TopologyCategory> = Vec::new();
    for name in values.list(Id::TopologyCategories).into_iter().map(|item| item.text) {
        if !categories.iter().any(|known| known.name == name) {
            categories.push(TopologyCategory { label: category_label(&name), name });
        }
    }
    let mut name = |id| values.text(id).map(|name| name.trim().to_owned());
    let zone = name(Id::Zone).filter(|name| !name.is_empty());
    let region = name(Id::Region).filter(|name| !name.is_empty());
    let either = match (&zone, &region) {
        (None, None) => None,
        (zone, _) => labels.get(if zone.is_some() { Id::Zone } else { Id::Region }),
    };
    if let (Some(entry), true) = (labels.get(Id::TopologyCategories), categories.len() > MOST) {
        report.refuse(entry.at, &entry.label, "there are more than five", "keep five at most");
    }
    match (zone, region, either) {
        (Some(zone), Some(region), _) if categories.is_empty() => {
            categories = vec![
                TopologyCategory { name: zone, label: ZONE_LABEL.to_owned() },
                TopologyCategory { name: region, label: REGION_LABEL.to_owned() },
            ];
            for category in &mut categories {
                let own = overrides.iter().find(|(part, _)| part.name() == category.name);
                category.label = own.map_or(mem::take(&mut category.label), |it| it.1.clone());
            }
        }
        (_, _, Some(entry)) if categories.is_empty() => {
            let text = "it has no effect, because only one of zone and region is given";
            report.warn(entry.at, &entry.label, text, "add the other, or remove this one");
        }
        // In the manager's file these are the manager's.
        (_, _, Some(entry)) if document.kind == FileKind::Csi => {
            let text = "it cannot be combined with topology-categories";
            let remedy =
                "remove zone and region, or topology-categories if volumes were created without it";
            report.refuse(entry.at, &entry.label, text, remedy);
        }
        _ => {}
    }
    for (part, label) in overrides {
        if !categories.iter().any(|it| it.name == part.name() && it.label == label) {
            let text =
                "it has no effect: only the categories of zone and region can have other labels";
            report.warn(part.at, &part.label(document.format), text, "remove the section");
        }
    }
    categories
}

/// The label of a category in `topology-categories`.
pub(crate) fn category_label(name: &str) -> String {
    format!("{}/{name}", DOMAINS[0])
}

/// Sections that give a category another label than the usual one.
fn label_overrides<'a>(document: &'a Document, report: &mut Report) -> Vec<(&'a Part, String)> {
    let parts = document.parts.iter().filter(|part| part.section == Section::TopologyCategory);
    let mut overrides = Vec::new();
    for part in parts {
        let Some(label) = (Values { part, report }).text(Id::TopologyLabel) else {
            if part.get(Id::TopologyLabel).is_none() {
                let text = "the label of this category is missing";
                report.refuse(
                    part.at,
                    &part.label(document.format),
                    text,
                    "add label, or remove the section",
                );
            }
            continue;
        };
        let domain = label.split('/').next().unwrap_or_default();
        if let (false, Some(entry)) = (DOMAINS.contains(&domain), part.get(Id::TopologyLabel)) {
            let text = format!("{label:?} is not a label for topology");
            let remedy = format!("write a label of {}", DOMAINS.join(", "));
            report.refuse(entry.at, &entry.label, text, remedy);
        } else {
            overrides.push((part, label));
        }
    }
    overrides
}
