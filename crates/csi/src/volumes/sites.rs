//! The vCenters of a configuration, and which of them a request is about.
//!
//! ```text
//!   a volume ─► its record (CNSVolumeInfo) ─none─► whichever vCenter has it, which is recorded
//!   a node   ─► the vCenter that shows its VM
//!   a list   ─► one vCenter after the other, by name
//! ```
//!
//! With one vCenter there is nothing to find, and no record is read or written. With several, one that does not answer
//! hinders only requests about its own volumes and nodes, and those about what no other one has: absence counts
//! only when all of them answered.

use std::{fmt, str::FromStr, sync::Arc};

use futures::{StreamExt, stream::FuturesUnordered};
use vsphere::inventory::{PowerState, Uuid, Vm};

use super::{Inner, change, nodes::KnownNodes, site::Site, topology::Segment};
use crate::refusal::{Kind, Refusal};

/// The vCenters of a configuration, by the names of their servers. None while no configuration is in force.
#[derive(Debug, Clone, Default)]
pub struct Sites {
    followed: Arc<[Arc<Site>]>,
    /// Servers that are about to be followed, or not any more: until that is settled nothing is taken for absent.
    changing: Arc<[String]>,
}

/// A VM and the vCenter that shows it.
pub(super) type VmOfSite = (Arc<Site>, Arc<Vm>);

/// Where a page of a list begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    /// The server; nothing where there is only one vCenter, and at the beginning.
    pub vcenter: Option<String>,
    /// Among the volumes of that vCenter.
    pub offset: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.vcenter {
            Some(vcenter) => write!(f, "{vcenter}/{}", self.offset),
            None => self.offset.fmt(f),
        }
    }
}

impl FromStr for Position {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (vcenter, offset) = match text.rsplit_once('/') {
            Some((vcenter, offset)) => (Some(vcenter.to_owned()), offset),
            None => (None, text),
        };
        Ok(Self { vcenter, offset: offset.parse()? })
    }
}

impl Sites {
    pub(crate) fn new(sites: impl IntoIterator<Item = Arc<Site>>) -> Self {
        let mut sites: Vec<_> = sites.into_iter().collect();
        // Lists must not change their order with that of the configuration.
        sites.sort_by_key(|site| site.server.to_ascii_lowercase());
        Self { followed: sites.into(), changing: Arc::default() }
    }

    /// The same, while these servers are being followed anew or given up.
    pub(crate) fn while_changing(self, servers: impl IntoIterator<Item = String>) -> Self {
        Self { changing: servers.into_iter().collect(), ..self }
    }

    pub(super) fn all(&self) -> &[Arc<Site>] {
        &self.followed
    }

    /// The vCenter, if there is only one.
    pub(super) fn single(&self) -> Option<&Arc<Site>> {
        match (&*self.followed, &*self.changing) {
            ([site], []) => Some(site),
            _ => None,
        }
    }

    pub(super) fn named(&self, server: &str) -> Option<&Arc<Site>> {
        self.followed.iter().find(|site| site.server.eq_ignore_ascii_case(server))
    }

    /// Refuses while a vCenter is missing that may have what is searched for.
    pub(super) fn check_settled(&self) -> Result<(), Refusal> {
        let Some(server) = self.changing.first() else { return Ok(()) };
        let what = format!(
            "vCenter {server} cannot be used: its part of the configuration is being replaced"
        );
        Err(Refusal::new(Kind::Unavailable, what))
    }

    /// The VM of a node and the vCenter that shows it; nothing if none does.
    ///
    /// # Errors
    /// When several VMs have the node's UUID, or one of those vCenters that may have it is not known well enough.
    pub(super) fn vm(&self, node: &str, uuid: Uuid) -> Result<Option<VmOfSite>, Refusal> {
        let (mut found, mut unread) = (Vec::new(), self.check_settled().err());
        for site in &*self.followed {
            match site.vm(node, uuid) {
                Ok(vm) => found.extend(vm.map(|vm| (Arc::clone(site), vm))),
                Err(refusal) if refusal.kind == Kind::Unavailable => unread = Some(refusal),
                Err(refusal) => return Err(refusal),
            }
        }
        // A copy that a backup tool restored is off: the node is the one that runs, also where that cannot be seen.
        if found.iter().any(|(_, vm)| vm.power != PowerState::Off) {
            found.retain(|(_, vm)| vm.power != PowerState::Off);
        } else if let Some(refusal) = unread {
            return Err(refusal);
        }
        if let [_, _, ..] = &*found {
            let describe = |(site, vm): &VmOfSite| format!("{} of {}", vm.name, site.server);
            let vms: Vec<_> = found.iter().map(describe).collect();
            let what = format!(
                "node {node}: the VMs {} have the same BIOS UUID {uuid}",
                vms.join(" and ")
            );
            let remedy = "give the clone a UUID of its own (uuid.bios) or delete it";
            return Err(Refusal::new(Kind::Precondition, what).remedy(remedy));
        }
        Ok(found.pop())
    }

    /// The VMs that are called so, or whose guests are.
    pub(super) fn vms_called(&self, name: &str) -> Vec<VmOfSite> {
        let of_site = |site: &Arc<Site>| {
            let found = site.vms_called(name).into_iter();
            found.map(|vm| (Arc::clone(site), vm)).collect::<Vec<_>>()
        };
        self.followed.iter().flat_map(of_site).collect()
    }

    /// Whether absence means something, in each of them.
    pub(super) fn is_complete(&self) -> bool {
        self.changing.is_empty() && self.followed.iter().all(|site| site.is_complete())
    }

    /// The servers, as messages name them.
    pub(super) fn names(&self) -> String {
        let names: Vec<_> = self.followed.iter().map(|site| site.server.as_str()).collect();
        names.join(" and ")
    }

    /// A refusal that names its vCenter where there are several.
    pub(super) fn attribute(&self, site: &Site, refusal: Refusal) -> Refusal {
        if self.single().is_some() { refusal } else { refusal.in_vcenter(&site.server) }
    }

    /// The vCenter that a list goes on with at a position.
    pub(super) fn at(&self, from: &Position) -> Option<&Arc<Site>> {
        match &from.vcenter {
            Some(server) => self.named(server),
            None if from.offset > 0 => self.single(),
            None => self.followed.first(),
        }
    }

    /// The position of an offset in the list of a vCenter.
    pub(super) fn position(&self, site: &Site, offset: u64) -> Position {
        Position { vcenter: self.single().is_none().then(|| site.server.clone()), offset }
    }

    /// The vCenter that lists go on with after this one.
    pub(super) fn after(&self, site: &Site) -> Option<&Arc<Site>> {
        let at = self.followed.iter().position(|one| one.server == site.server)?;
        self.followed.get(at + 1)
    }
}

impl Inner {
    pub(super) fn sites(&self) -> Result<Sites, Refusal> {
        let sites = self.sites.borrow().clone();
        if sites.all().is_empty() {
            let what = "the driver has not connected to vCenter yet";
            return Err(Refusal::new(Kind::Unavailable, what));
        }
        Ok(sites)
    }

    /// The vCenter of a volume; nothing if none has it. With one vCenter it is that one, whether it has it or not.
    ///
    /// # Errors
    /// When it is in a vCenter that the configuration lacks, or one of those that may have it does not answer.
    pub(super) async fn site_of(&self, volume: &str) -> Result<Option<Arc<Site>>, Refusal> {
        let sites = self.sites()?;
        let recorded = self.volume_infos.vcenter_of(volume);
        match (&recorded, sites.single()) {
            (Some(server), _) if sites.named(server).is_some() => {
                return Ok(sites.named(server).cloned());
            }
            (None, Some(only)) => {
                // It may have been recorded while there were several.
                self.volume_infos.check_answered()?;
                return Ok(Some(Arc::clone(only)));
            }
            _ => {}
        }
        if sites.single().is_none() {
            self.volume_infos.check_read()?;
        }
        let found = holder(&sites, volume).await?;
        match (found, recorded) {
            (Some(site), _) => {
                tracing::info!(
                    volume,
                    vcenter = site.server,
                    "record of the volume's vCenter restored"
                );
                self.volume_infos.record(volume, None, &site.server).await?;
                Ok(Some(site))
            }
            (None, None) => Ok(None),
            (None, Some(server)) => {
                let what = format!(
                    "volume {volume} is in vCenter {server}, which the configuration does not have"
                );
                let remedy = format!(
                    "add it to the configuration; if it is gone for good, delete the CNSVolumeInfo {volume}"
                );
                Err(Refusal::new(Kind::Precondition, what).remedy(remedy))
            }
        }
    }

    /// The vCenters that may have a volume: the one of its record, or all.
    pub(super) async fn sites_for(&self, volume: &str) -> Result<Sites, Refusal> {
        let sites = self.sites()?;
        if self.volume_infos.vcenter_of(volume).is_none() {
            return Ok(sites);
        }
        let site = self.site_of(volume).await?;
        Ok(site.map_or(sites, |site| Sites::new([site])))
    }

    /// The vCenter that has a volume, also if its record is older than its move there.
    pub(super) async fn home_of(&self, volume: &str) -> Result<Option<Arc<Site>>, Refusal> {
        let Some(site) = self.site_of(volume).await? else { return Ok(None) };
        let moved = self.moved_from(&site, volume).await?;
        Ok(Some(moved.unwrap_or(site)))
    }

    /// The same vCenters, or instead of the one of a volume's record the one that the volume moved to.
    pub(super) async fn sites_after_move(
        &self,
        sites: Sites,
        volume: &str,
    ) -> Result<Sites, Refusal> {
        let Some(site) = sites.single() else { return Ok(sites) };
        let moved = self.moved_from(site, volume).await?;
        Ok(moved.map_or(sites, |site| Sites::new([site])))
    }

    /// The other vCenter that has a volume which this one, that of its record, does not have; it is recorded.
    pub(super) async fn moved_from(
        &self,
        site: &Site,
        volume: &str,
    ) -> Result<Option<Arc<Site>>, Refusal> {
        let sites = self.sites()?;
        if sites.single().is_some() {
            return Ok(None);
        }
        // What cannot be read is not taken for absent.
        site.current()?;
        if change::exists(&site.connection()?, volume).await? {
            return Ok(None);
        }
        let found = holder(&sites, volume).await?;
        let found = found.filter(|found| found.server != site.server);
        if let Some(found) = &found {
            let (from, to) = (&site.server, &found.server);
            tracing::info!(volume, from, to, "record of the volume's vCenter corrected");
            self.volume_infos.record(volume, None, to).await?;
        }
        Ok(found)
    }

    /// The nodes of the cluster, without those that only other vCenters show.
    pub(super) fn nodes_in(&self, site: &Site) -> KnownNodes {
        let nodes = self.nodes.current().unwrap_or_default();
        let sites = self.sites.borrow().clone();
        if sites.single().is_some() {
            return nodes;
        }
        let others: Vec<_> = sites.all().iter().filter(|one| one.server != site.server).collect();
        nodes.filtered(|uuid| site.shows(uuid) || !others.iter().any(|other| other.shows(uuid)))
    }

    /// Refuses while it is not known which nodes are where.
    pub(super) fn check_located(&self, segments: &[Segment]) -> Result<(), Refusal> {
        let unread = |objects: &str| {
            let what = format!(
                "it is not known where the nodes are: the {objects} have not been read yet"
            );
            let remedy = format!(
                "if it lasts, see that the controller's role allows to list and watch {objects}"
            );
            Err(Refusal::new(Kind::Unavailable, what).remedy(remedy))
        };
        match self.nodes.current() {
            None if segments.is_empty() => Ok(()),
            None => unread("csinodes"),
            Some(nodes) if nodes.are_located() => Ok(()),
            Some(_) => unread("nodes"),
        }
    }
}

/// The vCenter that has a volume; the first that answers so.
async fn holder(sites: &Sites, volume: &str) -> Result<Option<Arc<Site>>, Refusal> {
    let ask = async |site: &Arc<Site>| {
        // One that is known to be down is not waited for.
        site.current()?;
        let has_it = change::exists(&site.connection()?, volume).await?;
        Ok(has_it.then(|| Arc::clone(site)))
    };
    let mut answers: FuturesUnordered<_> = sites
        .all()
        .iter()
        .map(|site| async move {
            let answer: Result<_, Refusal> = ask(site).await;
            answer.map_err(|refusal| refusal.in_vcenter(&site.server))
        })
        .collect();
    let mut unknown = sites.check_settled().err();
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(Some(site)) => return Ok(Some(site)),
            Ok(None) => {}
            Err(refusal) => unknown = Some(refusal),
        }
    }
    let Some(refusal) = unknown else { return Ok(None) };
    let what = format!(
        "volume {volume}: no vCenter that answered has it, and not every vCenter could be asked"
    );
    Err(Refusal::new(Kind::Unavailable, what).because(refusal))
}

#[cfg(test)]
mod tests {
    use super::Position;

    #[test]
    fn a_token_names_the_vcenter_where_there_are_several() {
        for text in ["0", "12", "vcenter.example/0", "[2001:db8::1]/1000"] {
            assert_eq!(text.parse::<Position>().unwrap().to_string(), text);
        }
        assert_eq!("12".parse(), Ok(Position { vcenter: None, offset: 12 }));
        for wrong in ["", "x", "-1", "vcenter.example/", "vcenter.example/x"] {
            wrong.parse::<Position>().unwrap_err();
        }
    }
}
