//! Recorded answers of a vCenter, read as a connection reads them.
//!
//! For tests of other crates, for bug reports, and for the fuzzer in `fuzz/`: everything that
//! reads what a server sent can be reached from here, without a server.

use crate::{
    collector::{Change, Frame, read_update, read_updates},
    error::Cause,
    property::{Object, read_page},
    reference::Ref,
    soap,
    sts::Token,
    version,
    xml::{Element, Field, Malformed, Reader},
};

/// The value that a call returned: `document` is the SOAP answer.
pub fn answer<T: Field>(document: &str) -> Result<T, Cause> {
    let mut value = T::default();
    soap::answer(document, |reader, element| value.absorb(reader, element))?;
    Ok(value)
}

/// The objects on a page of properties, and the token of the next page, if there is one.
pub fn objects<T: Object>(document: &str) -> Result<(Vec<T>, Option<String>), Cause> {
    let (mut found, mut token) = (Vec::new(), None);
    soap::answer(document, |reader, page| read_page(reader, page, &mut found, &mut token))?;
    Ok((found, token))
}

/// The changes in the answer to a watch.
pub fn changes<T: Object>(document: &str) -> Result<Vec<Change<T>>, Cause> {
    let mut frame = Frame { version: String::new(), truncated: false };
    let mut changes = Vec::new();
    let mut take = |_: &Ref<_>, reader: &mut Reader<'_>, update: &Element<'_>| {
        changes.extend(read_update(reader, update)?);
        Ok(())
    };
    soap::answer(document, |reader, set| read_updates(reader, set, &mut frame, &mut take))?;
    Ok(changes)
}

/// The versions that a service lists in its `…ServiceVersions.xml`.
pub fn versions(document: &str) -> Result<Vec<String>, Malformed> {
    version::listed(document)
}

/// The subject of a SAML token.
pub fn token(document: &str) -> Result<String, Malformed> {
    Token::from_text(document.to_owned()).map(|token| token.subject)
}
