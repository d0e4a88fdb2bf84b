//! What goes wrong with volumes, and what is told of it.

use std::{collections::HashSet, time::Duration};

use futures::future::try_join_all;
use lab::vcenter::{Fault, Moment};
use vsphere::{
    cns::{ALL, Attached, Content, Created, NewVolume, Select},
    error::{Cause, Error, Missing, Remedy},
    reference::Ref,
    types::{
        CnsKubernetesQueryFilter, CnsQueryFilter, CnsVolumeAttachDetachSpec, CnsVolumeId,
        CnsVolumeMetadataUpdateSpec,
    },
};

use super::{GOLD, UNKNOWN, count, datastore, listed, metadata, vm, volume};
use crate::site::{CPI, CSI, LIMIT, NOBODY, administrator, connect, fix, vcenter, vcenter_of};

fn too_old(error: &Error) -> bool {
    error.remedy == Remedy::Refused && matches!(error.failure().cause, Cause::TooOld(_))
}

#[tokio::test]
async fn a_batch_answers_for_every_volume_in_its_order() {
    let vcenter = vcenter_of("9.1").await;
    fix(&vcenter, &[("BatchAttach", true.into()), ("UnknownVolume", "call".into())]).await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let ids = [volume(&connection, "pvc-1").await, volume(&connection, "pvc-2").await];
    let nodes = [vm(&connection, "node-1").await, vm(&connection, "node-2").await];
    let specs = [
        CnsVolumeAttachDetachSpec::new(&ids[0], &nodes[0]),
        CnsVolumeAttachDetachSpec::new(&UNKNOWN.into(), &nodes[0]),
        CnsVolumeAttachDetachSpec::new(&ids[1], &nodes[1]),
        CnsVolumeAttachDetachSpec::new(&ids[0], &nodes[1]),
    ];
    // One unknown volume makes real servers refuse all of them; should one answer for it alone, so do we.
    let error = volumes.attach(&specs).await.unwrap_err();
    assert!(matches!(error, Error { remedy: Remedy::NotFound { .. }, .. }), "{error}");
    vcenter.control().assume("UnknownVolume", "NotFound".into()).await.unwrap();
    let before = count(&vcenter, "CnsAttachVolume").await;
    let batch = volumes.attach(&specs).await.unwrap();
    let results = batch.wait(LIMIT).await.unwrap();
    assert!(results[0].is_ok(), "{results:?}");
    assert!(
        matches!(results[1], Err(Error { remedy: Remedy::NotFound { .. }, .. })),
        "{results:?}"
    );
    assert!(results[2].is_ok(), "{results:?}");
    assert!(matches!(results[3], Err(Error { remedy: Remedy::InUse, .. })), "{results:?}");
    assert_eq!(count(&vcenter, "CnsAttachVolume").await, before + 1);

    // What the task said can be heard again, in another order, by somebody who knows only its id.
    let other = connect(&vcenter, CSI);
    let task = batch.task().value();
    let order = [ids[1].clone(), UNKNOWN.into(), ids[0].clone()];
    let resumed = other.volumes().resume_batch::<Attached>(task, &order);
    let again = resumed.wait(LIMIT).await.unwrap();
    assert_eq!(again[0].as_ref().unwrap(), results[2].as_ref().unwrap());
    assert!(matches!(again[1], Err(Error { remedy: Remedy::NotFound { .. }, .. })));
    assert_eq!(again[2].as_ref().unwrap(), results[0].as_ref().unwrap());

    let detached = volumes.detach(&specs[..3]).await.unwrap().wait(LIMIT).await.unwrap();
    assert!(detached[0].is_ok() && detached[2].is_ok(), "{detached:?}");
    assert!(
        matches!(detached[1], Err(Error { remedy: Remedy::NotFound { .. }, .. })),
        "{detached:?}"
    );
    let twice = match volumes.detach(&specs[..1]).await {
        Ok(batch) => batch.wait(LIMIT).await.unwrap().remove(0).unwrap_err(),
        Err(refused) => refused,
    };
    assert!(matches!(twice, Error { remedy: Remedy::NotFound { .. }, .. }), "{twice}");
    other.close().await;
    connection.close().await;
}

#[tokio::test]
async fn a_fault_in_a_result_is_the_volumes_and_a_fault_of_the_task_is_everybodys() {
    let vcenter = vcenter_of("9.1").await;
    fix(&vcenter, &[("BatchAttach", true.into())]).await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let id = volume(&connection, "pvc-1").await;
    let specs = [CnsVolumeAttachDetachSpec::new(&id, &vm(&connection, "node-1").await)];

    let fields = serde_json::json!({"reason": "the moon is wrong"});
    let fault = Fault { fields, at: Moment::Result, ..Fault::next("CnsAttachVolume", "CnsFault") };
    vcenter.control().fail(&fault).await.unwrap();
    let results = volumes.attach(&specs).await.unwrap().wait(LIMIT).await.unwrap();
    let error = results[0].as_ref().unwrap_err();
    assert!(matches!(error, Error { remedy: Remedy::Refused, .. }), "{error}");
    assert!(error.to_string().contains("CnsAttachVolume: CnsFault"), "{error}");
    assert!(error.to_string().contains("the moon is wrong"), "{error}");

    let fault = Fault { at: Moment::Task, ..Fault::next("CnsAttachVolume", "TaskInProgress") };
    vcenter.control().fail(&fault).await.unwrap();
    let error = volumes.attach(&specs).await.unwrap().wait(LIMIT).await.unwrap_err();
    assert!(matches!(error, Error { remedy: Remedy::Busy, .. }), "{error}");
    assert!(error.to_string().contains("CnsAttachVolume"), "{error}");

    vcenter.control().fail(&Fault::next("CnsAttachVolume", "HostNotConnected")).await.unwrap();
    let error = volumes.attach(&specs).await.unwrap_err();
    assert!(matches!(error, Error { remedy: Remedy::Retry, .. }), "{error}");

    // One result for two volumes: nobody knows how the second one is.
    let specs = [specs[0].clone(), specs[0].clone()];
    let fault = Fault { at: Moment::Result, ..Fault::next("CnsAttachVolume", "CnsFault") };
    vcenter.control().fail(&fault).await.unwrap();
    let batch = volumes.attach(&specs).await.unwrap();
    let results = batch.wait(LIMIT).await.unwrap();
    assert!(matches!(results[0], Err(Error { remedy: Remedy::Refused, .. })), "{results:?}");
    match &results[1] {
        Err(Error { remedy: Remedy::Unfinished { task }, .. }) => assert_eq!(task, batch.task()),
        other => panic!("{other:?}"),
    }
    connection.close().await;
}

#[tokio::test]
async fn what_is_unknown_or_in_use_says_so() {
    let vcenter = vcenter().await;
    // A NotFound inside a CnsFault may be about a host or a datastore: the client does not take it for the volume.
    fix(&vcenter, &[("OnlineExtend", true.into()), ("UnknownVolume", "call".into())]).await;
    fix(&vcenter, &[("ExtendSmaller", "InvalidArgument".into())]).await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let unknown = CnsVolumeId::from(UNKNOWN);
    let error = match volumes.delete(&unknown, true).await {
        Ok(started) => started.wait(LIMIT).await.unwrap_err(),
        Err(refused) => refused,
    };
    assert!(matches!(error, Error { remedy: Remedy::NotFound { .. }, .. }), "{error}");
    let error = volumes.extend(&unknown, 128).await.unwrap().wait(LIMIT).await.unwrap_err();
    assert!(matches!(error, Error { remedy: Remedy::NotFound { .. }, .. }), "{error}");
    let disks = volumes.disks(&[unknown]).await.unwrap().wait(LIMIT).await.unwrap();
    assert!(matches!(disks[0], Err(Error { remedy: Remedy::NotFound { .. }, .. })), "{disks:?}");

    let id = volume(&connection, "pvc-1").await;
    let error = volumes.extend(&id, 1).await.unwrap().wait(LIMIT).await.unwrap_err();
    match &error {
        Error { remedy: Remedy::Invalid { field }, .. } => {
            assert_eq!(field.as_deref(), Some("extendSpecs.capacityInMb"));
        }
        other => panic!("{other}"),
    }
    let attach = [CnsVolumeAttachDetachSpec::new(&id, &vm(&connection, "node-1").await)];
    volumes.attach(&attach).await.unwrap().wait(LIMIT).await.unwrap().remove(0).unwrap();
    let error = volumes.delete(&id, true).await.unwrap().wait(LIMIT).await.unwrap_err();
    assert!(matches!(error, Error { remedy: Remedy::InUse, .. }), "{error}");
    let gone = [CnsVolumeAttachDetachSpec::new(&id, &Ref::new("vm-424242"))];
    let powerful = administrator(&vcenter);
    let error = match powerful.volumes().attach(&gone).await {
        Ok(batch) => batch.wait(LIMIT).await.unwrap().remove(0).unwrap_err(),
        Err(refused) => refused,
    };
    assert!(matches!(error, Error { remedy: Remedy::NotFound { .. }, .. }), "{error}");
    powerful.close().await;
    connection.close().await;
}

#[tokio::test]
async fn a_full_datastore_is_recognised_as_far_as_its_fault_tells() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let id = volume(&connection, "pvc-1").await;
    vcenter.control().free_space("shared-1", 32 << 20).await.unwrap();
    let wanted = NewVolume {
        datastores: vec![datastore(&connection, "shared-1").await],
        metadata: Some(metadata("pv-2")),
        ..NewVolume::block("pvc-2", 64)
    };
    // Nobody has seen how a real server reports a full datastore. The last form does not tell it from anything else
    // unless it has a cause, or the reason for each datastore that a create may come with.
    let forms = [
        ("NoDiskSpace", false, "no entry", [Remedy::NoSpace, Remedy::NoSpace]),
        ("CnsFault", false, "no entry", [Remedy::NoSpace, Remedy::NoSpace]),
        ("VSLM task failed", true, "no entry", [Remedy::NoSpace, Remedy::NoSpace]),
        ("VSLM task failed", false, "NoDiskSpace", [Remedy::NoSpace, Remedy::Refused]),
        ("VSLM task failed", false, "CnsRankedLowerFault", [Remedy::Refused, Remedy::Refused]),
        ("VSLM task failed", false, "no entry", [Remedy::Refused, Remedy::Refused]),
    ];
    for (form, cause, placement, remedies) in forms {
        let assumed = [
            ("OutOfSpaceFault", form.into()),
            ("DiskFaultCause", cause.into()),
            ("FullInPlacement", placement.into()),
        ];
        fix(&vcenter, &assumed).await;
        let created = volumes.create(&wanted).await.unwrap().wait(LIMIT).await.unwrap_err();
        let extended = volumes.extend(&id, 1024).await.unwrap().wait(LIMIT).await.unwrap_err();
        let text = format!("{form}, {placement}: {created}; {extended}");
        assert_eq!([created.remedy, extended.remedy], remedies, "{text}");
    }
    connection.close().await;
}

#[tokio::test]
async fn a_volume_that_fits_nowhere_comes_with_the_reason_for_each_datastore() {
    let vcenter = vcenter().await;
    fix(&vcenter, &[("DatastorePrivilege", "placement".into())]).await;
    let connection = connect(&vcenter, CSI);
    let shared = datastore(&connection, "shared-1").await;
    let wanted = NewVolume {
        datastores: vec![shared.clone(), datastore(&connection, "local-1").await],
        policy: Some(GOLD.to_owned()),
        metadata: Some(metadata("pv-1")),
        ..NewVolume::block("pvc-1", 64)
    };
    let started = connection.volumes().create(&wanted).await.unwrap();
    let error = started.wait(LIMIT).await.unwrap_err();
    assert!(error.fault().unwrap().is_a("CnsFault"), "{error}");
    match &error.failure().cause {
        Cause::Unplaced { placements, .. } => assert_eq!(placements.len(), 2),
        other => panic!("{other}"),
    }
    let text = error.to_string();
    assert!(text.contains(&format!("not on {shared}: CnsInCompatibleFault")), "{text}");
    assert!(text.contains("CnsMissingPrivilegeFault"), "{text}");
    connection.close().await;
}

#[tokio::test]
async fn a_missing_privilege_is_named_with_its_object() {
    let vcenter = vcenter().await;
    fix(&vcenter, &[("DatastorePrivilege", "placement".into())]).await;
    let connection = connect(&vcenter, CSI);
    let local = datastore(&connection, "local-1").await;
    let wanted = NewVolume {
        datastores: vec![local.clone()],
        metadata: Some(metadata("pv-1")),
        ..NewVolume::block("pvc-1", 64)
    };
    let started = connection.volumes().create(&wanted).await.unwrap();
    let text = started.wait(LIMIT).await.unwrap_err().to_string();
    assert!(text.contains(&format!("not on {local}: CnsMissingPrivilegeFault")), "{text}");
    // Before 7.0U2 one such datastore fails the call.
    let old = vcenter_of("6.7U3").await;
    let to_old = connect(&old, CSI);
    let local = datastore(&to_old, "local-1").await;
    let on_old = NewVolume { datastores: vec![local.clone()], ..wanted.clone() };
    for answer in ["call", "call when none is left"] {
        fix(&old, &[("DatastorePrivilege", answer.into())]).await;
        let error = to_old.volumes().create(&on_old).await.unwrap_err();
        match &error {
            Error { remedy: Remedy::NoPermission { object, privilege }, .. } => {
                assert_eq!(object.as_ref().unwrap().value(), local.value(), "{answer}");
                assert_eq!(privilege.as_deref(), Some("Datastore.FileManagement"), "{answer}");
            }
            other => panic!("{answer}: {other}"),
        }
    }
    to_old.close().await;
    let nobody = connect(&vcenter, NOBODY);
    let error = nobody.volumes().create(&wanted).await.unwrap_err();
    assert!(matches!(error, Error { remedy: Remedy::NoPermission { .. }, .. }), "{error}");
    nobody.close().await;
    let id = volume(&connection, "pvc-1").await;
    let reader = connect(&vcenter, CPI);
    let error = reader.volumes().read(&[id], ALL).await.unwrap_err();
    match &error {
        Error { remedy: Remedy::NoPermission { object: Some(object), privilege }, .. } => {
            assert_eq!(object.kind(), "Folder");
            assert_eq!(privilege.as_deref(), Some("Cns.Searchable"));
        }
        other => panic!("{other}"),
    }
    reader.close().await;
    connection.close().await;
}

#[tokio::test]
async fn a_deadline_leaves_the_task_and_waiting_goes_on_by_its_id() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let wanted = NewVolume {
        datastores: vec![datastore(&connection, "shared-1").await],
        metadata: Some(metadata("pv-1")),
        ..NewVolume::block("pvc-1", 64)
    };
    let started = volumes.create(&wanted).await.unwrap();
    let written_down = started.task().value().to_owned();
    match started.wait(Duration::ZERO).await {
        Err(Error { remedy: Remedy::Unfinished { task }, .. }) => {
            assert_eq!(task.value(), written_down);
        }
        other => panic!("{other:?}"),
    }
    // A crash: another connection knows the id only.
    let other = connect(&vcenter, CSI);
    let created = other.volumes().resume::<Created>(&written_down).wait(LIMIT).await.unwrap();
    assert_eq!(created, started.wait(LIMIT).await.unwrap());
    let lost = other.volumes().resume::<Created>("task-424242").wait(LIMIT).await.unwrap_err();
    assert!(matches!(lost, Error { remedy: Remedy::Unfinished { .. }, .. }), "{lost}");
    other.close().await;
    connection.close().await;
}

#[tokio::test]
async fn sessions_that_end_in_the_middle_of_many_creates_cost_no_volume() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let shared = datastore(&connection, "shared-1").await;
    let wanted: Vec<NewVolume> = (0..12)
        .map(|number| NewVolume {
            datastores: vec![shared.clone()],
            metadata: Some(metadata("pv-1")),
            ..NewVolume::block(&format!("pvc-{number}"), 64)
        })
        .collect();
    let first =
        try_join_all(wanted[..6].iter().map(|volume| volumes.create(volume))).await.unwrap();
    let (ended, second, created) = tokio::join!(
        vcenter.control().expire_sessions(),
        try_join_all(wanted[6..].iter().map(|volume| volumes.create(volume))),
        try_join_all(first.iter().map(|started| started.wait(LIMIT))),
    );
    ended.unwrap();
    assert_eq!(created.unwrap().len(), 6);
    vcenter.control().expire_sessions().await.unwrap();
    try_join_all(second.unwrap().iter().map(|started| started.wait(LIMIT))).await.unwrap();
    listed(&connection, 12).await;
    let all = volumes.list(CnsQueryFilter::default(), &[Select::VolumeName]).await.unwrap();
    assert_eq!(all.len(), 12);
    let names: HashSet<_> = all.into_iter().filter_map(|volume| volume.name).collect();
    assert_eq!(names.len(), 12);
    connection.close().await;
}

#[tokio::test]
async fn what_a_server_is_too_old_for_is_never_sent() {
    let vcenter = vcenter_of("6.7U3").await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let id = CnsVolumeId::from(UNKNOWN);
    let refused = |content: Content| async move {
        let error = volumes.create(&NewVolume::new("pvc-1", content)).await.unwrap_err();
        assert!(too_old(&error), "{error}");
    };
    refused(Content::Snapshot {
        mebibytes: 64,
        volume: id.clone(),
        snapshot: UNKNOWN.into(),
        linked: false,
    })
    .await;
    refused(Content::Clone { mebibytes: 64, volume: id.clone() }).await;
    refused(Content::Share { mebibytes: 64, permissions: Vec::new() }).await;
    refused(Content::File("https://vcenter/folder/disk.vmdk".to_owned())).await;
    refused(Content::Empty { mebibytes: 64, encryption: Some(Default::default()) }).await;
    let error = volumes.create_snapshots(&[Default::default()]).await.unwrap_err();
    assert!(too_old(&error), "{error}");
    let error = volumes.list(CnsKubernetesQueryFilter::default(), ALL).await.unwrap_err();
    assert!(too_old(&error), "{error}");
    let health = CnsQueryFilter { health_status: Some("red".to_owned()), ..Default::default() };
    assert!(too_old(&volumes.list(health.clone(), ALL).await.unwrap_err()));
    assert!(too_old(&volumes.query_by_task(&health, ALL).await.unwrap_err()));
    let spec = CnsVolumeAttachDetachSpec {
        sharing: Some("sharingMultiWriter".to_owned()),
        ..CnsVolumeAttachDetachSpec::new(&id, &Ref::new("vm-1"))
    };
    assert!(too_old(&volumes.attach(&[spec]).await.unwrap_err()));
    let mut forgets = metadata("pv-1");
    forgets.container_cluster.delete = Some(true);
    let update = CnsVolumeMetadataUpdateSpec { volume_id: id.clone(), metadata: forgets };
    assert!(too_old(&volumes.update_metadata(&[update]).await.unwrap_err()));
    assert!(too_old(&volumes.relocate(&[Default::default()]).await.unwrap_err()));
    assert!(too_old(&volumes.change_policy(&[(id, GOLD.to_owned())]).await.unwrap_err()));
    for method in ["CnsCreateVolume", "CnsCreateSnapshots", "CnsQueryVolume", "CnsQueryAllVolume"] {
        assert_eq!(count(&vcenter, method).await, 0, "{method}");
    }
    for method in ["CnsAttachVolume", "CnsUpdateVolumeMetadata", "CnsRelocateVolume"] {
        assert_eq!(count(&vcenter, method).await, 0, "{method}");
    }
    connection.close().await;
}

#[tokio::test]
async fn a_creation_with_a_chosen_id_can_be_repeated() {
    let vcenter = vcenter_of("9.1").await;
    fix(&vcenter, &[("Transactions", true.into()), ("OldHosts", "none".into())]).await;
    let connection = administrator(&vcenter);
    let volumes = connection.volumes();
    let id = CnsVolumeId::from("5e2c1a52-91a5-4b8f-8d3a-0c8f0a6f7b11");
    let wanted = NewVolume {
        id: Some(id.clone()),
        datastores: vec![datastore(&connection, "shared-1").await],
        ..NewVolume::block("pvc-9", 64)
    };
    let first: Created = volumes.create(&wanted).await.unwrap().wait(LIMIT).await.unwrap();
    assert_eq!((&first.volume, first.existed), (&id, false));
    // A server that finds the volume where it is wanted does not say that it was there before.
    for (answer, existed) in [("by scope", false), ("fault", true)] {
        vcenter.control().assume("ChosenIDExists", answer.into()).await.unwrap();
        let again: Created = volumes.create(&wanted).await.unwrap().wait(LIMIT).await.unwrap();
        assert_eq!((again.volume, again.existed), (id.clone(), existed), "{answer}");
        assert_eq!(again.datastore, first.datastore, "{answer}");
    }
    connection.close().await;
}

#[tokio::test]
async fn a_volume_that_cns_does_not_find_is_detached_only_if_the_vm_does_not_have_it() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let id = volume(&connection, "pvc-1").await;
    let specs = [CnsVolumeAttachDetachSpec::new(&id, &vm(&connection, "node-1").await)];
    let detach =
        async || volumes.detach(&specs).await.unwrap().wait(LIMIT).await.unwrap().remove(0);
    for answer in ["NotFound", "CnsFault", "InvalidArgument"] {
        vcenter.control().assume("DetachNotAttached", answer.into()).await.unwrap();
        let error = detach().await.unwrap_err();
        let what = Missing::Volume(id.id.clone());
        assert_eq!(error.remedy, Remedy::NotFound { what }, "{answer}: {error}");
    }
    volumes.attach(&specs).await.unwrap().wait(LIMIT).await.unwrap().remove(0).unwrap();
    let lost = Fault { at: Moment::Result, ..Fault::next("CnsDetachVolume", "NotFound") };
    vcenter.control().fail(&lost).await.unwrap();
    let error = detach().await.unwrap_err();
    assert_eq!(error.remedy, Remedy::Retry, "{error}");
    assert!(error.to_string().contains("still has the volume"), "{error}");
    let held = Fault { at: Moment::Result, ..Fault::next("CnsDetachVolume", "InvalidDeviceSpec") };
    vcenter.control().fail(&held).await.unwrap();
    let error = detach().await.unwrap_err();
    assert_eq!(error.remedy, Remedy::Retry, "{error}");
    assert!(error.to_string().contains("snapshot"), "{error}");
    detach().await.unwrap();
    connection.close().await;
}
