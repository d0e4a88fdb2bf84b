//! gcfg's rules of quoting, escaping and continuing, seen through a password.

use cloud_config::{CredentialSource, Reader};
use secrecy::ExposeSecret;

fn password(line: &str) -> Result<String, String> {
    let text = format!("[global]\nSERVER = vc.example\nuser = u\n{line}\n");
    let read =
        Reader::default().read("f", text.as_bytes()).map_err(|problems| problems.to_string())?;
    match &read.config.vcenters[0].credentials {
        CredentialSource::Inline(inline) => Ok(inline.password.expose_secret().to_owned()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_are_quoted_escaped_and_continued_as_gcfg_does() {
    let cases = [
        ("password = plain", "plain"),
        ("password=plain", "plain"),
        ("\tPassWord\t=\tplain\t\t", "plain"),
        ("password = in ner  blanks   ", "in ner  blanks"),
        ("password = cut # here", "cut"),
        ("password = cut;here", "cut"),
        ("password = \"kept # ; here\" ; but not here", "kept # ; here"),
        ("password = \"  blanks  \"", "  blanks  "),
        ("password = half \"quoted  \"  and not  ", "half quoted    and not"),
        ("password = a\"b\"c", "abc"),
        (r#"password = "q\"q b\\b""#, "q\"q b\\b"),
        (r#"password = "l\nl t\tt""#, "l\nl t\tt"),
        (r#"password = one\"two"#, "one\"two"),
        ("password = one \\\n  two", "one   two"),
        ("password = one\\\r\ntwo\r", "onetwo"),
        ("password = before an empty line \\\n", "before an empty line "),
        ("password = a=b==", "a=b=="),
        ("password = [not] a section", "[not] a section"),
        ("password = first\npassword = last", "last"),
        ("password = \u{e9}\u{1f642}", "\u{e9}\u{1f642}"),
        ("password = p\n[Labels]\nzone = z\n[GLOBAL]\npassword = continued", "continued"),
    ];
    for (line, wanted) in cases {
        assert_eq!(password(line).as_deref(), Ok(wanted), "{line:?}");
    }
}

#[test]
fn what_gcfg_refuses_is_refused_at_its_place() {
    let cases = [
        (r"password = a\b", "f:4:13: password: a backslash outside quotes"),
        (r"password = a\\b", "f:4:13: password: a backslash outside quotes"),
        (r#"password = "a\b""#, "f:4:14: password: a backslash inside quotes"),
        ("password = \"a\\\n\"", "f:4:14: password: a backslash inside quotes"),
        ("password = \"a", "f:4:12: password: a quoted value does not end"),
        ("password : a", "f:4:10: password: there is no `=`"),
        ("pass_word = a", "f:4:5: pass: there is no `=`"),
        ("password = a\0b", "f:4:13: the text contains a NUL character"),
        ("1password = a", "f:4:1: no section or key begins like this"),
        ("[Labels] zone = z", "f:4:10: something follows the header"),
        ("[]", "f:4:2: a section has no name"),
        ("[Labels", "f:4:8: the header of a section does not end"),
        ("[VirtualCenter \"\"]", "f:4:16: the name of a section is empty"),
        ("[VirtualCenter \"a\\n\"]", "f:4:19: a backslash in the name"),
        ("[VirtualCenter \"a]", "f:4:16: the quoted name of a section does not end"),
    ];
    for (line, wanted) in cases {
        let problems = password(line).unwrap_err();
        assert!(problems.lines().any(|it| it.starts_with(wanted)), "{line:?}: {problems}");
    }
}

#[test]
fn the_mark_of_windows_editors_is_no_part_of_the_text() {
    let text = "\u{feff}[Global]\r\nserver = vc.example\r\nuser = u\r\npassword = p\r\n";
    let read = Reader::default().read("f", text.as_bytes()).unwrap();
    assert_eq!(read.config.vcenters[0].server, "vc.example");
}

#[test]
fn a_text_that_is_not_utf_8_is_refused_at_its_place() {
    let problems = Reader::default().read("f", b"[Global]\nuser = \xff\n").unwrap_err();
    assert_eq!(
        problems.to_string(),
        "f:2:8: the text is not encoded as UTF-8; save the file as UTF-8"
    );
}
