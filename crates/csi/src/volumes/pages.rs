//! Lists over all vCenters, page by page: one vCenter after the other, by the names of their servers.

use std::sync::Arc;

use super::{
    site::Site,
    sites::{Position, Sites},
};
use crate::refusal::{Kind, Refusal};

/// Where a list is. A vCenter without entries has no page. One that does not answer ends the list: a list without its
/// entries reads as if they were gone.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    sites: &'a Sites,
    from: &'a Position,
    /// The vCenter to read from.
    pub(super) site: &'a Arc<Site>,
    /// Where to begin there.
    pub(super) offset: u64,
}

/// What a vCenter has from an offset on, and where the next page begins there.
pub(super) type Read<T> = (Vec<T>, Option<u64>);

/// A page, and where the next one begins.
pub(super) type Page<T> = (Vec<T>, Option<Position>);

impl<'a> Walk<'a> {
    /// A list that begins at a position.
    ///
    /// # Errors
    /// When the position leads nowhere, or a vCenter is missing at present.
    pub(super) fn begin(sites: &'a Sites, from: &'a Position) -> Result<Self, Refusal> {
        sites.check_settled()?;
        let site = sites.at(from).ok_or_else(|| stale(from))?;
        Ok(Self { sites, from, site, offset: from.offset })
    }

    /// The page that was read and where the next one begins; nothing if the next vCenter is to be read.
    ///
    /// # Errors
    /// When the position leads nowhere any more.
    pub(super) fn page<T>(&mut self, (entries, rest): Read<T>) -> Result<Option<Page<T>>, Refusal> {
        if entries.is_empty() && self.offset > 0 {
            return Err(stale(self.from));
        }
        let following = self.sites.after(self.site).filter(|_| rest.is_none());
        Ok(match following {
            Some(following) if entries.is_empty() => {
                (self.site, self.offset) = (following, 0);
                None
            }
            Some(following) => Some((entries, Some(self.sites.position(following, 0)))),
            None => {
                let next = rest.map(|offset| self.sites.position(self.site, offset));
                Some((entries, next))
            }
        })
    }
}

/// A position that leads nowhere, or does not any more.
fn stale(from: &Position) -> Refusal {
    let what = format!("starting_token \"{from}\" does not lead to a page");
    Refusal::new(Kind::Busy, what).remedy("list again without a token")
}
