//! Recorded answers of a vCenter, read as a connection reads them.
//!
//! For tests of other crates, for bug reports, and for the fuzzer in `fuzz/`: everything that
//! reads what a server sent can be reached from here, without a server.

use crate::{
    collector::{Change, Frame, read_update, read_updates},
    fault::Fault,
    property::{Object, read_page},
    reference::Ref,
    soap::{self, Answer},
    version,
    xml::{Element, Field, Malformed, Reader},
};

/// Why a recorded answer has no value.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NoValue {
    /// The server refused.
    #[error(transparent)]
    Fault(Box<Fault>),
    /// It is not an answer of a vCenter.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// The value that a call returned: `document` is the SOAP answer.
pub fn answer<T: Field>(document: &str) -> Result<T, NoValue> {
    let mut value = T::default();
    read(document, |reader, element| value.absorb(reader, element))?;
    Ok(value)
}

/// The objects on a page of properties, and the token of the next page, if there is one.
pub fn objects<T: Object>(document: &str) -> Result<(Vec<T>, Option<String>), NoValue> {
    let (mut found, mut token) = (Vec::new(), None);
    read(document, |reader, page| read_page(reader, page, &mut found, &mut token))?;
    Ok((found, token))
}

/// The changes in the answer to a watch.
pub fn changes<T: Object>(document: &str) -> Result<Vec<Change<T>>, NoValue> {
    let mut frame = Frame { version: String::new(), truncated: false };
    let mut changes = Vec::new();
    let mut take = |_: &Ref<_>, reader: &mut Reader<'_>, update: &Element<'_>| {
        changes.extend(read_update(reader, update)?);
        Ok(())
    };
    read(document, |reader, set| read_updates(reader, set, &mut frame, &mut take))?;
    Ok(changes)
}

/// The versions that a service lists in its `…ServiceVersions.xml`.
pub fn versions(document: &str) -> Result<Vec<String>, Malformed> {
    version::listed(document)
}

fn read<'a>(
    document: &'a str,
    take: impl FnMut(&mut Reader<'a>, &Element<'a>) -> Result<(), Malformed>,
) -> Result<(), NoValue> {
    match soap::answer(document, take)? {
        Answer::Returned => Ok(()),
        Answer::Fault(fault) => Err(NoValue::Fault(fault)),
    }
}
