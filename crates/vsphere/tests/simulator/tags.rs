//! Tags, zones and regions, and the REST session behind them.

use std::collections::BTreeMap;

use futures::FutureExt;
use lab::{
    VCenter,
    vcenter::{ADMINISTRATOR, HttpFault, HttpFaultKind},
};
use vsphere::{
    connection::Connection,
    error::{Error, Remedy},
    object,
    reference::Ref,
    session::Credentials,
    tags::{Cardinality, TagCache},
    types::{ClusterComputeResource, Datacenter, Datastore, ManagedEntity, VirtualMachine},
};

use crate::site::{CPI, CSI, NOBODY, administrator, connect, sessions, vcenter, vcenter_of};

object! {
    /// A cluster's name.
    struct Cluster: ClusterComputeResource { name: String = "name" }
}
object! {
    /// A datacenter's name.
    struct Center: Datacenter { name: String = "name" }
}
object! {
    /// A datastore's name.
    struct Store: Datastore { name: String = "name" }
}
object! {
    /// A VM's name.
    struct Vm: VirtualMachine { name: String = "name" }
}

async fn cluster(connection: &Connection, name: &str) -> Ref<ClusterComputeResource> {
    let clusters: Vec<Cluster> = connection.list().await.unwrap();
    clusters.into_iter().find(|found| found.name == name).unwrap().reference
}

async fn datacenter(connection: &Connection, name: &str) -> Ref<Datacenter> {
    let centers: Vec<Center> = connection.list().await.unwrap();
    centers.into_iter().find(|found| found.name == name).unwrap().reference
}

/// Requests to the REST API, by verb and path with status.
async fn requests(vcenter: &VCenter) -> BTreeMap<String, u64> {
    let state = vcenter.control().state_as_json().await.unwrap();
    let http = state["calls"]["requests"].as_array().unwrap().clone();
    let rest = http.iter().filter(|call| {
        let path = call["path"].as_str().unwrap();
        path.starts_with("/api") || path.starts_with("/rest")
    });
    rest.map(|call| {
        let text = |field| call[field].as_str().unwrap();
        let name = format!("{} {} {}", text("verb"), text("path"), call["status"]);
        (name, call["count"].as_u64().unwrap())
    })
    .collect()
}

/// How many requests of this beginning there were.
async fn count(vcenter: &VCenter, beginning: &str) -> u64 {
    let all = requests(vcenter).await;
    all.iter().filter(|(name, _)| name.starts_with(beginning)).map(|(_, count)| count).sum()
}

async fn zones_are_told_by(release: &str, session: &str) {
    let vcenter = vcenter_of(release).await;
    let connection = administrator(&vcenter);
    let mut cache = TagCache::new(&connection, ["k8s-zone", "k8s-region", "k8s-rack"]);
    let map = cache.refresh().await.unwrap();
    let cluster = cluster(&connection, "cluster-1").await;
    let center = datacenter(&connection, "dc-1").await;
    let ancestors = [cluster.upcast::<ManagedEntity>(), center.upcast()];
    assert_eq!(map.nearest(&ancestors, "k8s-zone"), Some("zone-1"));
    assert_eq!(map.nearest(&ancestors, "k8s-region"), Some("region-1"));
    assert_eq!(map.nearest(&ancestors[1..], "k8s-zone"), None);
    assert_eq!(map.on(&cluster, "k8s-region"), &[] as &[String]);
    assert_eq!(map.missing(), ["k8s-rack"]);
    assert!(
        count(&vcenter, &format!("POST {session} 20")).await == 1,
        "{:?}",
        requests(&vcenter).await
    );
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 2);
    connection.close().await;
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 0);
}

#[tokio::test]
async fn zones_and_regions_are_read_by_the_old_api_of_6_7() {
    zones_are_told_by("6.7U3", "/rest/com/vmware/cis/session").await;
}

#[tokio::test]
async fn zones_and_regions_are_read_by_the_old_api_of_7_0u1() {
    zones_are_told_by("7.0U1", "/rest/com/vmware/cis/session").await;
}

#[tokio::test]
async fn zones_and_regions_are_read_by_the_api_of_7_0u2() {
    zones_are_told_by("7.0U2", "/api/session").await;
}

#[tokio::test]
async fn zones_and_regions_are_read_by_the_api_of_8_0() {
    zones_are_told_by("8.0U3", "/api/session").await;
}

#[tokio::test]
async fn zones_and_regions_are_read_by_the_api_of_9_1() {
    zones_are_told_by("9.1", "/api/session").await;
}

#[tokio::test]
async fn a_new_category_and_its_tags_are_read_with_their_objects() {
    for release in ["6.7U3", "8.0U3", "9.1"] {
        let vcenter = vcenter_of(release).await;
        let connection = administrator(&vcenter);
        let tags = connection.tags();
        let kinds = ["Datastore"];
        let category =
            tags.create_category("rack", "where it is", Cardinality::Single, &kinds).await.unwrap();
        let tag = tags.create_tag(&category, "rack-1", "the first").await.unwrap();
        let stores: Vec<Store> = connection.list().await.unwrap();
        let store = &stores[0].reference;
        vcenter.control().tag("rack", "rack-1", &stores[0].name).await.unwrap();
        let on = tags.on(std::slice::from_ref(store)).await.unwrap();
        assert_eq!(on.len(), 1);
        assert_eq!(on[0].0, store.upcast());
        assert!(on[0].1.contains(&tag));
        assert_eq!(tags.objects(&[&tag]).await.unwrap(), [(tag.clone(), vec![store.upcast()])]);
        let found = tags.of_category(&category).await.unwrap();
        assert_eq!(
            (found[0].name.as_str(), found[0].description.as_str()),
            ("rack-1", "the first")
        );
        assert_eq!(found[0].category_id, category);
        let categories = tags.categories().await.unwrap();
        let rack = categories.iter().find(|found| found.id == category).unwrap();
        assert_eq!((rack.name.as_str(), rack.cardinality), ("rack", Cardinality::Single));
        assert_eq!(rack.associable_types, ["Datastore"]);
        vcenter.control().untag("rack", "rack-1", &stores[0].name).await.unwrap();
        assert_eq!(tags.objects(&[&tag]).await.unwrap()[0].1, []);
        connection.close().await;
    }
}

#[tokio::test]
async fn errors_have_the_remedies_of_soap() {
    for release in ["6.7U3", "8.0U3"] {
        let vcenter = vcenter_of(release).await;
        let connection = administrator(&vcenter);
        let tags = connection.tags();
        let twice = tags.create_category("k8s-zone", "", Cardinality::Single, &[]).await;
        assert!(matches!(twice, Err(Error { remedy: Remedy::Invalid { .. }, .. })), "{twice:?}");
        let nowhere = "urn:vmomi:InventoryServiceCategory:none:GLOBAL";
        let missing = tags.of_category(nowhere).await;
        assert!(
            matches!(missing, Err(Error { remedy: Remedy::NotFound { .. }, .. })),
            "{missing:?}"
        );
        let reader = connect(&vcenter, CPI);
        let refused = reader.tags().create_category("rack", "", Cardinality::Single, &[]).await;
        let Err(error @ Error { remedy: Remedy::NoPermission { .. }, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert!(error.to_string().contains("InventoryService.Tagging.CreateCategory"), "{error}");
        reader.close().await;
        connection.close().await;
    }
}

#[tokio::test]
async fn a_user_without_permissions_sees_no_tags() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, NOBODY);
    let refused = connection.tags().categories().await;
    assert!(
        matches!(refused, Err(Error { remedy: Remedy::NoPermission { .. }, .. })),
        "{refused:?}"
    );
    assert_eq!(count(&vcenter, "POST /api/session").await, 0);
}

#[tokio::test]
async fn the_zones_of_the_csi_user_are_told_with_its_few_permissions() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    let map = TagCache::new(&connection, ["k8s-zone"]).refresh().await.unwrap();
    let cluster = cluster(&connection, "cluster-2").await;
    assert_eq!(map.on(&cluster, "k8s-zone"), ["zone-2"]);
    connection.close().await;
}

#[tokio::test]
async fn a_refresh_sees_changes_and_costs_the_same_for_many_objects() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let mut cache = TagCache::new(&connection, ["k8s-zone", "k8s-region"]);
    let cluster = cluster(&connection, "cluster-1").await;
    assert_eq!(cache.refresh().await.unwrap().on(&cluster, "k8s-zone"), ["zone-1"]);
    let before = count(&vcenter, "").await;
    vcenter.control().untag("k8s-zone", "zone-1", "cluster-1").await.unwrap();
    vcenter.control().tag("k8s-zone", "zone-2", "cluster-1").await.unwrap();
    let map = cache.refresh().await.unwrap();
    assert_eq!(map.on(&cluster, "k8s-zone"), ["zone-2"]);
    // The tags of two categories, and all objects at once; names are known.
    assert_eq!(count(&vcenter, "").await - before, 2 + 1);
    let tags = connection.tags();
    let categories = tags.categories().await.unwrap();
    let zones = categories.iter().find(|category| category.name == "k8s-zone").unwrap();
    tags.create_tag(&zones.id, "zone-9", "made later").await.unwrap();
    vcenter.control().untag("k8s-zone", "zone-2", "cluster-1").await.unwrap();
    vcenter.control().tag("k8s-zone", "zone-9", "cluster-1").await.unwrap();
    let map = cache.refresh().await.unwrap();
    assert_eq!(map.on(&cluster, "k8s-zone"), ["zone-9"]);
    connection.close().await;
}

#[tokio::test]
async fn many_objects_are_asked_for_in_few_requests() {
    let spec = lab::VCenterSpec { generated_vms: 1200, ..lab::VCenterSpec::default() };
    let vcenter = VCenter::start(&spec).await.unwrap();
    let connection = administrator(&vcenter);
    let vms: Vec<Vm> = connection.list().await.unwrap();
    let references: Vec<_> = vms.into_iter().map(|vm| vm.reference).collect();
    let on = connection.tags().on(&references).await.unwrap();
    assert_eq!(on.len(), references.len());
    assert_eq!(count(&vcenter, "POST /api/cis/tagging/tag-association").await, 3);
    connection.close().await;
}

#[tokio::test]
async fn an_expired_session_is_opened_again_by_one_of_many_callers() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    connection.tags().categories().await.unwrap();
    vcenter.control().expire_sessions().await.unwrap();
    let tags = connection.tags();
    let reads = futures::future::join_all((0..20).map(|_| tags.categories())).await;
    assert!(reads.iter().all(Result::is_ok), "{reads:?}");
    assert_eq!(count(&vcenter, "POST /api/session 201").await, 2);
    // The SOAP session ended as well, and was opened again before the login.
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 2);
    connection.close().await;
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 0);
}

#[tokio::test]
async fn a_page_instead_of_an_answer_is_worth_another_try() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let page = HttpFault {
        path: "/api".to_owned(),
        method: None,
        kind: HttpFaultKind::Status { status: 503 },
        count: 1,
    };
    vcenter.control().break_http(&page).await.unwrap();
    let refused = connection.tags().categories().await;
    assert!(matches!(refused, Err(Error { remedy: Remedy::Retry, .. })), "{refused:?}");
    connection.tags().categories().await.unwrap();
    vcenter.control().break_http(&page).await.unwrap();
    let refused = connection.tags().categories().await;
    assert!(matches!(refused, Err(Error { remedy: Remedy::Retry, .. })), "{refused:?}");
    let cut = HttpFault { kind: HttpFaultKind::Truncate, ..page };
    vcenter.control().break_http(&cut).await.unwrap();
    connection.tags().categories().await.unwrap_err();
    assert_eq!(connection.tags().categories().await.unwrap().len(), 3);
    connection.close().await;
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 0);
}

#[tokio::test]
async fn refused_credentials_are_not_tried_by_tags() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, (CSI.0, "wrong"));
    for _ in 0..10 {
        let refused = connection.tags().categories().await;
        assert!(matches!(refused, Err(Error { remedy: Remedy::Login, .. })), "{refused:?}");
    }
    assert_eq!(count(&vcenter, "POST /api/session").await, 0);
    let right = connect(&vcenter, CSI);
    right.login().await.unwrap();
    right.close().await;
}

#[tokio::test]
async fn a_password_that_changed_elsewhere_is_tried_once() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    connection.login().await.unwrap();
    let admin = administrator(&vcenter);
    let sso = admin.sso().await.unwrap();
    sso.reset_password("csi", &"Lab-csi-2!".into()).await.unwrap();
    sso.logout().await;
    for _ in 0..10 {
        let refused = connection.tags().categories().await;
        assert!(matches!(refused, Err(Error { remedy: Remedy::Login, .. })), "{refused:?}");
    }
    assert_eq!(count(&vcenter, "POST /api/session 401").await, 1);
    connection.replace_credentials(Credentials::password(CSI.0, "Lab-csi-2!")).await.unwrap();
    connection.tags().categories().await.unwrap();
    connection.close().await;
    assert_eq!(sessions(&vcenter, CSI.0).await, 0);
    admin.close().await;
}

#[tokio::test]
async fn new_credentials_get_a_session_of_their_own() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    connection.tags().categories().await.unwrap();
    connection.replace_credentials(Credentials::password(CPI.0, CPI.1)).await.unwrap();
    assert_eq!(sessions(&vcenter, CSI.0).await, 0);
    connection.tags().categories().await.unwrap();
    assert_eq!(sessions(&vcenter, CPI.0).await, 2);
    connection.close().await;
    assert_eq!(sessions(&vcenter, CPI.0).await, 0);
}

#[tokio::test]
async fn calls_that_are_given_up_leave_no_session_behind() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    connection.login().await.unwrap();
    for _ in 0..5 {
        assert!(connection.tags().categories().now_or_never().is_none());
    }
    connection.tags().categories().await.unwrap();
    assert_eq!(count(&vcenter, "POST /api/session 201").await, 1);
    connection.close().await;
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 0);
    let closed = connection.tags().categories().await;
    assert!(matches!(closed, Err(Error { remedy: Remedy::Refused, .. })), "{closed:?}");
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 0);
}
