//! The values of a section: from texts to types.

use std::{collections::HashSet, fmt::Display, num::NonZeroU16, str::FromStr};

use crate::{
    config::{IpFamily, Subnet},
    document::{Entry, Located, Part, Value},
    keys::Id,
    problem::Report,
};

/// The values of a section; those that cannot be used are reported and count as absent.
pub(crate) struct Values<'a> {
    pub(crate) part: &'a Part,
    pub(crate) report: &'a mut Report,
}

impl Values<'_> {
    /// `None` also for an empty text.
    pub(crate) fn text(&mut self, id: Id) -> Option<String> {
        let entry = self.part.get(id)?;
        match &entry.value {
            Value::Text(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            other => {
                refuse_shape(entry, other, self.report);
                None
            }
        }
    }

    /// The items of a list. Commas separate items even inside an item: the Go program joins lists and splits them again,
    /// and charts rely on it.
    pub(crate) fn list(&mut self, id: Id) -> Vec<Located> {
        let Some(entry) = self.part.get(id) else { return Vec::new() };
        let split = |text: &str, at| -> Vec<Located> {
            text.split(',').map(|item| Located { text: item.trim().to_owned(), at }).collect()
        };
        let mut items: Vec<Located> = match &entry.value {
            Value::Text(text) => split(text, entry.at),
            Value::List(items) => {
                items.iter().flat_map(|item| split(&item.text, item.at)).collect()
            }
            other => {
                refuse_shape(entry, other, self.report);
                Vec::new()
            }
        };
        items.retain(|item| !item.text.is_empty());
        items
    }

    pub(crate) fn parsed<T, E: Display>(
        &mut self,
        id: Id,
        parse: impl FnOnce(&str) -> Result<T, E>,
        remedy: &str,
    ) -> Option<T> {
        let (text, entry) = (self.text(id)?, self.part.get(id)?);
        let refuse = |error: E| {
            self.report.refuse(entry.at, &entry.label, error.to_string(), remedy);
        };
        parse(&text).map_err(refuse).ok()
    }

    pub(crate) fn each_parsed<T, E: Display>(
        &mut self,
        id: Id,
        parse: impl Fn(&str) -> Result<T, E>,
        remedy: &str,
    ) -> Vec<T> {
        let items = self.list(id);
        let label = self.part.get(id).map_or("", |entry| entry.label.as_str());
        let mut refuse = |at, error: E| self.report.refuse(at, label, error.to_string(), remedy);
        items
            .into_iter()
            .filter_map(|item| parse(&item.text).map_err(|error| refuse(item.at, error)).ok())
            .collect()
    }

    pub(crate) fn flag(&mut self, id: Id) -> bool {
        if let Some(Entry { value: Value::Blank, .. }) = self.part.get(id) {
            return true;
        }
        let parse = |text: &str| match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(format!("{text:?} is neither true nor false")),
        };
        self.parsed(id, parse, "write true or false").unwrap_or(false)
    }

    pub(crate) fn port(&mut self) -> Option<u16> {
        let parse = |text: &str| {
            text.parse().map(NonZeroU16::get).map_err(|_| format!("{text:?} is not a valid port"))
        };
        let remedy = "write a number from 1 to 65535, or remove the key for 443";
        self.parsed(Id::Port, parse, remedy)
    }

    /// The default also for zero, as in the Go driver.
    pub(crate) fn number(&mut self, id: Id) -> u32 {
        let parse = |text: &str| {
            let text = text.trim();
            let digits = text.strip_prefix('+').unwrap_or(text);
            let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
            let parsed = hex.map_or_else(|| digits.parse(), |hex| u32::from_str_radix(hex, 16));
            parsed.map_err(|_| format!("{text:?} is not a valid number"))
        };
        let remedy = "write a whole number, or remove the key for the default";
        let number = self.parsed(id, parse, remedy).filter(|number| *number != 0);
        number.unwrap_or(id.default_number())
    }

    pub(crate) fn families(&mut self) -> Vec<IpFamily> {
        let parse = |text: &str| match text.to_ascii_lowercase().as_str() {
            "ipv4" => Ok(IpFamily::V4),
            "ipv6" => Ok(IpFamily::V6),
            _ => Err(format!("{text:?} is not a valid IP family")),
        };
        let mut families = self.each_parsed(Id::IpFamily, parse, "write ipv4, ipv6 or both");
        let mut seen = HashSet::new();
        families.retain(|family| seen.insert(*family));
        families
    }

    pub(crate) fn subnets(&mut self, id: Id) -> Vec<Subnet> {
        let remedy = "write subnets as 10.0.0.0/8 or fd00::/8, with commas between them";
        self.each_parsed(id, Subnet::from_str, remedy)
    }
}

fn refuse_shape(entry: &Entry, value: &Value, report: &mut Report) {
    let wanted = entry.id.kind();
    let (found, remedy) = match value {
        Value::Blank => ("it has no value", "write it as key = value"),
        Value::List(_) => ("there is a list", "write one value without brackets or dashes"),
        Value::Nested if wanted.starts_with("list") => {
            ("there is a mapping", "write a list of texts, as in [a, b]")
        }
        Value::Nested => {
            ("there is a mapping", "write one value; one that begins with { needs quotes")
        }
        Value::Text(_) | Value::Broken => return,
    };
    report.refuse(entry.at, &entry.label, format!("{found} where it takes a {wanted}"), remedy);
}
