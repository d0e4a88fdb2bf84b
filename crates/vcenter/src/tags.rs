//! Tags of the categories that a program reads.

use std::sync::Arc;

use vsphere::tags::TagMap;

/// The tags that were read, and why they may be old.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tags {
    /// As last read; `None` before that and when no categories are read.
    pub map: Option<Arc<TagMap>>,
    /// Why they could not be read since.
    pub problem: Option<String>,
    /// Whether reading was tried; without categories there is nothing to try.
    pub(crate) tried: bool,
}
