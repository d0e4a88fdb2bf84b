//! Sessions, credentials and broken wires.

use futures::StreamExt;
use lab::vcenter::{ADMINISTRATOR, Power};
use vsphere::{object, soap::Service, types::{PowerOffVm, VirtualMachine}, watch::Change};

use crate::site::{LIMIT, administrator, sessions, vcenter};

object! {
    /// A VM's name and power.
    struct Vm: VirtualMachine {
        name: String = "name",
        power: String = "runtime.powerState",
    }
}

#[tokio::test]
async fn smoke() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    println!("{:?}", connection.login().await.unwrap());
    println!("{:?}", connection.about().await.unwrap());
    println!("{:?}", connection.time().await.unwrap());
    let vms: Vec<Vm> = connection.list().await.unwrap();
    println!("{vms:#?}");
    let mut watch = connection.watch::<Vm>();
    loop {
        let change = tokio::time::timeout(LIMIT, watch.next()).await.unwrap().unwrap().unwrap();
        println!("{change:?}");
        if change == Change::Synced { break }
    }
    vcenter.control().power("node-1", Power::Off).await.unwrap();
    let change = tokio::time::timeout(LIMIT, watch.next()).await.unwrap().unwrap().unwrap();
    println!("{change:?}");
    let node = vms.iter().find(|vm| vm.name == "node-2").unwrap();
    let task = connection.call(&node.reference, &PowerOffVm {}).await.unwrap();
    println!("{task:?}");
    let () = connection.wait(&task, Service::Vim, LIMIT).await.unwrap();
    let change = tokio::time::timeout(LIMIT, watch.next()).await.unwrap().unwrap().unwrap();
    println!("{change:?}");
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 1);
    connection.close().await;
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 0);
}
