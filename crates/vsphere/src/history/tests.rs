//! Which tasks prove something, and how many are read.

use std::collections::HashMap;

use jiff::Timestamp;

use super::{MOST_PAGES, Removal, Search, removal};
use crate::{
    error::Cause,
    reference::Ref,
    types::{TaskInfo, TaskInfoState},
};

fn proven(id: &str, kind: &str, state: TaskInfoState) -> Option<Removal> {
    let entity = Some(Ref::with_kind(kind, "vm-42"));
    let task = TaskInfo { description_id: id.to_owned(), entity, state, ..TaskInfo::default() };
    let (vm, removal) = removal(&task)?;
    assert_eq!(vm.value(), "vm-42");
    Some(removal)
}

#[test]
fn only_a_task_that_succeeded_on_the_vm_itself_proves_how_it_was_removed() {
    use TaskInfoState::{Error, Running, Success};
    let vm = "VirtualMachine";
    let destroyed = proven("VirtualMachine.destroy", vm, Success);
    assert_eq!(destroyed, Some(Removal::Destroyed));
    let unregistered = proven("VirtualMachine.unregister", vm, Success);
    assert_eq!(unregistered, Some(Removal::Unregistered));
    for (id, kind, state) in [
        ("VirtualMachine.destroy", vm, Error),
        ("VirtualMachine.destroy", vm, Running),
        ("VirtualMachine.unregister", vm, Error),
        ("VirtualMachine.relocate", vm, Success),
        ("VirtualMachine.powerOff", vm, Success),
        ("VirtualApp.destroy", "VirtualApp", Success),
        ("Folder.unregisterAndDestroy", "Folder", Success),
        ("VirtualMachine.destroy", "Folder", Success),
        ("", vm, Success),
    ] {
        assert_eq!(proven(id, kind, state.clone()), None, "{id} {kind} {state:?}");
    }
}

#[test]
fn a_task_of_nobody_proves_nothing() {
    let description_id = "VirtualMachine.destroy".to_owned();
    let state = TaskInfoState::Success;
    assert_eq!(removal(&TaskInfo { description_id, state, ..TaskInfo::default() }), None);
}

#[test]
fn a_history_that_is_too_long_to_be_read_is_not_one_without_a_record() {
    let since = HashMap::from([(Ref::new("vm-42"), Timestamp::UNIX_EPOCH)]);
    let mut search = Search { since, ..Search::default() };
    for _ in 0..MOST_PAGES {
        assert!(search.next_page().unwrap());
    }
    let error = search.next_page().unwrap_err();
    assert!(matches!(error, Cause::TooManyTasks), "{error}");
}
