//! Whole labs with real kubelets and containers. Needs root.

use std::{fs, path::Path};

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::{Api, api::PostParams};
use lab::{CloudController, Image, Lab, Spec, Wait, image, image::Drivers, until};
use serde_json::{Value, json};

use crate::{BOUND, kubectl, pod, run_pod};

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

fn address(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).unwrap_or("no address")
}

/// Asks an HTTP server of agnhost for the name of its pod, from inside another pod, until it answers as expected.
async fn answers(lab: &Lab, pod: &str, (address, port): (&str, u16), expected: &str) -> Result<()> {
    let request = format!(
        "printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' | nc -w 10 {address} {port} | tail -n 1"
    );
    let asked = || async {
        let command = ["exec", pod, "--", "sh", "-c", &request];
        Ok(match kubectl(lab.control_plane(), &command) {
            Ok(answer) if answer == expected => Wait::Done(()),
            Ok(answer) => Wait::NotYet(answer),
            Err(error) => Wait::NotYet(format!("{error:#}")),
        })
    };
    until(&format!("{address}:{port} answers pod {pod}"), BOUND, asked).await
}

#[tokio::test]
async fn pods_on_two_nodes_reach_each_other_and_are_reached_through_the_api() {
    let spec = Spec::default();
    let lab = Lab::start(&spec).await.unwrap();
    let client = lab.client();

    let nodes: Api<Node> = Api::all(client.clone());
    for wanted in &spec.nodes {
        let node = nodes.get(&wanted.name).await.unwrap();
        let seen = node.status.unwrap().node_info.unwrap().system_uuid;
        assert_eq!(seen.replace('-', ""), wanted.uuid.replace('-', ""));
    }

    let server = json!({"image": image::AGNHOST, "args": ["netexec", "--http-port=8080"]});
    let one = run_pod(&client, pod("one", "node-1", &server, &json!([])), "Running").await.unwrap();
    let two = run_pod(&client, pod("two", "node-2", &server, &json!([])), "Running").await.unwrap();
    // A pod that runs may not listen yet.
    answers(&lab, "one", (address(&two), 8080), "two").await.unwrap();
    answers(&lab, "two", (address(&one), 8080), "one").await.unwrap();

    let service = json!({
        "metadata": {"name": "two"},
        "spec": {"selector": {"app": "two"}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    let services: Api<Service> = Api::namespaced(client, "default");
    let service = services
        .create(&PostParams::default(), &serde_json::from_value(service).unwrap())
        .await
        .unwrap();
    let service = service.spec.unwrap().cluster_ip.unwrap();
    // From the other node, and from the pod behind it: both ways of a Service.
    for from in ["one", "two"] {
        answers(&lab, from, (&service, 80), "two").await.unwrap();
    }
    let logs = kubectl(lab.control_plane(), &["logs", "two"]).unwrap();
    assert!(logs.contains("GET /hostname"), "{logs}");
}

#[tokio::test]
async fn a_disk_appears_on_its_node_only_and_a_mount_propagates_to_another_pod() {
    let lab = Lab::start(&Spec::default()).await.unwrap();
    let [first, second] = lab.nodes() else { panic!("a default lab has two nodes") };
    let disk = lab.disk("6000c29a5eed400080000000000000d1", 64 << 20).unwrap();
    first.plug(&disk).unwrap();
    let link = format!("/dev/disk/by-id/{}", disk.link());
    assert_eq!(
        first.run("readlink", &["-f", &link]).unwrap().trim(),
        disk.device().display().to_string()
    );
    second.run("test", &["-e", &link]).unwrap_err();
    assert!(!Path::new(&link).exists(), "the machine itself sees the disk");
    first.run("mkfs.ext4", &["-q", &link]).unwrap();

    // What a CSI node plugin does: mount below the kubelet's directory, for others to see.
    let kubelet = json!({"name": "kubelet", "hostPath": {"path": "/var/lib/kubelet"}});
    let devices = json!({"name": "dev", "hostPath": {"path": "/dev"}});
    let mounts = |propagation: &str| {
        json!([
            {"name": "kubelet", "mountPath": "/var/lib/kubelet", "mountPropagation": propagation},
            {"name": "dev", "mountPath": "/dev"},
        ])
    };
    let shell = |script: &str, propagation: &str, privileged: bool| -> Value {
        json!({
            "image": image::BUSYBOX,
            "command": ["sh", "-ec", script],
            "securityContext": {"privileged": privileged},
            "volumeMounts": mounts(propagation),
        })
    };
    let volumes = json!([kubelet, devices]);
    let write = format!(
        "mkdir -p /var/lib/kubelet/volume && mount -t ext4 {link} /var/lib/kubelet/volume &&
         echo precious > /var/lib/kubelet/volume/data && sync && sleep 100000"
    );
    let writer = shell(&write, "Bidirectional", true);
    run_pod(&lab.client(), pod("writer", "node-1", &writer, &volumes), "Running").await.unwrap();
    let read = "until grep precious /var/lib/kubelet/volume/data; do sleep 0.1; done";
    let reader = shell(read, "HostToContainer", false);
    run_pod(&lab.client(), pod("reader", "node-1", &reader, &volumes), "Succeeded").await.unwrap();
    let said = kubectl(lab.control_plane(), &["logs", "reader"]).unwrap();
    assert_eq!(said.lines().last(), Some("precious"));

    disk.grow(128 << 20).unwrap();
    let size = first.run("blockdev", &["--getsize64", &link]).unwrap();
    assert_eq!(size.trim(), (128 << 20).to_string());
    first.unplug(&disk).unwrap();
    first.run("test", &["-e", &link]).unwrap_err();
}

#[tokio::test]
async fn nodes_wait_for_the_cloud_controller_that_is_expected() {
    let mut spec = Spec { cloud_controller: CloudController::Expected, ..Spec::default() };
    spec.nodes.truncate(1);
    let lab = Lab::start(&spec).await.unwrap();
    let node = Api::<Node>::all(lab.client()).get("node-1").await.unwrap();
    let taints = node.spec.unwrap().taints.unwrap_or_default();
    assert!(taints.iter().any(|taint| taint.key == UNINITIALIZED), "{taints:?}");
}

#[tokio::test]
async fn a_program_from_an_image_of_ours_runs() {
    let mut spec = Spec::default();
    spec.nodes.truncate(1);
    let lab = Lab::start(&spec).await.unwrap();
    let archive = lab.control_plane().world().dir().join("own.tar");
    let own = Image::new("example.test/own:1").program("/busybox", Path::new("/usr/bin/busybox"));
    own.entrypoint(&["/busybox", "echo", "hello from our own image"]).write(&archive).unwrap();
    lab.nodes()[0].import(&archive).await.unwrap();
    let container = json!({"image": "example.test/own:1"});
    run_pod(&lab.client(), pod("own", "node-1", &container, &json!([])), "Succeeded")
        .await
        .unwrap();
    assert_eq!(
        kubectl(lab.control_plane(), &["logs", "own"]).unwrap(),
        "hello from our own image\n"
    );

    fs::write(&archive, "no archive").unwrap();
    let rejected = lab.nodes()[0].import(&archive).await.unwrap_err();
    let expected = "node-1: containerd rejected the image";
    assert!(rejected.to_string().contains(expected), "{rejected}");
}

#[tokio::test]
async fn a_volume_of_cns_appears_on_its_node_and_moves_with_its_data() {
    let lab = Lab::start(&Spec::with_vcenter()).await.unwrap();
    let vcenter = lab.vcenter().unwrap();
    let [first, second] = lab.nodes() else { panic!("a default lab has two nodes") };
    let volume = vcenter.cnsctl(&["create", "pvc-1", "320", "/dc-1/datastore/shared-1"]).unwrap();

    let disk = vcenter.cnsctl(&["attach", &volume, first.uuid()]).unwrap();
    let link = format!("/dev/disk/by-id/wwn-0x{}", disk.replace('-', "").to_lowercase());
    first.run("test", &["-b", &link]).unwrap();
    second.run("test", &["-e", &link]).unwrap_err();
    first.run("mkfs.xfs", &["-q", &link]).unwrap();
    first.run("mount", &[&link, "/mnt"]).unwrap();
    first.run("sh", &["-c", "echo precious > /mnt/data"]).unwrap();

    vcenter.cnsctl(&["extend", &volume, "640"]).unwrap();
    let size = first.run("blockdev", &["--getsize64", &link]).unwrap();
    assert_eq!(size.trim(), (640 << 20).to_string());
    // Growing ext4 while it is mounted needs CAP_SYS_RESOURCE, which a sandbox may lack; XFS does not.
    first.run("xfs_growfs", &["/mnt"]).unwrap();
    first.run("umount", &["/mnt"]).unwrap();

    vcenter.cnsctl(&["detach", &volume, first.uuid()]).unwrap();
    first.run("test", &["-e", &link]).unwrap_err();
    let disk = vcenter.cnsctl(&["attach", &volume, second.uuid()]).unwrap();
    let link = format!("/dev/disk/by-id/wwn-0x{}", disk.replace('-', "").to_lowercase());
    second.run("mount", &[&link, "/mnt"]).unwrap();
    assert_eq!(second.run("cat", &["/mnt/data"]).unwrap(), "precious\n");
    let blocks = second.run("df", &["--output=size", "--block-size=1M", "/mnt"]).unwrap();
    let megabytes: u32 = blocks.lines().last().unwrap().trim().parse().unwrap();
    assert!(megabytes > 500, "the file system has {megabytes} MB after it was grown to 640");
    second.run("umount", &["/mnt"]).unwrap();
    vcenter.cnsctl(&["detach", &volume, second.uuid()]).unwrap();
    vcenter.cnsctl(&["delete", &volume]).unwrap();
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

#[tokio::test]
async fn a_node_whose_kubelet_is_paused_is_not_ready_until_it_is_resumed() {
    let mut spec = Spec::default();
    spec.nodes.truncate(1);
    let lab = Lab::start(&spec).await.unwrap();
    let nodes: Api<Node> = Api::all(lab.client());
    let until_ready = async |wanted: bool| {
        until(&format!("Ready is {wanted}"), BOUND, || async {
            let node = nodes.get("node-1").await?;
            let seen = format!("{:?}", node.status.as_ref().map(|status| &status.conditions));
            Ok(if is_ready(&node) == wanted { Wait::Done(()) } else { Wait::NotYet(seen) })
        })
        .await
        .unwrap();
    };
    lab.nodes()[0].pause_kubelet().unwrap();
    until_ready(false).await;
    lab.nodes()[0].resume_kubelet().unwrap();
    until_ready(true).await;
    // A lab can be taken away in that state too.
    lab.nodes()[0].pause_kubelet().unwrap();
}

#[tokio::test]
async fn the_tools_of_file_systems_run_from_the_drivers_image() {
    let mut spec = Spec::default();
    spec.nodes.truncate(1);
    let lab = Lab::start(&spec).await.unwrap();
    let dir = lab.control_plane().world().dir();
    // Any program that is linked against Debian's libraries will do in place of the drivers.
    let drivers = Drivers::around(&std::env::current_exe().unwrap()).unwrap();
    let archives = ["one.tar", "two.tar"].map(|name| dir.join(name));
    let digests = archives.each_ref().map(|archive| drivers.image.write(archive).unwrap());
    assert_eq!(digests[0], digests[1]);
    lab.nodes()[0].import(&archives[0]).await.unwrap();
    let names: Vec<&str> = drivers.packages.iter().map(|package| package.name.as_str()).collect();
    for name in ["btrfs-progs", "e2fsprogs", "xfsprogs", "libc6", "libblkid1", "libext2fs2"] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    let tools = [
        "mkfs.ext2 -V",
        "mkfs.ext3 -V",
        "mkfs.ext4 -V",
        "fsck.ext3 -V",
        "fsck.ext4 -V",
        "mkfs.xfs -V",
        "xfs_growfs -V",
        "mkfs.btrfs --version",
        "btrfs --version",
        // It has no flag that ends well.
        "resize2fs",
    ];
    for (number, command) in tools.iter().enumerate() {
        let command: Vec<&str> = command.split(' ').collect();
        // By both names of the image, in turn.
        let image = [image::DRIVERS, image::GO_DRIVER][number % 2];
        let container = json!({"image": image, "command": command});
        let name = format!("tool-{number}");
        let created = pod(&name, "node-1", &container, &json!([]));
        let ended = if command.len() > 1 { "Succeeded" } else { "Failed" };
        run_pod(&lab.client(), created, ended).await.unwrap();
        let printed = kubectl(lab.control_plane(), &["logs", &name]).unwrap();
        let version = ["1.4", "xfs", "btrfs", "Usage: resize2fs"];
        assert!(version.iter().any(|word| printed.contains(word)), "{command:?}: {printed}");
    }
}
