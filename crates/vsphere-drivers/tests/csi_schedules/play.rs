//! Plays a schedule, and judges what is left.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use lab::vcenter::{Fault, HttpFault, Moment};
use tokio::time::sleep;

use crate::{
    calls::Caller,
    content::Content,
    guests::{Guests, Place, Traffic},
    lane::{self, Lane, Truth},
    objects::{self, Objects},
    script::{CONTROLLERS, Deed, Life, NODES, Script, Trouble},
};

const SIZE: i64 = 16;
const GROWTH: i64 = 4;
/// How the provisioner's names begin; a UUID follows.
const UNIQUE: &str = "pvc-";
/// Datastores that may get volumes, with what is free on them.
const DATASTORES: [(&str, u64); 4] =
    [("shared-1", 1500 << 30), ("vsan-1", 6 << 40), ("pod-1", 1 << 40), ("pod-2", 1 << 40)];
/// Deeds after which a trouble that waits for a call is given up.
const PATIENCE: usize = 8;
const BEAT: Duration = Duration::from_millis(20);

/// What was answered about a volume.
#[derive(Debug, Default)]
struct Known {
    name: String,
    id: Option<String>,
    mebibytes: i64,
    /// The node, and the UUID of the disk.
    on: Option<(usize, String)>,
    content: Content,
    last: Option<Deed>,
}

impl Known {
    /// Where its disk is, if it is attached.
    fn place(&self) -> Option<Place<'_>> {
        let (node, disk) = self.on.as_ref()?;
        Some(Place { node: *node, disk, mebibytes: self.mebibytes })
    }
}

struct Player<'a> {
    lane: &'a Lane,
    guests: Option<Guests<'a>>,
    seed: u64,
    done: Cell<usize>,
    /// The lives whose names somebody else uses, too.
    shared_names: BTreeSet<usize>,
    /// Volumes that somebody else made.
    namesakes: RefCell<BTreeSet<String>>,
}

/// Plays a schedule, and returns how many deeds were done, and how much guests wrote and read back.
pub(crate) async fn play(
    lane: &Lane,
    seed: u64,
    script: &Script,
) -> Result<(usize, Option<Traffic>)> {
    let (done, namesakes) = (Cell::new(0), RefCell::default());
    let guests = lane.has_guests.then(|| Guests::new(&lane.vcenter));
    let shared = |(_, trouble): &(usize, Trouble)| match trouble {
        Trouble::Namesake(life) => Some(*life),
        _ => None,
    };
    let shared_names = script.troubles.iter().filter_map(shared).collect();
    let player = Player { lane, guests, seed, done, shared_names, namesakes };
    let lives = script.lives.iter().enumerate().map(|(at, life)| player.live(at, life));
    let lives = futures::future::try_join_all(lives);
    let known = {
        let troubles = player.make_troubles(&script.troubles);
        tokio::pin!(lives, troubles);
        // What is still to go wrong when all lives are over harms nobody.
        tokio::select! {
            known = &mut lives => known?,
            made = &mut troubles => {
                made?;
                lives.await?
            }
        }
    };
    player.heal().await?;
    player.judge(&known).await?;
    player.replay(&known).await.context("after the replay")?;
    player.read_back(&known).await.context("reading all volumes in the end")?;
    player.clean_up(known).await.context("cleaning up")?;
    Ok((player.done.get(), player.guests.as_ref().map(Guests::traffic)))
}

impl Player<'_> {
    async fn live(&self, at: usize, life: &Life) -> Result<Known> {
        let (caller, objects) = (Caller::new(self.lane, at), Objects::new(self.lane));
        let mut known = Known { name: self.name(at), mebibytes: SIZE, ..Known::default() };
        for deed in &life.deeds {
            let done = self.take(&caller, &objects, life.by_object, &mut known, *deed).await;
            done.with_context(|| format!("{deed:?} of {known:?}"))?;
            let used = self.use_volume(&mut known).await;
            used.with_context(|| format!("use after {deed:?} of {known:?}"))?;
            self.done.set(self.done.get() + 1);
        }
        Ok(known)
    }

    /// As the provisioner names volumes: such a name proves whose disk it is that a broken create left. Somebody else's
    /// volumes have no such names, so those that get a namesake have none either.
    fn name(&self, life: usize) -> String {
        if self.shared_names.contains(&life) {
            return format!("seed-{}-volume-{life}", self.seed);
        }
        format!("{UNIQUE}{:08x}-5eed-4000-8000-{life:012x}", self.seed)
    }

    async fn take(
        &self,
        caller: &Caller<'_>,
        objects: &Objects,
        by_object: bool,
        known: &mut Known,
        deed: Deed,
    ) -> Result<()> {
        let id = known.id.clone().unwrap_or_default();
        match deed {
            Deed::Create => {
                let (id, mebibytes) = caller.create(&known.name, SIZE).await?;
                known.content = Content::of(&id);
                (known.id, known.mebibytes) = (Some(id), mebibytes);
            }
            Deed::Attach(node) => {
                let disk = match by_object {
                    true => objects.attach(&known.name, &id, node).await?,
                    false => caller.attach(&id, node).await?,
                };
                known.on = Some((node, disk));
                self.check(known).await?;
            }
            Deed::Detach => {
                let (node, disk) = known.on.take().context("not attached")?;
                match by_object {
                    true => objects.detach(&known.name).await?,
                    false => caller.detach(&id, node).await?,
                }
                self.check(known).await?;
                if let Some(guests) = &self.guests {
                    guests.lose(node, &disk).await?;
                }
            }
            Deed::Expand => {
                known.mebibytes = caller.expand(&id, known.mebibytes + GROWTH).await?;
                self.check(known).await?;
            }
            Deed::Delete => {
                objects.forget(&known.name).await?;
                caller.delete(&id).await?;
                known.id = None;
            }
            Deed::List => return caller.list().await,
            Deed::Again => return self.repeat(caller, by_object, known).await,
        }
        known.last = Some(deed);
        Ok(())
    }

    /// The last call once more.
    async fn repeat(&self, caller: &Caller<'_>, by_object: bool, known: &Known) -> Result<()> {
        let id = known.id.as_deref().unwrap_or_default();
        match known.last {
            Some(Deed::Create) => {
                let again = caller.create(&known.name, SIZE).await?;
                ensure!(again.0 == id, "the same request made {} and then {}", id, again.0);
            }
            Some(Deed::Attach(node)) if !by_object => {
                let again = Some((node, caller.attach(id, node).await?));
                ensure!(again == known.on, "{:?} and then {again:?}", known.on);
            }
            Some(Deed::Expand) => {
                let again = caller.expand(id, known.mebibytes).await?;
                ensure!(again == known.mebibytes, "{} and then {again} MiB", known.mebibytes);
            }
            _ => {}
        }
        Ok(())
    }

    /// A pod reads what it finds in an attached volume, and writes more.
    async fn use_volume(&self, known: &mut Known) -> Result<()> {
        let mut content = std::mem::take(&mut known.content);
        if let (Some(guests), Some(at)) = (&self.guests, known.place()) {
            guests.use_volume(&at, &mut content).await?;
        }
        known.content = content;
        Ok(())
    }

    /// Compares what was answered about a volume that exists with what vCenter has.
    async fn check(&self, known: &Known) -> Result<()> {
        let volumes = self.lane.volumes().await?;
        let id = known.id.as_deref().unwrap_or_default();
        let found = volumes.get(id).with_context(|| format!("vCenter has no volume {id}"))?;
        let on = known.on.iter().map(|(node, disk)| (lane::name(*node), disk.clone()));
        let answered = Truth {
            name: known.name.clone(),
            ours: true,
            mebibytes: known.mebibytes,
            on: on.collect(),
        };
        ensure!(*found == answered, "vCenter has {found:?}, and {answered:?} was answered");
        Ok(())
    }

    async fn make_troubles(&self, troubles: &[(usize, Trouble)]) -> Result<()> {
        for (after, trouble) in troubles {
            while self.done.get() < *after {
                sleep(BEAT).await;
            }
            self.make(*trouble).await.with_context(|| format!("{trouble:?}"))?;
        }
        Ok(())
    }

    async fn make(&self, trouble: Trouble) -> Result<()> {
        let control = self.lane.vcenter.control();
        match trouble {
            Trouble::Fault(method, at, count) => {
                let mut fault = Fault { at, count, ..Fault::next(method, "CnsFault") };
                if at == Moment::Gone {
                    fault.fault = None;
                }
                control.fail(&fault).await?;
            }
            Trouble::Late(method, milliseconds) => self.be_late(method, milliseconds).await?,
            Trouble::Wire(method, kind, count) => {
                let path = if method.starts_with("Cns") { "/vsanHealth" } else { "/sdk" };
                let (path, method) = (path.to_owned(), Some(method.to_owned()));
                control.break_http(&HttpFault { path, method, kind, count }).await?;
            }
            Trouble::Expire => control.expire_sessions().await?,
            Trouble::Restart(down) => control.restart(down).await?,
            Trouble::RestartCns(down, work) => control.restart_cns(down, work).await?,
            Trouble::Full(milliseconds) => {
                for (datastore, _) in DATASTORES {
                    control.free_space(datastore, 0).await?;
                }
                sleep(Duration::from_millis(milliseconds)).await;
                for (datastore, free) in DATASTORES {
                    control.free_space(datastore, free).await?;
                }
            }
            Trouble::Disconnect(node, milliseconds) => {
                let host = format!("esx-{}.lab.example", node + 1);
                control.connect_host(&host, false).await?;
                sleep(Duration::from_millis(milliseconds)).await;
                control.connect_host(&host, true).await?;
            }
            Trouble::Kill(controller, milliseconds) => {
                self.lane.kill(controller)?;
                sleep(Duration::from_millis(milliseconds)).await;
                self.lane.run(controller)?;
            }
            Trouble::Namesake(life) => {
                let name = self.name(life);
                let place = "/dc-1/datastore/shared-1";
                // It may be struck by other troubles; then it is not known whether there is one.
                if let Ok(id) = self.lane.vcenter.cnsctl(&["create", &name, "8", place]) {
                    self.namesakes.borrow_mut().insert(id);
                }
            }
        }
        Ok(())
    }

    async fn be_late(&self, method: &str, milliseconds: u64) -> Result<()> {
        let control = self.lane.vcenter.control();
        let late = Fault { at: Moment::Late, ..Fault::next(method, "CnsFault") };
        let rule = control.fail(&late).await?;
        let patience = self.done.get() + PATIENCE;
        while self.lane.is_armed(rule).await? {
            if self.done.get() >= patience {
                return control.disarm().await;
            }
            sleep(BEAT).await;
        }
        sleep(Duration::from_millis(milliseconds)).await;
        control.release_tasks().await
    }

    /// Ends all troubles, also those that were interrupted.
    async fn heal(&self) -> Result<()> {
        let control = self.lane.vcenter.control();
        control.disarm().await?;
        control.release_tasks().await?;
        for (datastore, free) in DATASTORES {
            control.free_space(datastore, free).await?;
        }
        for node in 1..=2 {
            control.connect_host(&format!("esx-{node}.lab.example"), true).await?;
        }
        for controller in 0..CONTROLLERS {
            if !self.lane.is_running(controller) {
                self.lane.run(controller)?;
            }
        }
        Ok(())
    }

    /// vCenter, Kubernetes and what was answered must agree.
    async fn judge(&self, known: &[Known]) -> Result<()> {
        for one in known.iter().filter(|one| one.id.is_some()) {
            self.check(one).await?;
        }
        let mut volumes = self.lane.volumes().await?;
        let mut disks = self.lane.disks().await?;
        // A record without a disk is what a broken deletion leaves; CNS alone can take it away.
        volumes.retain(|id, _| disks.contains_key(id));
        disks.retain(|id, name| volumes.contains_key(id) || !is_stray(name));
        let found = volumes.iter().filter(|(_, volume)| volume.ours);
        let found: BTreeMap<&str, &str> =
            found.map(|(id, volume)| (id.as_str(), volume.name.as_str())).collect();
        let expected: BTreeMap<&str, &str> =
            known.iter().filter_map(|one| Some((one.id.as_deref()?, one.name.as_str()))).collect();
        ensure!(found == expected, "vCenter has {found:?} instead of {expected:?}");
        for id in self.namesakes.borrow().iter() {
            let found = volumes.get(id).filter(|volume| !volume.ours && volume.on.is_empty());
            ensure!(found.is_some(), "somebody else's volume {id} was touched: {volumes:?}");
        }
        if let Some(guests) = &self.guests {
            let on =
                |node: usize| volumes.values().filter_map(move |one| one.on.get(&lane::name(node)));
            guests.agree(&std::array::from_fn(|node| on(node).cloned().collect()))?;
        }
        let all: BTreeSet<String> = volumes.keys().cloned().collect();
        let disks: BTreeSet<String> = disks.into_keys().collect();
        ensure!(disks == all, "there are the disks {disks:?} instead of {all:?}");
        for one in known {
            let Some((volume, states)) = objects::record(self.lane, &one.name).await? else {
                bail!("there is no record of {}", one.name)
            };
            let last = states.last().map(String::as_str);
            ensure!(last == Some("Success"), "the record of {} says {states:?}", one.name);
            let agrees = one.id.as_ref().is_none_or(|id| *id == volume);
            ensure!(agrees, "the record of {} names {volume}, not {:?}", one.name, one.id);
        }
        Ok(())
    }

    /// All that exists is asked for once more, at the other controller: the answers and vCenter must be the same.
    async fn replay(&self, known: &[Known]) -> Result<()> {
        for (at, one) in known.iter().enumerate() {
            let caller = Caller::new(self.lane, at + 1);
            let Some(id) = &one.id else { continue };
            let (again, mebibytes) = caller.create(&one.name, SIZE).await?;
            ensure!(again == *id, "{} is now {again}, not {id}", one.name);
            ensure!(mebibytes == one.mebibytes, "{again} has now {mebibytes} MiB");
            if let Some((node, disk)) = &one.on {
                let again = caller.attach(id, *node).await?;
                ensure!(again == *disk, "the disk of {id} is now {again}, not {disk}");
            }
        }
        self.judge(known).await
    }

    /// Every byte that was ever written to a volume must be there, also if no node has it now.
    async fn read_back(&self, known: &[Known]) -> Result<()> {
        let Some(guests) = &self.guests else { return Ok(()) };
        for (at, one) in known.iter().enumerate() {
            let Some(id) = &one.id else { continue };
            if let Some(place) = one.place() {
                guests.verify(&place, &one.content).await?;
                continue;
            }
            let (caller, node) = (Caller::new(self.lane, at), at % NODES);
            let disk = caller.attach(id, node).await?;
            let place = Place { node, disk: &disk, mebibytes: one.mebibytes };
            guests.verify(&place, &one.content).await?;
            caller.detach(id, node).await?;
            guests.lose(node, &disk).await?;
        }
        Ok(())
    }

    async fn clean_up(&self, known: Vec<Known>) -> Result<()> {
        let objects = Objects::new(self.lane);
        for (at, mut one) in known.into_iter().enumerate() {
            let caller = Caller::new(self.lane, at);
            let Some(id) = one.id.take() else { continue };
            if let Some((node, _)) = one.on.take() {
                if objects.is_attached(&one.name).await? {
                    objects.detach(&one.name).await?;
                } else {
                    caller.detach(&id, node).await?;
                }
            }
            objects.forget(&one.name).await?;
            caller.delete(&id).await?;
        }
        let others = self.lane.volumes().await?.into_iter().filter(|(_, volume)| !volume.ours);
        for (id, _) in others {
            self.lane.vcenter.cnsctl(&["delete", &id])?;
        }
        let mut left = self.lane.disks().await?;
        left.retain(|_, name| !is_stray(name));
        ensure!(left.is_empty(), "there are still the disks {left:?}");
        Ok(())
    }
}

/// Whether a disk that CNS does not know may stay: its name does not prove that it is ours.
fn is_stray(name: &str) -> bool {
    !name.starts_with(UNIQUE)
}
