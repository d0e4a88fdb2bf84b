//! Mutated files: whatever somebody does to a file, reading it ends, and ends with a value or with problems
//! that have a place. Seeded, so that a failure repeats itself.

use cloud_config::{Logins, Problems, Reader};

use crate::{csi, round_trip, tables};

/// Numbers that look random and are the same every time (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end.max(1)).unwrap()).unwrap()
    }
}

const PIECES: &[&str] = &[
    "\n",
    "\t",
    " ",
    "\"",
    "\\",
    "'",
    ":",
    "=",
    "[",
    "]",
    "{",
    "}",
    "#",
    ";",
    "- ",
    "&a ",
    "*a",
    "<<: *a",
    "!!int ",
    "\0",
    "\r\n",
    "\u{feff}",
    "é",
    "~",
    "|\n",
    "---\n",
    "%YAML 9.9\n",
    "? ",
    "[Global]\n",
    "global:\n",
    "vcenter:\n",
    ",",
    "/",
    "0",
    "ipv4",
    "::",
];

fn mutate(numbers: &mut Numbers, text: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(text.len() + 1);
        let end = (at + numbers.below(12)).min(text.len());
        match numbers.below(6) {
            0 => drop(text.drain(at..end)),
            1 => {
                let copy = text[at..end].to_vec();
                text.splice(at..at, copy);
            }
            2 => {
                let piece = PIECES[numbers.below(PIECES.len())];
                text.splice(at..end, piece.bytes());
            }
            3 => {
                let from = numbers.below(other.len() + 1);
                let to = (from + numbers.below(40)).min(other.len());
                text.splice(at..at, other[from..to].iter().copied());
            }
            4 if at < text.len() => text[at] = u8::try_from(numbers.below(256)).unwrap(),
            _ => {
                let piece = PIECES[numbers.below(PIECES.len())];
                text.splice(at..at, piece.bytes());
            }
        }
    }
}

fn assert_explained(problems: &Problems, text: &[u8]) {
    assert!(!problems.list.is_empty());
    for problem in &problems.list {
        assert!(!problem.text.is_empty() && !problem.remedy.is_empty());
        let lines = text.iter().filter(|byte| **byte == b'\n').count() + 2;
        let line = problem.position.map_or(1, |position| position.line);
        assert!((1..=lines).contains(&line), "{problem}");
    }
}

#[test]
fn no_file_is_too_broken_to_be_read_or_refused() {
    let tables =
        ["oracle.txt", "in-tree.txt", "mistakes.txt", "environment.txt", "csi.txt", "shared.txt"];
    let seeds: Vec<Vec<u8>> =
        tables.into_iter().flat_map(tables::cases).map(|case| case.text.into_bytes()).collect();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let (mut accepted, mut csi_accepted) = (0, 0);
    for round in 0..5_000 {
        let mut text = seeds[numbers.below(seeds.len())].clone();
        let other = &seeds[numbers.below(seeds.len())];
        mutate(&mut numbers, &mut text, other);
        let reader = Reader { strict: round % 2 == 1, ..Reader::default() };
        match reader.read("f", &text) {
            Ok(read) => {
                accepted += 1;
                assert!(!read.config.vcenters.is_empty());
                let config = round_trip::without_fallback(read.config);
                assert_eq!(round_trip::again(&config), config);
            }
            Err(problems) => assert_explained(&problems, &text),
        }
        for read in [reader.read_csi("f", &text), reader.read_shared("f", &text)] {
            match read {
                Ok(read) => {
                    csi_accepted += 1;
                    let config = csi::without_fallback(read.config);
                    assert_eq!(csi::again(&config), config);
                }
                Err(problems) => assert_explained(&problems, &text),
            }
        }
    }
    for accepted in [accepted, csi_accepted] {
        assert!(accepted > 100, "only {accepted} mutants were accepted: the mutator is too rough");
    }
}

#[test]
fn no_secret_is_too_broken_to_be_read_or_refused() {
    let names = [
        "username",
        "password",
        "server",
        "vc-session-manager-url",
        "10.0.0.1",
        "_",
        ".",
        "x",
        "_0",
        "",
    ];
    let mut numbers = Numbers(7);
    for _ in 0..5_000 {
        let entries: Vec<(String, Vec<u8>)> = (0..numbers.below(5))
            .map(|_| {
                let key: String =
                    (0..numbers.below(5)).map(|_| names[numbers.below(names.len())]).collect();
                let mut value = b"value\n".to_vec();
                mutate(&mut numbers, &mut value, b"other");
                (key, value)
            })
            .collect();
        let borrowed = entries.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
        if let Err(problems) = Logins::read("s", borrowed) {
            assert!(!problems.list.is_empty());
        }
    }
}
