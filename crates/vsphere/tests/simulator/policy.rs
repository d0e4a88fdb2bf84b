//! Storage policies.

use vsphere::error::{Error, Remedy};

use crate::{
    cns::datastore,
    site::{CSI, connect, vcenter, vcenter_of},
};

const GOLD: &str = "9f6e1c3a-5eed-4000-8000-00000000000a";

#[tokio::test]
async fn a_policy_is_found_by_name_and_by_id_on_every_release() {
    for release in ["6.7U3", "7.0U1", "7.0U2", "7.0U3", "8.0U3", "9.0", "9.1"] {
        let vcenter = vcenter_of(release).await;
        let connection = connect(&vcenter, CSI);
        let policies = connection.policies().await.unwrap();
        assert_eq!(policies.id_of("gold").await.unwrap(), GOLD);
        let names = policies.names(&[GOLD, "unknown"]).await.unwrap();
        assert_eq!(names.len(), 1);
        assert_eq!(names[GOLD], "gold");
        connection.close().await;
    }
}

#[tokio::test]
async fn a_misspelt_policy_is_answered_with_the_names_most_like_it() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    let policies = connection.policies().await.unwrap();
    let error = policies.id_of("Glod").await.unwrap_err();
    assert!(matches!(error, Error { remedy: Remedy::NotFound { .. }, .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains(r#"no storage policy "Glod"; the most similar names are ["gold", "#),
        "{text}"
    );
    connection.close().await;
}

#[tokio::test]
async fn datastores_that_do_not_satisfy_a_policy_come_with_the_reason() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    let policies = connection.policies().await.unwrap();
    let vsan = datastore(&connection, "vsan-1").await;
    let shared = datastore(&connection, "shared-1").await;
    let among = [shared.clone(), vsan.clone()];
    let judged = policies.compatibility(GOLD, &among).await.unwrap();
    assert_eq!(judged.compatible.len(), 1);
    assert_eq!(judged.compatible[0].datastore, vsan);
    assert_eq!(judged.incompatible.len(), 1);
    assert_eq!(judged.incompatible[0].datastore, shared);
    let reason = judged.incompatible[0].reasons[0].to_string();
    assert!(reason.contains("gold"), "{reason}");
    let nothing = policies.compatibility(GOLD, &[]).await.unwrap();
    assert!(nothing.compatible.is_empty() && nothing.incompatible.is_empty());
    let error = policies.compatibility("unknown", &among).await.unwrap_err();
    assert!(matches!(error, Error { remedy: Remedy::Invalid { .. }, .. }), "{error}");
    connection.close().await;
}
