//! What is broken is an error that says where, never a panic and never half a value.

use std::fmt::Debug;

use jiff::Timestamp;
use proptest::prelude::*;
use vsphere::{
    error::Cause,
    fault::Fault,
    recorded,
    types::{
        AnySelectionSpec, CnsKubernetesQueryFilter, CnsQueryResult, CnsVolume, DiskCryptoSpec,
        GuestNicInfo, ServiceContent,
    },
    xml::FromXml,
};

use crate::{corpus, read, readers::Seen, values, write};

fn refused<T: FromXml + Debug>(document: &str) -> String {
    match read::<T>(document) {
        Err(malformed) => malformed.to_string(),
        Ok(value) => panic!("{document} was read as {value:?}"),
    }
}

proptest! {
    // Each case is read as often as it has characters.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_value_that_was_cut_anywhere_is_an_error(value in values::volume()) {
        let document = write(&value);
        for (at, _) in document.char_indices() {
            refused::<CnsVolume>(&document[..at]);
        }
    }
}

#[test]
fn an_answer_that_was_cut_anywhere_is_an_error() {
    for (name, answer) in corpus() {
        let answer = answer.trim_end();
        for (at, _) in answer.char_indices() {
            let cut = &answer[..at];
            let read = match name.as_str() {
                "properties" | "task-created" | "task-refused" => {
                    recorded::objects::<Seen>(cut).map(drop)
                }
                "updates-enter" | "updates-modify" => recorded::changes::<Seen>(cut).map(drop),
                "versions-vim" | "versions-vsan" => {
                    recorded::versions(cut).map(drop).map_err(Cause::from)
                }
                "token" => recorded::token(cut).map(drop).map_err(Cause::from),
                "volumes" => recorded::answer::<CnsQueryResult>(cut).map(drop),
                _ => recorded::answer::<ServiceContent>(cut).map(drop),
            };
            let problem = read.expect_err(&format!("{name} until {at}"));
            assert!(matches!(problem, Cause::Malformed(_)), "{name} until {at}");
        }
    }
}

#[test]
fn elements_that_overlap_are_an_error() {
    refused::<GuestNicInfo>("<v><network>a</v></network>");
    refused::<GuestNicInfo>("<v><network>a</ipAddress></v>");
    refused::<GuestNicInfo>("<v><unknown><more></unknown></more></v>");
    refused::<GuestNicInfo>("<a:v><network/></b:v>");
    refused::<GuestNicInfo>("</v>");
}

#[test]
fn what_is_no_xml_is_an_error() {
    let documents =
        ["", "  ", "text", "<", "<v", "<>", "</>", "<!", "<?", "<![CDATA[", "{\"v\": 1}"];
    for document in documents.into_iter().chain(["<v>&</v>", "<v><</v>", "<v><!-- </v>"]) {
        refused::<String>(document);
    }
}

#[test]
fn attributes_that_cannot_be_read_are_an_error() {
    let broken = ["xsi:type=TraversalSpec", "xsi:type", "xsi:type=", "=\"a\"", "a=\"b", "a='&b;'"];
    for attribute in broken {
        refused::<AnySelectionSpec>(&format!("<v {attribute}><name>n</name></v>"));
        refused::<AnySelectionSpec>(&format!("<v><unknown {attribute}/></v>"));
    }
}

#[test]
fn entities_that_nobody_declared_are_an_error() {
    let named = ["nbsp", "", "#", "#x", "#0", "#xd800", "#x110000", "#99999999999", "lol", "amp "];
    for entity in named {
        refused::<String>(&format!("<v>&{entity};</v>"));
    }
    // Entities can be declared, and then declared with each other. Nobody needs that.
    let document = r#"<!DOCTYPE v [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><v>&b;</v>"#;
    assert!(refused::<String>(document).contains("&b;"));
    let known = "<v>&lt;&gt;&amp;&quot;&apos;&#65;&#x42;</v>";
    assert_eq!(read::<String>(known).unwrap(), "<>&\"'AB");
}

#[test]
fn numbers_booleans_and_times_that_are_none_are_errors_that_name_the_element() {
    let texts = ["", "x", "1.5", "2147483648", "-2147483649", "0x10", "1 2", "--1", "\u{ff11}"];
    for text in texts {
        let problem = refused::<i32>(&format!("<v>{text}</v>"));
        assert!(problem.contains(": v: ") && problem.contains("at byte"), "{problem}");
    }
    refused::<i64>("<v>9223372036854775808</v>");
    for text in ["", "TRUE", "yes", "2", "tru e"] {
        assert!(refused::<bool>(&format!("<v>{text}</v>")).contains("is not a valid boolean"));
    }
    for text in ["", "yesterday", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "25:00:00"] {
        assert!(refused::<Timestamp>(&format!("<v>{text}</v>")).contains(": v: "), "{text}");
    }
    refused::<GuestNicInfo>("<v><connected/></v>");
    refused::<GuestNicInfo>("<v><deviceConfigId><unknown>4</unknown></deviceConfigId></v>");
}

/// An element in an element in an element.
fn nested(open: &str, close: &str, depth: usize) -> String {
    format!("<v>{}{}</v>", open.repeat(depth), close.repeat(depth))
}

#[test]
fn depth_has_an_end_whatever_is_nested() {
    for depth in [100, 1000, 200_000] {
        let unknown = nested("<a>", "</a>", depth);
        for problem in [
            refused::<String>(&unknown),
            refused::<GuestNicInfo>(&unknown),
            refused::<CnsKubernetesQueryFilter>(&unknown),
            refused::<Fault>(&unknown),
            refused::<DiskCryptoSpec>(&nested("<parent>", "</parent>", depth)),
            refused::<Fault>(&nested("<fault><faultCause>", "</faultCause></fault>", depth)),
            refused::<Fault>(&format!("<v><fault>{unknown}</fault></v>")),
            refused::<AnySelectionSpec>(&format!(
                "<v xsi:type='TraversalSpec'>{}{}</v>",
                "<selectSet xsi:type='TraversalSpec'>".repeat(depth),
                "</selectSet>".repeat(depth),
            )),
        ] {
            assert!(problem.contains("inside each other"), "{problem}");
        }
    }
    // Cut before its end, it is too deep first.
    assert!(refused::<String>(&"<a>".repeat(1_000_000)).contains("inside each other"));
}

#[test]
fn what_is_as_deep_as_allowed_is_read() {
    let mut spec = read::<DiskCryptoSpec>(&nested("<parent>", "</parent>", 99)).unwrap();
    let mut depth = 0;
    while let Some(parent) = spec.parent {
        spec = *parent;
        depth += 1;
    }
    assert_eq!(depth, 99);
}
