//! Which VM a Node was, written on the Node, so that it is known after a restart and after the VM is gone.
//!
//! A provider id is the id of a BIOS, which clones share and which cannot be asked for once it is gone. The
//! reference of the VM can: vCenter says for certain that there is no such object any more.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use vsphere::inventory::Vm;

use crate::discovery::Machine;

const VCENTER: &str = "ccm.vsphere.vmware.com/vcenter";
const VM: &str = "ccm.vsphere.vmware.com/vm";
const INSTANCE: &str = "ccm.vsphere.vmware.com/instance-uuid";
const FOLDER: &str = "ccm.vsphere.vmware.com/folder";

/// A VM among all VMs of all vCenters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The id of the vCenter's instance, which stays when its address changes.
    pub vcenter: String,
    /// The value of the VM's reference: `vm-42`.
    pub vm: String,
    /// The id that vCenter keeps unique.
    pub instance_uuid: Option<String>,
    /// The value of the reference of the folder it is in: `group-v7`. Who sees it would see the VM.
    pub folder: Option<String>,
}

impl Identity {
    /// What is written on the Node.
    pub fn recorded(node: &Node) -> Option<Self> {
        let annotations = node.metadata.annotations.as_ref()?;
        let get = |key: &str| annotations.get(key).filter(|value| !value.is_empty()).cloned();
        Some(Self {
            vcenter: get(VCENTER)?,
            vm: get(VM)?,
            instance_uuid: get(INSTANCE),
            folder: get(FOLDER),
        })
    }

    /// The identity of a machine; nothing while its vCenter's is not known.
    pub fn of(machine: &Machine<'_>) -> Option<Self> {
        let Vm { reference, instance_uuid, parent, .. } = machine.vm;
        Some(Self {
            vcenter: machine.instance?.to_owned(),
            vm: reference.value().to_owned(),
            instance_uuid: instance_uuid.map(|uuid| uuid.to_string()),
            folder: parent.as_ref().map(|folder| folder.value().to_owned()),
        })
    }

    /// Whether this is the machine.
    pub fn is(&self, machine: &Machine<'_>) -> bool {
        machine.instance.is_some_and(|instance| instance.eq_ignore_ascii_case(&self.vcenter))
            && machine.vm.reference.value() == self.vm
    }

    /// The annotations that say it.
    pub fn annotations(&self) -> BTreeMap<&'static str, String> {
        let mut annotations =
            BTreeMap::from([(VCENTER, self.vcenter.clone()), (VM, self.vm.clone())]);
        annotations.extend(self.instance_uuid.clone().map(|uuid| (INSTANCE, uuid)));
        annotations.extend(self.folder.clone().map(|folder| (FOLDER, folder)));
        annotations
    }
}
