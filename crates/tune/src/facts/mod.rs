//! The inventory that rules look at: one document, whose missing fields are facts that nobody could tell.
//!
//! `crates/tune/rules/FACTS.md` has each field with its unit and the way it is gathered.

mod anonymous;
mod cluster;
mod document;
mod host;
mod osd;
mod service;
mod setting;

pub use cluster::{Balancer, Clients, Cluster, Entry, Erasure, HostsOf, Image, Pool, Unknown};
pub use document::{Facts, Unreadable, Unseen, VERSION};
pub use host::{
    CephBuild, Core, Crypt, Disk, Host, Irq, Kernel, Krbd, Loligod, Memory, Modules, Nic, Node, Rings,
};
pub use osd::{Behind, Database, Measured, Osd, Part, Perf, Plugins};
pub use service::{Cache, Client, ClientPerf, Qemu};
pub use setting::Setting;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value, json};

    /// Puts `value` at the path of `parts` below `at`.
    fn put(at: &mut Value, parts: &[&str], value: Value) {
        let [part, rest @ ..] = parts else { return *at = value };
        let (name, is_list) = part.strip_suffix("[]").map_or((*part, false), |name| (name, true));
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let below = &mut at[name];
        match is_list {
            true => {
                if !below.is_array() {
                    *below = json!([{}]);
                }
                put(&mut below[0], rest, value);
            }
            false => put(below, rest, value),
        }
    }

    #[test]
    fn each_fact_that_the_list_has_is_a_field_of_its_type() {
        let setting =
            json!({"value": "1", "source": "mon", "sources": ["mon"], "int": 1, "double": 1.0, "bool": true});
        let mut document = json!({"version": VERSION, "taken": 1});
        let list = include_str!("../../rules/FACTS.md");
        let rows = list.lines().filter_map(|line| line.strip_prefix("| `facts."));
        let mut count = 0;
        for row in rows {
            let mut cells = row.split('|');
            let path =
                cells.next().expect("a path").trim().trim_end_matches('`').replace("[\"NAME\"]", ".NAME");
            let value = match cells.next().expect("a type").trim() {
                "bool" => json!(true),
                "int" => json!(1),
                "double" => json!(0.5),
                "string" => json!("x"),
                "list of int" => json!([1]),
                "list of string" => json!(["x"]),
                "option" => setting.clone(),
                "map of string" => json!({"x": "1"}),
                other => panic!("{path}: {other}"),
            };
            put(&mut document, &path.split('.').collect::<Vec<_>>(), value);
            count += 1;
        }
        assert!(count > 200, "{count}");
        let text = serde_json::to_vec(&document).expect("JSON");
        let facts = Facts::read(&text).expect("facts");
        // The other way nothing is added or lost: each field that is written is in the list.
        let mut again = serde_json::to_value(&facts).expect("JSON");
        again.as_object_mut().expect("an object").remove("unseen");
        again["cluster"].as_object_mut().expect("an object").remove("versions");
        assert_eq!(again, document);
    }

    #[test]
    fn facts_of_another_version_are_refused() {
        assert!(matches!(Facts::read(br#"{"version": 99, "x": 1}"#), Err(Unreadable::Version(99))));
        assert!(matches!(Facts::read(b"x"), Err(Unreadable::Shape(_))));
        assert!(matches!(
            Facts::read(br#"{"version": 1, "taken": 0, "cluster": {}, "os": []}"#),
            Err(Unreadable::Shape(_))
        ));
    }
}
