//! Real answers, damaged at random: every reader must end without panic. `fuzz/README.md` has the long way.

use std::panic::catch_unwind;

use crate::{corpus, readers::read_as_everything};

const ROUNDS: u32 = 10_000;

/// What parsers stumble over.
const PIECES: [&str; 24] = [
    "<",
    ">",
    "</",
    "/>",
    "<a>",
    "</a>",
    "&",
    "&#",
    "&#x0;",
    "&amp;",
    ";",
    "\"",
    "'",
    "=",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "<?",
    "?>",
    " xsi:type=\"",
    " type='",
    "-9223372036854775809",
    "\u{0}",
];

/// The same numbers at every run, so that a failure can be repeated: xorshift.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap()
    }

    /// Two places in a text, the first not behind the second, and rarely far apart.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let start = self.below(length + 1);
        let most = if self.below(4) == 0 { length } else { 16 };
        (start, length.min(start + self.below(most + 1)))
    }
}

fn damaged(dice: &mut Dice, answers: &[(String, String)]) -> String {
    let mut bytes = answers[dice.below(answers.len())].1.clone().into_bytes();
    for _ in 0..=dice.below(4) {
        let (start, end) = dice.range(bytes.len());
        match dice.below(7) {
            0 => bytes.truncate(start),
            1 => drop(bytes.drain(start..end)),
            2 => {
                let copy = bytes[start..end].to_vec();
                let at = dice.below(bytes.len() + 1);
                drop(bytes.splice(at..at, copy));
            }
            3 => {
                let other = answers[dice.below(answers.len())].1.as_bytes();
                let (from, to) = dice.range(other.len());
                drop(bytes.splice(start..end, other[from..to].iter().copied()));
            }
            4 if start < bytes.len() => bytes[start] ^= 1 << dice.below(8),
            5 => drop(bytes.splice(start..start, PIECES[dice.below(PIECES.len())].bytes())),
            _ => drop(bytes.splice(start..end, PIECES[dice.below(PIECES.len())].bytes())),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn damaged_answers_never_panic() {
    let answers = corpus();
    for seed in 1..=ROUNDS {
        // Consecutive numbers are too similar to start from.
        let mut dice = Dice(u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let document = damaged(&mut dice, &answers);
        if catch_unwind(|| read_as_everything(&document)).is_err() {
            panic!("seed {seed}: {document}");
        }
    }
}
