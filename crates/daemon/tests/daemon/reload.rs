//! Values that follow a real Secret and a real file.

use std::fs;

use daemon::{
    reload::{self, Followed, Problem, State},
    supervise::shutdown,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use lab::ControlPlane;
use serde_json::json;

use crate::{BOUND, token};

fn password(secret: &Secret) -> Result<String, String> {
    let data = secret.data.as_ref().and_then(|data| data.get("password"));
    let bytes = data.ok_or("the key password is missing")?;
    String::from_utf8(bytes.0.clone()).map_err(|error| error.to_string())
}

async fn seen<T, E>(followed: &mut Followed<T, E>, condition: impl Fn(&State<T, E>) -> bool) {
    let seen = async {
        while !condition(&followed.state()) {
            followed.changed().await;
        }
    };
    tokio::time::timeout(BOUND, seen).await.expect("not within a minute");
}

fn is(state: &State<String, String>, value: &str, problem: Option<&str>) -> bool {
    state.value.as_ref().is_some_and(|current| **current == value)
        && state.problem.as_ref().map(ToString::to_string).as_deref() == problem
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
    let (source, mut followed) =
        reload::secret(narrow(&plane).await, "default", "vcenter", password);
    assert!(matches!(followed.state().problem, Some(Problem::Unread)));
    let (stop, shutdown) = shutdown();
    let task = tokio::runtime::Handle::current().spawn(source.follow(shutdown));
    seen(&mut followed, |state| matches!(state.problem, Some(Problem::Absent))).await;
    assert!(followed.state().value.is_none());

    let secrets: Api<Secret> = Api::namespaced(plane.client(), "default");
    secrets.create(&PostParams::default(), &secret("password", "one")).await.unwrap();
    seen(&mut followed, |state| is(state, "one", None)).await;

    let patch = |value| Patch::Merge(json!({"data": {"password": value}}));
    let none: Option<&str> = None;
    secrets.patch("vcenter", &PatchParams::default(), &patch(none)).await.unwrap();
    seen(&mut followed, |state| is(state, "one", Some("the key password is missing"))).await;

    secrets.patch("vcenter", &PatchParams::default(), &patch(Some("dHdv"))).await.unwrap();
    seen(&mut followed, |state| is(state, "two", None)).await;

    secrets.delete("vcenter", &DeleteParams::default()).await.unwrap();
    seen(&mut followed, |state| is(state, "two", Some("it does not exist"))).await;

    secrets.create(&PostParams::default(), &secret("password", "three")).await.unwrap();
    seen(&mut followed, |state| is(state, "three", None)).await;
    drop(stop);
    tokio::time::timeout(BOUND, task).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_label_on_a_secret_is_not_a_change() {
    let plane = ControlPlane::start().await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(plane.client(), "default");
    secrets.create(&PostParams::default(), &secret("password", "one")).await.unwrap();
    let (source, mut followed) = reload::secret(plane.client(), "default", "vcenter", password);
    let (stop, shutdown) = shutdown();
    let task = tokio::runtime::Handle::current().spawn(source.follow(shutdown));
    seen(&mut followed, |state| is(state, "one", None)).await;
    let first = followed.usable().unwrap();
    for patch in [json!({"metadata": {"labels": {"a": "b"}}}), json!({"data": {"password": null}})]
    {
        secrets.patch("vcenter", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
    // The watch is in order, so the label was seen before the missing key.
    followed.changed().await;
    assert!(is(&followed.state(), "one", Some("the key password is missing")));
    assert!(std::sync::Arc::ptr_eq(&first, &followed.usable().unwrap()));
    drop(stop);
    tokio::time::timeout(BOUND, task).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_secret_that_we_may_not_see_says_so() {
    let plane = ControlPlane::start().await.unwrap();
    let (source, mut followed) =
        reload::secret(narrow(&plane).await, "default", "another", password);
    let (_stop, shutdown) = shutdown();
    let following = source.follow(shutdown);
    let forbidden = |state: &State<String, String>| match &state.problem {
        Some(Problem::Unreadable(reason)) => reason.contains("forbidden"),
        _ => false,
    };
    tokio::select! {
        _ = following => panic!("it ended"),
        () = seen(&mut followed, forbidden) => {}
    }
}

#[tokio::test]
async fn a_file_is_followed_while_the_program_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vsphere.conf");
    let parse = |files: &reload::Contents| {
        let text = files.values().next().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        text.filter(|text| !text.is_empty()).ok_or_else(|| "it is empty".to_owned())
    };
    let (source, mut followed) = reload::files(vec![path.clone()], parse);
    assert!(matches!(followed.state().problem, Some(Problem::Absent)));
    let (stop, shutdown) = shutdown();
    let task = tokio::runtime::Handle::current().spawn(source.follow(shutdown));
    fs::write(&path, "one").unwrap();
    seen(&mut followed, |state| is(state, "one", None)).await;
    fs::write(&path, "").unwrap();
    seen(&mut followed, |state| is(state, "one", Some("it is empty"))).await;
    fs::write(&path, "two").unwrap();
    seen(&mut followed, |state| is(state, "two", None)).await;
    drop(stop);
    tokio::time::timeout(BOUND, task).await.unwrap().unwrap().unwrap();
}
