//! What ran beside the loop has ended.

use tokio::time::Instant;
use tracing::{info, warn};

use super::{Controller, Done, Published, Subject};
use crate::{
    attach::{
        apply::{NotWritten, Written},
        limits,
        observe::{Changed, trimmed::Attachment},
        plan::Step,
        report, spread,
        verify::{self, Claimed},
    },
    refusal::{Kind, Refusal},
};

impl Controller {
    /// Takes in what has ended. Returns what is to be planned because of it.
    pub(super) fn finish(&mut self, done: Done) -> Changed {
        let now = Instant::now();
        let mut changed = Changed::default();
        match done {
            Done::Wrote(subject, step, written) => {
                self.writes -= 1;
                self.reporter.wrote("VolumeAttachment", &subject.name, &written);
                self.finish_write(&subject, &step, written, now);
                self.busy.remove(&subject.name);
                changed.attachments.insert(subject.name);
            }
            Done::Operated(subject, operation, result) => {
                self.operations -= 1;
                report::operated(&subject.name, &operation, &result);
                if result.as_ref().is_err_and(|problem| problem.kind == Kind::Exhausted) {
                    self.limits.refused(&subject.node, now);
                }
                if let Some(progress) = self.progress(&subject.name, &subject.uid) {
                    progress.operated(operation, result, spread(), now);
                }
                self.busy.remove(&subject.name);
                changed.attachments.insert(subject.name);
            }
            Done::Released(name, written) => {
                self.writes -= 1;
                self.reporter.wrote("PersistentVolume", &name, &written);
                if let Some(object) = written.object {
                    self.observer.volumes.learn(object);
                }
                match written.result {
                    Ok(()) => info!(volume = %name, "stock attacher's finalizer removed"),
                    Err(NotWritten::Gone) => {}
                    Err(_) => _ = self.volumes_failed.insert(name),
                }
            }
            Done::Limited(limits::Published { name, object, result }) => {
                if let Err(error) = &result {
                    warn!(node = %name, %error, "limit of volumes not published; retrying");
                }
                self.limits.finish(&name, result.is_ok(), now);
                if let Some(object) = object {
                    self.observer.csi_nodes.learn(object);
                }
                changed.attachments.extend(self.observer.on_node(&name));
            }
            Done::Verified(claimed, published) => {
                self.finish_verify(claimed, published, &mut changed);
            }
        }
        changed
    }

    fn finish_write(
        &mut self,
        subject: &Subject,
        step: &Step,
        written: Written<Attachment>,
        now: Instant,
    ) {
        let Written { object, result } = written;
        let kept = object.as_ref().and_then(|object| object.kept.as_ref());
        let gone = *step == Step::Release && kept.is_none_or(|kept| !kept.others);
        if let Some(object) = object {
            self.observer.attachments.learn(object);
        }
        let Some(progress) = self.progress(&subject.name, &subject.uid) else { return };
        match result {
            Ok(()) if gone => progress.released(),
            Ok(()) => progress.wrote(step, now),
            Err(NotWritten::Gone) => progress.released(),
            Err(NotWritten::Conflict) => {}
            Err(NotWritten::NotLeading | NotWritten::TimedOut | NotWritten::Refused(_)) => {
                progress.not_written(now);
            }
        }
    }

    fn finish_verify(
        &mut self,
        claimed: Vec<Claimed>,
        published: Result<Published, Refusal>,
        changed: &mut Changed,
    ) {
        let now = Instant::now();
        self.verification.ended(published.is_ok(), now);
        let published = match published {
            Ok(published) => published,
            Err(error) => {
                warn!(%error, "attached volumes not compared with vCenter; retrying");
                return;
            }
        };
        for Claimed { name, uid, place } in verify::missing(claimed, &published) {
            let known = self.observer.attachments.get(&name).filter(|known| known.uid == uid);
            let still = known.is_some_and(|known| known.value.attached && !known.value.deleting);
            if !still || self.busy.contains(&name) {
                continue;
            }
            if let Some(progress) = self.progress(&name, &uid) {
                progress.found_missing();
                self.reporter.missing(&name, &place.volume, &place.node);
                changed.attachments.insert(name);
            }
        }
    }
}
