//! The settings of a VM that a driver checks or changes, and the clock of a host.
//!
//! A change names the version of the configuration that it was decided on, so that vCenter refuses it when
//! another client was faster ([`Remedy::Busy`](crate::error::Remedy::Busy)): read again and decide again.

use std::time::Duration;

use crate::{
    error::Error,
    inventory::Inventory,
    object,
    reference::Ref,
    soap::Service,
    types::{
        AnyOptionValue, OptionValue, ReconfigVm, UpgradeVm, VirtualMachine,
        VirtualMachineConfigSpec,
    },
    xml::Value,
};

object! {
    /// The settings of a VM. They are large: read them when they are needed, do not watch them.
    pub struct VmSettings: VirtualMachine {
        /// The version of the configuration, which every change replaces.
        pub change_version: Option<String> = "config.changeVersion",
        /// Options by key.
        pub extra_config: Vec<OptionValue> = "config.extraConfig",
        /// Whether the host shows the ids of disks to the guest.
        pub disk_uuid_flag: Option<bool> = "config.flags.diskUuidEnabled",
        /// The version of the virtual hardware: `vmx-19`.
        pub hardware_version: Option<String> = "config.version",
    }
}

impl VmSettings {
    /// The option with this key. As in vCenter, the case of keys does not matter.
    pub fn option(&self, key: &str) -> Option<String> {
        option(&self.extra_config, key)
    }

    /// Whether the guest sees the ids of its disks, without which it cannot find volumes.
    pub fn shows_disk_uuids(&self) -> bool {
        self.disk_uuid_flag.unwrap_or(false)
            || self.option("disk.EnableUUID").is_some_and(|value| {
                matches!(value.trim().to_ascii_lowercase().as_str(), "true" | "1" | "yes" | "on")
            })
    }

    /// The number of the virtual hardware's version: 19 of `vmx-19`.
    pub fn hardware(&self) -> Option<u32> {
        self.hardware_version.as_deref()?.strip_prefix("vmx-")?.parse().ok()
    }
}

pub(super) fn option(options: &[OptionValue], key: &str) -> Option<String> {
    let found = options.iter().find(|option| option.key.eq_ignore_ascii_case(key))?;
    found.value.as_ref().map(|value| value.text.clone())
}

impl Inventory<'_> {
    /// The settings of a VM; nothing if there is no such VM.
    pub async fn settings(&self, vm: &Ref<VirtualMachine>) -> Result<Option<VmSettings>, Error> {
        self.connection.read_one(vm).await
    }

    /// Sets options of a VM; an empty value removes one. The VM's settings are those that the change was
    /// decided on.
    pub async fn set_options(
        &self,
        decided_on: &VmSettings,
        options: &[(&str, &str)],
        limit: Duration,
    ) -> Result<(), Error> {
        let option = |(key, value): &(&str, &str)| {
            let value = Some(Value::from(*value));
            AnyOptionValue::OptionValue(OptionValue { key: (*key).to_owned(), value })
        };
        let spec = VirtualMachineConfigSpec {
            change_version: decided_on.change_version.clone(),
            extra_config: options.iter().map(option).collect(),
        };
        let task = self.connection.call(&decided_on.reference, &ReconfigVm { spec }).await?;
        self.connection.wait(&task, Service::Vim, limit).await
    }

    /// Upgrades the virtual hardware of a VM that is off: to a version (`vmx-19`), or to the newest that
    /// its host has. A VM that is as new already stays as it is.
    pub async fn upgrade_hardware(
        &self,
        vm: &Ref<VirtualMachine>,
        version: Option<&str>,
        limit: Duration,
    ) -> Result<(), Error> {
        let upgrade = UpgradeVm { version: version.map(str::to_owned) };
        let upgraded = match self.connection.call(vm, &upgrade).await {
            Ok(task) => self.connection.wait(&task, Service::Vim, limit).await,
            Err(error) => Err(error),
        };
        match upgraded {
            Err(error) if error.fault().is_some_and(|fault| fault.is_a("AlreadyUpgraded")) => {
                Ok(())
            }
            result => result,
        }
    }
}
