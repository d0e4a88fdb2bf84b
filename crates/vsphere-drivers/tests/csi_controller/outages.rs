//! What part of a vCenter, or of the configuration, does not work: what does not need it goes on.

use lab::vcenter::Fault;
use tonic::Code;

use crate::world::{Controller, NODES, World, request};

#[tokio::test]
async fn privileges_that_cannot_be_read_stop_only_new_volumes() {
    let world = World::start().await;
    let first = world.run(&[]).await;
    first.until_ready().await;
    let volume = first.create(request("pvc-1", 64)).await.unwrap();
    first.kill();
    let refused = Fault::next("HasPrivilegeOnEntities", "SystemError");
    let refused = Fault { count: 1_000_000, ..refused };
    world.vcenter.control().fail(&refused).await.unwrap();
    let controller = world.run(&[]).await;
    let attach = async |to: &Controller| to.attach(&volume, NODES[0]).await;
    controller.patiently("attached", attach).await.unwrap();
    controller.detach(&volume, NODES[0]).await.unwrap();
    let refused = controller.create(request("pvc-2", 64)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("privileges on its datastores"), "{refused}");
    world.vcenter.control().disarm().await.unwrap();
    let create = async |to: &Controller| to.create(request("pvc-2", 64)).await;
    controller.patiently("created", create).await.unwrap();
}
