//! Whether a volume that exists is what a request asks for.
//!
//! What was asked for is in the record of the attempt that made it. Until it is known that an attempt made something, there
//! is nothing to compare: the StorageClass may have been corrected since, and what is requested now counts. Once a volume
//! exists it is bound to what it was made with, and a request for something else is refused for as long as it comes: the
//! record, without which the volume would be adopted, is kept.

use super::{
    super::{
        attempts::while_open,
        bytes,
        journal::{self, Plan, Record},
        placement::Size,
    },
    Creation, Found,
};
use crate::refusal::{Kind, Refusal};

impl Creation<'_> {
    /// Refuses a volume that was made for a request with other parameters.
    pub(super) async fn refuse_others(
        &self,
        record: Option<&Record>,
        found: &Found,
    ) -> Result<(), Refusal> {
        let Some((record, plan)) = record.and_then(|one| Some((one, journal::plan(one)?))) else {
            return Ok(());
        };
        let Some(differs) = self.difference(&plan) else { return Ok(()) };
        let Found { id, mebibytes, .. } = found;
        let kept = self.inner.journal.differs(record.clone(), id, *mebibytes, &differs.what).await;
        kept.map_err(while_open)?;
        let Difference { what, is_of_class } = differs;
        let what = format!("volume {} exists ({id}) and {what}", self.request.name);
        let refusal = Refusal::new(Kind::Differs, what);
        Err(if is_of_class {
            refusal.remedy(format!(
                "create the StorageClass again as it was, or delete the claim, and then volume {id} in vCenter (Cluster, \
                 Monitor, Container Volumes)"
            ))
        } else {
            refusal
        })
    }

    /// What an attempt asked for, where that is not what is asked for now.
    fn difference(&self, plan: &Plan) -> Option<Difference> {
        let asked = &self.request.selection;
        let quoted = |value: &Option<String>| match value {
            Some(value) => format!("{value:?}"),
            None => "none".to_owned(),
        };
        let list = |values: &[String]| match values {
            [] => "none".to_owned(),
            values => format!("{:?}", values.join(", ")),
        };
        let source = self.request.source.as_ref().map(ToString::to_string);
        let compared = [
            ("storage policy", quoted(&plan.policy), quoted(&self.request.policy)),
            ("datastore URL", quoted(&plan.url), quoted(&asked.url)),
            ("list of datastores", list(&plan.datastores), list(&asked.datastores)),
            ("datastore cluster", quoted(&plan.cluster), quoted(&asked.cluster)),
            ("source", quoted(&plan.source), quoted(&source)),
        ];
        if let Some((what, made, now)) = compared.into_iter().find(|(_, made, now)| made != now) {
            let is_of_class = what != "source";
            let what = format!("was requested with the {what} {made}, not {now}");
            return Some(Difference { what, is_of_class });
        }
        let size = bytes(plan.size);
        let fits =
            size >= self.request.required && self.request.limit.is_none_or(|limit| size <= limit);
        (!fits).then(|| {
            let (made, now) = (Size(size), Size(bytes(self.mebibytes)));
            Difference { what: format!("was requested with {made}, not {now}"), is_of_class: false }
        })
    }
}

/// One parameter of two requests for one volume.
struct Difference {
    what: String,
    /// Whether it comes from the StorageClass.
    is_of_class: bool,
}
