//! Prints the virtual machines of a vCenter: name, power, zone, host and addresses. With `--watch` it goes on
//! to print each machine that changes, until Ctrl-C.
//!
//! ```sh
//! VSPHERE_PASSWORD=… cargo run -p vsphere --example inventory -- --server vcenter.example --user me@vsphere.local
//! ```

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    env,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use vsphere::{
    collector::Change,
    connection::{Connection, Settings},
    endpoint::Endpoint,
    error::{Error, Remedy},
    inventory::{Datacenter, Host, PowerState, Vm},
    proxy::Proxy,
    reference::Ref,
    session::Credentials,
    tags::{TagCache, TagMap},
    tls::{Roots, Thumbprint, Trust},
    types::ManagedObject,
};

/// How soon a watch that failed is started again.
const RETRY: Duration = Duration::from_secs(3);

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
        // A library does not read the environment; a program does.
        let proxy = Proxy::from_variables(|name| env::var(name).ok());
        let trust = self.trust();
        Ok(Settings { trust, proxy, ..Settings::new(self.server.clone(), credentials) })
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
        Some(error @ Error { remedy: Remedy::NoPermission { .. }, .. }) => format!(
            "{error}\nThe role Read-only is enough: in the vSphere Client choose the vCenter itself, then \
             Permissions, Add, {}, Read-only, \"Propagate to children\".",
            arguments.user
        ),
        Some(error @ Error { remedy: Remedy::Login, .. }) => {
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
    let zones = Zones::read(connection, &arguments.zone_category).await?;
    if arguments.watch {
        return follow(connection, &zones).await;
    }
    let vms = connection.list().await?;
    check(connection, &vms).await?;
    table(connection, &zones, vms).await
}

/// Prints the table, and then each machine that changes, for ever.
async fn follow(connection: &Connection, zones: &Zones) -> Result<()> {
    let mut worked = false;
    loop {
        let Err(error) = watch(connection, zones, &mut worked).await;
        match error.downcast_ref::<Error>() {
            // Once it worked it is worth waiting until it works again.
            Some(_) if worked => writeln!(io::stderr(), "warning: {error}")?,
            _ => return Err(error),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The same until vCenter fails or loses the session.
async fn watch(connection: &Connection, zones: &Zones, worked: &mut bool) -> Result<Infallible> {
    let mut collector = connection.collector().await?;
    let root = connection.inventory().root().await?;
    let view = collector.below(&root, &["VirtualMachine"]).await?;
    collector.filter::<Vm>(&[view], None, |change| change).await?;
    let (mut vms, mut shown) = (HashMap::<Ref<ManagedObject>, Vm>::new(), false);
    loop {
        let page = collector.next().await?;
        let mut changed = BTreeSet::new();
        for change in page.changes {
            match change {
                Change::Entered(vm) => {
                    changed.insert(vm.reference.upcast());
                    vms.insert(vm.reference.upcast(), vm);
                }
                Change::Changed(delta) => {
                    changed.insert(delta.reference());
                    if let Some(vm) = vms.get_mut(&delta.reference()) {
                        delta.apply(vm);
                    }
                }
                Change::Left(gone) => {
                    if let Some(vm) = vms.remove(&gone) {
                        writeln!(io::stdout(), "{} is gone", vm.name)?;
                    }
                }
            }
        }
        if shown {
            let changed: Vec<_> = changed.iter().filter_map(|vm| vms.get(vm)).cloned().collect();
            for row in rows(connection, zones, &changed).await? {
                writeln!(io::stdout(), "{}", row.join("  "))?;
            }
        } else if page.complete {
            let all: Vec<_> = vms.values().cloned().collect();
            check(connection, &all).await?;
            table(connection, zones, all).await?;
            (shown, *worked) = (true, true);
        }
    }
}

/// An empty list may mean that the user sees nothing.
async fn check(connection: &Connection, vms: &[Vm]) -> Result<()> {
    if vms.is_empty() && connection.list::<Datacenter>().await?.is_empty() {
        connection.inventory().check_sight().await?;
        return Err(anyhow!(
            "{} shows no object to this user; if it is not empty, grant the user the role Read-only on its \
             datacenters with \"Propagate to children\"",
            connection.vcenter()
        ));
    }
    if vms.is_empty() {
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
        let tags = TagCache::new(connection, [category]).refresh().await?;
        if !tags.missing().is_empty() {
            writeln!(
                io::stderr(),
                "note: no zones: there is no category {category}, or the user may not see it"
            )?;
        }
        Ok(Self { category: category.to_owned(), tags })
    }
}

async fn table(connection: &Connection, zones: &Zones, mut vms: Vec<Vm>) -> Result<()> {
    let head = ["NAME", "POWER", "ZONE", "HOST", "ADDRESSES"].map(str::to_owned);
    vms.retain(|vm| !vm.template);
    vms.sort_by(|one, other| (&one.name, &one.reference).cmp(&(&other.name, &other.reference)));
    let rows = [vec![head], rows(connection, zones, &vms).await?].concat();
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

/// Machines as the table shows them: a handful of requests, however many there are.
async fn rows(connection: &Connection, zones: &Zones, vms: &[Vm]) -> Result<Vec<[String; 5]>> {
    let references: Vec<_> = vms.iter().map(|vm| vm.reference.clone()).collect();
    let ancestors = connection.inventory().ancestors(&references).await?;
    let hosts: BTreeSet<_> = vms.iter().filter_map(|vm| vm.host.clone()).collect();
    let hosts: Vec<Host> = connection.read(&hosts.into_iter().collect::<Vec<_>>()).await?;
    let unknown = || "-".to_owned();
    let row = |vm: &Vm| {
        let power = match &vm.power {
            PowerState::On => "on",
            PowerState::Off => "off",
            other => other.as_str(),
        };
        let host = hosts.iter().find(|host| vm.host.as_ref() == Some(&host.reference));
        let above = ancestors.get(&vm.reference);
        let zone = above.and_then(|above| zones.tags.nearest(above, &zones.category));
        [
            vm.name.clone(),
            power.to_owned(),
            zone.map_or_else(unknown, str::to_owned),
            host.map_or_else(unknown, |host| host.name.clone()),
            vm.ip_address.clone().unwrap_or_else(unknown),
        ]
    };
    Ok(vms.iter().map(row).collect())
}
