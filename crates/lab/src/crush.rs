//! The places of a pair's OSDs in the CRUSH map: a chassis for each node, in it a host for each controller, and a rule that puts no
//! two copies into one node.
//!
//! Nothing is asked or changed here: the commands are given as words for `ceph`, by what its tree says now. A map that is right
//! already needs none.

use serde_json::Value;

/// The name of the rule.
pub const RULE: &str = "dual";

/// A controller with the OSDs that are at home on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed<'a> {
    /// Its CRUSH host.
    pub host: &'a str,
    /// Each OSD with its weight, which counts only where the OSD has no place yet.
    pub osds: &'a [(u32, f64)],
}

/// The weight of an OSD of so many bytes: one for each TiB.
pub fn weight(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 40) as f64
}

/// The commands that put the controllers of `node` and their OSDs to their places. `tree` is what `ceph osd tree --format json`
/// says now. A new chassis takes the place of the first host that is there (in its rack, say), or lies below the root `default`.
pub fn moves(tree: &Value, node: &str, controllers: &[Placed<'_>]) -> Vec<Vec<String>> {
    let mut commands: Vec<Vec<String>> = Vec::new();
    let mut say = |words: &[&str]| commands.push(words.iter().map(|w| (*w).to_owned()).collect());
    let chassis = format!("chassis={node}");
    let hosts = controllers.iter().filter(|c| named(tree, c.host).is_some());
    let mut above = hosts.filter_map(|c| parent(tree, c.host)).filter(|p| p["name"] != node);
    let above = above.next().map_or("root=default".to_owned(), place);
    let has_place = parent(tree, node).is_some();
    if named(tree, node).is_none() {
        say(&["osd", "crush", "add-bucket", node, "chassis"]);
    }
    if !has_place {
        say(&["osd", "crush", "move", node, &above]);
    }
    for controller in controllers {
        let is_there = named(tree, controller.host).is_some();
        if is_there && parent(tree, controller.host).is_none_or(|p| p["name"] != node) {
            say(&["osd", "crush", "move", controller.host, &chassis]);
        }
        // It makes the host, if that is not there.
        let host = format!("host={}", controller.host);
        for (id, weight) in controller.osds {
            let osd = format!("osd.{id}");
            if parent(tree, &osd).is_none_or(|p| p["name"] != controller.host) {
                say(&["osd", "crush", "create-or-move", &osd, &format!("{weight:.5}"), &chassis, &host]);
            }
        }
    }
    commands
}

/// The command that makes the rule [`RULE`], whose copies lie in different buckets of `kind`: `chassis`, or `host` where there is but
/// one node. It may be said again.
pub fn rule(kind: &str) -> Vec<String> {
    ["osd", "crush", "rule", "create-replicated", RULE, "default", kind].map(str::to_owned).to_vec()
}

fn nodes(tree: &Value) -> impl Iterator<Item = &Value> {
    tree["nodes"].as_array().into_iter().flatten()
}

fn named<'a>(tree: &'a Value, name: &str) -> Option<&'a Value> {
    nodes(tree).find(|node| node["name"] == name)
}

/// The bucket that `name` lies in; nothing for a root, or what is in none.
fn parent<'a>(tree: &'a Value, name: &str) -> Option<&'a Value> {
    let id = &named(tree, name)?["id"];
    nodes(tree).find(|node| node["children"].as_array().is_some_and(|list| list.contains(id)))
}

/// A bucket, as a place to move to.
fn place(bucket: &Value) -> String {
    let word = |key: &str| bucket[key].as_str().unwrap_or_default();
    format!("{}={}", word("type"), word("name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PLACED: [Placed<'static>; 2] =
        [Placed { host: "n0a", osds: &[(0, 0.5)] }, Placed { host: "n0b", osds: &[(1, 0.5)] }];

    fn bucket(id: i32, name: &str, kind: &str, children: &[i32]) -> Value {
        json!({ "id": id, "name": name, "type": kind, "children": children })
    }

    fn said(buckets: &[Value]) -> Vec<String> {
        let commands = moves(&json!({ "nodes": buckets }), "n0", &PLACED);
        commands.iter().map(|words| words[2..].join(" ")).collect()
    }

    #[test]
    fn new_osds_get_a_chassis_and_hosts() {
        let osds = [json!({ "id": 0, "name": "osd.0", "type": "osd" })];
        let empty = [&[bucket(-1, "default", "root", &[])][..], &osds].concat();
        let all = [
            "add-bucket n0 chassis",
            "move n0 root=default",
            "create-or-move osd.0 0.50000 chassis=n0 host=n0a",
            "create-or-move osd.1 0.50000 chassis=n0 host=n0b",
        ];
        assert_eq!(said(&empty), all);
    }

    #[test]
    fn hosts_in_a_rack_keep_their_rack() {
        let racked = [
            bucket(-1, "default", "root", &[-2]),
            bucket(-2, "r1", "rack", &[-3, -4]),
            bucket(-3, "n0a", "host", &[0]),
            bucket(-4, "n0b", "host", &[1]),
            bucket(0, "osd.0", "osd", &[]),
            bucket(1, "osd.1", "osd", &[]),
        ];
        let all = ["add-bucket n0 chassis", "move n0 rack=r1", "move n0a chassis=n0", "move n0b chassis=n0"];
        assert_eq!(said(&racked), all);
    }

    #[test]
    fn a_map_that_is_right_is_left_alone() {
        let right = [
            bucket(-1, "default", "root", &[-2]),
            bucket(-2, "n0", "chassis", &[-3, -4]),
            bucket(-3, "n0a", "host", &[0]),
            bucket(-4, "n0b", "host", &[1]),
            bucket(0, "osd.0", "osd", &[]),
            bucket(1, "osd.1", "osd", &[]),
        ];
        assert_eq!(said(&right), [""; 0]);
        let mut strayed = right.clone();
        strayed[2] = bucket(-3, "n0a", "host", &[0, 1]);
        strayed[3] = bucket(-4, "n0b", "host", &[]);
        assert_eq!(said(&strayed), ["create-or-move osd.1 0.50000 chassis=n0 host=n0b"]);
    }
}
