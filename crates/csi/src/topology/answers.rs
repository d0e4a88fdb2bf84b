//! Reads what a plan needs of the cluster, and writes the answer, only while this process holds the lease.

use std::{sync::Arc, time::Duration};

use daemon::lease::Leadership;
use k8s_openapi::api::core::v1::{self, PersistentVolume};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};
use tokio::time::timeout;

use super::{
    Labels,
    affinity::BoundVolume,
    place::Place,
    plan::{self, Event, Facts, Step},
    record::{self, Answer, Record},
};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// PersistentVolumes of one page.
const PAGE: u32 = 500;

/// Why a node was not answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotAnswered {
    #[error("this process does not hold the lease")]
    NotLeading,
    #[error("the API server did not answer within {} s", REQUEST_TIMEOUT.as_secs())]
    TimedOut,
    #[error(transparent)]
    Refused(#[from] kube::Error),
}

/// What is known of a node when its answer is planned.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) name: Arc<str>,
    /// Of the object that was observed; one that changed since is planned again.
    pub(super) version: String,
    pub(super) answer: Option<Answer>,
    pub(super) recorded: Labels,
    pub(super) place: Place,
    pub(super) has_waited: bool,
    /// The labels of the other nodes.
    pub(super) others: Arc<[Labels]>,
}

/// What became of a question.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The answer stands, and may have to be told.
    Stands(Option<Event>),
    Written(Answer, Option<Event>),
    /// vCenter may answer in a moment.
    Waiting,
    /// The object was changed meanwhile, or is gone; the watch reports it.
    Superseded,
}

/// The API, as far as answers need it.
#[derive(Clone)]
pub(super) struct Answers {
    pub(super) records: Api<Record>,
    nodes: Api<v1::Node>,
    volumes: Api<PersistentVolume>,
    leadership: Leadership,
}

impl Answers {
    pub(super) fn new(client: &Client, leadership: Leadership) -> Self {
        Self {
            records: record::records(client),
            nodes: Api::all(client.clone()),
            volumes: Api::all(client.clone()),
            leadership,
        }
    }

    /// Plans the answer to a question and writes it.
    pub(super) async fn answer(self, question: Question) -> Result<Outcome, NotAnswered> {
        let facts = |node| Facts {
            answer: question.answer.as_ref(),
            recorded: &question.recorded,
            place: &question.place,
            has_waited: question.has_waited,
            node,
        };
        let mut step = plan::plan(&facts(None));
        if let Step::Read { volumes } = step {
            let Some(node) = self.request(self.nodes.get_opt(&question.name)).await? else {
                // The object goes with its Node.
                return Ok(Outcome::Superseded);
            };
            let volumes = if volumes { self.bound_volumes().await? } else { Vec::new() };
            let labels = node.labels();
            let node = plan::Node { labels, volumes: &volumes, others: &question.others };
            step = plan::plan(&facts(Some(&node)));
        }
        match step {
            // Only for a Node that was not read.
            Step::Read { .. } => Ok(Outcome::Superseded),
            Step::Rest(event) => Ok(Outcome::Stands(event)),
            Step::Wait => Ok(Outcome::Waiting),
            Step::Write(answer, event) => {
                let is_written = self.write(&question, &answer).await?;
                let outcome = Outcome::Written(answer, event);
                Ok(if is_written { outcome } else { Outcome::Superseded })
            }
        }
    }

    /// Writes an answer into the object, if it is still the one that was observed. The Go driver's role has no right to
    /// patch it.
    async fn write(&self, question: &Question, answer: &Answer) -> Result<bool, NotAnswered> {
        let Some(mut record) = self.request(self.records.get_opt(&question.name)).await? else {
            return Ok(false);
        };
        if record.resource_version().as_deref() != Some(&question.version) {
            return Ok(false);
        }
        record::set_answer(&mut record, answer);
        let params = PostParams::default();
        let written = self.request(self.records.replace(&question.name, &params, &record)).await;
        match written {
            Ok(_) => Ok(true),
            Err(NotAnswered::Refused(kube::Error::Api(status)))
                if [404, 409].contains(&status.code) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The volumes of the cluster that only some nodes may use.
    async fn bound_volumes(&self) -> Result<Vec<BoundVolume>, NotAnswered> {
        let mut params = ListParams::default().limit(PAGE);
        let mut bound = Vec::new();
        loop {
            let page = self.request(self.volumes.list(&params)).await?;
            bound.extend(page.items.iter().filter_map(BoundVolume::read));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(bound),
            }
        }
    }

    async fn request<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, NotAnswered> {
        if !self.leadership.holds() {
            return Err(NotAnswered::NotLeading);
        }
        let answered = timeout(REQUEST_TIMEOUT, request).await;
        Ok(answered.map_err(|_| NotAnswered::TimedOut)??)
    }
}
