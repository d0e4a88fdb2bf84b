//! The instance type of a VM: `vsphere-vm.cpu-4.mem-16gb.os-ubuntu`.
//!
//! vSphere has no instance types, so this one is made of size and operating system. Memory is rounded down to
//! whole GiB, as in the Go manager: labels of running Nodes must not change.

mod guests;

use vsphere::inventory::Vm;

use self::guests::{NAMES, OTHER_NAMES};

/// `None` while the VM is being created and has no size yet.
pub(crate) fn of(vm: &Vm) -> Option<String> {
    let (cpus, gib) = (vm.cpus?, vm.memory_mib? / 1024);
    let os = vm.guest_id.as_deref().map_or("unknown", os);
    Some(format!("vsphere-vm.cpu-{cpus}.mem-{gib}gb.os-{os}"))
}

/// The operating system by vCenter's name for it.
fn os(guest_id: &str) -> &'static str {
    let id = guest_id.strip_suffix("Guest").unwrap_or(guest_id);
    let stem = id.strip_suffix("64").map_or(id, |stem| stem.trim_end_matches('_'));
    let named = |id| NAMES.split(' ').find(|name| name.eq_ignore_ascii_case(id));
    let others = OTHER_NAMES.iter().find(|(_, ids)| ids.split(' ').any(|one| one == stem));
    named(id).or_else(|| named(stem)).or(others.map(|(name, _)| *name)).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use vsphere::inventory::Vm;

    use super::{NAMES, OTHER_NAMES, of, os};

    fn vm(cpus: i32, memory_mib: i32, guest_id: &str) -> Vm {
        Vm {
            cpus: Some(cpus),
            memory_mib: Some(memory_mib),
            guest_id: Some(guest_id.to_owned()),
            ..Vm::default()
        }
    }

    #[test]
    fn memory_is_rounded_down_to_whole_gibibytes() {
        let check = |mib, expected: &str| {
            assert_eq!(of(&vm(2, mib, "ubuntu64Guest")).unwrap(), expected);
        };
        check(1536, "vsphere-vm.cpu-2.mem-1gb.os-ubuntu");
        check(16384, "vsphere-vm.cpu-2.mem-16gb.os-ubuntu");
        check(1023, "vsphere-vm.cpu-2.mem-0gb.os-ubuntu");
    }

    #[test]
    fn d28_current_operating_systems_are_known() {
        let check = |id, expected| assert_eq!(os(id), expected, "{id}");
        check("debian12_64Guest", "debian12");
        check("other5xLinux64Guest", "linux");
        check("windows2019srvNext_64Guest", "win2022server");
        check("rockylinux_64Guest", "rockylinux");
        check("sles15_64Guest", "sles15");
        check("amazonlinux3_64Guest", "amazonlinux3");
        check("flux64Guest", "unknown");
    }

    #[test]
    fn known_operating_systems_keep_their_names() {
        let check = |id, expected| assert_eq!(os(id), expected, "{id}");
        check("otherGuest", "other");
        check("otherGuest64", "other");
        check("other3xLinux64Guest", "linux");
        check("redhatGuest", "rhel");
        check("centos64Guest", "centos64");
        check("oracleLinux7_64Guest", "oracleLinux7");
        check("windows9Server64Guest", "win10server");
        check("vmwarePhoton64Guest", "photon");
        check("winXPPro64Guest", "winxppro");
        let mut ids = 0;
        let lines = include_str!("instance_type/guests.txt").lines();
        for (name, of_name) in lines.filter_map(|line| line.split_once(": ")) {
            for id in of_name.split(' ') {
                assert_eq!(os(&format!("{id}Guest")), name, "{id}");
                ids += 1;
            }
        }
        assert_eq!(ids, 210);
    }

    #[test]
    fn no_operating_system_is_listed_twice_and_all_can_be_labels() {
        let mut seen = HashSet::new();
        for name in NAMES.split(' ').chain(OTHER_NAMES.iter().map(|(name, _)| *name)) {
            assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{name}");
            assert!(seen.insert(name.to_lowercase()), "{name}");
        }
    }

    #[test]
    fn a_vm_without_size_has_no_type() {
        assert_eq!(of(&Vm::default()), None);
    }
}
