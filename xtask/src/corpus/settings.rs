//! What the Go programs' values mean, under the names that our example `read` prints.

use std::collections::BTreeMap;

use serde_json::Value;

/// The settings of a configuration; what is empty or absent is left out.
pub(super) fn of_go(kind: &str, cfg: &Value) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    for (name, vcenter) in entries(&cfg["VirtualCenter"]) {
        of_vcenter(kind, name, vcenter, &cfg["Global"], &mut settings);
    }
    if kind == "ccm" {
        of_manager(cfg, &mut settings);
    } else {
        of_driver(cfg, &mut settings);
    }
    settings.retain(|_, value| !value.is_empty());
    settings
}

fn entries(map: &Value) -> impl Iterator<Item = (&str, &Value)> {
    map.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

/// A text as it is, anything else as JSON has it; empty for zero, which stands for nothing.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => Some(other.to_string()).filter(|text| text != "0").unwrap_or_default(),
    }
}

/// A list with commas, without blanks.
fn list(value: &Value) -> String {
    let text = match value {
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        other => text(other),
    };
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect::<Vec<_>>().join(",")
}

fn of_vcenter(
    kind: &str,
    name: &str,
    vcenter: &Value,
    global: &Value,
    settings: &mut BTreeMap<String, String>,
) {
    let mut set = |key: &str, value| settings.insert(format!("vcenter {name} {key}"), value);
    let inherited = |key: &str| {
        Some(text(&vcenter[key])).filter(|own| !own.is_empty()).unwrap_or(text(&global[key]))
    };
    let insecure = vcenter["InsecureFlag"] == true;
    set("port", text(&vcenter["VCenterPort"]));
    set("insecure", insecure.to_string());
    set("datacenters", list(&vcenter["Datacenters"]).replace(',', " | "));
    if !insecure {
        set("ca-file", inherited("CAFile"));
        set("thumbprint", inherited("Thumbprint").to_uppercase());
    }
    let secret = match text(&vcenter["SecretRef"]).as_str() {
        "Global" if text(&global["SecretName"]).is_empty() => text(&global["SecretsDirectory"]),
        "Global" => format!("{}/{}", text(&global["SecretNamespace"]), text(&global["SecretName"])),
        other => other.to_owned(),
    };
    if secret.is_empty() {
        set("user", inherited("User"));
        set("password", inherited("Password"));
    }
    set("secret", secret);
    if kind == "ccm" {
        set("server", text(&vcenter["VCenterIP"]));
        set("ip-family", list(&vcenter["IPFamilyPriority"]));
    } else {
        set("migration", text(&vcenter["MigrationDataStoreURL"]));
    }
}

fn of_manager(cfg: &Value, settings: &mut BTreeMap<String, String>) {
    let (labels, nodes) = (&cfg["Labels"], &cfg["Nodes"]);
    for (name, value) in [
        ("zone", text(&labels["Zone"])),
        ("region", text(&labels["Region"])),
        ("internal subnets", list(&nodes["InternalNetworkSubnetCIDR"])),
        ("external subnets", list(&nodes["ExternalNetworkSubnetCIDR"])),
        ("internal excluded", list(&nodes["ExcludeInternalNetworkSubnetCIDR"])),
        ("external excluded", list(&nodes["ExcludeExternalNetworkSubnetCIDR"])),
        ("internal network", text(&nodes["InternalVMNetworkName"])),
        ("external network", text(&nodes["ExternalVMNetworkName"])),
    ] {
        settings.insert(name.to_owned(), value);
    }
}

fn of_driver(cfg: &Value, settings: &mut BTreeMap<String, String>) {
    let (global, snapshot) = (&cfg["Global"], &cfg["Snapshot"]);
    for (name, value) in [
        ("cluster-id", &global["ClusterID"]),
        ("cluster-distribution", &global["ClusterDistribution"]),
        ("auth-check", &global["CSIAuthCheckIntervalInMin"]),
        ("preferred-datastores", &global["CSIFetchPreferredDatastoresIntervalInMin"]),
        ("operation-cleanup", &global["CnsVolumeOperationRequestCleanupIntervalInMin"]),
        ("migration-cleanup", &global["VolumeMigrationCRCleanupIntervalInMin"]),
        ("query-limit", &global["QueryLimit"]),
        ("list-volume-threshold", &global["ListVolumeThreshold"]),
        ("snapshots", &snapshot["GlobalMaxSnapshotsPerBlockVolume"]),
        ("snapshots vsan", &snapshot["GranularMaxSnapshotsPerBlockVolumeInVSAN"]),
        ("snapshots vvol", &snapshot["GranularMaxSnapshotsPerBlockVolumeInVVOL"]),
    ] {
        settings.insert(name.to_owned(), text(value));
    }
    settings.insert("topology".to_owned(), topology(cfg));
    for (name, it) in entries(&cfg["NetPermissions"]) {
        let value = format!(
            "{} {} {}",
            text(&it["Ips"]),
            text(&it["Permissions"]),
            it["RootSquash"] == true
        );
        settings.insert(format!("permission {name}"), value);
    }
}

/// Categories with their labels; a zone without a region, or the reverse, is none.
fn topology(cfg: &Value) -> String {
    let (labels, overrides) = (&cfg["Labels"], &cfg["TopologyCategory"]);
    let categories = list(&labels["TopologyCategories"]);
    let (zone, region) = (list(&labels["Zone"]), list(&labels["Region"]));
    let legacy = |name: &str, kind: &str| {
        let own = text(&overrides[name]["Label"]);
        let label =
            if own.is_empty() { format!("failure-domain.beta.kubernetes.io/{kind}") } else { own };
        format!("{name}={label}")
    };
    if !categories.is_empty() {
        let label = |name: &str| format!("{name}=topology.csi.vmware.com/{name}");
        categories.split(',').map(label).collect::<Vec<_>>().join(",")
    } else if zone.is_empty() || region.is_empty() {
        String::new()
    } else {
        format!("{},{}", legacy(&zone, "zone"), legacy(&region, "region"))
    }
}
