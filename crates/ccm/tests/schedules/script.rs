//! What happens in a schedule, made from a seed.

use lab::vcenter::Power;

/// How many Nodes of ours a schedule has.
pub(crate) const MACHINES: usize = 3;
/// How many vCenters there are.
pub(crate) const VCENTERS: usize = 2;

/// The vCenter that a machine is in.
pub(crate) fn home(machine: usize) -> usize {
    machine % VCENTERS
}

/// A source of numbers that the same seed repeats.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        let at = usize::try_from(self.below(choices.len() as u64)).unwrap_or(0);
        choices[at]
    }

    fn machine(&mut self) -> usize {
        usize::try_from(self.below(MACHINES as u64)).unwrap_or(0)
    }

    fn vcenter(&mut self) -> usize {
        usize::try_from(self.below(VCENTERS as u64)).unwrap_or(0)
    }
}

/// How a vCenter does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Pages with status 503 instead of answers.
    Unavailable,
    /// No answer at all.
    Hanging,
    /// Connections are cut.
    Cut,
    /// Answers end in the middle.
    Truncated,
}

/// Whose credentials the manager has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The usual user.
    Usual,
    /// Another good one.
    Administrator,
    /// One whose password is wrong.
    Mistyped,
}

/// Something that happens. Machines and vCenters are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Step {
    /// A kubelet registers its Node.
    Join(usize),
    /// A kubelet is ready, or not.
    Ready(usize, bool),
    /// A guest gets another address.
    Readdress(usize),
    /// A VM is switched.
    Power(usize, Power),
    /// A VM moves to the first or the second host.
    Migrate(usize, bool),
    /// A VM is deleted from disk.
    Destroy(usize),
    /// A VM is taken off the inventory.
    Unregister(usize),
    /// A VM is copied with its BIOS UUID; the copy runs, or not.
    Clone(usize, bool),
    /// The copy is deleted.
    Unclone(usize),
    /// A vCenter stops answering, perhaps after cutting the connections it has.
    Break(usize, Outage, bool),
    /// A vCenter answers again.
    Heal(usize),
    /// A vCenter forgets all sessions.
    Expire(usize),
    /// A vCenter restarts and is down for so many milliseconds.
    Restart(usize, u32),
    /// The credentials change.
    Login(Who),
    /// The API refuses what we want, or not any more.
    Refuse(bool),
    /// Our process ends and starts again.
    StartAgain,
    /// The configuration changes: it names the datacenters, or not any more.
    Reload,
    /// Our process is killed, without a chance to log out, and starts again.
    Kill,
    /// So many milliseconds pass.
    Pause(u64),
}

/// A schedule.
#[derive(Debug)]
pub(crate) struct Script {
    /// What happens, in order.
    pub(crate) steps: Vec<Step>,
}

impl Script {
    /// The schedule of a seed. In the end everybody has joined and nothing is broken any more.
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let mut steps = Vec::new();
        let mut joined = [false; MACHINES];
        let mut removed = [false; MACHINES];
        let mut cloned = [false; MACHINES];
        for _ in 0..8 + dice.below(9) {
            let machine = dice.machine();
            let step = if joined[machine] { step(&mut dice, machine) } else { Step::Join(machine) };
            match step {
                Step::Join(machine) => joined[machine] = true,
                // One VM at most goes, so that there is something left to harm.
                Step::Destroy(_) | Step::Unregister(_) if removed.contains(&true) => continue,
                // Whether a Node is its VM's or the copy's cannot be told when the VM is gone.
                Step::Destroy(machine) | Step::Unregister(machine) if cloned[machine] => continue,
                Step::Clone(machine, _) if removed[machine] || cloned[machine] => continue,
                Step::Clone(machine, _) => cloned[machine] = true,
                Step::Destroy(machine) | Step::Unregister(machine) => removed[machine] = true,
                Step::Readdress(machine) | Step::Power(machine, _) | Step::Migrate(machine, _)
                    if removed[machine] =>
                {
                    continue;
                }
                _ => {}
            }
            steps.push(step);
            steps.push(Step::Pause(dice.one_of(&[0, 20, 100, 300, 900])));
        }
        let late = (0..MACHINES).filter(|machine| !joined[*machine]).map(Step::Join);
        steps.extend(late);
        steps.extend((0..VCENTERS).map(Step::Heal));
        steps.extend((0..MACHINES).filter(|machine| cloned[*machine]).map(Step::Unclone));
        steps.extend([Step::Refuse(false), Step::Login(Who::Usual)]);
        Self { steps }
    }
}

fn step(dice: &mut Dice, machine: usize) -> Step {
    match dice.below(24) {
        0..3 => Step::Ready(machine, dice.below(3) == 0),
        3..5 => Step::Readdress(machine),
        5..8 => Step::Power(machine, dice.one_of(&[Power::Off, Power::On, Power::Suspended])),
        8 => Step::Migrate(machine, dice.below(2) == 0),
        9 => Step::Destroy(machine),
        10 => Step::Unregister(machine),
        11..14 => {
            let kinds = [Outage::Unavailable, Outage::Hanging, Outage::Cut, Outage::Truncated];
            Step::Break(dice.vcenter(), dice.one_of(&kinds), dice.below(2) == 0)
        }
        14 => Step::Heal(dice.vcenter()),
        15 => Step::Expire(dice.vcenter()),
        16 => Step::Restart(dice.vcenter(), dice.one_of(&[0, 300, 2000])),
        17 => Step::Login(dice.one_of(&[Who::Usual, Who::Administrator, Who::Mistyped])),
        18 => Step::Refuse(dice.below(2) == 0),
        19 => Step::StartAgain,
        20 => Step::Reload,
        21 => Step::Kill,
        _ => Step::Clone(machine, dice.below(2) == 0),
    }
}
