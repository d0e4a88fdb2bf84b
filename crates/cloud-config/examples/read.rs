//! Reads configuration files as a driver does and prints what it makes of each, one JSON object a line.
//!
//! `read ccm|csi|shared FILE…`; variables come from a file of the same name that ends in `.env`, if there is one. The
//! files of users are compared with this output by `cargo xtask corpus`. Passwords are printed.

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use cloud_config::{
    Accepted, AddressRules, Config, CredentialSource, CsiConfig, Problem, Problems, Reader, Subnet,
    VCenter,
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use vsphere::tls::{Roots, Trust};

/// Settings by name; what is empty or absent is left out.
type Settings = BTreeMap<String, String>;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let Some((kind, files)) = arguments.split_first() else {
        writeln!(io::stderr(), "usage: read ccm|csi|shared FILE…")?;
        return Ok(ExitCode::from(2));
    };
    for file in files {
        let path = Path::new(file);
        let (bytes, reader) = (fs::read(path)?, reader(path)?);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let answer = match kind.as_str() {
            "ccm" => answer(reader.read(&name, &bytes), of_manager),
            "csi" => answer(reader.read_csi(&name, &bytes), of_driver),
            "shared" => answer(reader.read_shared(&name, &bytes), of_driver),
            other => return Err(format!("{other} is neither ccm nor csi nor shared").into()),
        };
        writeln!(io::stdout(), "{answer}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn reader(path: &Path) -> io::Result<Reader> {
    let variables = path.with_extension("env");
    let text = if variables.exists() { fs::read_to_string(variables)? } else { String::new() };
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let environment = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Ok(Reader { environment, ..Reader::default() })
}

fn answer<C>(read: Result<Accepted<C>, Problems>, settings: impl Fn(&C) -> Settings) -> Value {
    let texts = |problems: &[Problem]| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    match read {
        Ok(accepted) => json!({
            "settings": settings(&accepted.config),
            "warnings": texts(&accepted.warnings),
        }),
        Err(problems) => {
            json!({"problems": texts(&problems.list), "warnings": texts(&problems.warnings)})
        }
    }
}

fn of_manager(config: &Config) -> Settings {
    let mut settings = Settings::new();
    config.vcenters.iter().for_each(|vcenter| of_vcenter(vcenter, &mut settings));
    for vcenter in &config.vcenters {
        let families: Vec<String> = vcenter.ip_families.iter().map(ToString::to_string).collect();
        set(&mut settings, &format!("vcenter {} ip-family", vcenter.name), families.join(","));
        set(&mut settings, &format!("vcenter {} server", vcenter.name), &vcenter.server);
    }
    set(&mut settings, "zone", config.labels.zone.as_deref().unwrap_or_default());
    set(&mut settings, "region", config.labels.region.as_deref().unwrap_or_default());
    for (name, rules) in
        [("internal", &config.nodes.internal), ("external", &config.nodes.external)]
    {
        of_rules(name, rules, &mut settings);
    }
    settings
}

fn of_rules(name: &str, rules: &AddressRules, settings: &mut Settings) {
    let join =
        |subnets: &[Subnet]| subnets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    set(settings, &format!("{name} subnets"), join(&rules.subnets));
    set(settings, &format!("{name} excluded"), join(&rules.excluded));
    set(settings, &format!("{name} network"), rules.network.as_deref().unwrap_or_default());
}

fn of_driver(config: &CsiConfig) -> Settings {
    let mut settings = Settings::new();
    for csi in &config.vcenters {
        of_vcenter(&csi.vcenter, &mut settings);
        let url = csi.migration_datastore_url.as_deref().unwrap_or_default();
        set(&mut settings, &format!("vcenter {} migration", csi.vcenter.name), url);
    }
    let text = |id: Option<String>| id.unwrap_or_default();
    let limit = |limit: Option<u32>| text(limit.map(|limit| limit.to_string()));
    let intervals = &config.intervals;
    let labels = config.topology.iter().map(|it| format!("{}={}", it.name, it.label));
    for (name, value) in [
        ("cluster-id", text(config.cluster_id.as_ref().map(ToString::to_string))),
        ("cluster-distribution", text(config.cluster_distribution.clone())),
        ("auth-check", (intervals.auth_check.as_secs() / 60).to_string()),
        ("preferred-datastores", (intervals.preferred_datastores.as_secs() / 60).to_string()),
        ("operation-cleanup", (intervals.operation_cleanup.as_secs() / 60).to_string()),
        ("migration-cleanup", (intervals.migration_cleanup.as_secs() / 60).to_string()),
        ("query-limit", config.query_limit.to_string()),
        ("list-volume-threshold", config.list_volume_threshold.to_string()),
        ("snapshots", config.snapshots.per_volume.to_string()),
        ("snapshots vsan", limit(config.snapshots.vsan)),
        ("snapshots vvol", limit(config.snapshots.vvol)),
        ("topology", labels.collect::<Vec<_>>().join(",")),
    ] {
        set(&mut settings, name, value);
    }
    for it in &config.net_permissions {
        let value = format!("{} {} {}", it.ips, it.access.name(), it.root_squash);
        set(&mut settings, &format!("permission {}", it.name), value);
    }
    settings
}

fn of_vcenter(vcenter: &VCenter, settings: &mut Settings) {
    let (secret, inline) = match &vcenter.credentials {
        CredentialSource::Inline(inline) => (String::new(), Some(inline)),
        CredentialSource::Secret(name) => (name.to_string(), None),
        CredentialSource::Directory(path) => (path.display().to_string(), None),
    };
    let user = inline.map(|inline| inline.user.clone());
    let password = inline.map(|inline| inline.password.expose_secret().to_owned());
    let (ca_file, thumbprint) = match &vcenter.trust {
        Trust::Insecure => (String::new(), String::new()),
        Trust::Verify { roots, thumbprint } => {
            let file = match roots {
                Roots::File(path) => path.display().to_string(),
                Roots::System => String::new(),
            };
            (file, thumbprint.as_ref().map(ToString::to_string).unwrap_or_default())
        }
    };
    for (name, value) in [
        ("port", vcenter.endpoint.port().to_string()),
        ("insecure", (vcenter.trust == Trust::Insecure).to_string()),
        ("datacenters", vcenter.datacenters.join(" | ")),
        ("secret", secret),
        ("user", user.unwrap_or_default()),
        ("password", password.unwrap_or_default()),
        ("ca-file", ca_file),
        ("thumbprint", thumbprint),
    ] {
        set(settings, &format!("vcenter {} {name}", vcenter.name), value);
    }
}

fn set(settings: &mut Settings, name: &str, value: impl Into<String>) {
    let value = value.into();
    if !value.is_empty() {
        settings.insert(name.to_owned(), value);
    }
}
