//! The ids of virtual machines, however they are written.
//!
//! vCenter prints the id of a VM's BIOS in one byte order. Guests with old virtual hardware print it in
//! another, in which the first three groups are reversed, and the serial number of the BIOS has it in a
//! form of VMware's own. All of them are read here, and [`Uuid::swapped`] turns one order into the other.

use std::{fmt, str::FromStr};

use crate::xml::{Element, FromXml, Malformed, Reader};

/// A UUID: of a VM's BIOS, of its instance, or of anything else. It prints in lower case with dashes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

/// A text that is no UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no UUID: it must have 32 hexadecimal digits, such as 4230b1a0-5eed-4000-8000-000000000001"
)]
pub struct InvalidUuid(String);

impl Uuid {
    /// The same id as a machine with the other byte order prints it: the bytes of each of the first three
    /// groups are reversed.
    #[must_use]
    pub fn swapped(self) -> Self {
        let [a0, a1, a2, a3, b0, b1, c0, c1, rest @ ..] = self.0;
        let [r0, r1, r2, r3, r4, r5, r6, r7] = rest;
        Self([a3, a2, a1, a0, b1, b0, c1, c0, r0, r1, r2, r3, r4, r5, r6, r7])
    }

    /// Whether both are the same id, in either byte order.
    pub fn matches(self, other: Self) -> bool {
        self == other || self.swapped() == other
    }
}

impl FromStr for Uuid {
    type Err = InvalidUuid;

    /// Reads `4230b1a0-5eed-4000-8000-000000000001`, the same without dashes, and the serial number
    /// `VMware-42 30 b1 a0 5e ed 40 00-80 00 00 00 00 00 00 01`, in upper or lower case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidUuid(text.to_owned());
        let text = text.trim();
        let serial =
            text.split_at_checked(7).filter(|(own, _)| own.eq_ignore_ascii_case("VMware-"));
        let digits = match serial {
            Some((_, serial)) => serial.replace([' ', '-'], ""),
            None if text.contains('-') && text.split('-').map(str::len).ne([8, 4, 4, 4, 12]) => {
                return Err(invalid());
            }
            None => text.replace('-', ""),
        };
        if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        let number = u128::from_str_radix(&digits, 16).map_err(|_| invalid())?;
        Ok(Self(number.to_be_bytes()))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A VM that is being created has no id for a moment; that must not spoil the reading of all others.
impl FromXml for Option<Uuid> {
    fn from_xml(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        Ok(reader.text(element)?.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::Uuid;

    const CANONICAL: &str = "4230b1a0-5eed-4000-8000-000000000001";

    #[test]
    fn every_spelling_of_an_id_is_the_same_id() {
        let spellings = [
            "4230b1a0-5eed-4000-8000-000000000001",
            "4230B1A0-5EED-4000-8000-000000000001",
            " 4230b1a05eed40008000000000000001\n",
            "VMware-42 30 b1 a0 5e ed 40 00-80 00 00 00 00 00 00 01",
            "vmware-42 30 B1 A0 5E ED 40 00-80 00 00 00 00 00 00 01",
        ];
        for text in spellings {
            assert_eq!(text.parse::<Uuid>().unwrap().to_string(), CANONICAL, "{text}");
        }
    }

    #[test]
    fn what_is_no_id_is_refused_and_named() {
        let texts = [
            "",
            "node-1",
            "4230b1a0-5eed-4000-8000-00000000000",
            "4230b1a0-5eed-4000-8000-0000000000012",
            "4230b1a05-eed-4000-8000-000000000001",
            "+230b1a05eed40008000000000000001",
            "4230b1a0-5eed-4000-8000-00000000000g",
            "VMware-42 30 b1",
            "VMware",
            "42 30 b1 a0 5e ed 40 00-80 00 00 00 00 00 00 01",
            "ü230b1a05eed4000800000000000000",
        ];
        for text in texts {
            let error = text.parse::<Uuid>().unwrap_err().to_string();
            assert!(error.contains("is no UUID"), "{text}: {error}");
        }
    }

    #[test]
    fn the_other_byte_order_reverses_the_first_three_groups_only() {
        let uuid: Uuid = "56492e42-22ad-3911-6d72-59cc8f26bc90".parse().unwrap();
        let swapped: Uuid = "422e4956-ad22-1139-6d72-59cc8f26bc90".parse().unwrap();
        assert_eq!(uuid.swapped(), swapped);
        assert_eq!(swapped.swapped(), uuid);
        assert!(uuid.matches(swapped) && uuid.matches(uuid));
        assert!(!uuid.matches(CANONICAL.parse().unwrap()));
    }
}
