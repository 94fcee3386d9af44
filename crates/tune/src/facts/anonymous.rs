//! Facts without names, for sharing: hosts, pools, images and clients are numbered, and values that may hold an address, a path or a key
//! are left out.

use super::document::Facts;
use crate::rules::OptionTable;
use std::collections::BTreeMap;

impl Facts {
    /// The same without names.
    #[must_use]
    pub fn anonymous(mut self) -> Facts {
        let mut hosts = BTreeMap::new();
        for name in self.osds.iter().map(|it| &it.host).chain(self.hosts.iter().map(|it| &it.name)) {
            let next = format!("host{}", hosts.len() + 1);
            hosts.entry(name.clone()).or_insert(next);
        }
        let host = |name: &str| hosts.get(name).cloned().unwrap_or_else(|| "host0".to_owned());
        let is_known = |name: &str| {
            [16, 18, 20].iter().any(|it| OptionTable::near(*it).is_some_and(|t| t.find(name).is_some()))
        };
        self.cluster.fsid = None;
        self.cluster
            .config
            .retain(|entry| is_known(&entry.key) && !names_something(&entry.key, &entry.value));
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        let mut number = |name: &str| {
            let next = numbers.len() + 1;
            *numbers.entry(name.to_owned()).or_insert(next)
        };
        for entry in &mut self.cluster.config {
            if entry.who.starts_with("client.") {
                entry.who = format!("client.client{}", number(&entry.who));
            }
            entry.mask = match entry.mask.split_once(':') {
                Some(("host", name)) => format!("host:{}", host(name)),
                Some((kind, _)) if kind != "class" => format!("{kind}:place{}", number(&entry.mask)),
                _ => entry.mask.clone(),
            };
        }
        self.cluster.unknown_keys.clear();
        for osd in &mut self.osds {
            osd.host = host(&osd.host);
            osd.options.retain(|name, it| is_known(name) && !names_something(name, &it.value));
            // A library has a path.
            osd.environment = None;
            osd.log_errors = None;
            // A unit of cephadm has the cluster's id.
            (osd.unit, osd.drop_in) = (None, None);
        }
        for it in &mut self.hosts {
            it.name = host(&it.name);
            it.krbd = None;
            it.crypt = None;
        }
        self.disks.iter_mut().for_each(|it| it.host = host(&it.host));
        self.nics.iter_mut().for_each(|it| it.host = host(&it.host));
        for (at, pool) in self.pools.iter_mut().enumerate() {
            pool.name = format!("pool{}", at + 1);
        }
        for (at, image) in self.images.iter_mut().enumerate() {
            (image.pool, image.name) = ("pool".to_owned(), format!("image{}", at + 1));
            // A path may be among them.
            image.overrides.retain(|it| !it.contains('/'));
        }
        for (at, client) in self.clients.iter_mut().enumerate() {
            (client.host, client.name) = (host(&client.host), format!("client{}", at + 1));
            client.options.retain(|name, it| is_known(name) && !names_something(name, &it.value));
        }
        for (at, cache) in self.caches.iter_mut().enumerate() {
            let name = format!("cache{}", at + 1);
            let of_it = self.osds.iter_mut().filter(|osd| osd.host == host(&cache.host));
            let behind = of_it.filter_map(|osd| osd.cache.as_mut());
            behind
                .filter(|it| it.name.as_ref() == Some(&cache.name))
                .for_each(|it| it.name = Some(name.clone()));
            cache.host = host(&cache.host);
            cache.name = name;
            // Paths, and rules that may hold them.
            (cache.core, cache.device, cache.io_classes) = (None, None, None);
        }
        let numbered = |name: &String| self.caches.iter().any(|cache| cache.name == *name);
        for cache in self.osds.iter_mut().filter_map(|osd| osd.cache.as_mut()) {
            cache.name = cache.name.take().filter(numbered);
        }
        // Its words may name anything.
        self.unseen.clear();
        self
    }
}

/// Words in names of options whose values name somebody or something.
const NAMING: [&str; 24] = [
    "network",
    "networks",
    "interface",
    "addr",
    "address",
    "host",
    "hosts",
    "location",
    "path",
    "dir",
    "file",
    "files",
    "keyring",
    "key",
    "user",
    "group",
    "uuid",
    "fsid",
    "url",
    "name",
    "domain",
    "realm",
    "socket",
    "data",
];

/// True if a value may name a host, an address or a path. A number or a switch names nothing.
fn names_something(option: &str, value: &str) -> bool {
    let is_plain = value.parse::<f64>().is_ok() || matches!(value, "true" | "false" | "");
    let is_address = || {
        let mut words = value.split(|c: char| !(c.is_ascii_hexdigit() || ".:".contains(c)));
        words.any(|word| word.trim_matches(['.', ':']).parse::<std::net::IpAddr>().is_ok())
    };
    !is_plain
        && (option.split('_').any(|word| NAMING.contains(&word))
            || value.contains("/") && !is_levels(value)
            || is_address())
}

/// `1/5`: levels of a log.
fn is_levels(value: &str) -> bool {
    value.split('/').all(|it| it.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use crate::facts::{
        Behind, Cache, Client, Cluster, Entry, Facts, Host, Image, Osd, Pool, Setting, Unseen,
    };

    #[test]
    fn no_name_is_left() {
        let entry = |key: &str, mask: &str| Entry {
            who: "osd".into(),
            mask: mask.into(),
            key: key.into(),
            value: "1".into(),
        };
        let osd = Osd {
            host: "secret1".into(),
            front: Some([10, 0, 0, 1].into()),
            cache: Some(Behind { name: Some("secret".into()), ..Behind::default() }),
            log_errors: Some(vec!["secret".into()]),
            options: [
                ("public_addr", "10.0.0.1"),
                ("osd_max_backfills", "1"),
                ("crush_location", "root=default host=secret"),
                ("cluster_network", "10.0.0.1/24"),
                ("debug_osd", "1/5"),
            ]
            .map(|(name, value)| (name.to_owned(), Setting::new(value, "file")))
            .into(),
            ..Osd::default()
        };
        let facts = Facts {
            cluster: Cluster {
                fsid: Some("secret".into()),
                config: vec![
                    entry("osd_max_backfills", "host:secret1"),
                    entry("mon_host", ""),
                    Entry { value: "10.0.0.1/24".into(), ..entry("cluster_network", "") },
                    entry("osd_max_backfills", "rack:secret"),
                    Entry { who: "client.secret".into(), ..entry("rbd_cache", "class:hdd") },
                ],
                ..Cluster::default()
            },
            osds: vec![osd],
            hosts: vec![Host { name: "secret2".into(), ..Host::default() }],
            pools: vec![Pool { name: "secret".into(), ..Pool::default() }],
            images: vec![Image {
                name: "secret".into(),
                overrides: vec![
                    "rbd_persistent_cache_path=/secret (image)".into(),
                    "rbd_cache=false (pool)".into(),
                ],
                ..Image::default()
            }],
            caches: vec![Cache {
                name: "secret".into(),
                host: "secret1".into(),
                core: Some("/secret".into()),
                device: Some("/secret".into()),
                ..Cache::default()
            }],
            clients: vec![Client { name: "secret".into(), host: "secret3".into(), ..Client::default() }],
            unseen: vec![Unseen { what: "host secret".into(), why: "x".into() }],
            ..Facts::default()
        };
        let facts = facts.anonymous();
        assert_eq!(facts.osds[0].cache.as_ref().and_then(|it| it.name.as_ref()), Some(&facts.caches[0].name));
        assert_eq!(facts.images[0].overrides, ["rbd_cache=false (pool)"]);
        let text = serde_json::to_string(&facts).expect("JSON");
        for word in ["secret", "10.0.0.1", "mon_host"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
        assert!(text.contains("osd_max_backfills") && text.contains("host:host1"));
        assert!(text.contains("rack:place") && text.contains("class:hdd"), "{text}");
    }
}
