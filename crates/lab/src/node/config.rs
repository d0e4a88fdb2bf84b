//! The files a node starts from: its root file system, and what containerd, CNI and the kubelet read.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use anyhow::{Context, Result};
use serde_json::json;

use crate::{
    cgroup,
    control_plane::Files,
    image,
    network::{CONTROL_PLANE, NodeNetwork},
    pki::{self, Credentials, Identity},
    world::World,
};

/// The port on which the API listens in a world's network.
pub(crate) const API_PORT: u16 = 6443;

/// Writes what containerd and CNI read, and the identity of the machine.
pub(super) fn prepare(dir: &Path, world: &World, uuid: &str, network: NodeNetwork) -> Result<()> {
    let root = dir.join("root");
    for part in ["etc/containerd", "etc/cni/net.d", "etc/kubernetes/pki", "var/lib/kubelet"] {
        fs::create_dir_all(root.join(part))?;
    }
    fs::create_dir_all(dir.join("disks"))?;
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    // The kubelet takes the first of these two that the machine has.
    write("etc/machine-id", &format!("{}\n", uuid.replace('-', "")))?;
    write("etc/product_uuid", &format!("{uuid}\n"))?;
    write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")?;
    write("etc/group", "root:x:0:\n")?;
    write("etc/hosts", &format!("127.0.0.1 localhost\n{} {name}\n", network.address()))?;
    write("etc/resolv.conf", "# A lab has no DNS.\n")?;
    write("etc/containerd/config.toml", &containerd())?;
    write("etc/cni/net.d/10-lab.conflist", &serde_json::to_string_pretty(&cni(network))?)?;
    cgroup::create(world.dir(), &name)?;
    let cgroup = cgroup::of_node(world.dir(), &name);
    write(
        "etc/kubernetes/kubelet.yaml",
        &serde_json::to_string_pretty(&kubelet(network.address(), &cgroup))?,
    )
}

/// Writes the node's certificates and kubeconfigs.
pub(super) fn enrol(dir: &Path, name: &str, network: NodeNetwork, files: &Files) -> Result<()> {
    let user = format!("system:node:{name}");
    let kubelet = files.authority.issue(
        &format!("{name}-kubelet"),
        &Identity {
            common_name: &user,
            organization: Some("system:nodes"),
            names: &[name],
            addresses: &[network.address()],
        },
    )?;
    let proxy = files.authority.issue(
        &format!("{name}-kube-proxy"),
        &Identity { common_name: "system:kube-proxy", ..Identity::default() },
    )?;
    let etc = dir.join("root/etc/kubernetes");
    fs::copy(files.authority.own().certificate, etc.join("pki/ca.crt"))?;
    let authority = Path::new("/etc/kubernetes/pki/ca.crt");
    let server = format!("https://{}", SocketAddr::from((CONTROL_PLANE, API_PORT)));
    for (program, made) in [("kubelet", kubelet), ("kube-proxy", proxy)] {
        let inside = Path::new("/etc/kubernetes/pki");
        let client = Credentials {
            certificate: inside.join(format!("{program}.crt")),
            key: inside.join(format!("{program}.key")),
        };
        fs::copy(made.certificate, etc.join(format!("pki/{program}.crt")))?;
        fs::copy(made.key, etc.join(format!("pki/{program}.key")))?;
        pki::write_kubeconfig(&etc.join(format!("{program}.conf")), &server, authority, &client)?;
    }
    Ok(())
}

fn containerd() -> String {
    let cri = r#"plugins."io.containerd.grpc.v1.cri""#;
    // restrict_oom_score_adj: without CAP_SYS_RESOURCE runc may not lower the score below its own.
    format!(
        r#"version = 2
[{cri}]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
[{cri}.cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "/etc/cni/net.d"
"#,
        pause = image::PAUSE
    )
}

/// Point-to-point links instead of a bridge: all traffic is routed, so Service addresses work without
/// the kernel's bridge filter.
fn cni(network: NodeNetwork) -> serde_json::Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "lab",
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": network.pods()}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

fn kubelet(address: IpAddr, cgroup: &str) -> serde_json::Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": "/etc/kubernetes/pki/kubelet.crt",
        "tlsPrivateKeyFile": "/etc/kubernetes/pki/kubelet.key",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        // Pods go below the world's own cgroup, where the reaper finds them.
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "failSwapOn": false,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        // Nothing can be pulled: a collected image would never come back.
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": false,
        "healthzPort": 0,
        "readOnlyPort": 0,
        "maxPods": 250,
    })
}
