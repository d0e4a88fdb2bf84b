//! The table of inventories, and what holds for all of them.

use vsphere::{reference::Ref, types::ManagedEntity};

use super::{Order, choose};
use crate::Ancestors;

const INVENTORIES: &str = include_str!("inventories.txt");
const ORDERS: [(&str, Order); 3] =
    [("manager", Order::Manager), ("driver", Order::Driver), ("nearest", Order::Nearest)];

struct Inventory {
    text: &'static str,
    ancestors: Ancestors,
    /// Object, category, names.
    tags: Vec<(String, String, Vec<String>)>,
}

impl Inventory {
    fn read(text: &'static str) -> Self {
        let mut tags = Vec::new();
        let mut path = |path: &str| -> Vec<Ref<ManagedEntity>> {
            let mut objects = Vec::new();
            for object in path.split(" > ").map(str::trim).filter(|object| !object.is_empty()) {
                let (name, rest) = object.split_once('[').unwrap_or((object, ""));
                for tag in rest.trim_end_matches(']').split_whitespace() {
                    let (category, names) = tag.split_once('=').unwrap();
                    let names = names.split(',').map(str::to_owned).collect();
                    tags.push((name.to_owned(), category.to_owned(), names));
                }
                objects.extend((name != "vm").then(|| Ref::new(name)));
            }
            objects.reverse();
            objects
        };
        let mut paths = text.split('|').map(&mut path).collect::<Vec<_>>();
        paths.resize(3, Vec::new());
        let [host, pool, folder] = paths.try_into().unwrap();
        Self { text, ancestors: Ancestors { host, pool, folder }, tags }
    }

    fn chosen(&self, categories: &[&str], order: Order) -> Vec<String> {
        let on = |object: &Ref<ManagedEntity>, category: &str| {
            let has = |(name, of, _): &&(String, String, Vec<String>)| {
                name == object.value() && of == category
            };
            self.tags.iter().find(has).map_or(&[][..], |(_, _, names)| names)
        };
        let found = choose(Ref::new("vm"), &self.ancestors, categories, order, on);
        let shown = categories.iter().zip(found).filter(|(_, names)| !names.is_empty());
        shown.map(|(category, names)| format!("{category}={}", names.join(","))).collect()
    }
}

/// The inventories with what is expected in each order.
fn table() -> Vec<(Inventory, Vec<(&'static str, &'static str)>)> {
    let mut all: Vec<(Inventory, Vec<_>)> = Vec::new();
    for line in INVENTORIES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("  ") {
            None => all.push((Inventory::read(line), Vec::new())),
            Some(expected) => {
                let (order, values) = expected.split_once(':').unwrap();
                all.last_mut().unwrap().1.push((order, values.trim()));
            }
        }
    }
    all
}

#[test]
fn the_tags_that_count_are_as_the_table_of_inventories_says() {
    for (inventory, expected) in table() {
        for (name, order) in ORDERS {
            let of_order = expected.iter().find(|(of, _)| [name, "all"].contains(of));
            let chosen = inventory.chosen(&["region", "zone"], order).join(" ");
            assert_eq!(
                Some(chosen.as_str()),
                of_order.map(|(_, values)| *values),
                "{name}: {}",
                inventory.text
            );
        }
    }
}

#[test]
fn by_the_nearest_tag_a_category_does_not_depend_on_which_others_there_are() {
    for (inventory, _) in table() {
        let both = inventory.chosen(&["region", "zone"], Order::Nearest);
        let each = ["region", "zone"].map(|one| inventory.chosen(&[one], Order::Nearest)).concat();
        let more = inventory.chosen(&["region", "rack", "zone"], Order::Nearest);
        let more: Vec<_> = more.into_iter().filter(|one| !one.starts_with("rack")).collect();
        assert_eq!((&both, &both), (&each, &more), "{}", inventory.text);
    }
}

#[test]
fn all_tags_of_the_object_that_counts_are_returned_in_order() {
    let inventory = Inventory::read("dc[region=eu] > host[zone=a,b]");
    for (name, order) in ORDERS {
        assert_eq!(inventory.chosen(&["zone"], order), ["zone=a,b"], "{name}");
    }
    assert!(inventory.chosen(&[], Order::Manager).is_empty());
}
