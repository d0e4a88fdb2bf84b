//! Which vCenter a new volume is created in, where there are several.
//!
//! A request goes on in the vCenter where an earlier attempt was made: another one is tried only after it was proven
//! that nothing was created there. The first attempt is made where the best datastore is in the first segment of the
//! request, then where it has the most free space. A vCenter without nodes in any of the segments is not concerned, and one
//! that cannot be used at present is not waited for. A copy is made where its source is.

use std::sync::Arc;

use futures::future::try_join_all;

use super::{
    Create, Inner, Volume, bytes, change, create,
    journal::{self, Attempt, Record},
    names::cns_name,
    placement::{Wish, decide},
    refused::refused,
    site::Site,
    sites::Sites,
    topology::Segment,
};
use crate::refusal::{Kind, Refusal};

pub(super) async fn create(inner: &Inner, request: &Create) -> Result<Volume, Refusal> {
    let sites = inner.sites()?;
    // Before anything is created: the answer says which nodes reach the volume.
    inner.check_located(&request.segments)?;
    if let Some(site) = sites.single() {
        return create::create(inner, site, request).await;
    }
    if let Some(source) = &request.source {
        let volume = source.volume();
        let site = inner.site_of(volume).await?.ok_or_else(|| change::absent(volume))?;
        let copied = Box::pin(create::create(inner, &site, request)).await;
        let copy = copied.map_err(|refusal| sites.attribute(&site, refusal))?;
        inner.volume_infos.record(&copy.id, Some(&request.name), &site.server).await?;
        return Ok(copy);
    }
    // Before anything is created: without its record a volume is searched for in every vCenter.
    inner.volume_infos.check_read()?;
    let record = inner.journal.read(&request.name).await?;
    let mut refusals = Vec::new();
    let (first, others) = order(inner, &sites, request, record.as_ref(), &mut refusals).await?;
    let is_first = |site: &Site| first.as_ref().is_some_and(|first| first.server == site.server);
    for site in first.iter().chain(&others) {
        match Box::pin(create::create(inner, site, request)).await {
            Ok(volume) => {
                let infos = &inner.volume_infos;
                infos.record(&volume.id, Some(&request.name), &site.server).await?;
                return Ok(volume);
            }
            Err(refusal) => {
                let refusal = sites.attribute(site, refusal);
                if !is_settled(inner, &request.name, is_first(site)).await? {
                    return Err(refusal);
                }
                refusals.push(refusal);
            }
        }
    }
    Err(combined(refusals))
}

/// Whether it is proven that no attempt made a volume. In a vCenter that is known to have had it, only a failed attempt
/// proves that: each searches for the volume.
async fn is_settled(inner: &Inner, name: &str, had_it: bool) -> Result<bool, Refusal> {
    let record = inner.journal.read(name).await?;
    let latest = record.as_ref().and_then(journal::attempt);
    Ok(match latest {
        None => !had_it,
        Some(latest) => latest == Attempt::Failed,
    })
}

/// The vCenter of an earlier attempt, and the others in the order in which they are tried; `refusals` gets the reasons
/// against those that are not.
async fn order(
    inner: &Inner,
    sites: &Sites,
    request: &Create,
    record: Option<&Record>,
    refusals: &mut Vec<Refusal>,
) -> Result<(Option<Arc<Site>>, Vec<Arc<Site>>), Refusal> {
    let latest = record.and_then(journal::attempt);
    let is_open = !matches!(latest, None | Some(Attempt::Failed));
    let attempted = record.filter(|_| is_open).map(|one| journal::vcenter(one).to_owned());
    let earlier = attempted.or_else(|| {
        let recorded = inner.volume_infos.vcenter_named(&request.name);
        recorded.map(|server| server.to_string())
    });
    let first = match earlier {
        None => None,
        Some(server) => match sites.named(&server) {
            Some(site) => Some(Arc::clone(site)),
            // It has another name by now, or the record is of an old version, which had one vCenter.
            None => named(sites, &cns_name(&request.name)).await?,
        },
    };
    let ranked = ranked(inner, sites, request, refusals)?;
    let is_other =
        |site: &Arc<Site>| first.as_ref().is_none_or(|first| first.server != site.server);
    let others = ranked.into_iter().filter(is_other).collect();
    Ok((first, others))
}

/// The vCenter that has a volume of this name, in all of them.
async fn named(sites: &Sites, name: &str) -> Result<Option<Arc<Site>>, Refusal> {
    sites.check_settled()?;
    let search = async |site: &Arc<Site>| {
        let connection = site.connection()?;
        let found = site.search.named(&connection, &site.cluster, name).await;
        let found = found.map_err(|error| {
            sites
                .attribute(site, refused(format!("volume {name} could not be searched for"), error))
        })?;
        Ok::<_, Refusal>((!found.is_empty()).then(|| Arc::clone(site)))
    };
    let found = try_join_all(sites.all().iter().map(search)).await.map_err(|mut refusal| {
        refusal.kind = Kind::Unavailable;
        refusal
    })?;
    Ok(found.into_iter().flatten().next())
}

/// The vCenters that have room for a volume: those of the first segment first, and of them the roomiest.
fn ranked(
    inner: &Inner,
    sites: &Sites,
    request: &Create,
    refusals: &mut Vec<Refusal>,
) -> Result<Vec<Arc<Site>>, Refusal> {
    let wish = Wish {
        bytes: bytes(super::mebibytes(request.required, request.limit)?),
        selection: request.selection.clone(),
        overcommit: inner.overcommit,
        segments: request.segments.clone(),
    };
    let mut ranked = Vec::new();
    for site in concerned(inner, sites, &request.segments) {
        let decided = site.places(&inner.nodes_in(site)).and_then(|inventory| {
            let mut decision = decide(&inventory, &wish);
            decision.resolve_names(&request.name)?;
            decision.best().ok_or_else(|| decision.refusal(&request.name))
        });
        match decided {
            Ok(best) => ranked.push((best, site)),
            Err(refusal) => refusals.push(sites.attribute(site, refusal)),
        }
    }
    // Stable, so that equals stay in the order of their names.
    ranked.sort_by_key(|(best, _)| *best);
    Ok(ranked.into_iter().map(|(_, site)| Arc::clone(site)).collect())
}

/// The vCenters with nodes in one of these segments; all of them if none has, or there are no segments.
pub(super) fn concerned<'a>(
    inner: &Inner,
    sites: &'a Sites,
    segments: &[Segment],
) -> Vec<&'a Arc<Site>> {
    let all = || sites.all().iter();
    let has_nodes = |site: &&Arc<Site>| {
        let nodes = inner.nodes_in(site);
        segments.iter().any(|segment| nodes.have(segment))
    };
    let concerned: Vec<_> = all().filter(has_nodes).collect();
    if concerned.is_empty() { all().collect() } else { concerned }
}

/// The reasons of all vCenters as one.
pub(super) fn combined(mut refusals: Vec<Refusal>) -> Refusal {
    let Some(last) = refusals.pop() else {
        return Refusal::new(Kind::Unavailable, "the driver has not connected to vCenter yet");
    };
    if refusals.is_empty() {
        return last;
    }
    refusals.push(last);
    // What passes by itself or by making room comes before what somebody has to correct.
    let passing = [Kind::Unavailable, Kind::Exhausted];
    let kinds = passing.into_iter().chain(refusals.iter().map(|one| one.kind));
    let kind = kinds.into_iter().find(|kind| refusals.iter().any(|one| one.kind == *kind));
    let texts: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    Refusal::new(kind.unwrap_or(Kind::Internal), texts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::{Kind, Refusal, combined};

    #[test]
    fn the_reasons_of_several_vcenters_are_all_shown_and_the_passing_one_counts() {
        let one = |kind, text: &str| Refusal::new(kind, text);
        assert_eq!(combined(vec![one(Kind::Invalid, "a")]).kind, Kind::Invalid);
        let both = combined(vec![one(Kind::Invalid, "no such URL"), one(Kind::Exhausted, "full")]);
        assert_eq!(
            (both.kind, both.to_string()),
            (Kind::Exhausted, "no such URL; full".to_owned())
        );
        let down = combined(vec![one(Kind::Exhausted, "full"), one(Kind::Unavailable, "down")]);
        assert_eq!(down.kind, Kind::Unavailable);
        let wrong = combined(vec![one(Kind::Denied, "a"), one(Kind::Invalid, "b")]);
        assert_eq!(wrong.kind, Kind::Denied);
    }
}
