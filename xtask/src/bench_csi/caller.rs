//! Those who call a driver: the example `calls` of crate csi as a process, and VolumeAttachments.

use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead, BufReader, Write},
    path::Path,
    pin::pin,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{core::v1::PersistentVolume, storage::v1::VolumeAttachment};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
    runtime::watcher::{self, Event},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;

use super::world::{DRIVER, World};

/// Requests to Kubernetes that are on their way together.
const AT_ONCE: usize = 40;
const ATTACHED_WITHIN: Duration = Duration::from_secs(1200);

/// How long calls took.
#[derive(Deserialize)]
pub(super) struct Times {
    pub(super) seconds: f64,
    pub(super) milliseconds: Vec<f64>,
    /// Calls that were refused for the time being and made again.
    #[serde(default)]
    pub(super) repeated: u64,
}

/// A process that obeys lines and answers each with a line of JSON. Dropping it ends it.
pub(super) struct Caller {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Caller {
    pub(super) fn start(program: &Path, socket: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        Self::of(command.arg(socket))
    }

    pub(super) fn of(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, input, output })
    }

    pub(super) fn ask<T: DeserializeOwned>(&mut self, line: &str) -> Result<T> {
        let input = self.input.as_mut().context("no input")?;
        writeln!(input, "{line}")?;
        self.answer().with_context(|| format!("`{line}`"))
    }

    pub(super) fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("the caller ended without an answer: {}", self.child.wait()?);
        }
        serde_json::from_str(&line).with_context(|| format!("unexpected answer {line}"))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.input = None;
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Attaches volumes to a node as Kubernetes does, and returns how long it took from the creation of each
/// VolumeAttachment until it is attached.
pub(super) async fn attach(world: &World, node: &str, volumes: &[String]) -> Result<Times> {
    let client = world.plane.client();
    let persistent: Api<PersistentVolume> = Api::all(client.clone());
    for volume in volumes {
        let object = json!({
            "metadata": {"name": name(volume)},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Mi"},
                "csi": {"driver": DRIVER, "volumeHandle": volume, "fsType": "ext4"},
            },
        });
        let object = serde_json::from_value(object)?;
        persistent.create(&PostParams::default(), &object).await?;
    }
    let attachments: Api<VolumeAttachment> = Api::all(client);
    let mut events = pin!(watcher::watcher(attachments.clone(), watcher::Config::default()));
    let began = Instant::now();
    let creating = stream::iter(volumes)
        .map(|volume| {
            let api = attachments.clone();
            let object = json!({
                "metadata": {"name": name(volume)},
                "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": name(volume)}},
            });
            async move {
                let object = serde_json::from_value(object)?;
                let created = Instant::now();
                api.create(&PostParams::default(), &object).await?;
                anyhow::Ok((name(volume), created))
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<HashMap<String, Instant>>();
    let attached = async {
        let mut attached = BTreeMap::new();
        while attached.len() < volumes.len() {
            let event = events.next().await.context("the watch has ended")??;
            let (Event::Apply(one) | Event::InitApply(one)) = event else { continue };
            if one.status.is_some_and(|status| status.attached) {
                let name = one.metadata.name.unwrap_or_default();
                attached.entry(name).or_insert_with(Instant::now);
            }
        }
        anyhow::Ok(attached)
    };
    let both = async { tokio::try_join!(creating, attached) };
    let (created, attached) = tokio::time::timeout(ATTACHED_WITHIN, both)
        .await
        .context("not all volumes were attached within 20 minutes")??;
    let seconds = began.elapsed().as_secs_f64();
    let milliseconds = attached.iter().filter_map(|(name, at)| {
        Some(at.saturating_duration_since(*created.get(name)?).as_secs_f64() * 1e3)
    });
    Ok(Times { seconds, milliseconds: milliseconds.collect(), repeated: 0 })
}

/// Detaches volumes as Kubernetes does, and returns how long it took until each VolumeAttachment was gone.
pub(super) async fn detach(world: &World, volumes: &[String]) -> Result<Times> {
    let attachments: Api<VolumeAttachment> = Api::all(world.plane.client());
    let mut events = pin!(watcher::watcher(attachments.clone(), watcher::Config::default()));
    while !matches!(events.next().await.context("the watch has ended")??, Event::InitDone) {}
    let began = Instant::now();
    let deleting = stream::iter(volumes)
        .map(|volume| {
            let api = attachments.clone();
            async move {
                api.delete(&name(volume), &DeleteParams::default()).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>();
    let gone = async {
        let mut milliseconds = Vec::new();
        while milliseconds.len() < volumes.len() {
            if let Event::Delete(_) = events.next().await.context("the watch has ended")?? {
                milliseconds.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
        anyhow::Ok(milliseconds)
    };
    let both = async { tokio::try_join!(deleting, gone) };
    let (_, milliseconds) = tokio::time::timeout(ATTACHED_WITHIN, both)
        .await
        .context("not all volumes were detached within 20 minutes")??;
    Ok(Times { seconds: began.elapsed().as_secs_f64(), milliseconds, repeated: 0 })
}

/// The PersistentVolume and the VolumeAttachment of a volume.
fn name(volume: &str) -> String {
    format!("pvc-{volume}")
}
