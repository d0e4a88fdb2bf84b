//! What `cargo xtask bench vsphere` measures: reads, watches and tasks of a vCenter, one JSON line each. And what
//! `cargo xtask bench csi` compares the driver with: creating volumes with nothing but the calls for it.
//!
//! `measure read URL CA_FILE USER REPEAT`, `measure watch URL CA_FILE USER`, `measure tasks URL CA_FILE USER`,
//! `measure create URL CA_FILE USER DATASTORE COUNT CALLERS`; the password
//! is in `VSPHERE_PASSWORD`. It ends when standard input ends, so that somebody can look at its memory and CPU
//! time before.

use std::{
    convert::Infallible,
    io::{self, Read, Write},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use vsphere::{
    cns::NewVolume,
    collector::Change,
    connection::{Connection, Settings},
    object,
    session::Credentials,
    soap::Service,
    tls::{Roots, Trust},
    types::{
        CnsContainerCluster, CnsVolumeMetadata, Datastore, GuestNicInfo, HostSystem, PowerOffVm,
        VirtualMachine,
    },
};

object! {
    /// The ten properties that govmomi's program reads, too.
    struct Vm: VirtualMachine {
        name: String = "name",
        power: String = "runtime.powerState",
        host: Option<vsphere::reference::Ref<HostSystem>> = "runtime.host",
        uuid: Option<String> = "config.uuid",
        instance_uuid: Option<String> = "config.instanceUuid",
        ip: Option<String> = "guest.ipAddress",
        nics: Vec<GuestNicInfo> = "guest.net",
        tools: Option<String> = "guest.toolsRunningStatus",
        hardware: Option<String> = "config.version",
        cpus: Option<i32> = "config.hardware.numCPU",
    }
}

object! {
    /// A datastore by its name.
    struct Named: Datastore {
        name: String = "name",
    }
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, url, authority, user, rest @ ..] = arguments.as_slice() else {
        bail!("usage: measure read|watch|tasks|create URL CA_FILE USER …");
    };
    let password = std::env::var("VSPHERE_PASSWORD").context("VSPHERE_PASSWORD is not set")?;
    let trust = Trust::Verify { roots: Roots::File(authority.into()), thumbprint: None };
    let settings =
        Settings { trust, ..Settings::new(url.parse()?, Credentials::password(user, password)) };
    let connection = Connection::new(&settings)?;
    match mode.as_str() {
        "read" => read(&connection, rest.first().map_or(Ok(1), |repeat| repeat.parse())?).await?,
        "watch" => match watch(&connection).await? {},
        "tasks" => tasks(&connection).await?,
        "create" => create(&connection, rest).await?,
        other => bail!("{other} is none of read, watch, tasks, create"),
    }
    io::stdin().read_to_end(&mut Vec::new())?;
    connection.close().await;
    Ok(())
}

/// One line, at once.
fn say(line: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

async fn read(connection: &Connection, repeat: usize) -> Result<()> {
    let (mut seconds, mut vms) = (Vec::new(), Vec::new());
    for _ in 0..repeat {
        drop(std::mem::take(&mut vms));
        let started = Instant::now();
        vms = connection.list::<Vm>().await?;
        seconds.push(started.elapsed().as_secs_f64());
    }
    say(&serde_json::json!({"vms": vms.len(), "seconds": seconds}).to_string())
}

/// Says when everything is known, then the name of each VM that changed, until it is ended.
async fn watch(connection: &Connection) -> Result<Infallible> {
    let mut known = std::collections::HashMap::new();
    let mut collector = connection.collector().await?;
    let root = connection.inventory().root().await?;
    let view = collector.below(&root, &["VirtualMachine"]).await?;
    collector.filter::<Vm>(&[view], None, |change| change).await?;
    loop {
        let page = collector.next().await?;
        for change in page.changes {
            match change {
                Change::Entered(vm) => drop(known.insert(vm.reference.upcast(), vm)),
                Change::Changed(delta) => {
                    if let Some(vm) = known.get_mut(&delta.reference()) {
                        delta.apply(vm);
                        let line = serde_json::json!({"changed": vm.name, "power": vm.power});
                        say(&line.to_string())?;
                    }
                }
                Change::Left(reference) => drop(known.remove(&reference)),
            }
        }
        if page.complete {
            say(&serde_json::json!({"vms": known.len()}).to_string())?;
        }
    }
}

/// Starts a task for each of the first thousand VMs, then waits for all of them at once.
async fn tasks(connection: &Connection) -> Result<()> {
    let vms: Vec<Vm> = connection.list().await?;
    let mut tasks = Vec::new();
    for vm in vms.iter().filter(|vm| vm.power == "poweredOn").take(1000) {
        tasks.push(connection.call(&vm.reference, &PowerOffVm {}).await?);
    }
    say(&serde_json::json!({"started": tasks.len()}).to_string())?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let started = Instant::now();
    let limit = std::time::Duration::from_secs(120);
    let waits = tasks.iter().map(|task| connection.wait::<()>(task, Service::Vim, limit));
    for ended in futures::future::join_all(waits).await {
        ended?;
    }
    let seconds = started.elapsed().as_secs_f64();
    say(&serde_json::json!({"tasks": tasks.len(), "seconds": seconds}).to_string())
}

/// Makes volumes, so many at once.
async fn create(connection: &Connection, arguments: &[String]) -> Result<()> {
    let [datastore, count, callers] = arguments else { bail!("no DATASTORE COUNT CALLERS") };
    let stores: Vec<Named> = connection.list().await?;
    let place = stores.into_iter().find(|one| one.name == *datastore);
    let place = place.with_context(|| format!("no datastore {datastore}"))?.reference;
    let cluster = CnsContainerCluster {
        cluster_type: "KUBERNETES".to_owned(),
        cluster_id: "raw".to_owned(),
        vsphere_user: connection.login().await?,
        ..CnsContainerCluster::default()
    };
    let metadata = CnsVolumeMetadata { container_cluster: cluster, ..CnsVolumeMetadata::default() };
    let limit = std::time::Duration::from_secs(240);
    let creations = (0..count.parse::<usize>()?).map(|at| {
        let new = NewVolume {
            datastores: vec![place.clone()],
            metadata: Some(metadata.clone()),
            ..NewVolume::block(&format!("raw-{callers}-{at}"), 10)
        };
        async move {
            let began = Instant::now();
            connection.volumes().create(&new).await?.wait(limit).await?;
            anyhow::Ok(began.elapsed().as_secs_f64() * 1e3)
        }
    });
    let began = Instant::now();
    let milliseconds: Vec<f64> =
        stream::iter(creations).buffer_unordered(callers.parse()?).try_collect().await?;
    let seconds = began.elapsed().as_secs_f64();
    say(&serde_json::json!({"seconds": seconds, "milliseconds": milliseconds}).to_string())
}
