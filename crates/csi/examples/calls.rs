//! Calls a CSI controller over its socket and measures: what `cargo xtask bench csi` has beside the driver.
//!
//! `calls SOCKET`. Each line on standard input is a command, and is answered with one line of JSON:
//!
//! ```text
//! ready                                  waits until the socket answers Probe with ready
//! create GROUP COUNT CALLERS             makes volumes, named as the provisioner names them
//! attach GROUP COUNT CALLERS NODE        attaches the first volumes of a group
//! detach GROUP COUNT CALLERS NODE
//! delete GROUP COUNT CALLERS
//! ids GROUP                              the ids of a group's volumes
//! ```
//!
//! It ends when standard input ends. A call that is refused for the time being is repeated, as sidecars do.

use std::{
    collections::HashMap,
    io::{self, BufRead, Write},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use csi::{
    client::Client,
    proto::{
        CapacityRange, ControllerPublishVolumeRequest, ControllerPublishVolumeResponse,
        ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateVolumeRequest,
        CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse, ProbeRequest,
        ProbeResponse, VolumeCapability,
        volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
    },
};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use tonic::{Code, Status};

/// A controller that does not serve after this time never will.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(2);
const SIZE: i64 = 10 << 20;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<()> {
    let socket = std::env::args_os().nth(1).context("usage: calls SOCKET")?;
    let mut caller = Caller { client: None, groups: HashMap::new() };
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = caller.obey(Path::new(&socket), &words).await?;
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

struct Caller {
    client: Option<Client>,
    /// The ids of the volumes of each group.
    groups: HashMap<String, Vec<String>>,
}

impl Caller {
    async fn obey(&mut self, socket: &Path, words: &[&str]) -> Result<Value> {
        match words {
            ["ready"] => {
                self.client = Some(ready(socket).await?);
                Ok(json!({}))
            }
            ["create", group, count, callers] => {
                let client = self.client()?;
                let names = (0..count.parse::<usize>()?).map(|at| name(group, at));
                let names = names.collect();
                let (answer, ids) = measured(names, callers, |name| create(client, name)).await?;
                self.groups.insert((*group).to_owned(), ids);
                Ok(answer)
            }
            ["attach", group, count, callers, node] => {
                let (client, ids) = (self.client()?, self.first(group, count)?);
                let attached = measured(ids, callers, |id| attach(client, id, node)).await?;
                Ok(attached.0)
            }
            ["detach", group, count, callers, node] => {
                let (client, ids) = (self.client()?, self.first(group, count)?);
                let detached = measured(ids, callers, |id| detach(client, id, node)).await?;
                Ok(detached.0)
            }
            ["delete", group, count, callers] => {
                let (client, ids) = (self.client()?, self.first(group, count)?);
                Ok(measured(ids, callers, |id| delete(client, id)).await?.0)
            }
            ["ids", group] => Ok(json!(self.groups.get(*group))),
            other => bail!("unknown command {other:?}"),
        }
    }

    fn client(&self) -> Result<&Client> {
        self.client.as_ref().context("the first command must be `ready`")
    }

    fn first(&self, group: &str, count: &str) -> Result<Vec<String>> {
        let ids = self.groups.get(group).with_context(|| format!("no group {group}"))?;
        Ok(ids.iter().take(count.parse()?).cloned().collect())
    }
}

/// The name of a volume of a group: from 9.1 the Go driver takes nothing else than the UID of a claim.
fn name(group: &str, number: usize) -> String {
    let group =
        group.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    format!("pvc-{group:08x}-5eed-4000-8000-{number:012x}")
}

async fn ready(socket: &Path) -> Result<Client> {
    let began = Instant::now();
    loop {
        if let Ok(mut client) = Client::connect(socket).await {
            let probed: Result<ProbeResponse, _> =
                client.call("/csi.v1.Identity/Probe", ProbeRequest {}).await;
            // Without a word the driver is ready.
            if probed.is_ok_and(|answer| answer.ready.unwrap_or(true)) {
                return Ok(client);
            }
        }
        if began.elapsed() > PATIENCE {
            bail!("nothing is ready at {}", socket.display());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Makes the calls, so many at once, and returns how long they took, and what each answered.
async fn measured<F>(
    subjects: Vec<String>,
    callers: &str,
    call: impl Fn(String) -> F,
) -> Result<(Value, Vec<String>)>
where
    F: Future<Output = Result<String, Status>>,
{
    let (began, call) = (Instant::now(), &call);
    let calls = subjects.into_iter().map(|subject| async move {
        let (began, mut repeated) = (Instant::now(), 0);
        loop {
            match call(subject.clone()).await {
                Ok(answer) => {
                    return Ok((answer, began.elapsed().as_secs_f64() * 1e3, repeated));
                }
                Err(status) if is_passing(&status) && began.elapsed() < PATIENCE => repeated += 1,
                Err(status) => return Err(status).with_context(|| format!("call for {subject}")),
            }
            tokio::time::sleep(10 * PAUSE).await;
        }
    });
    let done: Vec<(String, f64, u64)> =
        stream::iter(calls).buffered(callers.parse()?).try_collect().await?;
    let seconds = began.elapsed().as_secs_f64();
    let milliseconds: Vec<f64> = done.iter().map(|(_, milliseconds, _)| *milliseconds).collect();
    let repeated: u64 = done.iter().map(|(.., repeated)| repeated).sum();
    let answer = json!({"seconds": seconds, "milliseconds": milliseconds, "repeated": repeated});
    Ok((answer, done.into_iter().map(|(answer, ..)| answer).collect()))
}

fn is_passing(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Aborted)
}

fn capability() -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    }
}

async fn create(client: &Client, name: String) -> Result<String, Status> {
    let request = CreateVolumeRequest {
        name,
        capacity_range: Some(CapacityRange { required_bytes: SIZE, limit_bytes: 0 }),
        volume_capabilities: vec![capability()],
        ..CreateVolumeRequest::default()
    };
    let method = "/csi.v1.Controller/CreateVolume";
    let answer: CreateVolumeResponse = client.clone().call(method, request).await?;
    Ok(answer.volume.unwrap_or_default().volume_id)
}

async fn attach(client: &Client, volume_id: String, node: &str) -> Result<String, Status> {
    let request = ControllerPublishVolumeRequest {
        volume_id,
        node_id: node.to_owned(),
        volume_capability: Some(capability()),
        ..ControllerPublishVolumeRequest::default()
    };
    let method = "/csi.v1.Controller/ControllerPublishVolume";
    let _answer: ControllerPublishVolumeResponse = client.clone().call(method, request).await?;
    Ok(String::new())
}

async fn detach(client: &Client, volume_id: String, node: &str) -> Result<String, Status> {
    let node_id = node.to_owned();
    let request = ControllerUnpublishVolumeRequest {
        volume_id,
        node_id,
        ..ControllerUnpublishVolumeRequest::default()
    };
    let method = "/csi.v1.Controller/ControllerUnpublishVolume";
    let _answer: ControllerUnpublishVolumeResponse = client.clone().call(method, request).await?;
    Ok(String::new())
}

async fn delete(client: &Client, volume_id: String) -> Result<String, Status> {
    let request = DeleteVolumeRequest { volume_id, ..DeleteVolumeRequest::default() };
    let method = "/csi.v1.Controller/DeleteVolume";
    let _answer: DeleteVolumeResponse = client.clone().call(method, request).await?;
    Ok(String::new())
}
