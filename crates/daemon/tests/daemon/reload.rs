//! Values that follow a real Secret and a real file.

use std::{fs, sync::Arc};

use daemon::{
    reload::{self, Followed},
    supervise::shutdown,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use lab::ControlPlane;
use serde_json::json;
use tokio::sync::watch;

use crate::{BOUND, token};

fn password(secret: &Secret) -> Result<String, String> {
    let data = secret.data.as_ref().and_then(|data| data.get("password"));
    let bytes = data.ok_or("the key password is missing")?;
    String::from_utf8(bytes.0.clone()).map_err(|error| error.to_string())
}

async fn seen<T: Clone>(receiver: &watch::Receiver<T>, condition: impl FnMut(&T) -> bool) -> T {
    let mut receiver = receiver.clone();
    let seen = tokio::time::timeout(BOUND, receiver.wait_for(condition)).await;
    seen.expect("not within a minute").unwrap().clone()
}

async fn refused(followed: &Followed<Option<Arc<String>>>, text: &str) {
    seen(&followed.refusal, |problem| {
        problem.as_ref().is_some_and(|problem| problem.contains(text))
    })
    .await;
}

async fn password_is(followed: &Followed<Option<Arc<String>>>, expected: &str) {
    seen(&followed.value, |value| value.as_ref().is_some_and(|value| **value == expected)).await;
}

fn secret(key: &str, value: &str) -> Secret {
    let text = json!({"metadata": {"name": "vcenter"}, "stringData": {key: value}});
    serde_json::from_value(text).unwrap()
}

/// A client that may see this one Secret and nothing else.
async fn narrow(plane: &ControlPlane) -> Client {
    let token = token(&plane.client(), "narrow").await;
    let kubectl = |arguments: &[&str]| lab::run(plane.kubectl().unwrap().args(arguments)).unwrap();
    kubectl(&[
        "create",
        "role",
        "narrow",
        "--verb=get,list,watch",
        "--resource=secrets",
        "--resource-name=vcenter",
    ]);
    kubectl(&[
        "create",
        "rolebinding",
        "narrow",
        "--role=narrow",
        "--serviceaccount=default:narrow",
    ]);
    let mut config = kube::Config::new(plane.server().unwrap().parse().unwrap());
    config.accept_invalid_certs = true;
    config.auth_info.token = Some(token.into());
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn a_secret_is_followed_through_absence_bad_values_and_removal() {
    let plane = ControlPlane::start().await.unwrap();
    let (source, followed) = reload::secret(narrow(&plane).await, "default", "vcenter", password);
    let (stop, shutdown) = shutdown();
    let task = tokio::runtime::Handle::current().spawn(source.follow(shutdown));
    refused(&followed, "does not exist").await;
    assert!(followed.value.borrow().is_none());

    let secrets: Api<Secret> = Api::namespaced(plane.client(), "default");
    secrets.create(&PostParams::default(), &secret("password", "one")).await.unwrap();
    password_is(&followed, "one").await;
    assert_eq!(*followed.refusal.borrow(), None);

    let patch = |value| Patch::Merge(json!({"data": {"password": value}}));
    let none: Option<&str> = None;
    secrets.patch("vcenter", &PatchParams::default(), &patch(none)).await.unwrap();
    refused(&followed, "the key password is missing").await;
    password_is(&followed, "one").await;

    secrets.patch("vcenter", &PatchParams::default(), &patch(Some("dHdv"))).await.unwrap();
    password_is(&followed, "two").await;
    seen(&followed.refusal, Option::is_none).await;

    secrets.delete("vcenter", &DeleteParams::default()).await.unwrap();
    refused(&followed, "removed").await;
    password_is(&followed, "two").await;

    secrets.create(&PostParams::default(), &secret("password", "three")).await.unwrap();
    password_is(&followed, "three").await;
    stop.request();
    tokio::time::timeout(BOUND, task).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_secret_that_we_may_not_see_says_so() {
    let plane = ControlPlane::start().await.unwrap();
    let (source, followed) = reload::secret(narrow(&plane).await, "default", "another", password);
    let (_stop, shutdown) = shutdown();
    let following = source.follow(shutdown);
    tokio::select! {
        _ = following => panic!("it ended"),
        () = refused(&followed, "forbidden") => {}
    }
}

#[tokio::test]
async fn a_file_is_followed_while_the_program_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vsphere.conf");
    fs::write(&path, "one").unwrap();
    let parse = |files: &reload::Contents| {
        let text = files.values().next().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        text.filter(|text| !text.is_empty()).ok_or_else(|| "it is empty".to_owned())
    };
    let (source, followed) = reload::files(vec![path.clone()], parse).unwrap();
    let (stop, shutdown) = shutdown();
    let task = tokio::runtime::Handle::current().spawn(source.follow(shutdown));
    fs::write(&path, "").unwrap();
    seen(&followed.refusal, |problem| problem.as_deref() == Some("it is empty")).await;
    assert_eq!(**followed.value.borrow(), "one");
    fs::write(&path, "two").unwrap();
    seen(&followed.value, |value| **value == "two").await;
    stop.request();
    tokio::time::timeout(BOUND, task).await.unwrap().unwrap().unwrap();
}
