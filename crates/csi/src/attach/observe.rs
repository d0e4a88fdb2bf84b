//! What Kubernetes reports about VolumeAttachments and what they refer to, joined in memory.

pub(crate) mod object;
pub(crate) mod store;
pub(crate) mod trimmed;

use std::{collections::BTreeSet, sync::Arc};

use self::{
    object::Key,
    store::{Known, Store, WatchEvent},
    trimmed::{Attachment, Claim, CsiNode, Node, Origin, Source, Volume},
};
use crate::{
    DRIVER,
    attach::{
        NODE_ANNOTATION,
        plan::{Facts, Place, held},
        problem::Problem,
    },
    refusal::Kind,
};

/// The objects of the cluster that concern this driver.
#[derive(Default)]
pub(crate) struct Observer {
    pub(crate) attachments: Store<Attachment>,
    pub(crate) volumes: Store<Volume>,
    pub(crate) csi_nodes: Store<CsiNode>,
    nodes: Store<Node>,
}

/// What is to be planned because of an event.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Changed {
    /// Names of VolumeAttachments.
    pub(crate) attachments: BTreeSet<Arc<str>>,
    /// Names of PersistentVolumes.
    pub(crate) volumes: BTreeSet<Arc<str>>,
    /// Names of CSINodes.
    pub(crate) csi_nodes: BTreeSet<Arc<str>>,
}

impl Observer {
    /// Whether all kinds were listed. Before that nothing may be planned: an object that is not known yet looks
    /// like one that is gone.
    pub(crate) fn is_synced(&self) -> bool {
        self.attachments.is_synced()
            && self.volumes.is_synced()
            && self.csi_nodes.is_synced()
            && self.nodes.is_synced()
    }

    pub(crate) fn take_attachment(&mut self, event: WatchEvent<Attachment>) -> Changed {
        let mut changed = Changed::default();
        for (name, before) in self.attachments.take(event) {
            let gone = before.filter(|_| self.attachments.get(&name).is_none());
            if let Some(Attachment { source: Source::PersistentVolume(volume), .. }) = gone {
                changed.volumes.insert(volume);
            }
            changed.attachments.insert(name);
        }
        changed
    }

    pub(crate) fn take_volume(&mut self, event: WatchEvent<Volume>) -> Changed {
        let mut changed = Changed::default();
        for (name, _) in self.volumes.take(event) {
            let referring = self.attachments.with_key(&Key::Volume(Arc::clone(&name)));
            changed.attachments.extend(referring.cloned());
            changed.volumes.insert(name);
        }
        changed
    }

    pub(crate) fn take_csi_node(&mut self, event: WatchEvent<CsiNode>) -> Changed {
        let mut changed = Changed::default();
        for (name, _) in self.csi_nodes.take(event) {
            changed.attachments.extend(self.on_node(&name));
            changed.csi_nodes.insert(name);
        }
        changed
    }

    pub(crate) fn take_node(&mut self, event: WatchEvent<Node>) -> Changed {
        let names = self.nodes.take(event).into_iter().map(|(name, _)| name);
        let attachments = names.flat_map(|name| self.on_node(&name).collect::<Vec<_>>());
        Changed { attachments: attachments.collect(), ..Changed::default() }
    }

    /// The VolumeAttachments of a node.
    pub(crate) fn on_node(&self, name: &Arc<str>) -> impl Iterator<Item = Arc<str>> + use<'_> {
        self.attachments.with_key(&Key::Node(Arc::clone(name))).cloned()
    }

    /// What a plan needs to know about a VolumeAttachment. `is_off`: whether the VM of a node id is powered off.
    pub(crate) fn facts<'a>(
        &self,
        known: &'a Known<Attachment>,
        is_off: impl Fn(&str) -> bool,
    ) -> Facts<'a> {
        let attachment = &known.value;
        let recorded = self.recorded(attachment);
        let held = match &recorded {
            Ok(Some(place)) if self.in_use(&attachment.node, &place.volume) => {
                (!is_off(&place.node)).then(|| held(&attachment.node, &place.volume))
            }
            _ => None,
        };
        Facts { attachment, wanted: self.wanted(attachment), recorded, held }
    }

    /// Where a volume is attached or may be, if it can be told.
    pub(crate) fn place(&self, attachment: &Attachment) -> Option<Place> {
        self.recorded(attachment).ok().flatten()
    }

    /// The claim that users know the volume by.
    pub(crate) fn claim(&self, attachment: &Attachment) -> Option<&Claim> {
        let Source::PersistentVolume(name) = &attachment.source else { return None };
        self.volumes.get(name)?.value.claim.as_ref()
    }

    /// Whether a PersistentVolume waits for nothing but the stock attacher to let go of it.
    pub(crate) fn is_releasable(&self, name: &Arc<str>) -> Option<&Known<Volume>> {
        let known = self.volumes.get(name)?;
        let Volume { deleting, finalizer, .. } = known.value;
        let referred = self.attachments.with_key(&Key::Volume(Arc::clone(name))).next().is_some();
        (deleting && finalizer && !referred).then_some(known)
    }

    /// Whether a Node that exists and is in service has the volume mounted.
    fn in_use(&self, node: &str, volume: &str) -> bool {
        let node = self.nodes.get(node).map(|known| &known.value);
        node.is_some_and(|node| !node.out_of_service && node.in_use.contains(volume))
    }

    fn wanted(&self, attachment: &Attachment) -> Result<Place, Problem> {
        if let Source::PersistentVolume(name) = &attachment.source
            && self.volumes.get(name).is_some_and(|known| known.value.deleting)
        {
            let text = format!("PersistentVolume {name} is being deleted and is not attached");
            return Err(Problem::new(Kind::Precondition, text));
        }
        let volume = self.handle(attachment)?.to_owned();
        let Some(node) = self.node_id(&attachment.node) else {
            let node = &attachment.node;
            let text = format!(
                "the CSINode {node} does not list the driver {DRIVER}, so the VM of the node is not known; look for \
                 the driver's pod on that node: kubectl get pods -A -o wide -l app=vsphere-csi-node"
            );
            return Err(Problem::new(Kind::Precondition, text));
        };
        Ok(Place { volume, node: node.to_owned() })
    }

    fn recorded(&self, attachment: &Attachment) -> Result<Option<Place>, Problem> {
        let node = attachment.recorded_node.as_deref().or_else(|| self.node_id(&attachment.node));
        let Some(node) = node else {
            if !attachment.attached {
                // Attachers write the id of the node before they attach.
                return Ok(None);
            }
            let node = &attachment.node;
            let text = format!(
                "the VM of node {node} is not known: its CSINode is gone and the annotation {NODE_ANNOTATION} is \
                 missing; write the VM's BIOS UUID into that annotation"
            );
            return Err(Problem::new(Kind::Precondition, text));
        };
        let volume = match &attachment.recorded_volume {
            Some(volume) => volume,
            None => self.handle(attachment).map_err(|problem| {
                let Problem { kind, text } = problem;
                let remedy = "so it is not known which disk to detach; detach it in vCenter if it is attached, then \
                              remove the finalizers of this VolumeAttachment";
                Problem::new(kind, format!("{text}, {remedy}"))
            })?,
        };
        Ok(Some(Place { volume: volume.to_owned(), node: node.to_owned() }))
    }

    fn node_id(&self, name: &str) -> Option<&str> {
        self.csi_nodes.get(name).map(|known| &*known.value.node_id)
    }

    /// The handle of the volume, by PersistentVolume or inline.
    fn handle<'a>(&'a self, attachment: &'a Attachment) -> Result<&'a str, Problem> {
        let (origin, what) = match &attachment.source {
            Source::Inline(origin) => (origin, "the inline volume".to_owned()),
            Source::PersistentVolume(name) => match self.volumes.get(name) {
                Some(known) => (&known.value.origin, format!("PersistentVolume {name}")),
                None => {
                    let text =
                        format!("PersistentVolume {name} does not exist or is not of {DRIVER}");
                    return Err(Problem::new(Kind::NotFound, text));
                }
            },
        };
        let text = match origin {
            Origin::Ours(handle) => return Ok(handle),
            Origin::InTree => format!(
                "{what} is a volume of the in-tree vSphere driver, which this driver does not serve yet; copy its data \
                 to a volume of a StorageClass with the provisioner {DRIVER}"
            ),
            Origin::Other => format!("{what} is not a volume of {DRIVER}"),
        };
        Err(Problem::new(Kind::Precondition, text))
    }
}

#[cfg(test)]
mod tests;
