//! The virtual devices of a VM, as far as disks and network cards need them.
//!
//! vCenter has some sixty types of devices and as many of backings, and every release adds some. Here all of
//! them are one struct with the fields that are used; an unknown type has its name and what it
//! has in common with the others.

use std::collections::HashMap;

use crate::{
    error::Error,
    inventory::Inventory,
    object,
    reference::Ref,
    types::{Datastore, ID, VirtualMachine},
    xml::{Element, Field, FromXml, Malformed, Reader},
};

object! {
    /// The devices of a VM.
    struct Hardware: VirtualMachine {
        devices: Vec<Device> = "config.hardware.device",
    }
}

/// The kinds of controllers that disks hang on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Controller {
    /// Paravirtual SCSI.
    Pvscsi,
    /// SCSI as LSI Logic has it, parallel or SAS.
    LsiLogic,
    /// SCSI as BusLogic has it.
    BusLogic,
    /// NVM Express.
    Nvme,
    /// Serial ATA.
    Ahci,
    /// Parallel ATA.
    Ide,
}

/// A virtual device: the union of what its types have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Device {
    /// The name of its type: `VirtualDisk`, `VirtualVmxnet3`.
    pub type_name: String,
    /// Its number, unique within the VM.
    pub key: i32,
    /// What people see: `Hard disk 1`.
    pub label: String,
    /// The number of the controller it hangs on.
    pub controller_key: Option<i32>,
    /// Its place on the controller.
    pub unit_number: Option<i32>,
    /// The number of a controller among those of its kind.
    pub bus_number: Option<i32>,
    /// The address of a network card.
    pub mac_address: Option<String>,
    /// The size of a disk in bytes.
    pub capacity: Option<i64>,
    /// The id of the first class disk that a disk is.
    pub disk_id: Option<String>,
    /// What is behind it.
    pub backing: Backing,
}

/// What is behind a device: the union of what the types of backings have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Backing {
    /// The name of its type: `VirtualDiskFlatVer2BackingInfo`.
    pub type_name: String,
    /// The file of a disk: `[shared-1] node-1/node-1.vmdk`.
    pub file_name: Option<String>,
    /// The datastore of that file.
    pub datastore: Option<Ref<Datastore>>,
    /// The id of a disk, which the guest sees as its serial number.
    pub uuid: Option<String>,
    /// The name of a standard network.
    pub device_name: Option<String>,
    /// The key of a distributed port group.
    pub portgroup_key: Option<String>,
    /// The id of a network that NSX manages.
    pub opaque_network_id: Option<String>,
}

impl Device {
    /// Whether it is a disk.
    pub fn is_disk(&self) -> bool {
        self.type_name == "VirtualDisk"
    }

    /// What kind of disk controller it is; `None` if it is another device.
    pub fn controller(&self) -> Option<Controller> {
        Some(match self.type_name.as_str() {
            "ParaVirtualSCSIController" => Controller::Pvscsi,
            "VirtualLsiLogicController" | "VirtualLsiLogicSASController" => Controller::LsiLogic,
            "VirtualBusLogicController" => Controller::BusLogic,
            "VirtualNVMEController" => Controller::Nvme,
            "VirtualAHCIController" => Controller::Ahci,
            "VirtualIDEController" => Controller::Ide,
            _ => return None,
        })
    }

    /// Whether it is a network card: no other type of device has an address.
    pub fn is_card(&self) -> bool {
        self.mac_address.is_some()
    }
}

impl FromXml for Device {
    fn from_xml(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        let type_name = element.xsi_type().unwrap_or_default().into_owned();
        let mut device = Self { type_name, ..Self::default() };
        while let Some(child) = reader.child(element)? {
            match child.name() {
                "key" => device.key.absorb(reader, &child)?,
                "deviceInfo" => {
                    if let Some(label) = reader.find(&child, "label")? {
                        device.label.absorb(reader, &label)?;
                    }
                }
                "backing" => device.backing.absorb(reader, &child)?,
                "controllerKey" => device.controller_key.absorb(reader, &child)?,
                "unitNumber" => device.unit_number.absorb(reader, &child)?,
                "busNumber" => device.bus_number.absorb(reader, &child)?,
                "macAddress" => device.mac_address.absorb(reader, &child)?,
                "capacityInBytes" => device.capacity.absorb(reader, &child)?,
                // All there is of the size in answers of old hosts.
                "capacityInKB" => {
                    let kib = i64::from_xml(reader, &child)?;
                    device.capacity = device.capacity.or_else(|| kib.checked_mul(1024));
                }
                "vDiskId" => device.disk_id = Some(ID::from_xml(reader, &child)?.id),
                _ => {}
            }
        }
        Ok(device)
    }
}

impl FromXml for Backing {
    fn from_xml(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        let type_name = element.xsi_type().unwrap_or_default().into_owned();
        let mut backing = Self { type_name, ..Self::default() };
        while let Some(child) = reader.child(element)? {
            match child.name() {
                "fileName" => backing.file_name.absorb(reader, &child)?,
                "datastore" => backing.datastore.absorb(reader, &child)?,
                "uuid" => backing.uuid.absorb(reader, &child)?,
                "deviceName" => backing.device_name.absorb(reader, &child)?,
                "opaqueNetworkId" => backing.opaque_network_id.absorb(reader, &child)?,
                "port" => {
                    if let Some(key) = reader.find(&child, "portgroupKey")? {
                        backing.portgroup_key.absorb(reader, &key)?;
                    }
                }
                _ => {}
            }
        }
        Ok(backing)
    }
}

impl Inventory<'_> {
    /// The virtual devices of a VM; nothing if there is no such VM, or if vCenter does not report its devices.
    pub async fn devices(&self, vm: &Ref<VirtualMachine>) -> Result<Option<Vec<Device>>, Error> {
        Ok(self.devices_of(std::slice::from_ref(vm)).await?.remove(vm))
    }

    /// The virtual devices of several VMs, in one request for up to 250 of them. VMs that do not exist, or that
    /// the user may not see, are left out. So is one whose devices vCenter does not report, as of a VM whose
    /// files are not accessible: every VM has devices, so that none means unknown.
    pub async fn devices_of(
        &self,
        vms: &[Ref<VirtualMachine>],
    ) -> Result<HashMap<Ref<VirtualMachine>, Vec<Device>>, Error> {
        let read: Vec<Hardware> = match vms {
            [] => Vec::new(),
            vms => self.connection.read(vms).await?,
        };
        let known = read.into_iter().filter(|hardware| !hardware.devices.is_empty());
        Ok(known.map(|hardware| (hardware.reference, hardware.devices)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{Controller, Device};
    use crate::xml::{Field, Reader};

    #[test]
    fn a_type_of_the_future_does_not_spoil_the_devices_around_it() {
        let answer = r#"<val xsi:type="ArrayOfVirtualDevice">
            <VirtualDevice xsi:type="VirtualFluxCapacitor"><key>1</key><deviceInfo><summary>s</summary>
              <label>Flux 1</label><more>x</more></deviceInfo><gigawatts><a>1.21</a></gigawatts>
              <backing xsi:type="FluxBacking"><port><cookie>1</cookie></port></backing></VirtualDevice>
            <VirtualDevice xsi:type="vim25:VirtualDisk"><key>2000</key><backing
              xsi:type="VirtualDiskFlatVer2BackingInfo"><fileName>[a] b.vmdk</fileName><uuid>6000C29a</uuid>
              <parent><fileName>[a] base.vmdk</fileName><uuid>old</uuid></parent></backing>
              <controllerKey>1000</controllerKey><unitNumber>3</unitNumber><capacityInKB>4</capacityInKB>
              <vDiskId><id>fcd-1</id></vDiskId></VirtualDevice></val>"#;
        let mut reader = Reader::new(answer);
        let root = reader.root().unwrap();
        let devices: Vec<Device> = Field::property(&mut reader, &root).unwrap();
        assert_eq!(devices.len(), 2);
        assert_eq!((devices[0].label.as_str(), devices[0].is_disk()), ("Flux 1", false));
        let disk = &devices[1];
        assert!(disk.is_disk() && !disk.is_card());
        assert_eq!((disk.controller_key, disk.unit_number), (Some(1000), Some(3)));
        assert_eq!((disk.capacity, disk.disk_id.as_deref()), (Some(4096), Some("fcd-1")));
        assert_eq!(disk.backing.file_name.as_deref(), Some("[a] b.vmdk"));
        assert_eq!(disk.backing.uuid.as_deref(), Some("6000C29a"));
    }

    #[test]
    fn controllers_of_disks_are_known_by_their_types() {
        let cases = [
            ("ParaVirtualSCSIController", Some(Controller::Pvscsi)),
            ("VirtualLsiLogicController", Some(Controller::LsiLogic)),
            ("VirtualLsiLogicSASController", Some(Controller::LsiLogic)),
            ("VirtualBusLogicController", Some(Controller::BusLogic)),
            ("VirtualNVMEController", Some(Controller::Nvme)),
            ("VirtualAHCIController", Some(Controller::Ahci)),
            ("VirtualIDEController", Some(Controller::Ide)),
            ("VirtualPCIController", None),
            ("VirtualDisk", None),
        ];
        for (type_name, controller) in cases {
            let device = Device { type_name: type_name.to_owned(), ..Device::default() };
            assert_eq!(device.controller(), controller, "{type_name}");
        }
    }
}
