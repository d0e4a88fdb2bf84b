//! What is joined about one VolumeAttachment.

use kube::runtime::watcher::Event;

use super::{
    Attachment, Changed, CsiNode, Kind, Node, Observer, Origin, Place, Source, Volume, WatchEvent,
    object::Trimmed,
};

fn applied<T>(name: &str, kept: T) -> WatchEvent<T> {
    Some(Ok(Event::Apply(Trimmed::of(name, name, 1, kept))))
}

fn gone<T>(name: &str, kept: T) -> WatchEvent<T> {
    Some(Ok(Event::Delete(Trimmed::of(name, name, 2, kept))))
}

fn attachment() -> Attachment {
    Attachment {
        node: "node-1".into(),
        source: Source::PersistentVolume("pv-1".into()),
        deleting: false,
        finalizer: true,
        others: false,
        recorded_node: None,
        recorded_volume: None,
        attached: false,
        disk: None,
        attach_error: None,
        detach_error: None,
    }
}

fn volume() -> Volume {
    let origin = Origin::Ours("v-1".to_owned());
    Volume { origin, deleting: false, finalizer: false, claim: None }
}

fn csi_node() -> CsiNode {
    CsiNode { node_id: "n-1".to_owned(), limit: None }
}

fn in_use(volume: &str) -> Node {
    Node { out_of_service: false, in_use: [volume.to_owned()].into() }
}

fn place(volume: &str, node: &str) -> Place {
    Place { volume: volume.to_owned(), node: node.to_owned() }
}

/// A cluster with a volume on a node.
fn observer(attachment: Attachment) -> Observer {
    let mut observer = Observer::default();
    observer.take_volume(applied("pv-1", volume()));
    observer.take_csi_node(applied("node-1", csi_node()));
    observer.take_node(applied("node-1", Node::default()));
    observer.take_attachment(applied("csi-1", attachment));
    observer
}

/// What is wanted and recorded, and whether the volume is held.
fn joined(observer: &Observer) -> (Result<Place, Kind>, Result<Option<Place>, Kind>, bool) {
    let known = observer.attachments.get("csi-1").unwrap();
    let facts = observer.facts(known, |node| node == "off");
    let wanted = facts.wanted.map_err(|problem| problem.kind);
    (wanted, facts.recorded.map_err(|problem| problem.kind), facts.held.is_some())
}

#[test]
fn the_place_comes_from_volume_and_csi_node_and_the_recorded_one_from_annotations() {
    let here = place("v-1", "n-1");
    let expected = (Ok(here.clone()), Ok(Some(here.clone())), false);
    assert_eq!(joined(&observer(attachment())), expected);
    let (recorded_node, recorded_volume) = (Some("n-0".to_owned()), Some("v-0".to_owned()));
    let recorded = Attachment { recorded_node, recorded_volume, ..attachment() };
    let mut observer = observer(recorded);
    let there = Ok(Some(place("v-0", "n-0")));
    assert_eq!(joined(&observer), (Ok(here), there.clone(), false));
    observer.take_volume(gone("pv-1", volume()));
    observer.take_csi_node(gone("node-1", csi_node()));
    assert_eq!(joined(&observer), (Err(Kind::NotFound), there, false));
}

#[test]
fn without_a_record_the_place_is_known_only_while_its_objects_exist() {
    let mut without_node = observer(attachment());
    without_node.take_csi_node(gone("node-1", csi_node()));
    assert_eq!(joined(&without_node), (Err(Kind::Precondition), Ok(None), false));
    let mut attached = observer(Attachment { attached: true, ..attachment() });
    attached.take_csi_node(gone("node-1", csi_node()));
    assert_eq!(joined(&attached).1, Err(Kind::Precondition));
    let recorded_node = Some("n-1".to_owned());
    let mut of_stock = observer(Attachment { attached: true, recorded_node, ..attachment() });
    assert_eq!(joined(&of_stock).1, Ok(Some(place("v-1", "n-1"))));
    of_stock.take_volume(gone("pv-1", volume()));
    assert_eq!(joined(&of_stock).1, Err(Kind::NotFound));
}

#[test]
fn what_cannot_be_attached_says_why() {
    let cases = [
        (Volume { deleting: true, ..volume() }, "PersistentVolume pv-1 is being deleted"),
        (Volume { origin: Origin::InTree, ..volume() }, "in-tree vSphere driver"),
        (Volume { origin: Origin::Other, ..volume() }, "not a volume of csi.vsphere.vmware.com"),
    ];
    for (volume, expected) in cases {
        let mut observer = observer(attachment());
        observer.take_volume(Some(Ok(Event::Apply(Trimmed::of("pv-1", "pv-1", 2, volume)))));
        let known = observer.attachments.get("csi-1").unwrap();
        let problem = observer.facts(known, |_| false).wanted.unwrap_err();
        assert!(problem.text.contains(expected), "{}", problem.text);
    }
    let inline = Source::Inline(Origin::Ours("v-2".to_owned()));
    let observer = observer(Attachment { source: inline, ..attachment() });
    assert_eq!(joined(&observer).0, Ok(place("v-2", "n-1")));
}

#[test]
fn a_volume_is_held_while_a_node_that_runs_and_is_in_service_has_it_mounted() {
    let on = |node: &str| Attachment { recorded_node: Some(node.to_owned()), ..attachment() };
    let out_of_service = Node { out_of_service: true, ..in_use("v-1") };
    let cases = [
        ("n-1", Some(in_use("v-1")), true),
        ("n-1", Some(in_use("v-2")), false),
        ("n-1", Some(out_of_service), false),
        ("n-1", None, false),
        ("off", Some(in_use("v-1")), false),
    ];
    for (node_id, node, expected) in cases {
        let mut observer = observer(on(node_id));
        match &node {
            Some(node) => observer.take_node(applied("node-1", node.clone())),
            None => observer.take_node(gone("node-1", Node::default())),
        };
        assert_eq!(joined(&observer).2, expected, "{node_id} {node:?}");
    }
}

#[test]
fn a_change_concerns_the_attachments_that_refer_to_the_object() {
    let mut observer = observer(attachment());
    let concerned = |changed: Changed| changed.attachments.len();
    assert_eq!(concerned(observer.take_node(applied("node-1", in_use("v-1")))), 1);
    assert_eq!(concerned(observer.take_node(applied("node-2", in_use("v-1")))), 0);
    assert_eq!(concerned(observer.take_csi_node(gone("node-1", csi_node()))), 1);
    assert_eq!(concerned(observer.take_volume(gone("pv-1", volume()))), 1);
    let changed = observer.take_attachment(gone("csi-1", attachment()));
    assert_eq!(changed.volumes, ["pv-1".into()].into(), "it may have waited for that");
    assert_eq!(concerned(observer.take_node(gone("node-1", Node::default()))), 0);
}

#[test]
fn a_deleted_volume_is_released_when_no_attachment_refers_to_it() {
    let pv = "pv-1".into();
    let of_stock = Volume { finalizer: true, ..volume() };
    let deleted = Volume { deleting: true, ..of_stock.clone() };
    let releasable = |volume: &Volume, referred: bool| {
        let mut observer = Observer::default();
        observer.take_volume(applied("pv-1", volume.clone()));
        if referred {
            observer.take_attachment(applied("csi-1", attachment()));
        }
        observer.is_releasable(&pv).is_some()
    };
    assert!(releasable(&deleted, false));
    assert!(!releasable(&deleted, true));
    assert!(!releasable(&of_stock, false), "it may be attached again");
    assert!(!releasable(&Volume { finalizer: false, ..deleted }, false));
}
