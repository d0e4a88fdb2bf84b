//! Prints the virtual machines of a vCenter: name, power, zone, host and addresses. With `--watch` it goes on
//! to print each machine that changes, until Ctrl-C.
//!
//! ```sh
//! VSPHERE_PASSWORD=… cargo run -p vsphere --example inventory -- --server vcenter.example --user me@vsphere.local
//! ```

use std::{
    env,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use futures::StreamExt;
use vsphere::{
    connection::{Connection, Settings},
    endpoint::Endpoint,
    error::Error,
    inventory::{Entity, Mirror, PowerState, Vm},
    property::Object,
    session::Credentials,
    tags::{TagCache, TagMap},
    tls::{Roots, Thumbprint, Trust},
    watch::Change,
};

/// Prints the virtual machines of a vCenter.
#[derive(Debug, Parser)]
struct Arguments {
    /// vCenter's host name or address, and its port if it is not 443
    #[arg(long, value_name = "HOST[:PORT]")]
    server: Endpoint,
    /// A user with its domain, such as me@vsphere.local
    #[arg(long)]
    user: String,
    /// The environment variable that has the user's password
    #[arg(long, value_name = "NAME", default_value = "VSPHERE_PASSWORD")]
    password_env: String,
    /// A PEM file with the authority that signed vCenter's certificate
    #[arg(long, value_name = "FILE", conflicts_with_all = ["thumbprint", "insecure"])]
    ca: Option<PathBuf>,
    /// The SHA-256 or SHA-1 of vCenter's certificate
    #[arg(long, conflicts_with = "insecure")]
    thumbprint: Option<Thumbprint>,
    /// Accept any certificate: whoever answers gets the password
    #[arg(long)]
    insecure: bool,
    /// The category whose tags on clusters, hosts, folders or datacenters are zones
    #[arg(long, value_name = "CATEGORY", default_value = "k8s-zone")]
    zone_category: String,
    /// Go on and print each machine that changes
    #[arg(long)]
    watch: bool,
}

impl Arguments {
    fn settings(&self) -> Result<Settings> {
        let password = env::var(&self.password_env).with_context(|| {
            format!("no password: set the environment variable {}", self.password_env)
        })?;
        let credentials = Credentials::password(&self.user, password);
        Ok(Settings { trust: self.trust(), ..Settings::new(self.server.clone(), credentials) })
    }

    fn trust(&self) -> Trust {
        if self.insecure {
            return Trust::Insecure;
        }
        let roots = self.ca.clone().map_or(Roots::System, Roots::File);
        Trust::Verify { roots, thumbprint: self.thumbprint.clone() }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Err(error) = run(&arguments).await else {
        return ExitCode::SUCCESS;
    };
    // There is nobody left to tell when standard error is closed.
    writeln!(io::stderr(), "error: {}", explained(&error, &arguments)).unwrap_or_default();
    ExitCode::FAILURE
}

/// What went wrong and what to do about it. The client's errors say both in one sentence.
fn explained(error: &anyhow::Error, arguments: &Arguments) -> String {
    match error.downcast_ref::<Error>() {
        Some(error @ Error::NoPermission { .. }) => format!(
            "{error}\nThe role Read-only is enough: in the vSphere Client choose the vCenter itself, then \
             Permissions, Add, {}, Read-only, \"Propagate to children\".",
            arguments.user
        ),
        Some(error @ Error::Login(_)) => {
            format!("{error}\nCheck --user and what {} holds.", arguments.password_env)
        }
        Some(error) => error.to_string(),
        None => format!("{error:#}"),
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    let connection = Connection::new(&arguments.settings()?)?;
    let printed = tokio::select! {
        printed = print(&connection, arguments) => printed,
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Into::into),
    };
    connection.close().await;
    printed
}

async fn print(connection: &Connection, arguments: &Arguments) -> Result<()> {
    let mut mirror = Mirror::new(connection.inventory().root().await?);
    let zones = Zones::read(connection, &arguments.zone_category).await?;
    if arguments.watch {
        return follow(connection, &mut mirror, &zones).await;
    }
    for entity in connection.list::<Entity>().await? {
        mirror.apply(Change::Entered(entity));
    }
    check(connection, &mirror).await?;
    table(&mirror, &zones)
}

/// Prints the table, and then each machine that changes, for ever.
async fn follow(connection: &Connection, mirror: &mut Mirror, zones: &Zones) -> Result<()> {
    let mut watch = connection.watch::<Entity>();
    while let Some(change) = watch.next().await {
        let change = match change {
            Ok(change) => change,
            // Once it worked it is worth waiting until it works again.
            Err(error) if mirror.is_synced() => {
                writeln!(io::stderr(), "warning: {error}")?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let changed = match &change {
            Change::Entered(entity) => Some(entity.reference()),
            Change::Changed(delta) => Some(delta.reference()),
            Change::Left(_) | Change::Synced => None,
        };
        let first = change == Change::Synced && !mirror.is_synced();
        if let Change::Left(gone) = &change
            && let Some(Entity::Vm(vm)) = mirror.get(gone)
        {
            writeln!(io::stdout(), "{} is gone", vm.name)?;
        }
        mirror.apply(change);
        if first {
            check(connection, mirror).await?;
            table(mirror, zones)?;
        } else if mirror.is_synced()
            && let Some(Entity::Vm(vm)) = changed.and_then(|changed| mirror.get(&changed))
        {
            writeln!(io::stdout(), "{}", row(mirror, zones, vm).join("  "))?;
        }
    }
    Ok(())
}

/// An empty list may mean that the user sees nothing.
async fn check(connection: &Connection, mirror: &Mirror) -> Result<()> {
    if mirror.entities().next().is_none() {
        connection.inventory().check_sight().await?;
        return Err(anyhow!(
            "{} shows no object to this user; if it is not empty, grant the user the role Read-only on its \
             datacenters with \"Propagate to children\"",
            connection.vcenter()
        ));
    }
    if mirror.vms().next().is_none() {
        writeln!(
            io::stderr(),
            "note: there is no VM, or the user lacks the role Read-only on the folders of the VMs"
        )?;
    }
    Ok(())
}

/// The zones of a vCenter: tags of one category.
struct Zones {
    category: String,
    tags: Arc<TagMap>,
}

impl Zones {
    async fn read(connection: &Connection, category: &str) -> Result<Self> {
        let tags = TagCache::new(connection, [category]).get().await?;
        if !tags.missing().is_empty() {
            writeln!(
                io::stderr(),
                "note: no zones: there is no category {category}, or the user may not see it"
            )?;
        }
        Ok(Self { category: category.to_owned(), tags })
    }

    /// The zone of a VM: the tag on the nearest of what it runs in.
    fn zone_of(&self, mirror: &Mirror, vm: &Vm) -> Option<String> {
        let way = mirror.ancestors(&vm.reference)?;
        self.tags.nearest(&way, &self.category).map(str::to_owned)
    }
}

fn table(mirror: &Mirror, zones: &Zones) -> Result<()> {
    let head = ["NAME", "POWER", "ZONE", "HOST", "ADDRESSES"].map(str::to_owned);
    let mut machines: Vec<&Vm> = mirror.vms().filter(|vm| !vm.template).collect();
    machines
        .sort_by(|one, other| (&one.name, &one.reference).cmp(&(&other.name, &other.reference)));
    let rows: Vec<_> =
        [head].into_iter().chain(machines.iter().map(|vm| row(mirror, zones, vm))).collect();
    let widths: [usize; 5] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    });
    let mut out = io::stdout().lock();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// A machine as the table shows it.
fn row(mirror: &Mirror, zones: &Zones, vm: &Vm) -> [String; 5] {
    let unknown = || "-".to_owned();
    let power = match &vm.power {
        PowerState::On => "on",
        PowerState::Off => "off",
        other => other.as_str(),
    };
    let host = vm.host.as_ref().and_then(|host| mirror.host(host));
    let addresses: Vec<&str> = vm
        .nics
        .iter()
        // Bridges and tunnels inside of the guest have no card.
        .filter(|nic| nic.device_config_id >= 0)
        .flat_map(|nic| &nic.ip_address)
        .map(String::as_str)
        .filter(|address| !address.starts_with("fe80:"))
        .collect();
    [
        vm.name.clone(),
        power.to_owned(),
        zones.zone_of(mirror, vm).unwrap_or_else(unknown),
        host.map_or_else(unknown, |host| host.name.clone()),
        if addresses.is_empty() { unknown() } else { addresses.join(",") },
    ]
}
