//! What vCenter keeps for a session on our behalf: views, collectors, pages of a read.
//!
//! All of it ends with the session, but a session lives for months. So each of these is a guard whose drop ends
//! the object in the background, and each is created in a task of its own: a caller that gives up at any point
//! leaves nothing behind.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::{
    connection::{Connection, WeakConnection},
    error::Error,
    login::Established,
    reference::{IsA, Kind, Ref},
    xml::Method,
};

/// An object of a session, or a state of it, that the method `M` ends. Calls it in the background when dropped.
pub(crate) struct Held<M: Method> {
    connection: WeakConnection,
    session: Arc<Established>,
    on: Ref<M::On>,
    end: Option<M>,
}

impl<M: Method> Held<M> {
    pub(crate) fn new(
        connection: &Connection,
        session: &Arc<Established>,
        on: Ref<M::On>,
        end: M,
    ) -> Self {
        let (connection, session) = (connection.downgrade(), Arc::clone(session));
        Self { connection, session, on, end: Some(end) }
    }

    pub(crate) fn on(&self) -> &Ref<M::On> {
        &self.on
    }

    /// Gives the method back: it is not called any more.
    pub(crate) fn release(mut self) -> Option<M> {
        self.end.take()
    }
}

impl<M: Method> Drop for Held<M> {
    fn drop(&mut self) {
        let Some((connection, end)) = self.connection.upgrade().zip(self.end.take()) else {
            return;
        };
        // Outside of the runtime the process ends, and its sessions are closed or lost.
        if Handle::try_current().is_err() {
            return;
        }
        let (owner, session, on) = (connection.clone(), Arc::clone(&self.session), self.on.clone());
        connection.session().run(async move {
            if !owner.session().is_current(&session).await {
                return;
            }
            let wire = owner.wire();
            let ended = wire.call(session.as_in(), M::SERVICE, &on, &end, |_, _| Ok(())).await;
            if let Err(error) = ended {
                tracing::debug!(method = M::NAME, object = %on, %error, "server object not released");
            }
        });
    }
}

impl Connection {
    /// Creates an object in a session with `create`, which the method `end` ends.
    pub(crate) async fn hold<C, E, K>(
        &self,
        session: &Arc<Established>,
        on: &Ref<C::On>,
        create: C,
        end: E,
    ) -> Result<Held<E>, Error>
    where
        C: Method<Answer = Ref<K>>,
        E: Method,
        K: Kind + IsA<E::On>,
    {
        let (owner, session, on) = (self.clone(), Arc::clone(session), on.clone());
        self.session()
            .carry(async move {
                let created = owner.wire().get(session.as_in(), C::SERVICE, &on, &create).await?;
                Ok(Held::new(&owner, &session, created.upcast(), end))
            })
            .await
    }
}
