//! Arbitrary values of representative types: families, enumerations, lists, options, boxes, any types.

use jiff::Timestamp;
use proptest::{collection::vec, option, prelude::*};
use vsphere::{
    reference::Ref,
    types::{
        AnyCnsBackingObjectDetails, AnyCnsEntityMetadata, AnyCryptoSpec, AnySelectionSpec,
        CnsBlockBackingDetails, CnsContainerCluster, CnsEntityMetadata, CnsFileBackingDetails,
        CnsKubernetesEntityMetadata, CnsKubernetesEntityReference, CnsKubernetesEntityType,
        CnsVolume, CnsVolumeId, CnsVolumeMetadata, CnsVolumeType, CryptoKeyId, CryptoSpecEncrypt,
        CryptoSpecNoOp, DiskCryptoSpec, GuestNicInfo, KeyProviderId, KeyValue, ManagedObject,
        NetIpConfigInfo, NetIpConfigInfoIpAddress, ObjectSpec, OptionValue, PropertyFilterSpec,
        PropertySpec, SelectionSpec, TaskInfo, TaskInfoState, TraversalSpec,
    },
    xml::Value,
};

/// Text of every character that XML has.
pub(crate) fn text() -> impl Strategy<Value = String> + Clone {
    let special = prop::sample::select(vec!['<', '>', '&', '"', '\'', '\t', '\n', '\r', ' ', ']']);
    let legal = any::<char>().prop_filter(
        "legal in XML",
        |character| matches!(character, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..),
    );
    vec(prop_oneof![special, legal], 0..12).prop_map(String::from_iter)
}

/// Names as types have them: they are no text.
fn name() -> impl Strategy<Value = String> + Clone {
    "Strange[A-Z][a-z]{1,8}"
}

fn time() -> impl Strategy<Value = Timestamp> + Clone {
    (0i64..4_000_000_000, 0i32..1_000_000_000)
        .prop_map(|(second, nanosecond)| Timestamp::new(second, nanosecond).unwrap())
}

pub(crate) fn value() -> impl Strategy<Value = Value> + Clone {
    let schema = ["string", "boolean", "int", "long", "dateTime", "short"].map(str::to_owned);
    let type_name = prop_oneof![name(), proptest::sample::select(schema.to_vec())];
    (type_name, text()).prop_map(|(type_name, text)| Value { type_name, text })
}

fn reference() -> impl Strategy<Value = Ref<ManagedObject>> + Clone {
    let kind = prop_oneof![Just("VirtualMachine".to_owned()), Just("Folder".to_owned()), name()];
    (kind, text()).prop_map(|(kind, value)| Ref::with_kind(&kind, &value))
}

fn label() -> impl Strategy<Value = KeyValue> + Clone {
    (text(), text()).prop_map(|(key, value)| KeyValue { key, value })
}

fn volume_type() -> impl Strategy<Value = CnsVolumeType> + Clone {
    prop_oneof![
        Just(CnsVolumeType::Block),
        Just(CnsVolumeType::File),
        name().prop_map(CnsVolumeType::Other),
    ]
}

fn entity_type() -> impl Strategy<Value = CnsKubernetesEntityType> + Clone {
    prop_oneof![
        Just(CnsKubernetesEntityType::Pod),
        Just(CnsKubernetesEntityType::PersistentVolume),
        name().prop_map(CnsKubernetesEntityType::Other),
    ]
}

fn cluster() -> impl Strategy<Value = CnsContainerCluster> + Clone {
    (text(), text(), option::of(text()), option::of(any::<bool>())).prop_map(
        |(cluster_id, vsphere_user, cluster_flavor, delete)| CnsContainerCluster {
            cluster_id,
            vsphere_user,
            cluster_flavor,
            delete,
            ..CnsContainerCluster::default()
        },
    )
}

fn entity() -> impl Strategy<Value = AnyCnsEntityMetadata> + Clone {
    let base = (text(), vec(label(), 0..3), option::of(any::<bool>())).prop_map(
        |(entity_name, labels, delete)| CnsEntityMetadata {
            entity_name,
            labels,
            delete,
            cluster_id: None,
        },
    );
    let referred = (entity_type(), text()).prop_map(|(entity_type, entity_name)| {
        CnsKubernetesEntityReference { entity_type, entity_name, ..Default::default() }
    });
    let kubernetes = (text(), entity_type(), option::of(text()), vec(referred, 0..3)).prop_map(
        |(entity_name, entity_type, namespace, referred_entity)| CnsKubernetesEntityMetadata {
            entity_name,
            entity_type,
            namespace,
            referred_entity,
            ..CnsKubernetesEntityMetadata::default()
        },
    );
    prop_oneof![
        base.clone().prop_map(AnyCnsEntityMetadata::from),
        kubernetes.prop_map(AnyCnsEntityMetadata::from),
        (name(), base)
            .prop_map(|(type_name, base)| AnyCnsEntityMetadata::Other { type_name, base }),
    ]
}

fn backing() -> impl Strategy<Value = AnyCnsBackingObjectDetails> + Clone {
    prop_oneof![
        (option::of(any::<i64>()), option::of(text())).prop_map(|(capacity_in_mb, path)| {
            CnsBlockBackingDetails { capacity_in_mb, backing_disk_path: path, ..Default::default() }
                .into()
        }),
        option::of(text()).prop_map(|backing_file_id| {
            CnsFileBackingDetails { capacity_in_mb: None, backing_file_id }.into()
        }),
    ]
}

pub(crate) fn volume() -> impl Strategy<Value = CnsVolume> + Clone {
    let metadata = (cluster(), vec(entity(), 0..3), vec(cluster(), 0..2)).prop_map(
        |(container_cluster, entity_metadata, container_cluster_array)| CnsVolumeMetadata {
            container_cluster,
            entity_metadata,
            container_cluster_array,
        },
    );
    let rest = (option::of(text()), option::of(volume_type()));
    (text(), rest, option::of(metadata), option::of(backing())).prop_map(
        |(id, (name, volume_type), metadata, backing_object_details)| CnsVolume {
            volume_id: CnsVolumeId { id },
            name,
            volume_type,
            metadata,
            backing_object_details,
            ..CnsVolume::default()
        },
    )
}

fn selection() -> impl Strategy<Value = AnySelectionSpec> + Clone {
    let leaf = option::of(text()).prop_map(|name| SelectionSpec { name }.into());
    leaf.prop_recursive(4, 16, 3, |inner| {
        (text(), option::of(any::<bool>()), vec(inner, 0..3)).prop_map(
            |(path, skip, select_set)| {
                TraversalSpec { path, skip, select_set, ..TraversalSpec::default() }.into()
            },
        )
    })
}

pub(crate) fn filter() -> impl Strategy<Value = PropertyFilterSpec> + Clone {
    let properties = (text(), vec(text(), 0..4)).prop_map(|(type_, path_set)| PropertySpec {
        type_,
        all: Some(false),
        path_set,
    });
    let object = (reference(), option::of(any::<bool>()), vec(selection(), 0..3))
        .prop_map(|(obj, skip, select_set)| ObjectSpec { obj, skip, select_set });
    (vec(properties, 0..3), vec(object, 0..3), option::of(any::<bool>())).prop_map(
        |(prop_set, object_set, report_missing_objects_in_results)| PropertyFilterSpec {
            prop_set,
            object_set,
            report_missing_objects_in_results,
        },
    )
}

pub(crate) fn nic() -> impl Strategy<Value = GuestNicInfo> + Clone {
    let address = (text(), any::<i32>(), option::of(time())).prop_map(
        |(ip_address, prefix_length, lifetime)| NetIpConfigInfoIpAddress {
            ip_address,
            prefix_length,
            lifetime,
            ..NetIpConfigInfoIpAddress::default()
        },
    );
    let config = vec(address, 0..3).prop_map(|ip_address| NetIpConfigInfo { ip_address });
    (option::of(text()), vec(text(), 0..3), any::<bool>(), any::<i32>(), option::of(config))
        .prop_map(|(network, ip_address, connected, device_config_id, ip_config)| GuestNicInfo {
            network,
            ip_address,
            connected,
            device_config_id,
            ip_config,
            mac_address: None,
        })
}

pub(crate) fn task() -> impl Strategy<Value = TaskInfo> + Clone {
    let state = prop_oneof![
        Just(TaskInfoState::Running),
        Just(TaskInfoState::Error),
        name().prop_map(TaskInfoState::Other),
    ];
    let times = (time(), option::of(time()));
    (text(), state, option::of(value()), option::of(any::<i32>()), times).prop_map(
        |(key, state, result, progress, (queue_time, start_time))| TaskInfo {
            key,
            state,
            result,
            progress,
            queue_time,
            start_time,
            ..TaskInfo::default()
        },
    )
}

pub(crate) fn option_value() -> impl Strategy<Value = OptionValue> + Clone {
    (text(), option::of(value())).prop_map(|(key, value)| OptionValue { key, value })
}

pub(crate) fn crypto() -> impl Strategy<Value = DiskCryptoSpec> + Clone {
    let key = (text(), option::of(text())).prop_map(|(key_id, provider)| CryptoKeyId {
        key_id,
        provider_id: provider.map(|id| KeyProviderId { id }),
    });
    let spec = prop_oneof![
        Just(AnyCryptoSpec::from(CryptoSpecNoOp {})),
        key.prop_map(|crypto_key_id| CryptoSpecEncrypt { crypto_key_id }.into()),
    ];
    let leaf = spec.clone().prop_map(|crypto| DiskCryptoSpec { parent: None, crypto });
    leaf.prop_recursive(5, 5, 1, move |inner| {
        (inner, spec.clone())
            .prop_map(|(parent, crypto)| DiskCryptoSpec { parent: Some(Box::new(parent)), crypto })
    })
}
