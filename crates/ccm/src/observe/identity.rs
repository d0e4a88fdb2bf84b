//! The VM of a Node, recorded in its annotations, so that it is known after a restart and after the VM is gone.
//!
//! A provider id is a BIOS UUID, which clones share and which cannot be looked up once the VM is gone. A
//! reference can: vCenter reports for certain that the object does not exist any more.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use vsphere::inventory::Vm;

use super::discovery::Machine;

const VCENTER: &str = "ccm.vsphere.vmware.com/vcenter";
const VM: &str = "ccm.vsphere.vmware.com/vm";
const INSTANCE: &str = "ccm.vsphere.vmware.com/instance-uuid";
const FOLDER: &str = "ccm.vsphere.vmware.com/folder";

/// A VM among all VMs of all vCenters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The vCenter's instance UUID, which stays when its address changes.
    pub(crate) vcenter: String,
    /// The value of the VM's reference: `vm-42`.
    pub(crate) vm: String,
    /// `config.instanceUuid`, which vCenter keeps unique.
    pub(crate) instance_uuid: Option<String>,
    /// The value of the folder's reference: `group-v7`. A user that sees the folder would see the VM.
    pub(crate) folder: Option<String>,
}

impl Identity {
    pub(crate) fn recorded(node: &Node) -> Option<Self> {
        let get =
            |key: &str| node.annotations().get(key).filter(|value| !value.is_empty()).cloned();
        Some(Self {
            vcenter: get(VCENTER)?,
            vm: get(VM)?,
            instance_uuid: get(INSTANCE),
            folder: get(FOLDER),
        })
    }

    /// None while the vCenter's instance UUID is not known.
    pub(crate) fn of(machine: &Machine<'_>) -> Option<Self> {
        let Vm { reference, instance_uuid, parent, .. } = machine.vm;
        Some(Self {
            vcenter: machine.instance?.to_owned(),
            vm: reference.value().to_owned(),
            instance_uuid: instance_uuid.map(|uuid| uuid.to_string()),
            folder: parent.as_ref().map(|folder| folder.value().to_owned()),
        })
    }

    /// Whether this is the machine. References repeat after a vCenter was restored; instance UUIDs do not.
    pub(crate) fn is(&self, machine: &Machine<'_>) -> bool {
        let unique = machine.vm.instance_uuid.map(|uuid| uuid.to_string());
        machine.instance.is_some_and(|instance| instance.eq_ignore_ascii_case(&self.vcenter))
            && machine.vm.reference.value() == self.vm
            && (self.instance_uuid.is_none() || unique.is_none() || self.instance_uuid == unique)
    }

    pub(crate) fn annotations(&self) -> BTreeMap<&'static str, String> {
        let mut annotations =
            BTreeMap::from([(VCENTER, self.vcenter.clone()), (VM, self.vm.clone())]);
        annotations.extend(self.instance_uuid.clone().map(|uuid| (INSTANCE, uuid)));
        annotations.extend(self.folder.clone().map(|folder| (FOLDER, folder)));
        annotations
    }
}
