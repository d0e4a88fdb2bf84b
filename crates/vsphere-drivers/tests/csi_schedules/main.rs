//! Random schedules of faults over the lives of some volumes, with two controllers, by calls and by VolumeAttachments:
//! whatever fails in whatever order, every answer is true when it is given, and in the end vCenter, Kubernetes, the
//! guests and the answers agree: no volume or disk is lost, doubled or left over. As root, guests also write to the
//! attached disks, and read all of them back after every later step.
//!
//! `SEED=n` plays one schedule alone, `SEEDS=n` the first n; a failure names its seed.

#![cfg(test)]

mod calls;
mod content;
mod guests;
mod lane;
mod objects;
mod play;
mod script;

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use self::{guests::Traffic, lane::Lane, play::play, script::Script};

/// How many schedules are played when nothing else is asked for.
const SCHEDULES: u64 = 20;
/// How many are played at once, each with an API server and a vCenter of its own: most of the time all wait.
const LANES: u64 = 5;
/// The vCenters of the lanes, in turn.
const RELEASES: [&str; 3] = ["8.0U3", "9.1", "7.0U3"];
/// A schedule that takes longer hangs.
const BOUND: Duration = Duration::from_secs(900);

/// A schedule that went well.
struct Played {
    deeds: usize,
    taken: Duration,
    /// None without guests.
    traffic: Option<Traffic>,
}

/// What became of the schedule of a seed.
type Outcome = (u64, anyhow::Result<Played>);

impl std::fmt::Display for Played {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} deeds in {:.1} s", self.deeds, self.taken.as_secs_f64())?;
        match self.traffic {
            None => write!(out, ", no bytes: not run as root"),
            Some(Traffic { written, read }) => {
                let mebibytes = |bytes| bytes as f64 / f64::from(1 << 20);
                let (written, read) = (mebibytes(written), mebibytes(read));
                write!(out, ", {written:.1} MiB written, {read:.0} MiB read and compared")
            }
        }
    }
}

/// Plays schedules one after the other. After one that failed the next has a world of its own.
fn play_all(lane: u64, seeds: &[u64]) -> Vec<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let release = RELEASES[usize::try_from(lane).unwrap() % RELEASES.len()];
        let mut lane = Lane::start(release).await.unwrap();
        let mut outcomes = Vec::new();
        for seed in seeds {
            let played = play_one(&lane, *seed).await;
            let played = played.map_err(|error| error.context(format!("on {release}")));
            // Past the test's own output, which is hidden while it succeeds.
            let mut output = std::io::stdout();
            match &played {
                Ok(played) => writeln!(output, "seed {seed}: {played}").unwrap(),
                Err(problem) => {
                    let problem = format!("{problem:#}");
                    let first = problem.lines().next().unwrap_or_default();
                    writeln!(output, "SEED={seed} failed {first}").unwrap();
                    lane = Lane::start(release).await.unwrap();
                }
            }
            outcomes.push((*seed, played));
        }
        outcomes
    })
}

async fn play_one(lane: &Lane, seed: u64) -> anyhow::Result<Played> {
    let (began, script) = (Instant::now(), Script::of(seed));
    let played = tokio::time::timeout(BOUND, Box::pin(play(lane, seed, &script))).await;
    match played.unwrap_or_else(|_| Err(anyhow::anyhow!("it hangs"))) {
        Ok((deeds, traffic)) => Ok(Played { deeds, taken: began.elapsed(), traffic }),
        Err(error) => Err(anyhow::anyhow!("{error:#}\n{script:?}\n{}", lane.logs())),
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("SEED and SEEDS are numbers"))
}

#[test]
fn random_schedules_lose_double_and_orphan_no_volume() {
    let seeds: Vec<u64> = match (number("SEED"), number("SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, count) => (1..=count.unwrap_or(SCHEDULES)).collect(),
    };
    let lanes: Vec<(u64, Vec<u64>)> = (0..LANES)
        .map(|lane| (lane, seeds.iter().copied().filter(|seed| seed % LANES == lane).collect()))
        .collect();
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let lanes = lanes.iter().filter(|(_, seeds)| !seeds.is_empty());
        let playing: Vec<_> =
            lanes.map(|(lane, seeds)| scope.spawn(|| play_all(*lane, seeds))).collect();
        playing.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
    });
    let problems: Vec<String> = outcomes
        .iter()
        .filter_map(|(seed, outcome)| {
            let problem = outcome.as_ref().err()?;
            Some(format!("SEED={seed} {problem:#}"))
        })
        .collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
    assert_eq!(outcomes.len(), seeds.len());
}
