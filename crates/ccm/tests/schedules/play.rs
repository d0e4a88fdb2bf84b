//! Plays a schedule, waits until everything is as it should be, and reports how long that took.

use std::{cell::Cell, time::Duration};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;
use lab::{
    Wait,
    kubelet::{
        SHUTDOWN, UNINITIALIZED, addresses, annotation, condition_status, has_taint,
        is_initialised, label, provider_id, register, report_ready,
    },
    until,
    vcenter::{CloneSpec, HttpFault, HttpFaultKind, Power},
};

use crate::{
    lane::{Lane, Machine, Sessions},
    manager::{BOUND, Running, eager},
    script::{MACHINES, Outage, Script, Step, VCENTERS, Who, home},
    witness::Seen,
};

/// A machine, and what is true of it.
struct Model {
    machine: Machine,
    joined: bool,
    ready: bool,
    power: Power,
    removal: Option<Removal>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Removal {
    Destroyed,
    Unregistered,
}

/// What a beat waits for besides a round trip to all servers.
const PAUSE: Duration = Duration::from_millis(100);
/// Ten seconds on a machine that has nothing else to do. On a busy one beats are as much longer as everything else is.
pub(crate) const MOST_BEATS: u32 = 100;

/// How a schedule ended well.
pub(crate) struct Converged {
    /// How many beats after its last step everything was right.
    pub(crate) after: u32,
    /// What was wrong until then.
    pub(crate) last: &'static str,
}

/// A schedule that is being played.
struct Player<'a> {
    lane: &'a mut Lane,
    slot: usize,
    models: Vec<Model>,
    running: Option<Running>,
    /// What a process keeps over reloads.
    context: ccm::Context,
    outages: [Option<Outage>; VCENTERS],
    /// Whether a session may be left that nobody could log out, because vCenter did not answer or we were killed.
    stranded: [bool; VCENTERS],
    /// Whether the configuration names the datacenters.
    datacenters: bool,
    readdressed: usize,
}

/// Plays a schedule.
pub(crate) async fn play(lane: &mut Lane, slot: usize, script: &Script) -> Result<Converged> {
    let model = |at| Model {
        machine: Machine::of(slot, at),
        joined: false,
        ready: false,
        power: Power::On,
        removal: None,
    };
    let models = (0..MACHINES).map(model).collect();
    let mut player = Player {
        context: ccm::Context::new(lane.client.clone()),
        lane,
        slot,
        models,
        running: None,
        outages: [None; VCENTERS],
        stranded: [false; VCENTERS],
        datacenters: false,
        readdressed: 0,
    };
    let played = Box::pin(player.play(script)).await;
    if let Some(running) = player.running.take() {
        running.stop().await;
    }
    played
}

impl Player<'_> {
    async fn play(&mut self, script: &Script) -> Result<Converged> {
        self.lane.log_in_as(Who::Usual).await?;
        self.start();
        let foreign = self.add_foreign().await?;
        for step in &script.steps {
            self.take(*step).await.with_context(|| format!("{step:?}"))?;
        }
        let converged = self.converge().await?;
        self.check_sessions(Sessions { soap: 1, rest: 1 }).await?;
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
        self.check_sessions(Sessions { soap: 0, rest: 0 }).await?;
        self.clean_up(&foreign).await?;
        // Cleaning up has changed nothing of what was to be right, and may have shown harm.
        let harm = &self.lane.witness.seen().harm;
        if harm.is_empty() { Ok(converged) } else { bail!("{}", harm.join("\n")) }
    }

    /// Waits until everything is right, which must be soon.
    async fn converge(&mut self) -> Result<Converged> {
        let last = Cell::new("nothing");
        for after in 0..=MOST_BEATS {
            match self.look(&last)? {
                Wait::Done(()) => return Ok(Converged { after, last: last.get() }),
                Wait::NotYet(seen) if after == MOST_BEATS => {
                    bail!("not right {MOST_BEATS} beats after the last step: {seen}");
                }
                Wait::NotYet(_) => {}
            }
            tokio::time::sleep(PAUSE).await;
            self.lane.beat().await?;
        }
        bail!("not right");
    }

    fn start(&mut self) {
        // As eager as can be, so that what is wrong to delete would be deleted.
        let config = self.lane.config(self.datacenters);
        self.running = Some(Running::start(self.context.clone(), config, eager()));
    }

    async fn stop(&mut self) {
        for (stranded, outage) in self.stranded.iter_mut().zip(&self.outages) {
            *stranded |= outage.is_some();
        }
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
    }

    /// A Node of another cloud, which looks as if it needed us.
    async fn add_foreign(&self) -> Result<String> {
        let name = format!("foreign-{}", self.slot);
        let uuid = &self.models[0].machine.uuid;
        let node = register(&self.lane.nodes, &name, uuid, Some("k3s://foreign")).await?;
        self.lane.witness.seen().foreign.insert(name.clone(), node.metadata.resource_version);
        Ok(name)
    }

    async fn take(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Pause(milliseconds) => {
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            }
            Step::Join(at) => {
                let Machine { name, uuid, .. } = &self.models[at].machine;
                register(&self.lane.nodes, name, uuid, None).await?;
                self.models[at].joined = true;
            }
            Step::Ready(at, ready) => {
                self.models[at].ready = ready;
                let name = &self.models[at].machine.name;
                match report_ready(&self.lane.nodes, name, ready).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    other => drop(other?),
                }
            }
            Step::StartAgain => {
                self.stop().await;
                self.context = ccm::Context::new(self.lane.client.clone());
                self.start();
            }
            Step::Reload => {
                self.datacenters = !self.datacenters;
                self.stop().await;
                self.start();
            }
            Step::Kill => {
                self.stranded = [true; VCENTERS];
                drop(self.running.take());
                self.context = ccm::Context::new(self.lane.client.clone());
                self.start();
            }
            Step::Login(who) => {
                for (stranded, outage) in self.stranded.iter_mut().zip(&self.outages) {
                    *stranded |= outage.is_some();
                }
                self.lane.log_in_as(who).await?;
            }
            Step::Refuse(refuse) => self.lane.refuse(refuse).await,
            other => self.change(other).await?,
        }
        Ok(())
    }

    /// What happens to a VM.
    async fn change(&mut self, step: Step) -> Result<()> {
        let of = |at: usize| self.lane.vcenters[home(at)].control().clone();
        match step {
            Step::Readdress(at) => {
                self.readdressed += 1;
                let address = format!("10.98.{}.{}", self.slot, self.readdressed);
                let control = of(at);
                let model = &mut self.models[at];
                control.readdress(&model.machine.name, &[&format!("{address}/24")]).await?;
                model.machine.address = address;
            }
            Step::Power(at, power) => {
                let control = of(at);
                let model = &mut self.models[at];
                model.power = power;
                if power != Power::On {
                    self.lane.witness.seen().may_be_off.insert(model.machine.name.clone());
                }
                control.power(&model.machine.name, power).await?;
            }
            Step::Migrate(at, first) => {
                let host = if first { "esx-1" } else { "esx-2" };
                of(at).migrate(&self.models[at].machine.name, host).await?;
            }
            Step::Destroy(at) => {
                let control = of(at);
                let name = self.remove(at, Removal::Destroyed);
                control.delete(&name).await?;
            }
            Step::Unregister(at) => {
                let control = of(at);
                let name = self.remove(at, Removal::Unregistered);
                control.unregister(&name).await?;
            }
            Step::Clone(at, powered_on) => {
                let name = &self.models[at].machine.name;
                let clone = CloneSpec { keep_uuid: true, extra_config: true, powered_on };
                of(at).clone_vm(name, &format!("{name}-copy"), clone).await?;
            }
            Step::Unclone(at) => {
                of(at).delete(&format!("{}-copy", self.models[at].machine.name)).await?;
            }
            other => self.disturb(other).await?,
        }
        Ok(())
    }

    /// What happens to a vCenter.
    async fn disturb(&mut self, step: Step) -> Result<()> {
        let of = |at: usize| self.lane.vcenters[at].control().clone();
        match step {
            Step::Break(at, outage, cut) => {
                let control = of(at);
                self.heal(at).await?;
                self.outages[at] = Some(outage);
                let kind = match outage {
                    Outage::Unavailable => HttpFaultKind::Status { status: 503 },
                    Outage::Hanging => HttpFaultKind::Hang,
                    Outage::Cut => HttpFaultKind::Reset,
                    Outage::Truncated => HttpFaultKind::Truncate,
                };
                let fault = HttpFault { path: "/".to_owned(), method: None, kind, count: 0 };
                control.break_http(&fault).await?;
                if cut {
                    control.restart(0).await?;
                }
            }
            Step::Heal(at) => self.heal(at).await?,
            Step::Expire(at) => of(at).expire_sessions().await?,
            Step::Restart(at, milliseconds) => of(at).restart(milliseconds).await?,
            _ => {}
        }
        Ok(())
    }

    fn remove(&mut self, at: usize, removal: Removal) -> String {
        let model = &mut self.models[at];
        model.removal = Some(removal);
        let name = model.machine.name.clone();
        let mut seen = self.lane.witness.seen();
        // It is powered off first.
        seen.may_be_off.insert(name.clone());
        // One that is only unregistered may come back.
        if removal == Removal::Destroyed {
            seen.may_go.insert(name.clone());
        }
        name
    }

    async fn heal(&mut self, at: usize) -> Result<()> {
        let control = self.lane.vcenters[at].control();
        let outage = self.outages[at].take();
        if outage.is_some() {
            control.disarm().await?;
        }
        if outage == Some(Outage::Hanging) {
            // What hangs would hang until the client's patience is over; somebody restarts such a vCenter.
            control.restart(0).await?;
        } else if self.stranded[at] {
            // They end by themselves after half an hour.
            control.expire_sessions().await?;
        }
        self.stranded[at] = false;
        Ok(())
    }

    /// Whether all is as it should be. Harm that was done does not become better by waiting.
    fn look(&self, last: &Cell<&'static str>) -> Result<Wait<()>> {
        let seen = self.lane.witness.seen();
        if !seen.harm.is_empty() {
            bail!("{}", seen.harm.join("\n"));
        }
        for model in &self.models {
            if let Err(wrong) = model.check(&seen) {
                last.set(wrong);
                let name = &model.machine.name;
                let node = seen.nodes.get(name);
                return Ok(Wait::NotYet(format!("{name}: {wrong}: {node:?}")));
            }
        }
        Ok(Wait::Done(()))
    }

    async fn check_sessions(&self, most: Sessions) -> Result<()> {
        for vcenter in 0..VCENTERS {
            until("no session is left over", BOUND, || async {
                let open = self.lane.sessions(vcenter).await;
                let few = open.soap <= most.soap && open.rest <= most.rest;
                Ok(if few { Wait::Done(()) } else { Wait::NotYet(format!("{open:?}")) })
            })
            .await?;
        }
        Ok(())
    }

    async fn clean_up(&self, foreign: &str) -> Result<()> {
        let own = self.models.iter().map(|model| model.machine.name.as_str());
        for name in own.chain([foreign]) {
            self.lane.witness.seen().may_go.insert(name.to_owned());
            match self.lane.nodes.delete(name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => drop(other?),
            }
        }
        until("all Nodes are gone", BOUND, || async {
            let left = self.lane.witness.seen().nodes.len();
            Ok(if left == 0 { Wait::Done(()) } else { Wait::NotYet(format!("{left} are left")) })
        })
        .await
    }
}

/// What is not yet as it should be, if something is not.
type Check = Result<(), &'static str>;

impl Model {
    fn check(&self, seen: &Seen) -> Check {
        let node = seen.nodes.get(&self.machine.name);
        let Some(removal) = self.removal else {
            return node.ok_or("it is not there").and_then(|node| self.check_kept(node));
        };
        match node {
            None if self.ready => Err("it is ready and was deleted"),
            None if removal == Removal::Unregistered => {
                Err("its VM was unregistered and it was deleted")
            }
            None => Ok(()),
            Some(node) if self.ready || removal == Removal::Unregistered => self.check_taint(node),
            Some(node) if annotation(node, "ccm.vsphere.vmware.com/vm").is_some() => {
                Err("its VM was destroyed and it is still there")
            }
            Some(node) if !has_taint(node, UNINITIALIZED) => Err("it was initialised without VM"),
            Some(_) => Ok(()),
        }
    }

    fn check_kept(&self, node: &Node) -> Check {
        let state = condition_status(node, "VSphereReady");
        if self.power != Power::On {
            if state != Some("False") {
                return Err("it does not say that its VM is off");
            }
            if !self.ready && !has_taint(node, SHUTDOWN) {
                return Err("it is not said to be shut down");
            }
            return self.check_taint(node);
        }
        if !is_initialised(node) {
            return Err("it is not initialised");
        }
        let id = format!("vsphere://{}", self.machine.uuid);
        if provider_id(node) != Some(id.as_str()) {
            return Err("it has the provider id of another VM");
        }
        if addresses(node).get("InternalIP") != Some(&self.machine.address) {
            return Err("it has another address");
        }
        if label(node, "topology.kubernetes.io/zone") != Some("zone-1") {
            return Err("it has no zone");
        }
        if state != Some("True") {
            return Err("it does not say that all is well");
        }
        self.check_taint(node)
    }

    fn check_taint(&self, node: &Node) -> Check {
        let stale = self.ready && has_taint(node, SHUTDOWN);
        if stale { Err("it is ready and said to be shut down") } else { Ok(()) }
    }
}
