//! When a candidate may take a lease, and until when a leader may believe that it leads. No I/O.
//!
//! Clocks of two machines are never compared. A candidate waits for the recorded duration *since it saw the
//! record change*, by its own clock; a leader counts from *before it sent* the renewal that succeeded.
//! Others cannot have seen a renewal before it was sent, and they wait longer than the leader believes:
//! so two of them never believe it at once, as long as their clocks run equally fast.

use std::time::Duration;

use tokio::time::Instant;

/// The durations of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    lease: Duration,
    pub(super) renew: Duration,
    pub(super) retry: Duration,
}

/// Kubernetes' own defaults: 15 s, 10 s and 2 s.
impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { lease: seconds(15), renew: seconds(10), retry: seconds(2) }
    }
}

/// Durations with which an election cannot be held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidTiming(String);

/// How much later than the retry period a try may come at most, so that candidates do not run in step.
pub(super) const JITTER: f64 = 1.2;

impl Timing {
    /// Durations that were checked by the rules of client-go.
    pub fn new(lease: Duration, renew: Duration, retry: Duration) -> Result<Self, InvalidTiming> {
        let problem = if retry.is_zero() || lease < Duration::from_secs(1) {
            "the retry period must be longer than 0, and the lease duration at least 1 s".to_owned()
        } else if lease <= renew {
            // The leader would still try when others take over.
            format!(
                "the lease duration ({lease:?}) must be longer than the renew deadline ({renew:?})"
            )
        } else if renew <= retry.mul_f64(JITTER) {
            // The leader would have no second try.
            format!(
                "the renew deadline ({renew:?}) must be longer than {JITTER} times the retry period ({retry:?})"
            )
        } else {
            return Ok(Self { lease, renew, retry });
        };
        Err(InvalidTiming(problem))
    }

    /// The recorded duration: whole seconds, rounded up, so that no candidate waits less than the leader
    /// expects.
    pub(super) fn recorded_seconds(&self) -> i32 {
        let up = u64::from(self.lease.subsec_nanos() > 0);
        i32::try_from(self.lease.as_secs() + up).unwrap_or(i32::MAX)
    }
}

/// What a lease records about its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Empty when the lease was released.
    pub(super) holder: String,
    /// How long others must wait after a renewal.
    pub(super) lease_seconds: Option<i32>,
    /// Changes with every write.
    pub(super) version: String,
}

/// What to do about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// It is free: write our identity.
    Take,
    /// We hold it.
    Renew,
    /// Another process holds it for at least this long.
    Wait(Duration),
}

/// One process in an election.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) me: String,
    pub(super) timing: Timing,
    /// The last record, and when it was first seen.
    seen: Option<(Record, Instant)>,
    /// When the last renewal that succeeded was sent.
    renewed: Option<Instant>,
}

impl Candidate {
    pub(super) fn new(me: String, timing: Timing) -> Self {
        Self { me, timing, seen: None, renewed: None }
    }

    /// The last holder seen.
    pub(super) fn holder(&self) -> Option<&str> {
        let holder = self.seen.as_ref().map(|(record, _)| record.holder.as_str());
        holder.filter(|holder| !holder.is_empty())
    }

    /// Notes a record that was read; `now` is after it was read.
    pub(super) fn observe(&mut self, record: Record, now: Instant) {
        if record.holder != self.me {
            self.renewed = None;
        }
        if self.seen.as_ref().is_none_or(|(seen, _)| *seen != record) {
            self.seen = Some((record, now));
        }
    }

    /// What to do about the record that was seen last; without one the lease does not exist.
    pub(super) fn decide(&self, now: Instant) -> Act {
        let Some((record, seen)) = &self.seen else { return Act::Take };
        if record.holder.is_empty() {
            return Act::Take;
        }
        if record.holder == self.me {
            return Act::Renew;
        }
        let seconds = record.lease_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let seconds = seconds.filter(|seconds| *seconds > 0);
        let valid = seconds.map_or(self.timing.lease, Duration::from_secs);
        match (*seen + valid).saturating_duration_since(now) {
            Duration::ZERO => Act::Take,
            left => Act::Wait(left),
        }
    }

    /// Notes a write of ours that succeeded; `sent` is before it was sent.
    pub(super) fn wrote(&mut self, record: Record, sent: Instant, now: Instant) {
        self.observe(record, now);
        self.renewed = Some(sent);
    }

    /// Until when it leads without another renewal; `None` when it does not lead.
    pub(super) fn leads_until(&self) -> Option<Instant> {
        self.renewed.map(|sent| sent + self.timing.renew)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_lease_is_taken_only_when_nobody_holds_it() {
        let start = Instant::now();
        let check = |holder: &str, seconds: Option<i32>, waited: u32, expected: Act| {
            let record = Record {
                holder: holder.to_owned(),
                lease_seconds: seconds,
                version: "1".to_owned(),
            };
            let mut candidate = Candidate::new("me".to_owned(), Timing::default());
            candidate.observe(record.clone(), start);
            let act = candidate.decide(start + SECOND * waited);
            assert_eq!(act, expected, "{record:?} after {waited} s");
        };
        check("", Some(15), 0, Act::Take);
        check("", None, 0, Act::Take);
        check("me", Some(15), 0, Act::Renew);
        check("me", Some(15), 100, Act::Renew);
        check("other", Some(15), 0, Act::Wait(SECOND * 15));
        check("other", Some(15), 14, Act::Wait(SECOND));
        check("other", Some(15), 15, Act::Take);
        // The record's own duration counts: its holder may have been started with other flags.
        check("other", Some(60), 59, Act::Wait(SECOND));
        check("other", Some(1), 1, Act::Take);
        check("other", None, 14, Act::Wait(SECOND));
        check("other", Some(0), 14, Act::Wait(SECOND));
        check("other", Some(-5), 14, Act::Wait(SECOND));
    }

    #[test]
    fn a_record_that_changes_is_waited_for_anew() {
        let start = Instant::now();
        let mut candidate = Candidate::new("me".to_owned(), Timing::default());
        let record = |version: &str| Record {
            holder: "other".to_owned(),
            lease_seconds: Some(15),
            version: version.to_owned(),
        };
        candidate.observe(record("1"), start);
        candidate.observe(record("1"), start + SECOND * 14);
        assert_eq!(candidate.decide(start + SECOND * 14), Act::Wait(SECOND));
        candidate.observe(record("2"), start + SECOND * 14);
        assert_eq!(candidate.decide(start + SECOND * 14), Act::Wait(SECOND * 15));
    }

    #[test]
    fn durations_must_fit_together() {
        let check = |lease: u64, renew: u64, retry: u64, fits: bool| {
            let millis = Duration::from_millis;
            let timing = Timing::new(millis(lease), millis(renew), millis(retry));
            assert_eq!(timing.is_ok(), fits, "{lease} {renew} {retry}: {timing:?}");
        };
        check(15_000, 10_000, 2_000, true);
        check(10_000, 10_000, 2_000, false);
        check(15_000, 2_400, 2_000, false);
        check(15_000, 2_401, 2_000, true);
        check(15_000, 10_000, 0, false);
        check(900, 500, 100, false);
        let timing = Timing::new(SECOND.mul_f64(1.5), SECOND.mul_f64(1.2), SECOND / 10).unwrap();
        assert_eq!(timing.recorded_seconds(), 2, "rounded up, or others would wait too little");
    }

    /// A step of the model: who, what, and how much time passes before it.
    #[derive(Clone, Debug)]
    struct Step {
        who: usize,
        what: What,
        after: Duration,
    }

    #[derive(Clone, Copy, Debug)]
    enum What {
        /// The record is read.
        Read,
        /// A write is sent, if the candidate wants one; it is on the way from now on.
        Send,
        /// The write arrives: it is done if nobody else wrote in between.
        Arrive,
        /// The answer comes back.
        Answer,
        /// The request or its answer is lost on the way.
        Lose,
        /// The process starts again under a new name.
        Restart,
        /// A try from the first to the last step, with nothing in between.
        Whole,
    }

    fn steps(candidates: usize) -> impl Strategy<Value = Vec<Step>> {
        let what = prop_oneof![
            4 => Just(What::Whole),
            1 => prop_oneof![
                Just(What::Read), Just(What::Send), Just(What::Arrive), Just(What::Answer),
            ],
            1 => prop_oneof![20 => Just(What::Lose), 1 => Just(What::Restart)],
        ];
        // Mostly short, sometimes a pause that is longer than any lease.
        let after = prop_oneof![16 => 0u64..1_500, 4 => 0u64..6_000, 1 => 0u64..40_000];
        let step = (0..candidates, what, after).prop_map(|(who, what, after)| Step {
            who,
            what,
            after: Duration::from_millis(after),
        });
        proptest::collection::vec(step, 1..150)
    }

    struct Process {
        candidate: Candidate,
        /// What its clock says when the model's says `start`.
        offset: Duration,
        read: Option<String>,
        sent: Option<(Instant, Option<String>)>,
        arrived: Option<(Instant, Record)>,
        restarts: u32,
    }

    struct Model {
        processes: Vec<Process>,
        stored: Option<Record>,
        version: u64,
        now: Instant,
    }

    impl Model {
        fn new(offsets: &[u64], timings: &[Timing]) -> Self {
            let process = |(at, offset): (usize, &u64)| Process {
                candidate: Candidate::new(format!("{at}.0"), timings[at % timings.len()]),
                offset: Duration::from_millis(*offset),
                read: None,
                sent: None,
                arrived: None,
                restarts: 0,
            };
            Self {
                processes: offsets.iter().enumerate().map(process).collect(),
                stored: None,
                version: 0,
                now: Instant::now(),
            }
        }

        fn take(&mut self, step: &Step) {
            if let What::Whole = step.what {
                for what in [What::Read, What::Send, What::Arrive, What::Answer] {
                    self.take(&Step { who: step.who, what, after: step.after / 4 });
                }
                return;
            }
            self.now += step.after;
            let process = &mut self.processes[step.who];
            let local = self.now + process.offset;
            match step.what {
                What::Read => {
                    process.read = self.stored.as_ref().map(|record| record.version.clone());
                    if let Some(record) = &self.stored {
                        process.candidate.observe(record.clone(), local);
                    }
                }
                What::Send => {
                    if matches!(process.candidate.decide(local), Act::Take | Act::Renew) {
                        process.sent = Some((local, process.read.clone()));
                    }
                }
                What::Arrive => {
                    let Some((sent, based_on)) = process.sent.take() else { return };
                    if self.stored.as_ref().map(|record| record.version.clone()) != based_on {
                        return;
                    }
                    self.version += 1;
                    let record = Record {
                        holder: process.candidate.me.clone(),
                        lease_seconds: Some(process.candidate.timing.recorded_seconds()),
                        version: self.version.to_string(),
                    };
                    self.stored = Some(record.clone());
                    process.arrived = Some((sent, record));
                }
                What::Answer => {
                    let Some((sent, record)) = process.arrived.take() else { return };
                    process.read = Some(record.version.clone());
                    process.candidate.wrote(record, sent, local);
                }
                What::Whole => {}
                What::Lose => (process.sent, process.arrived) = (None, None),
                What::Restart => {
                    process.restarts += 1;
                    let me = format!("{}.{}", step.who, process.restarts);
                    process.candidate = Candidate::new(me, process.candidate.timing);
                    (process.sent, process.arrived, process.read) = (None, None, None);
                }
            }
        }

        fn leaders(&self) -> Vec<&str> {
            let leads = |process: &&Process| {
                let until = process.candidate.leads_until();
                until.is_some_and(|until| self.now + process.offset < until)
            };
            self.processes
                .iter()
                .filter(leads)
                .map(|process| process.candidate.me.as_str())
                .collect()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn two_never_lead_at_once(
            offsets in proptest::collection::vec(0u64..100_000_000, 2..4),
            steps in steps(6),
        ) {
            let odd = Timing::new(SECOND.mul_f64(3.5), SECOND.mul_f64(3.4), SECOND / 2).unwrap();
            let mut model = Model::new(&offsets, &[odd, Timing::default()]);
            for step in &steps {
                model.take(&Step { who: step.who % offsets.len(), ..step.clone() });
                prop_assert!(model.leaders().len() <= 1, "{:?} lead after {step:?}", model.leaders());
            }
        }
    }

    #[test]
    fn the_model_has_leaders_and_takeovers() {
        let mut model = Model::new(&[0, 77_000_000], &[Timing::default()]);
        let mut take = |who, what, after| {
            model.take(&Step { who, what, after: SECOND * after });
            model.leaders().iter().map(|leader| (*leader).to_owned()).collect::<Vec<_>>()
        };
        for what in [What::Read, What::Send, What::Arrive] {
            assert!(take(0, what, 0).is_empty());
        }
        assert_eq!(take(0, What::Answer, 1), ["0.0"]);
        take(1, What::Read, 0);
        assert!(take(1, What::Read, 14).is_empty(), "the first one gave up, nobody took over");
        for what in [What::Send, What::Arrive] {
            take(1, what, 1);
        }
        assert_eq!(take(1, What::Answer, 0), ["1.0"]);
    }
}
