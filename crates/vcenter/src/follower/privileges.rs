//! Reads the user's privileges on datastores: vCenter does not report when they change.

use std::{collections::HashMap, sync::Arc};

use tokio::time::sleep;
use tracing::warn;
use vsphere::{
    connection::Connection,
    error::{Error, Missing, Remedy},
    reference::Ref,
    types::Datastore,
};

use super::{BURST, Follower, LONGEST_PAUSE, pause};
use crate::storage::Privileges;

/// What CNS needs of a user on a datastore where it creates volumes.
const TO_CREATE: [&str; 2] = ["Datastore.FileManagement", "System.Read"];

impl Follower {
    /// Reads on which datastores the user may create files: as soon as they are known, when one appears, when
    /// credentials were replaced, and from time to time.
    pub(super) async fn read_privileges(&self, connection: &Connection) {
        let Some(storage) = &self.interests.storage else { return };
        let (mut failures, mut next) = (0, None);
        loop {
            tokio::select! {
                () = sleep(next.unwrap_or_default()), if next.is_some() => {}
                () = self.unchecked.notified() => {
                    if next.is_some() {
                        sleep(BURST).await;
                    }
                }
            }
            let snapshot = self.published.snapshot();
            let read = read(connection, snapshot.datastores().map(|one| &one.reference)).await;
            failures = if read.is_ok() { 0 } else { failures + 1 };
            let retry = |error| pause(error, failures).max(LONGEST_PAUSE);
            next = Some(read.as_ref().err().map_or(storage.auth_check, retry));
            let why = |error| format!("the privileges on its datastores cannot be read: {error}");
            let problem = read.as_ref().err().map(why);
            let known = snapshot.privileges.as_ref().and_then(|known| known.granted.clone());
            let granted = read.ok().map(Arc::new).or(known);
            self.publish_privileges(Privileges { granted, problem });
        }
    }

    fn publish_privileges(&self, privileges: Privileges) {
        let known = self.published.snapshot().privileges.clone().unwrap_or_default();
        if known == privileges {
            return;
        }
        if let Some(why) = &privileges.problem
            && known.problem.is_none()
        {
            warn!(vcenter = self.vcenter.name, why, "privileges not read; retrying");
        }
        self.published.update(|snapshot| {
            snapshot.privileges = Some(privileges);
            // Callers read privileges when they need them.
            None
        });
    }
}

/// On which of the datastores the user of the connection may create files. vCenter refuses a whole question for one
/// datastore that the user may not read or that is gone; the others are asked about without it.
async fn read(
    connection: &Connection,
    datastores: impl Iterator<Item = &Ref<Datastore>>,
) -> Result<HashMap<Ref<Datastore>, bool>, Error> {
    let mut asked: Vec<_> = datastores.cloned().collect();
    let mut granted: HashMap<_, _> = asked.iter().map(|at| (at.clone(), false)).collect();
    let lacking = loop {
        match connection.authorization().lacking(&asked, &TO_CREATE).await {
            Ok(lacking) => break lacking,
            Err(error) => {
                let refused = refused(&error).filter(|at| asked.contains(at)).ok_or(error)?;
                asked.retain(|at| *at != refused);
            }
        }
    };
    for at in asked.into_iter().filter(|at| !lacking.contains_key(&at.upcast())) {
        granted.insert(at, true);
    }
    Ok(granted)
}

/// The datastore that a question was refused for.
fn refused(error: &Error) -> Option<Ref<Datastore>> {
    match &error.remedy {
        Remedy::NoPermission { object: Some(object), .. }
        | Remedy::NotFound { what: Missing::Object(object) } => object.cast(),
        _ => None,
    }
}
