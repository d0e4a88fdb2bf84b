//! Two hundred random schedules of faults: whatever happens in whatever order, no Node is ever wrong, and within ten
//! seconds of quiet after the last fault all are right.
//!
//! The ten seconds are counted in beats, each a pause and a round trip to every server, so that a busy machine makes
//! the beats longer instead of the test fail.
//!
//! `SEED=n` plays one schedule alone; a failure names its seed.

#![cfg(test)]

mod lane;
#[path = "../shared/manager.rs"]
mod manager;
mod play;
mod script;
mod witness;

use std::io::Write as _;

use self::{
    lane::Lane,
    play::{Converged, MOST_BEATS, play},
    script::Script,
};

/// How many schedules are played.
const SCHEDULES: u64 = 200;
/// How many are played at once, each with an API server and vCenters of its own: most of the time all wait.
const LANES: u64 = 8;

/// What became of a schedule.
type Outcome = (u64, anyhow::Result<Converged>);

/// Plays schedules one after the other, on one API server and two vCenters.
fn play_all(seeds: &[u64]) -> Vec<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut lane = Lane::start(seeds.len()).await;
        let mut outcomes = Vec::new();
        for (slot, seed) in seeds.iter().enumerate() {
            let played = Box::pin(play(&mut lane, slot, &Script::of(*seed))).await;
            let failed = played.is_err();
            outcomes.push((*seed, played));
            if failed {
                break;
            }
        }
        outcomes
    })
}

#[test]
fn two_hundred_random_schedules_never_harm_a_node_and_all_converge() {
    let seeds: Vec<u64> = match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("SEED is a number")],
        Err(_) => (1..=SCHEDULES).collect(),
    };
    let lanes: Vec<Vec<u64>> = (0..LANES)
        .map(|lane| seeds.iter().copied().filter(|seed| seed % LANES == lane).collect())
        .collect();
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let lanes = lanes.iter().filter(|seeds| !seeds.is_empty());
        let playing: Vec<_> = lanes.map(|seeds| scope.spawn(|| play_all(seeds))).collect();
        playing.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
    });
    let problems: Vec<String> = outcomes
        .iter()
        .filter_map(|(seed, outcome)| {
            let problem = outcome.as_ref().err()?;
            Some(format!("SEED={seed}: {problem:#}\n{:?}", Script::of(*seed)))
        })
        .collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
    assert_eq!(outcomes.len(), seeds.len());
    report(&outcomes);
}

/// Prints how long it took until everything was right.
fn report(outcomes: &[Outcome]) {
    let converged = |(seed, outcome): &Outcome| {
        let Converged { after, last } = outcome.as_ref().ok()?;
        Some((*after, *seed, *last))
    };
    let mut times: Vec<(u32, u64, &str)> = outcomes.iter().filter_map(converged).collect();
    times.sort_unstable();
    let middle = times.get(times.len() / 2).map(|(after, ..)| *after).unwrap_or_default();
    // Past the test's own output, which is hidden while it succeeds.
    let mut output = std::io::stdout();
    let count = times.len();
    writeln!(output, "{count} schedules were right after {middle} beats in the middle").unwrap();
    for (after, seed, last) in times.iter().rev().take(5) {
        writeln!(output, "SEED={seed}: {after} of {MOST_BEATS} beats, until then {last}").unwrap();
    }
}
