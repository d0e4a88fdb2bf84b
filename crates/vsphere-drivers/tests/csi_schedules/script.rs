//! What happens in a schedule, made from a seed: the lives of some volumes, and the troubles of their vCenter and their
//! controllers meanwhile.

use lab::vcenter::{HttpFaultKind, Moment};

/// Volumes that live at the same time.
pub(crate) const LIVES: usize = 5;
pub(crate) const NODES: usize = 2;
pub(crate) const CONTROLLERS: usize = 2;

/// A source of numbers that the same seed repeats.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.roll() % limit as u64).unwrap_or(0)
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// What is done with a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    Create,
    /// To the VM of this node.
    Attach(usize),
    Detach,
    Expand,
    /// The last call once more: its answer must be the same.
    Again,
    List,
    Delete,
}

/// A volume.
#[derive(Debug)]
pub(crate) struct Life {
    /// Attached by VolumeAttachments, or by calls.
    pub(crate) by_object: bool,
    pub(crate) deeds: Vec<Deed>,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trouble {
    /// Calls of a method fail, so many.
    Fault(&'static str, Moment, u32),
    /// A task of a method fails, and its work begins so many milliseconds afterwards.
    Late(&'static str, u64),
    /// Requests of a method are broken, so many.
    Wire(&'static str, HttpFaultKind, u32),
    /// All sessions end.
    Expire,
    /// vCenter restarts, and is down for so many milliseconds.
    Restart(u32),
    /// CNS restarts; what becomes of work that it had not begun.
    RestartCns(u32, &'static str),
    /// The datastores are full for so many milliseconds.
    Full(u64),
    /// A host is disconnected for so many milliseconds.
    Disconnect(usize, u64),
    /// A controller is killed and started again after so many milliseconds.
    Kill(usize, u64),
    /// Somebody else makes a volume with the name of one of ours.
    Namesake(usize),
}

/// A schedule.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) lives: Vec<Life>,
    /// Each begins when so many deeds of all lives are done.
    pub(crate) troubles: Vec<(usize, Trouble)>,
}

const METHODS: [&str; 5] =
    ["CnsCreateVolume", "CnsAttachVolume", "CnsDetachVolume", "CnsDeleteVolume", "CnsExtendVolume"];
/// Only what may be carried out late without harm: whether an attach or a detach is still to come, or a deletion of a
/// volume whose name is used again, only the process that called knows.
const LATE_METHODS: [&str; 2] = ["CnsCreateVolume", "CnsExtendVolume"];
const REQUESTS: [&str; 9] = [
    "CnsCreateVolume",
    "CnsAttachVolume",
    "CnsDetachVolume",
    "CnsDeleteVolume",
    "CnsExtendVolume",
    "CnsQueryVolume",
    "CnsQueryAllVolume",
    "ModifyListView",
    "RetrievePropertiesEx",
];

impl Script {
    /// The schedule of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let lives: Vec<Life> = (0..LIVES).map(|_| life(&mut dice)).collect();
        let deeds: usize = lives.iter().map(|life| life.deeds.len()).sum();
        let mut troubles: Vec<(usize, Trouble)> =
            (0..3 + dice.below(6)).map(|_| (dice.below(deeds), trouble(&mut dice))).collect();
        troubles.sort_by_key(|(after, _)| *after);
        Self { lives, troubles }
    }
}

fn life(dice: &mut Dice) -> Life {
    let mut deeds = vec![Deed::Create];
    let (mut exists, mut attached) = (true, false);
    for _ in 0..3 + dice.below(5) {
        let deed = match dice.below(10) {
            0 | 1 => Deed::Again,
            2 => Deed::List,
            3 | 4 if exists => Deed::Expand,
            5 if exists && !attached => Deed::Delete,
            _ if !exists => Deed::Create,
            _ if attached => Deed::Detach,
            _ => Deed::Attach(dice.below(NODES)),
        };
        match deed {
            Deed::Create => exists = true,
            Deed::Delete => exists = false,
            Deed::Attach(_) => attached = true,
            Deed::Detach => attached = false,
            Deed::Expand | Deed::Again | Deed::List => {}
        }
        deeds.push(deed);
    }
    Life { by_object: dice.below(2) == 0, deeds }
}

fn trouble(dice: &mut Dice) -> Trouble {
    let milliseconds = dice.one_of(&[100, 400, 1500]);
    let count = dice.one_of(&[1, 1, 2]);
    match dice.below(22) {
        0..=4 => {
            let moments = [
                Moment::Call,
                Moment::Task,
                Moment::TaskDone,
                Moment::Result,
                Moment::ResultDone,
                Moment::Half,
                Moment::Gone,
            ];
            Trouble::Fault(dice.one_of(&METHODS), dice.one_of(&moments), count)
        }
        5..=8 => {
            let kinds = [
                HttpFaultKind::Status { status: 503 },
                HttpFaultKind::Reset,
                HttpFaultKind::Truncate,
            ];
            Trouble::Wire(dice.one_of(&REQUESTS), dice.one_of(&kinds), count)
        }
        9 => Trouble::Wire(dice.one_of(&REQUESTS), HttpFaultKind::Hang, 1),
        10 | 11 => Trouble::Expire,
        12 => Trouble::Restart(u32::try_from(milliseconds).unwrap_or(100)),
        13 => {
            let work = dice.one_of(&["done", "half", "none"]);
            Trouble::RestartCns(u32::try_from(milliseconds).unwrap_or(100), work)
        }
        14 => Trouble::Full(milliseconds),
        15 => Trouble::Disconnect(dice.below(NODES), milliseconds),
        16..=18 => Trouble::Kill(dice.below(CONTROLLERS), milliseconds),
        19 | 20 => Trouble::Late(dice.one_of(&LATE_METHODS), dice.one_of(&[0, 100, 400])),
        _ => Trouble::Namesake(dice.below(LIVES)),
    }
}
