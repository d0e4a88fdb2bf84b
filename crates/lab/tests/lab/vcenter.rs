//! The vCenter simulator through its handle; govmomi's client (`cnsctl`) is the judge. No root.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::Result;
use lab::{
    VCenter, VCenterSpec,
    vcenter::{
        ADMINISTRATOR, Certificate, Description, Fault, GuestInterface, GuestReport, HttpFault,
        HttpFaultKind, Latency, Moment, Power,
    },
};
use serde_json::{Value, json};

const DATASTORE: &str = "/dc-1/datastore/shared-1";
const NODE_1: &str = "4230b1a0-5eed-4000-8000-000000000001";
const NODE_2: &str = "4230b1a0-5eed-4000-8000-000000000002";

/// Runs govmomi's client with this password, trusting anybody.
fn cnsctl_with(vcenter: &VCenter, password: &str) -> Result<String> {
    let mut command = Command::new(components::binary("cnsctl")?);
    command.env("CNSCTL_PASSWORD", password).args([
        "-url",
        vcenter.url(),
        "-user",
        ADMINISTRATOR.0,
    ]);
    lab::run(command.arg("list"))
}

fn object<'a>(inventory: &'a [Value], name: &str) -> Option<&'a Value> {
    inventory.iter().find(|object| {
        object["path"].as_str().is_some_and(|path| path.ends_with(&format!("/{name}")))
    })
}

#[tokio::test]
async fn a_volume_lives_from_create_to_delete() {
    let vcenter = VCenter::start(&VCenterSpec::default()).await.unwrap();
    let volume = vcenter.cnsctl(&["create", "pvc-1", "100", DATASTORE]).unwrap();
    let disk = vcenter.cnsctl(&["attach", &volume, NODE_1]).unwrap();
    assert_eq!(disk.replace('-', "").len(), 32, "{disk}");
    for vm in [NODE_1, NODE_2] {
        let again = vcenter.cnsctl(&["attach", &volume, vm]).unwrap_err();
        assert!(again.to_string().contains("ResourceInUse"), "{again}");
    }
    // What vCenter answers for the same machine is an assumption, and can be switched.
    vcenter.control().assume("AttachSameVM", json!("success")).await.unwrap();
    assert_eq!(vcenter.cnsctl(&["attach", &volume, NODE_1]).unwrap(), disk);
    let deleted = vcenter.cnsctl(&["delete", &volume]).unwrap_err();
    assert!(deleted.to_string().contains("ResourceInUse"), "{deleted}");

    let state = vcenter.control().state().await.unwrap();
    assert_eq!(state.volumes.len(), 1);
    assert_eq!(state.attachments[0]["volume"], json!(volume));

    vcenter.cnsctl(&["detach", &volume, NODE_1]).unwrap();
    vcenter.cnsctl(&["delete", &volume]).unwrap();
    assert_eq!(vcenter.cnsctl(&["list"]).unwrap(), "");
}

#[tokio::test]
async fn an_assumption_that_a_test_sets_is_not_consulted() {
    let vcenter = VCenter::start(&VCenterSpec::default()).await.unwrap();
    let control = vcenter.control();
    vcenter.cnsctl(&["create", "pvc-1", "100", DATASTORE]).unwrap();
    let limit = control.assumption("NameLimit").await.unwrap();
    assert!(limit.consulted && limit.choices.contains(&limit.default), "{limit:?}");

    let vcenter = VCenter::start(&VCenterSpec::default()).await.unwrap();
    let control = vcenter.control();
    control.assume("NameLimit", json!(3)).await.unwrap();
    let refused = vcenter.cnsctl(&["create", "pvc-1", "100", DATASTORE]).unwrap_err();
    assert!(refused.to_string().contains("name"), "{refused}");
    let limit = control.assumption("NameLimit").await.unwrap();
    assert!(limit.value == json!(3) && !limit.consulted, "{limit:?}");
    control.assumption("NameLimits").await.unwrap_err();
}

/// The walk (`cargo xtask walk`) depends on it. The test starts itself, because no test may change its environment.
#[tokio::test]
async fn the_environment_of_a_test_reaches_the_simulators_that_it_starts() {
    const FORCED: &str = "VCENTER_ASSUME";
    const IN_CHILD: &str = "NameLimit=255";
    if std::env::var(FORCED).is_ok_and(|forced| forced == IN_CHILD) {
        let vcenter = VCenter::start(&VCenterSpec::default()).await.unwrap();
        vcenter.cnsctl(&["create", "pvc-1", "100", DATASTORE]).unwrap();
        let limit = vcenter.control().assumption("NameLimit").await.unwrap();
        assert!(limit.value == json!(255) && limit.default != json!(255), "{limit:?}");
        return;
    }
    let record = tempfile::NamedTempFile::new().unwrap();
    let name = "vcenter::the_environment_of_a_test_reaches_the_simulators_that_it_starts";
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name]).env(FORCED, IN_CHILD).env("VCENTER_CONSULTED", record.path());
    assert!(lab::run(&mut child).unwrap().contains("1 passed"));
    let consulted = std::fs::read_to_string(record.path()).unwrap();
    assert!(consulted.lines().any(|line| line == IN_CHILD), "{consulted}");
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_authority_are_refused() {
    let vcenter = VCenter::start(&VCenterSpec::default()).await.unwrap();
    let refused = cnsctl_with(&vcenter, "wrong").unwrap_err();
    assert!(
        refused.to_string().contains("Cannot complete login")
            || refused.to_string().contains("InvalidLogin"),
        "{refused}"
    );
    let other = VCenter::start(&VCenterSpec {
        certificate: Certificate::SelfSigned,
        ..VCenterSpec::default()
    })
    .await
    .unwrap();
    let unknown = other.cnsctl(&["list"]).unwrap_err();
    assert!(unknown.to_string().contains("unknown authority"), "{unknown}");
    assert_ne!(vcenter.thumbprint_sha256(), other.thumbprint_sha256());
    assert_ne!(vcenter.thumbprint_sha1(), other.thumbprint_sha1());
}

#[tokio::test]
async fn a_wrong_description_is_named_by_line_and_field() {
    let description =
        Description::Text("name: one\ndatacenters:\n  - name: dc-1\n    clutsers: []\n".to_owned());
    let error =
        VCenter::start(&VCenterSpec { description, ..VCenterSpec::default() }).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(
        text.contains("world.yaml:4") && text.contains("clutsers") && text.contains("clusters"),
        "{text}"
    );
}

#[tokio::test]
async fn a_fault_strikes_as_often_as_it_was_armed() {
    let vcenter = VCenter::start(&VCenterSpec::default()).await.unwrap();
    let control = vcenter.control();
    let create = |name: &str| vcenter.cnsctl(&["create", name, "10", DATASTORE]);
    control.fail(&Fault::next("CnsCreateVolume", "TaskInProgress")).await.unwrap();
    create("one").unwrap_err();
    let first = create("one").unwrap();

    // The work is done although the task says it failed: what a driver must survive.
    let done = Fault { at: Moment::TaskDone, ..Fault::next("CnsCreateVolume", "CnsFault") };
    control.fail(&done).await.unwrap();
    create("two").unwrap_err();
    assert_eq!(control.state().await.unwrap().volumes.len(), 2);

    let inside = Fault { at: Moment::Result, ..Fault::next("CnsDeleteVolume", "ResourceInUse") };
    control.fail(&inside).await.unwrap();
    let error = vcenter.cnsctl(&["delete", &first]).unwrap_err();
    assert!(error.to_string().contains("ResourceInUse"), "{error}");
    vcenter.cnsctl(&["delete", &first]).unwrap();
}

#[tokio::test]
async fn the_wire_breaks_on_request() {
    let vcenter = VCenter::start(&VCenterSpec::default()).await.unwrap();
    for kind in
        [HttpFaultKind::Status { status: 503 }, HttpFaultKind::Reset, HttpFaultKind::Truncate]
    {
        let fault = HttpFault { path: "/sdk".to_owned(), method: None, kind, count: 1 };
        vcenter.control().break_http(&fault).await.unwrap();
        vcenter.cnsctl(&["list"]).unwrap_err();
        vcenter.cnsctl(&["list"]).unwrap();
    }
    vcenter.control().disarm().await.unwrap();
}

#[tokio::test]
async fn machines_change_on_request_and_wrong_requests_change_nothing() {
    let vcenter = VCenter::start(&VCenterSpec::default()).await.unwrap();
    let control = vcenter.control();
    control.power("node-1", Power::Suspended).await.unwrap();
    control.readdress("node-2", &["10.99.0.77/24"]).await.unwrap();
    control.rename("old-vm", "older-vm").await.unwrap();
    control.reach_vm("node-1", false).await.unwrap();
    control.untag("k8s-zone", "zone-1", "/dc-1/host/cluster-1").await.unwrap();
    control.reach_datastore("shared-2", false).await.unwrap();
    control.connect_host("esx-5.lab.example", false).await.unwrap();
    let changed = control.state().await.unwrap();
    assert!(object(&changed.inventory, "older-vm").is_some());
    let lost = &object(&changed.inventory, "node-1").unwrap()["vm"];
    assert_eq!((&lost["state"], &lost["power"]), (&json!("inaccessible"), &json!("suspended")));
    assert_eq!(
        object(&changed.inventory, "node-2").unwrap()["vm"]["addresses"],
        json!(["10.99.0.77", "fe80::250:56ff:fe99:2"])
    );
    assert_eq!(object(&changed.inventory, "cluster-1").unwrap()["tags"], Value::Null);
    assert_eq!(object(&changed.inventory, "shared-2").unwrap()["datastore"]["accessible"], false);
    assert_eq!(
        object(&changed.inventory, "esx-5.lab.example").unwrap()["host"]["state"],
        "disconnected"
    );

    control.run_tools("node-2", false).await.unwrap();
    let silent = control.state().await.unwrap();
    assert_eq!(object(&silent.inventory, "node-2").unwrap()["vm"]["addresses"], json!([]));
    control.run_tools("node-2", true).await.unwrap();
    let refused = control.power("no-such-vm", Power::On).await.unwrap_err();
    assert!(refused.to_string().contains("no-such-vm"), "{refused}");
    let refused = control.fail(&Fault::next("CnsCreateVolume", "NoSuchFault")).await.unwrap_err();
    assert!(refused.to_string().contains("fault"), "{refused}");
    let after = control.state().await.unwrap();
    assert_eq!(changed.inventory, after.inventory);
    assert_eq!(changed.rules, after.rules);
}

#[tokio::test]
async fn a_restart_keeps_volumes_and_forgets_sessions() {
    let vcenter = VCenter::start(&VCenterSpec::default()).await.unwrap();
    let volume = vcenter.cnsctl(&["create", "kept", "10", DATASTORE]).unwrap();
    vcenter.control().restart(0).await.unwrap();
    assert!(vcenter.cnsctl(&["list"]).unwrap().contains(&volume));
    vcenter.control().expire_sessions().await.unwrap();
    assert_eq!(vcenter.control().state().await.unwrap().sessions, Vec::<Value>::new());
}

#[tokio::test]
async fn machines_move_and_go_on_request() {
    let vcenter = VCenter::start(&VCenterSpec::default()).await.unwrap();
    let control = vcenter.control();
    control.migrate("node-1", "esx-2.lab.example").await.unwrap();
    control.migrate_storage("node-1", "pod-1").await.unwrap();
    control.unregister("node-2").await.unwrap();
    control.delete("old-vm").await.unwrap();
    control.untag("k8s-region", "region-1", "dc-1").await.unwrap();
    control.tag("k8s-region", "region-2", "dc-1").await.unwrap();
    let inventory = control.state().await.unwrap().inventory;
    let node = object(&inventory, "node-1").unwrap();
    let host = object(&inventory, "esx-2.lab.example").unwrap();
    assert!(
        node["vm"]["host"] == host["ref"] || node["vm"]["host"] == "esx-2.lab.example",
        "{node}"
    );
    assert!(node["vm"]["disks"].to_string().contains("[pod-1]"), "{node}");
    assert!(object(&inventory, "node-2").is_none());
    assert!(object(&inventory, "old-vm").is_none());
    assert_eq!(object(&inventory, "dc-1").unwrap()["tags"], json!(["k8s-region/region-2"]));
}

#[tokio::test]
async fn delays_and_the_clock_are_armed_until_they_are_taken_back() {
    let vcenter = VCenter::start(&VCenterSpec::default()).await.unwrap();
    let control = vcenter.control();
    control.delay("CnsQueryVolume", 300, 0).await.unwrap();
    let started = Instant::now();
    vcenter.cnsctl(&["list"]).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(300), "{:?}", started.elapsed());
    control.skew_clock(-60_000).await.unwrap();
    assert_eq!(control.state_as_json().await.unwrap()["skew_ms"], -60_000);
    assert_eq!(control.state().await.unwrap().rules["calls"][0]["method"], "CnsQueryVolume");
    control.disarm().await.unwrap();
    assert_eq!(control.state().await.unwrap().rules["calls"], json!([]));
}

#[tokio::test]
async fn a_full_datastore_a_host_in_maintenance_and_a_rule_for_one_user_are_had_on_request() {
    let vcenter = VCenter::start(&VCenterSpec::default()).await.unwrap();
    let control = vcenter.control();
    control.free_space("shared-1", 1 << 20).await.unwrap();
    let full = vcenter.cnsctl(&["create", "large", "100", DATASTORE]).unwrap_err();
    assert!(full.to_string().contains("VSLM task failed"), "{full}");
    control.maintain_host("esx-1.lab.example", true).await.unwrap();
    let inventory = control.state().await.unwrap().inventory;
    assert_eq!(object(&inventory, "esx-1.lab.example").unwrap()["host"]["maintenance"], true);

    let other = Fault {
        user: Some("csi@vsphere.local".to_owned()),
        ..Fault::next("CnsQueryVolume", "NoPermission")
    };
    let number = control.fail(&other).await.unwrap();
    vcenter.cnsctl(&["list"]).unwrap();
    control.disarm_one(number).await.unwrap();
    let query = Some("CnsQueryVolume".to_owned());
    let reset = HttpFault {
        path: "/vsanHealth".to_owned(),
        method: query,
        kind: HttpFaultKind::Reset,
        count: 0,
    };
    let number = control.break_http(&reset).await.unwrap();
    vcenter.cnsctl(&["list"]).unwrap_err();
    control.disarm_one(number).await.unwrap();
    vcenter.cnsctl(&["list"]).unwrap();
    let unknown = control.expire_session("no-such-session").await.unwrap_err();
    assert!(unknown.to_string().contains("no-such-session"), "{unknown}");
}

#[tokio::test]
async fn guests_report_odd_things_on_request() {
    let vcenter = VCenter::start(&VCenterSpec::default()).await.unwrap();
    let control = vcenter.control();
    let addresses = async |report: GuestReport| {
        control.report_guest("node-1", &report).await.unwrap();
        let inventory = control.state().await.unwrap().inventory;
        object(&inventory, "node-1").unwrap()["vm"]["addresses"].clone()
    };
    let own = ["10.99.0.11", "fe80::250:56ff:fe99:1"];
    let none = GuestReport { net: Some(false), ..GuestReport::default() };
    assert_eq!(addresses(none).await, json!([]));
    let bridge = GuestInterface {
        mac: "02:42:ac:11:00:01".to_owned(),
        addresses: vec!["172.17.0.1/16".to_owned()],
    };
    let bridged = GuestReport {
        net: Some(true),
        interfaces: Some(vec![bridge]),
        interfaces_first: Some(true),
        ..GuestReport::default()
    };
    assert_eq!(addresses(bridged).await, json!(["172.17.0.1", own[0], own[1]]));
    let many = GuestReport { pod_interfaces: Some(400), ..GuestReport::default() };
    assert_eq!(addresses(many).await, json!([]));
    let blank = GuestReport {
        interfaces: Some(Vec::new()),
        pod_interfaces: Some(0),
        ip_address: Some("169.254.1.1".to_owned()),
        blank_reads: Some(1),
        ..GuestReport::default()
    };
    assert_eq!(addresses(blank).await, json!([]));
    let back = GuestReport { blank_reads: Some(0), ..GuestReport::default() };
    assert_eq!(addresses(back).await, json!(own));
    control.vanish("old-vm").await.unwrap();
    let unknown = control.vanish("no-such-vm").await.unwrap_err();
    assert!(unknown.to_string().contains("no-such-vm"), "{unknown}");
}

#[tokio::test]
async fn a_vcenter_takes_the_time_that_is_chosen() {
    let spec = VCenterSpec { latency: Some(Latency::FastLab), ..VCenterSpec::default() };
    let vcenter = VCenter::start(&spec).await.unwrap();
    let control = vcenter.control();
    assert_eq!(vcenter.latency(), Latency::FastLab);
    assert_eq!(control.latency().await.unwrap(), Latency::FastLab);
    let started = Instant::now();
    vcenter.cnsctl(&["create", "slow", "10", DATASTORE]).unwrap();
    // No create of this profile takes less.
    assert!(started.elapsed() >= Duration::from_millis(100), "{:?}", started.elapsed());
    control.set_latency(Latency::None).await.unwrap();
    assert_eq!(control.state_as_json().await.unwrap()["latency"], "none");
    let text = "latency: loaded\ndatacenters: [{name: dc}]\n".to_owned();
    let spec = VCenterSpec { description: Description::Text(text), ..VCenterSpec::default() };
    assert_eq!(VCenter::start(&spec).await.unwrap().latency(), Latency::Loaded);
}

#[tokio::test]
async fn no_volume_is_placed_on_a_datastore_in_maintenance() {
    let vcenter = VCenter::start(&VCenterSpec::default()).await.unwrap();
    let control = vcenter.control();
    // The mark is for drivers: vCenter itself does not look at it.
    control.suspend_datastore("shared-1", true).await.unwrap();
    vcenter.cnsctl(&["create", "marked", "10", DATASTORE]).unwrap();
    control.maintain_datastore("shared-1", true).await.unwrap();
    vcenter.cnsctl(&["create", "maintained", "10", DATASTORE]).unwrap_err();
    control.maintain_datastore("shared-1", false).await.unwrap();
    vcenter.cnsctl(&["create", "back", "10", DATASTORE]).unwrap();
}
