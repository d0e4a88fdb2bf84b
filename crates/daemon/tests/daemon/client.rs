//! The client of the API on a network that fails silently, and its limits.

use std::time::{Duration, Instant};

use daemon::{reload, supervise::shutdown};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Secret},
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use lab::ControlPlane;
use serde_json::json;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use crate::{BOUND, flags};

/// A proxy whose connections stop forwarding, without being closed, whenever `cut` changes.
async fn proxy(listener: TcpListener, server: String, cut: watch::Receiver<u32>) {
    let mut connections = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let (server, mut cut) = (server.clone(), cut.clone());
        cut.mark_unchanged();
        connections.spawn(async move {
            let mut server = TcpStream::connect(server).await.unwrap();
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                _ = cut.changed() => std::future::pending().await,
            }
        });
    }
}

async fn client(plane: &ControlPlane, line: &[&str]) -> Client {
    let kubeconfig = format!("--kubeconfig={}", plane.kubeconfig().display());
    let line: Vec<_> = std::iter::once(kubeconfig.as_str()).chain(line.iter().copied()).collect();
    flags(&line).kubernetes.client("test").await.unwrap()
}

#[tokio::test]
async fn a_watch_whose_connection_died_silently_goes_on_within_a_minute() {
    let plane = ControlPlane::start().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let master = format!("--master=https://{}", listener.local_addr().unwrap());
    let server = plane.server().unwrap().trim_start_matches("https://").to_owned();
    let (cut, cuts) = watch::channel(0);
    let mut tasks = JoinSet::new();
    tasks.spawn(proxy(listener, server, cuts));

    let secrets: Api<Secret> = Api::namespaced(plane.client(), "default");
    let patch = |value: &str| {
        Patch::Apply(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "vcenter"},
            "stringData": {"value": value},
        }))
    };
    let apply = PatchParams::apply("test").force();
    secrets.patch("vcenter", &apply, &patch("one")).await.unwrap();
    let value = |secret: &Secret| {
        let bytes = secret.data.as_ref().and_then(|data| data.get("value")).ok_or("no value")?;
        Ok::<_, &str>(bytes.0.clone())
    };
    let through = client(&plane, &[&master]).await;
    let (source, mut followed) = reload::secret(through, "default", "vcenter", value);
    let (_stop, shutdown) = shutdown();
    tasks.spawn(async move { source.follow(shutdown).await.unwrap() });
    let mut seen = async |expected: &str, bound| {
        let seen = async {
            while followed
                .state()
                .value
                .as_deref()
                .is_none_or(|value| *value != expected.as_bytes())
            {
                followed.changed().await;
            }
        };
        tokio::time::timeout(bound, seen).await.unwrap_or_else(|_| panic!("{expected}: not seen"));
    };
    seen("one", BOUND).await;
    cut.send_replace(1);
    secrets.patch("vcenter", &apply, &patch("two")).await.unwrap();
    // A busy machine gets another minute; without the timeouts of the client it takes five.
    seen("two", 2 * BOUND).await;
}

#[tokio::test]
async fn requests_wait_for_their_turn_and_those_about_the_lease_do_not() {
    let plane = ControlPlane::start().await.unwrap();
    let limited = client(&plane, &["--kube-api-qps=5", "--kube-api-burst=10"]).await;
    let namespaces: Api<Namespace> = Api::all(limited);
    let begun = Instant::now();
    let gets = (0..30).map(|_| namespaces.get("default"));
    futures::future::try_join_all(gets).await.unwrap();
    // Ten at once and twenty at five a second; the last of them starts after four seconds.
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());

    let stalled = client(&plane, &["--kube-api-qps=0.001", "--kube-api-burst=1"]).await;
    let namespaces: Api<Namespace> = Api::all(stalled.clone());
    namespaces.get("default").await.unwrap();
    let leases: Api<Lease> = Api::namespaced(stalled, "default");
    let lease = serde_json::from_value(json!({"metadata": {"name": "free"}})).unwrap();
    let (all, new) = (ListParams::default(), PostParams::default());
    tokio::select! {
        _ = namespaces.list(&all) => panic!("it did not wait"),
        lease = leases.create(&new, &lease) => drop(lease.unwrap()),
    }
}
