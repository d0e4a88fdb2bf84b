//! Volumes that are searched for at the same time, with one query for several names.

use futures::future::join_all;
use lab::vcenter::Fault;

use crate::world::{World, request};

#[tokio::test]
async fn a_query_of_several_names_that_fails_fails_nobody() {
    let world = World::start().await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let control = world.vcenter.control();
    // While the first query is on its way, all the others come together in the second one.
    let first = control.delay_one("CnsQueryVolume", 0, 5000).await.unwrap();
    let second = Fault { skip: 1, ..Fault::next("CnsQueryVolume", "InvalidArgument") };
    let second = control.fail(&second).await.unwrap();
    let others = async {
        world.until_struck(first).await;
        let create = |number| controller.create(request(&format!("pvc-{number}"), 64));
        join_all((1..=8).map(create)).await
    };
    let (alone, together) = tokio::join!(controller.create(request("pvc-0", 64)), others);
    alone.unwrap();
    for made in together {
        made.unwrap_or_else(|status| panic!("{status}\n{}", controller.log()));
    }
    world.until_struck(second).await;
    assert_eq!(world.volumes().await.len(), 9);
}

#[tokio::test]
async fn no_query_has_more_names_than_vcenter_takes() {
    let world = World::start().await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let first = world.vcenter.control().delay_one("CnsQueryVolume", 0, 5000).await.unwrap();
    let others = async {
        world.until_struck(first).await;
        let create = |number| controller.create(request(&format!("pvc-{number}"), 64));
        join_all((1..=24).map(create)).await
    };
    let (alone, together) = tokio::join!(controller.create(request("pvc-0", 64)), others);
    alone.unwrap();
    for made in together {
        made.unwrap_or_else(|status| panic!("{status}\n{}", controller.log()));
    }
    assert_eq!(world.volumes().await.len(), 25);
    let log = controller.log();
    assert!(!log.contains("query of several volumes failed"), "{log}");
}
