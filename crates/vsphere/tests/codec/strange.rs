//! What servers may send though we would not: other types, other spellings, nothing.

use jiff::Timestamp;
use vsphere::{
    reference::Ref,
    types::{
        AnyCnsBackingObjectDetails, AnyCnsVolumeOperationResult, AnySelectionSpec,
        CnsContainerCluster, CnsVolume, CnsVolumeType, GuestNicInfo, ManagedObject, OptionValue,
        SelectionSpec, VirtualMachine,
    },
    xml::Value,
};

use crate::{read, write};

#[test]
fn a_missing_type_is_the_default_of_the_family_or_its_base() {
    let backing: AnyCnsBackingObjectDetails =
        read("<v><capacityInMb>5</capacityInMb><backingDiskId>d</backingDiskId></v>").unwrap();
    let AnyCnsBackingObjectDetails::CnsBlockBackingDetails(block) = backing else {
        panic!("{backing:?}");
    };
    assert_eq!(block.backing_disk_id.as_deref(), Some("d"));

    let selection: AnySelectionSpec = read("<v><name>n</name><path>p</path></v>").unwrap();
    assert_eq!(selection, SelectionSpec { name: Some("n".to_owned()) }.into());

    let value: Value = read("<v>text</v>").unwrap();
    assert_eq!(value, "text".into());
}

#[test]
fn an_unknown_type_keeps_its_name_and_the_fields_of_the_base() {
    let document =
        r#"<v xsi:type="vsan:CnsFutureResult"><volumeId><id>7</id></volumeId><new/></v>"#;
    let result: AnyCnsVolumeOperationResult = read(document).unwrap();
    let AnyCnsVolumeOperationResult::Other { type_name, base } = result else {
        panic!("{result:?}");
    };
    assert_eq!(type_name, "CnsFutureResult");
    assert_eq!(base.volume_id.unwrap().id, "7");
    let value: Value = read(r#"<v xsi:type="vim:Strange">x<y/></v>"#).unwrap();
    assert_eq!((value.type_name.as_str(), value.text.as_str()), ("Strange", "x"));
}

#[test]
fn a_value_of_another_type_is_written_with_the_type_it_had() {
    for declared in ["xsd:dateTime", "xsd:short", "VirtualMachinePowerState"] {
        let document = format!(r#"<v xsi:type="{declared}">x</v>"#);
        let value: Value = read(&document).unwrap();
        assert_eq!(write(&value), document);
    }
}

#[test]
fn an_empty_type_is_an_unknown_one() {
    let selection: AnySelectionSpec = read(r#"<v xsi:type=""><name>n</name></v>"#).unwrap();
    assert!(matches!(selection, AnySelectionSpec::Other { type_name, .. } if type_name.is_empty()));
}

#[test]
fn a_prefix_called_type_is_no_type() {
    let document = r#"<v xmlns:type="urn:TraversalSpec"><name>n</name></v>"#;
    let selection: AnySelectionSpec = read(document).unwrap();
    assert_eq!(selection, SelectionSpec { name: Some("n".to_owned()) }.into());
    let document =
        r#"<v xmlns:nil="true"><value xmlns:nil="true" xsi:type="xsd:int">3</value></v>"#;
    let value = read::<OptionValue>(document).unwrap().value.unwrap();
    assert_eq!((value.type_name.as_str(), value.text.as_str()), ("int", "3"));
}

#[test]
fn nothing_can_be_said_in_two_ways() {
    for nil in ["true", "1"] {
        let document = format!(r#"<v><key>k</key><value i:nil="{nil}">text</value></v>"#);
        assert_eq!(read::<OptionValue>(&document).unwrap().value, None);
    }
    let document = r#"<v><key>k</key><value i:nil="false">text</value></v>"#;
    assert_eq!(read::<OptionValue>(document).unwrap().value, Some("text".into()));
}

#[test]
fn a_reference_has_the_kind_that_the_server_names() {
    let reference: Ref<ManagedObject> =
        read(r#"<v xsi:type="ManagedObjectReference" type="VirtualMachine">vm-1</v>"#).unwrap();
    assert_eq!(reference.cast::<VirtualMachine>(), Some(Ref::new("vm-1")));
    let reference: Ref<VirtualMachine> = read("<v>vm-1</v>").unwrap();
    assert_eq!(reference, Ref::new("vm-1"));
}

#[test]
fn values_of_enumerations_that_came_later_are_kept() {
    let volume: CnsVolume = read("<v><volumeType>TAPE</volumeType></v>").unwrap();
    assert_eq!(volume.volume_type, Some(CnsVolumeType::Other("TAPE".to_owned())));
}

#[test]
fn booleans_numbers_and_times_may_be_spelt_in_several_ways() {
    for (text, value) in [("true", true), ("1", true), (" false\n", false), ("0", false)] {
        assert_eq!(read::<bool>(&format!("<v>{text}</v>")).unwrap(), value);
    }
    for text in ["7", " 7 ", "+7", "007", "<!-- -->7", "<![CDATA[7]]>", "&#55;"] {
        assert_eq!(read::<i32>(&format!("<v>{text}</v>")).unwrap(), 7, "{text}");
    }
    let time: Timestamp = "2026-01-02T03:04:05.5Z".parse().unwrap();
    let spelt =
        ["2026-01-02T03:04:05.5Z", "2026-01-02T04:04:05.500+01:00", " 2026-01-02T03:04:05.5 "];
    for text in spelt {
        assert_eq!(read::<Timestamp>(&format!("<v>{text}</v>")).unwrap(), time, "{text}");
    }
}

#[test]
fn fields_may_come_in_any_order_and_not_at_all() {
    let document = "<v><connected>true</connected><ipAddress>b</ipAddress><network>n</network>\
                    <ipAddress>a</ipAddress></v>";
    let nic: GuestNicInfo = read(document).unwrap();
    assert_eq!(nic.ip_address, ["b", "a"]);
    assert_eq!(nic.network.as_deref(), Some("n"));
    assert_eq!(read::<CnsContainerCluster>("<v/>").unwrap(), CnsContainerCluster::default());
}

#[test]
fn a_hundred_thousand_attributes_are_as_good_as_none() {
    let attributes: String = (0..100_000).map(|at| format!(" a{at}='&lt;'")).collect();
    let document =
        format!(r#"<v{attributes} xsi:type="TraversalSpec"{attributes}><path>p</path></v>"#);
    let selection: AnySelectionSpec = read(&document).unwrap();
    assert!(matches!(selection, AnySelectionSpec::TraversalSpec(through) if through.path == "p"));
}
