//! What scrapers of the Go driver find at the controller's port.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use lab::{Wait, until};
use serde_json::Value;

use crate::{
    attach::ATTACH,
    world::{BOUND, Controller, NODES, World, request},
};

/// Where the controller serves metrics.
async fn address(controller: &Controller) -> String {
    until("metrics are served", BOUND, || async {
        let log = controller.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let served = lines.into_iter().find(|line| line["metrics"] == true);
        let address = served.and_then(|line| Some(line["address"].as_str()?.to_owned()));
        Ok(address.map_or_else(|| Wait::NotYet(log), Wait::Done))
    })
    .await
    .unwrap()
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn operations_are_counted_where_scrapers_of_the_go_driver_look() {
    let world = World::start().await;
    let flags = [ATTACH, &["--metrics-address=127.0.0.1:0", "--log-format=json"]].concat();
    let controller = world.run(&flags).await;
    controller.until_ready().await;
    let volume = controller.create(request("pvc-1", 64)).await.unwrap();
    controller.attach(&volume, NODES[0]).await.unwrap();
    controller.delete(&volume).await.unwrap_err();
    let address = address(&controller).await;
    let operation = |name: &str, status: &str, fault: &str| {
        format!(
            "vsphere_csi_volume_ops_histogram_count{{voltype=\"block\",optype=\"{name}\",status=\"{status}\",\
             faulttype=\"{fault}\"}} 1\n"
        )
    };
    let expected = [
        operation("create-volume", "pass", ""),
        operation("attach-volume", "pass", ""),
        operation("delete-volume", "fail", "csi.fault.FailedPrecondition"),
        "vsphere_cns_volume_ops_histogram_count{optype=\"create-volume\",status=\"pass\"} 1\n".to_owned(),
        "vsphere_request_ops_seconds_count{request=\"CnsAttachVolume\",client=\"cns\",status=\"success\"} 1\n"
            .to_owned(),
        "vsphere_csi_attach_pending{operation=\"attach\"} 0\n".to_owned(),
        "vsphere_csi_attach_corrections_total 0\n".to_owned(),
        "vsphere_csi_info{version=".to_owned(),
    ];
    // What waits is counted once the attach controller leads.
    until("all are served", BOUND, || async {
        let text = scrape(&address);
        let missing = expected.iter().find(|line| !text.contains(line.as_str()));
        Ok(missing.map_or(Wait::Done(()), |line| Wait::NotYet(format!("no {line} in\n{text}"))))
    })
    .await
    .unwrap();
}
