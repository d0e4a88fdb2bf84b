//! The control plane alone: no root, no nodes.

use std::pin::pin;

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{ConfigMap, Namespace, Secret, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client, Config,
    api::{PostParams, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use lab::{ControlPlane, Controllers, Wait, until};
use serde_json::json;

use crate::{BOUND, kubectl};

/// A client that has nothing but a service account's token.
async fn client_with_token(plane: &ControlPlane, account: &str) -> Result<Client> {
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client(), "default");
    let asked = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let answer = accounts.create_token_request(account, &PostParams::default(), &asked).await?;
    let mut kubeconfig = Kubeconfig::read_from(plane.kubeconfig())?;
    for user in &mut kubeconfig.auth_infos {
        let token = answer.status.as_ref().map(|status| status.token.clone().into());
        user.auth_info =
            Some(kube::config::AuthInfo { token, ..kube::config::AuthInfo::default() });
    }
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// A service account that may read config maps and nothing else.
async fn reader(plane: &ControlPlane) -> Result<Client> {
    let client = plane.client();
    let create = PostParams::default();
    let account = json!({"metadata": {"name": "reader"}});
    Api::<ServiceAccount>::namespaced(client.clone(), "default")
        .create(&create, &serde_json::from_value(account)?)
        .await?;
    let role = json!({
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}],
    });
    Api::<Role>::namespaced(client.clone(), "default")
        .create(&create, &serde_json::from_value(role)?)
        .await?;
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
    });
    Api::<RoleBinding>::namespaced(client, "default")
        .create(&create, &serde_json::from_value(binding)?)
        .await?;
    client_with_token(plane, "reader").await
}

fn config_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

#[tokio::test]
async fn a_service_account_watches_what_its_role_allows_and_nothing_else() {
    let plane = ControlPlane::start().await.unwrap();
    let reader = reader(&plane).await.unwrap();
    let watched: Api<ConfigMap> = Api::namespaced(reader.clone(), "default");
    let events = watched.watch(&WatchParams::default().timeout(120), "0").await.unwrap();

    let admin: Api<ConfigMap> = Api::namespaced(plane.client(), "default");
    admin.create(&PostParams::default(), &config_map("seen-by-the-watch")).await.unwrap();
    let mut names = pin!(events.filter_map(|event| async move {
        match event {
            Ok(WatchEvent::Added(map)) => map.metadata.name,
            _ => None,
        }
    }));
    assert_eq!(names.next().await.as_deref(), Some("seen-by-the-watch"));

    let created = watched.create(&PostParams::default(), &config_map("refused")).await.unwrap_err();
    assert!(created.to_string().contains("forbidden"), "{created}");
    let secrets: Api<Secret> = Api::namespaced(reader, "default");
    let listed = secrets.list(&kube::api::ListParams::default()).await.unwrap_err();
    let who = "system:serviceaccount:default:reader";
    assert!(listed.to_string().contains(who), "{listed}");
}

#[tokio::test]
async fn two_control_planes_run_at_once_and_share_nothing() {
    let (one, two) = tokio::try_join!(ControlPlane::start(), ControlPlane::start()).unwrap();
    assert_ne!(one.world().dir(), two.world().dir());
    assert_ne!(one.server().unwrap(), two.server().unwrap());
    let maps = |plane: &ControlPlane| Api::<ConfigMap>::namespaced(plane.client(), "default");
    maps(&one).create(&PostParams::default(), &config_map("only-in-one")).await.unwrap();
    assert!(maps(&two).get_opt("only-in-one").await.unwrap().is_none());
    // Each trusts its own authority only.
    let stranger =
        kubectl(&one, &["--server", &two.server().unwrap(), "get", "namespaces"]).unwrap_err();
    assert!(stranger.to_string().contains("certificate signed by unknown authority"), "{stranger}");
}

#[tokio::test]
async fn an_api_that_is_restarted_keeps_what_it_stored() {
    let mut plane = ControlPlane::start().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(plane.client(), "default");
    maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();
    let watched = maps.watch(&WatchParams::default().timeout(120), "0").await.unwrap();
    plane.restart_api().await.unwrap();
    // Who watched notices: the stream ends or fails.
    let told = tokio::time::timeout(BOUND, watched.for_each(async |_| {})).await;
    assert!(told.is_ok(), "the watch goes on");
    assert!(maps.get_opt("kept").await.unwrap().is_some());
}

#[tokio::test]
async fn an_anonymous_request_is_refused() {
    let plane = ControlPlane::start().await.unwrap();
    let mut config = Config::new(plane.server().unwrap().parse().unwrap());
    config.accept_invalid_certs = true;
    let client = Client::try_from(config).unwrap();
    let namespaces: Api<Namespace> = Api::all(client);
    let error = namespaces.list(&kube::api::ListParams::default()).await.unwrap_err();
    assert!(error.to_string().contains("system:anonymous"), "{error}");
}

#[tokio::test]
async fn the_controllers_run_when_asked_for() {
    let plane = ControlPlane::start_with(Controllers::All).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client(), "default");
    until("the controllers make the default service account", BOUND, || async {
        Ok(match accounts.get_opt("default").await? {
            Some(_) => Wait::Done(()),
            None => Wait::NotYet("none".to_owned()),
        })
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn dropping_a_control_plane_removes_its_files_and_frees_its_port() {
    let plane = ControlPlane::start().await.unwrap();
    let (dir, server) = (plane.world().dir().to_owned(), plane.server().unwrap());
    assert!(dir.exists());
    drop(plane);
    assert!(!dir.exists(), "{} is still there", dir.display());
    let address = server.trim_start_matches("https://");
    std::net::TcpStream::connect(address).unwrap_err();
}

#[tokio::test]
async fn what_a_service_account_asks_for_is_on_record_with_the_answer() {
    let plane = ControlPlane::start().await.unwrap();
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "curious", "namespace": "default"},
    });
    plane.apply(&[account]).unwrap();
    let kubeconfig = plane.kubeconfig_of("default", "curious").await.unwrap();
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    let secrets: Api<Secret> = Api::namespaced(client, "default");
    secrets.get("treasure").await.unwrap_err();
    let expected = lab::audit::Request {
        user: "system:serviceaccount:default:curious".to_owned(),
        agent: String::new(),
        verb: "get".to_owned(),
        group: String::new(),
        resource: "secrets".to_owned(),
        namespace: "default".to_owned(),
        name: "treasure".to_owned(),
        code: 403,
    };
    let mut recorded = plane.audit().unwrap();
    recorded.iter_mut().for_each(|request| request.agent.clear());
    // What the administrator does is not.
    assert_eq!(recorded, [expected]);
}
